"""A step writes only into its sandboxes: each test tries to get out, and then looks at what is outside."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.events import Event, StepFinished, StepStarted
from tests.integration.confinement.yard import Yard
from tests.support.workshop import run

PYTHON = sys.executable

WAYS_OUT = {
    "a new file": "echo x > {elsewhere}/new",
    "a new file in the user's home": 'echo x > "$HOME/new"',
    "a file beside the sandbox": 'echo x > "$HOLDFAST_RESOURCE_APP/../new"',
    "Holdfast's own settings": 'echo x >> "$HOLDFAST_RESOURCE_APP/../../../config.toml"',
    "adding to a file": "echo x >> {elsewhere}/precious",
    "replacing a file": "echo x > mine; cp mine {elsewhere}/precious",
    "emptying a file": "true > {elsewhere}/precious",
    "emptying a file without opening it": PYTHON + " -c 'import os; os.truncate(\"{elsewhere}/precious\", 0)'",
    "opening for reading and writing": "exec 3<> {elsewhere}/precious && echo x >&3",
    "removing a file": "rm -f {elsewhere}/precious",
    "removing a folder": "rmdir {elsewhere}/empty",
    "making a folder": "mkdir {elsewhere}/new",
    "making a symlink": "ln -s x {elsewhere}/new",
    "making a fifo": "mkfifo {elsewhere}/new",
    "making a socket": PYTHON + " -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"{elsewhere}/new\")'",
    "renaming a file": "mv {elsewhere}/precious {elsewhere}/other",
    "moving a file out": "echo x > mine; mv mine {elsewhere}/mine",
    "moving a folder out": "mkdir mine; mv mine {elsewhere}/mine",
    "moving a file in": "mv {elsewhere}/precious mine",
    "linking a file out": "echo x > mine; ln mine {elsewhere}/mine",
    "writing through a link to a file": "ln {elsewhere}/precious mine && echo x > mine",
    "writing through a symlink to a file": "ln -s {elsewhere}/precious mine && echo x > mine",
    "writing through a symlink to a folder": "ln -s {elsewhere} mine && echo x > mine/new",
    "exchanging two files": PYTHON
    + ' -c \'import ctypes; mine = open("mine", "w").close();'
    + ' assert ctypes.CDLL(None).renameat2(-100, b"mine", -100, b"{elsewhere}/precious", 2) == 0\'',
    "by way of /proc": "cd {elsewhere} && echo x > /proc/self/cwd/new",
    "by way of a descriptor": "exec 3< {elsewhere}/precious && echo x > /proc/self/fd/3",
    "a child": "sh -c 'sh -c \"echo x > {elsewhere}/new\"'",
    "a background process": "(sleep 0.1; echo x > {elsewhere}/new) & wait $!",
    "a daemon": "setsid -f sh -c 'echo x > {elsewhere}/new; echo $? > code'; until test -s code; do sleep 0.01; done;"
    " exit $(cat code)",
    "the real file": "echo 2 > {app}/version.txt",
    "the user's git config": "git --git-dir={app}/.git config user.name Evil",
    "the user's branch": "git --git-dir={app}/.git --work-tree={app} commit -q --allow-empty -m evil",
    "the user's git objects": "echo x | git --git-dir={app}/.git hash-object -w --stdin",
    "a push into the user's repository": "git commit -q --allow-empty -m x && git push -q {app} HEAD:refs/heads/evil",
    "the user's hooks": "printf '#!/bin/sh' > {app}/.git/hooks/pre-commit",
}


INTO_THE_COPY = {
    "the real file", "the user's git config", "the user's branch", "the user's git objects",
    "a push into the user's repository", "the user's hooks",
}  # fmt: skip
"""Ways that lead into the sandbox, if steps see it at the path of the real folder."""


@dataclass(frozen=True)
class Tried:
    was_refused: bool
    changed: set[str]
    """What was different outside afterwards."""


def try_all_ways(folder: Path, **settings: str) -> dict[str, Tried]:
    """Each way is a step of one plan, and finds everything outside as it was at first."""
    yard = Yard(folder)
    ways = {way: command.format(elsewhere=yard.elsewhere, app=yard.app) for way, command in WAYS_OUT.items()}
    steps = [
        run(f"rm -rf try; mkdir try; cd try; ({command}) || echo was refused", name=way)
        for way, command in ways.items()
    ]
    before: list[dict[str, object]] = []
    tried: dict[str, Tried] = {}

    def look(event: Event) -> None:
        if isinstance(event, StepStarted):
            before[:] = [{**yard.around()}]
        if isinstance(event, StepFinished):
            after = yard.around()
            changed = {path for path in {*before[0], *after} if before[0].get(path) != after.get(path)}
            tried[event.run.step] = Tried(event.run.output.endswith("was refused\n"), changed)
            yard.furnish()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(yard.user))
        plan = yard.create(*steps)
        assert yard.open(**settings).execute(plan.plan_id, listener=look).succeeded
    yard.close()
    return tried


@pytest.fixture(scope="module")
def confined(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tried]:
    return try_all_ways(tmp_path_factory.mktemp("confined"))


@pytest.fixture(scope="module")
def at_the_same_path(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tried]:
    return try_all_ways(tmp_path_factory.mktemp("same-path"), sandbox__view="same-path")


@pytest.fixture(scope="module")
def unconfined(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tried]:
    return try_all_ways(tmp_path_factory.mktemp("unconfined"), sandbox__confine="false")


@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_step_cannot_change_what_is_outside_of_its_sandboxes(confined: dict[str, Tried], way: str) -> None:
    assert confined[way] == Tried(was_refused=True, changed=set())


@pytest.mark.parametrize("way", WAYS_OUT)
def test_neither_can_a_step_that_sees_them_at_the_real_paths(at_the_same_path: dict[str, Tried], way: str) -> None:
    assert at_the_same_path[way] == Tried(was_refused=way not in INTO_THE_COPY, changed=set())


@pytest.mark.parametrize("way", WAYS_OUT)
def test_the_same_ways_are_open_to_a_step_that_is_not_confined(unconfined: dict[str, Tried], way: str) -> None:
    """Or the tests above would show nothing."""
    assert not unconfined[way].was_refused
    assert unconfined[way].changed


def test_a_step_cannot_change_the_system(yard: Yard) -> None:
    trace = Path("/etc/holdfast-was-here")
    try:
        assert not yard.try_step(f"touch {trace}").succeeded
        assert not trace.exists()
    finally:
        trace.unlink(missing_ok=True)


def test_a_validation_is_confined_as_well(yard: Yard) -> None:
    result = yard.try_step("true", validate=(f"touch {yard.elsewhere}/new",))
    assert not result.succeeded
    assert not (yard.elsewhere / "new").exists()


def test_a_function_of_the_python_tool_is_confined_as_well(yard: Yard) -> None:
    work = f"def step(context):\n    open({str(yard.elsewhere / 'new')!r}, 'w')\n"
    result = yard.try_steps(
        {"tool": "write_file", "args": {"path": "work.py", "content": work}},
        {"tool": "python", "args": {"callable": "work:step"}},
    )
    assert not result.succeeded
    assert not (yard.elsewhere / "new").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make devices")
def test_a_step_cannot_make_a_device_through_which_to_write_to_a_disk(yard: Yard) -> None:
    for kind in ("c 1 3", "b 7 0"):
        result = yard.try_step(f"mknod device {kind}")
        assert not result.succeeded
        assert "Permission denied" in result.failed_run.output


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_step_cannot_lay_another_file_system_over_its_own(yard: Yard) -> None:
    assert not yard.try_step(f"mkdir m; mount --bind {yard.elsewhere} m && echo x > m/new").succeeded
    assert not (yard.elsewhere / "new").exists()


def test_a_step_gains_nothing_from_a_set_user_id_program(yard: Yard) -> None:
    plan = yard.create(run("grep NoNewPrivs /proc/self/status > seen"))
    yard.open().execute(plan.plan_id)
    assert (yard.sandbox(plan) / "seen").read_text().split() == ["NoNewPrivs:", "1"]


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("number", ["TERM", "KILL", "STOP", "0"])
def test_a_step_cannot_signal_a_process_outside(yard: Yard, bystander: subprocess.Popen[bytes], number: str) -> None:
    result = yard.try_step(f"kill -{number} {bystander.pid}")
    assert not result.succeeded
    assert "not permitted" in result.failed_run.output
    assert Path(f"/proc/{bystander.pid}/stat").read_text().split()[2] == "S"


def test_a_step_cannot_signal_its_supervisor_or_its_executor(yard: Yard) -> None:
    result = yard.try_step(f"kill -0 $PPID || kill -0 {os.getpid()}")
    assert not result.succeeded
    assert result.failed_run.output.count("not permitted") == 2


def test_a_step_can_signal_its_own_processes(yard: Yard) -> None:
    assert yard.try_step("sleep 100 & kill $!; wait $!; test $? = 143").succeeded


ATTACH = """
import ctypes, os, sys
pid = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH, PTRACE_DETACH = 16, 17
if libc.ptrace(PTRACE_ATTACH, pid, None, None) == 0:
    os.waitpid(pid, 0)
    libc.ptrace(PTRACE_DETACH, pid, None, None)
    print("attached")
for mode in ("rb", "r+b"):
    try:
        open(f"/proc/{pid}/mem", mode).close()
        print("opened", mode)
    except OSError:
        pass
"""


def test_a_step_cannot_trace_a_process_outside_nor_reach_its_memory(
    yard: Yard, bystander: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    (tmp_path / "attach.py").write_text(ATTACH)
    command = f"{PYTHON} {tmp_path}/attach.py {bystander.pid} > seen"
    plan = yard.create(run(command))
    assert yard.open().execute(plan.plan_id).succeeded
    assert (yard.sandbox(plan) / "seen").read_text() == ""
    # And this is what it would have done.
    plan = yard.create(run(command))
    assert yard.open(sandbox__confine="false").execute(plan.plan_id).succeeded
    assert "opened rb" in (yard.sandbox(plan) / "seen").read_text()


def test_a_step_cannot_see_the_environment_of_a_process_outside(yard: Yard, bystander: subprocess.Popen[bytes]) -> None:
    for pid in (str(bystander.pid), str(os.getpid()), "$PPID"):
        result = yard.try_step(f"cat /proc/{pid}/environ")
        assert not result.succeeded
        assert "Permission denied" in result.failed_run.output
        assert yard.try_step(f"cat /proc/{pid}/environ", sandbox__confine="false").succeeded


def test_a_step_cannot_reach_a_server_by_an_abstract_name(yard: Yard, tmp_path: Path) -> None:
    name = f"\0{tmp_path}/server"
    (tmp_path / "client.py").write_text(f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        result = yard.try_step(f"{PYTHON} {tmp_path}/client.py")
        assert not result.succeeded
        assert "Operation not permitted" in result.failed_run.output
        assert yard.try_step(f"{PYTHON} {tmp_path}/client.py", sandbox__confine="false").succeeded
