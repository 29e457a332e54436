"""What confinement leaves alone: the work of a plan, the devices programs need, and what the user allows."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.model import PlanState
from holdfast.process.confinement import landlock_abi
from tests.integration.confinement.yard import Yard
from tests.support.workshop import files, run

PYTHON = sys.executable


def test_the_sandboxes_of_all_resources_are_writable(yard: Yard) -> None:
    plan = yard.create(
        run('echo 2 > version.txt; echo 3 > "$HOLDFAST_RESOURCE_DATA/orders.csv"'),
        run('rm orders.csv; mkdir -p a/b; echo 4 > a/b/c; echo 5 > "$HOLDFAST_RESOURCE_APP/five"', resource="data"),
    )
    assert yard.open().execute(plan.plan_id).succeeded
    assert files(yard.sandbox(plan)) == {"version.txt": "2\n", "five": "5\n"}
    assert files(yard.sandbox(plan, "data")) == {"a/b/c": "4\n"}


def test_the_temporary_folder_of_the_step_is_writable(yard: Yard) -> None:
    program = (
        "import os, tempfile; file = tempfile.NamedTemporaryFile(); assert file.name.startswith(os.environ['TMPDIR'])"
    )
    assert yard.try_step(f'mktemp && {PYTHON} -c "{program}" && rm -r "$TMPDIR"/*').succeeded


def test_files_move_and_link_freely_between_the_sandboxes_and_into_them(yard: Yard) -> None:
    program = (
        "import os, shutil; data, tmp = os.environ['HOLDFAST_RESOURCE_DATA'], os.environ['TMPDIR'];"
        "os.mkdir('d'); open('one', 'w').close(); os.rename('one', 'd/one'); os.link('d/one', 'two');"
        "os.rename('two', data + '/two'); shutil.move(data + '/two', tmp + '/two'); os.mkdir(tmp + '/t');"
        "os.rename(tmp + '/two', tmp + '/t/two'); os.rename(tmp + '/t/two', 'three')"
    )
    plan = yard.create(run(f'{PYTHON} -c "{program}"'))
    assert yard.open().execute(plan.plan_id).succeeded
    assert set(files(yard.sandbox(plan))) == {"version.txt", "d/one", "three"}


@pytest.mark.skipif(landlock_abi() < 5, reason="this kernel's Landlock cannot tell sandboxes from other places")
@pytest.mark.parametrize("place", ["$TMPDIR", "{allowed}"])
def test_no_file_of_a_sandbox_gets_a_name_outside_of_it(yard: Yard, place: str) -> None:
    """What is written through such a name would be seen by no checkpoint."""
    allowed = yard.outside
    command = f"! ln version.txt {place.format(allowed=allowed)}/x 2>error; grep -q 'cross-device' error; rm error"
    plan = yard.create(run(command))
    assert yard.open().execute(plan.plan_id).succeeded
    assert files(yard.sandbox(plan)) == {"version.txt": "1\n"}


def test_a_plan_commits_and_stashes_in_its_git_sandbox(yard: Yard) -> None:
    plan = yard.create(
        run("echo 2 > version.txt; git commit --quiet --all --message second"),
        run("echo 3 > version.txt; git stash --quiet; git branch other; git tag there; git config a.b c"),
        run("git fsck --no-dangling; git log --format=%s > log"),
    )
    before = yard.around()
    assert yard.open().execute(plan.plan_id).succeeded
    assert files(yard.sandbox(plan)) == {"version.txt": "2\n", "log": "second\nthe first commit\n"}
    assert {path: yard.around()[path] for path in before if str(yard.app) in path} == {
        path: seen for path, seen in before.items() if str(yard.app) in path
    }


def test_a_function_of_the_python_tool_works_and_reaches_the_executor(yard: Yard) -> None:
    work = "def step(context):\n    (context.root / 'made').write_text('x')\n    context.checkpoint('half way')\n"
    result = yard.try_steps(
        {"tool": "write_file", "args": {"path": "work.py", "content": work}},
        {"tool": "python", "args": {"callable": "work:step"}},
    )
    assert result.succeeded
    assert "half way" in {group.label for group in yard.groups(result.plan)}


def _python(program: str) -> str:
    return f"{PYTHON} -c '{program}'"


@pytest.mark.parametrize(
    "command",
    [
        "echo x > /dev/null",
        "echo x | tee /dev/null > /dev/stdout; echo x > /dev/stderr",
        "head -c 3 /dev/urandom > random; test -s random",
        "dd if=/dev/zero of=/dev/full count=1 2>&1 | grep 'No space'",
        "cat /etc/hostname /etc/passwd > /dev/null",
        _python('import pty, sys; sys.exit(pty.spawn(["sh", "-c", "test -t 1 && stty size"]))'),
        _python("import multiprocessing; multiprocessing.Lock(); multiprocessing.Queue().put(1)"),
        _python("from multiprocessing.shared_memory import SharedMemory; SharedMemory(create=True, size=9).unlink()"),
        "mkfifo pipe; echo x > pipe & read x < pipe; ln -s /etc link",
        "chmod 600 version.txt; touch -d 2001-01-01 version.txt",
        _python(
            'import os, socket; server = socket.socket(socket.AF_UNIX); server.bind("here"); server.listen();'
            'socket.socket(socket.AF_UNIX).connect("here"); os.unlink("here")'
        ),
    ],
)
@pytest.mark.unmeasured
def test_what_programs_need_works(yard: Yard, command: str) -> None:
    result = yard.try_step(f"set -e; {command}")
    assert result.succeeded, result.failed_run


def test_everything_can_be_read(yard: Yard) -> None:
    plan = yard.create(
        run(f"cat {yard.elsewhere}/precious {yard.home}/holdfast.db > /dev/null; cat {yard.app}/version.txt")
    )
    assert yard.open().execute(plan.plan_id).succeeded


def test_what_the_user_allows_can_be_written_to_and_nothing_beside_it(yard: Yard) -> None:
    place = yard.outside
    command = f"echo x > {place}/new; mkdir {place}/d; rm {place}/precious; mv version.txt {place}"
    assert yard.try_step(command, sandbox__allow_write=str(yard.outside)).succeeded
    assert files(yard.outside) == {"new": "x\n", "version.txt": "1\n"}
    beside = yard.try_step(f"echo x > {yard.elsewhere}/new", sandbox__allow_write=str(yard.outside))
    assert not beside.succeeded
    assert not (yard.elsewhere / "new").exists()


def test_a_single_file_may_be_allowed(yard: Yard) -> None:
    allowed = {"sandbox__allow_write": str(yard.elsewhere / "precious")}
    assert yard.try_step(f"echo more >> {yard.elsewhere}/precious", **allowed).succeeded
    assert (yard.elsewhere / "precious").read_text() == "precious\nmore\n"
    refused = yard.try_step(f"rm {yard.elsewhere}/precious", **allowed)
    assert f"config set sandbox.allow-write {yard.elsewhere}/precious,{yard.elsewhere}`" in (refused.plan.error or "")
    assert (yard.elsewhere / "precious").exists()


def test_a_path_in_the_user_s_home_may_be_allowed(yard: Yard) -> None:
    (yard.user / ".cache").mkdir()
    assert yard.try_step('echo x > "$HOME/.cache/x"', sandbox__allow_write="~/.cache").succeeded
    assert (yard.user / ".cache" / "x").exists()


def test_a_path_to_allow_that_is_not_there_stops_the_plan_before_anything_runs(yard: Yard) -> None:
    plan = yard.create(run("true"))
    with pytest.raises(ConfigError, match="missing does not exist"):
        yard.open(sandbox__allow_write=f"{yard.outside},{yard.folder}/missing").execute(plan.plan_id)
    status = yard.open().status(plan.plan_id)
    assert (status.plan.state, status.checkpoints, status.runs) == (PlanState.QUEUED, 0, ())


@pytest.mark.parametrize("place", ["/", "home", "home/sandboxes"])
def test_what_would_give_away_the_checkpoints_cannot_be_allowed(yard: Yard, place: str) -> None:
    plan = yard.create(run("true"))
    with pytest.raises(ConfigError, match="what Holdfast keeps"):
        yard.open(sandbox__allow_write=str(yard.folder / place)).execute(plan.plan_id)


def test_a_step_cannot_widen_what_is_allowed_by_putting_a_link_in_its_place(yard: Yard) -> None:
    (yard.outside / "inner").mkdir()
    allowed = f"{yard.outside},{yard.outside}/inner"
    assert yard.try_step(
        f"rmdir {yard.outside}/inner; ln -s {yard.elsewhere} {yard.outside}/inner", sandbox__allow_write=allowed
    ).succeeded
    assert not yard.try_step(f"echo x > {yard.outside}/inner/new", sandbox__allow_write=allowed).succeeded
    assert not (yard.elsewhere / "new").exists()


def test_confinement_can_be_turned_off(yard: Yard) -> None:
    assert yard.try_step(f"echo x > {yard.elsewhere}/new", sandbox__confine="false").succeeded
    assert (yard.elsewhere / "new").read_text() == "x\n"


def test_the_environment_turns_confinement_off_as_well(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SANDBOX_CONFINE", "0")
    assert yard.try_step(f"echo x > {yard.elsewhere}/new").succeeded


def test_a_project_can_neither_turn_confinement_off_nor_allow_anything(yard: Yard) -> None:
    for line in ("sandbox.confine = false", 'sandbox.allow-write = ["/tmp"]'):
        (yard.app / "holdfast.toml").write_text(f"{line}\n")
        with pytest.raises(ConfigError, match="may not be set by a project"):
            yard.open()


# What Landlock does not stop, so that the documentation stays true.


def test_permissions_times_and_attributes_of_an_outside_file_can_still_be_changed(yard: Yard) -> None:
    precious = yard.elsewhere / "precious"
    assert yard.try_step(f"chmod 600 {precious}; touch -d @1000000000 {precious}").succeeded
    status = precious.stat()
    assert (status.st_mode & 0o777, status.st_mtime) == (0o600, 1_000_000_000)
    program = f"import os; os.setxattr({str(precious)!r}, 'user.seen', b'1')"
    assert yard.try_step(f'{PYTHON} -c "{program}"').succeeded
    assert os.getxattr(precious, "user.seen") == b"1"
    assert precious.read_text() == "precious\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_can_still_give_an_outside_file_to_another_user(yard: Yard) -> None:
    assert yard.try_step(f"chown 1234 {yard.elsewhere}/precious").succeeded
    assert (yard.elsewhere / "precious").stat().st_uid == 1234


def test_a_server_outside_still_does_what_a_step_asks_of_it_through_a_socket_file(yard: Yard, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "server"))
        server.listen()
        program = f"import socket; socket.socket(socket.AF_UNIX).connect({str(tmp_path / 'server')!r})"
        assert yard.try_step(f'{PYTHON} -c "{program}"').succeeded
