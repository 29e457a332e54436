"""While a program runs: it marks moments itself, and another terminal takes checkpoints and restores single files."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.door.asking import ask
from holdfast.door.wire import RestorePaths
from holdfast.errors import StateError
from holdfast.model import Checkpoint
from tests.integration.cli.project import Project, wait_until
from tests.support.crashes import killed_at

HOLDFAST = f"env -u COVERAGE_PROCESS_CONFIG {shlex.quote(sys.executable)} -m holdfast"
WAITS = "touch ready; until test -e over; do sleep 0.01; done"


def sandbox_of(project: Project) -> Path | None:
    return next((project.home / "sandboxes").glob("*/app"), None)


@contextmanager
def running(project: Project, script: str, *options: str) -> Iterator[tuple[subprocess.Popen[Any], Path]]:
    """``holdfast run`` of a shell script, once it has made the file ``ready``; at the end it gets the file ``over``."""
    process = project.start("run", *options, "--", "sh", "-c", script, cwd=project.app)

    def is_ready() -> bool:
        assert process.poll() is None, process.communicate()
        sandbox = sandbox_of(project)
        return sandbox is not None and (sandbox / "ready").exists()

    wait_until(is_ready)
    sandbox = sandbox_of(project)
    assert sandbox is not None
    try:
        yield process, sandbox
    finally:
        if process.poll() is None:
            (sandbox / "over").touch()
        process.communicate(timeout=60)


def json_of(project: Project, *arguments: str, exit_code: int = 0) -> Any:
    ended = project.run(*arguments, "--format", "json", cwd=project.app)
    assert ended.exit_code == exit_code, ended
    return ended.data


def labels(project: Project, plan: str = "latest") -> list[str]:
    listed = json_of(project, "checkpoint", "list", plan)["checkpoints"]
    return [each["label"] for each in listed if each["label"] is not None]


# From inside


def test_a_program_gives_its_present_moment_a_name(project: Project) -> None:
    script = f'echo good > f; {HOLDFAST} mark "tests green" > told; echo bad > f'
    ended = project.run("run", "--", "sh", "-c", script, cwd=project.app)
    assert ended.exit_code == 0, ended
    sandbox = sandbox_of(project)
    assert sandbox is not None
    marked = next(each for each in json_of(project, "checkpoint", "list")["checkpoints"] if each["label"])
    assert marked["label"] == "tests green"
    assert f"Checkpoint {marked['checkpoint_id']}  tests green\n" == (sandbox / "told").read_text()
    json_of(project, "plan", "rollback", "--yes", "latest", "tests green")
    assert (sandbox / "f").read_text() == "good\n"


def test_a_step_of_a_plan_file_and_one_of_a_subplan_mark_their_own_plan(project: Project) -> None:
    mark = f"{HOLDFAST} mark"
    steps = (
        f"  - {{name: alone, run: {json.dumps(f'{mark} first')}}}\n"
        "  - name: divided\n    subplans:\n"
        f"      - {{name: below, steps: [{{run: {json.dumps(f'{mark} second')}}}]}}\n"
    )
    plan = project.json("plan", "execute", str(project.plan(steps)))["plan_id"]
    with project.opened() as holdfast:
        (subplan,) = holdfast.store.plans.below(plan)
        found = {
            each: [group.label for group in holdfast.store.groups.of(each) if group.label]
            for each in (plan, subplan.plan_id)
        }
    assert found == {plan: ["first"], subplan.plan_id: ["second"]}


def test_a_validation_can_mark_too(project: Project) -> None:
    file = project.plan(
        "  - {run: 'echo 2 > version.txt'}\n", header=f"validate: {json.dumps([f'{HOLDFAST} mark ok'])}\n"
    )
    done = project.json("plan", "execute", str(file))
    assert done["state"] == "complete"
    assert "ok" in labels(project, done["plan_id"])


def test_the_same_mark_can_be_set_again_and_a_label_that_is_none_is_refused(project: Project) -> None:
    script = f"{HOLDFAST} mark green; echo more > f; {HOLDFAST} mark green; {HOLDFAST} mark @-2; echo $? > refused"
    ended = project.run("run", "--", "sh", "-c", script, cwd=project.app)
    assert ended.exit_code == 0, ended
    assert 'The label "@-2" looks like a moment.' in ended.stderr
    assert labels(project) == ["green", "green"]
    sandbox = sandbox_of(project)
    assert sandbox is not None
    assert (sandbox / "refused").read_text() == "2\n"


def test_outside_of_a_sandbox_there_is_nothing_to_mark(project: Project) -> None:
    ended = project.run("mark", "green")
    assert ended.exit_code == 2
    assert "checkpoint create --label" in ended.stderr


def test_a_mark_after_its_plan_has_ended_says_so(project: Project, tmp_path: Path) -> None:
    place = {"HOLDFAST_SOCKET": str(tmp_path / ".door"), "HOLDFAST_PLAN_ID": "01M7H3WWVB6DG3ZSFPWWMM23EH"}
    ended = project.run("mark", "green", variables=place)
    assert ended.exit_code == 3
    assert "No process works on plan" in ended.stderr


# From another terminal


def test_another_terminal_looks_takes_checkpoints_and_restores_files(project: Project) -> None:
    script = f"rm -r src; {WAITS}; echo last >> version.txt"
    with running(project, script) as (process, sandbox):
        taken = json_of(project, "checkpoint", "create", "--label", "without src", "latest")
        assert taken["label"] == "without src"
        assert json_of(project, "plan", "status")["state"] == "processing"
        assert "src/main.py" in json.dumps(json_of(project, "plan", "diff"))
        assert "without src" in project.run("log", cwd=project.app).stdout
        (sandbox / "of the program").write_text("unkept so far\n")

        dry = json_of(project, "plan", "rollback", "--dry-run", "--only", "src", "latest", "start")
        assert [each["file"] for each in dry["changes_reverted"]] == ["src/main.py"]
        assert not (sandbox / "src").exists()
        done = json_of(project, "plan", "rollback", "--yes", "--only", "src", "latest", "start")
        assert done["changes_reverted"] == dry["changes_reverted"]
        assert (sandbox / "src/main.py").read_text() == "print('hello')\n"
        assert (sandbox / "of the program").read_text() == "unkept so far\n"
        assert not any("plan execute" in each for each in done["next_commands"])

        (undo,) = (each for each in done["next_commands"] if "rollback" in each)
        json_of(project, *shlex.split(undo)[1:3], "--yes", *shlex.split(undo)[3:])
        assert not (sandbox / "src").exists()
        (sandbox / "over").touch()
        assert process.wait(60) == 0
    assert (sandbox / "version.txt").read_text() == "1\nlast\n"
    assert json_of(project, "plan", "status")["state"] == "complete"
    json_of(project, "plan", "rollback", "--yes", "latest", "without src")
    assert not (sandbox / "over").exists()
    json_of(project, "doctor")


def test_a_checkpoint_is_of_one_moment_however_fast_the_program_writes(project: Project) -> None:
    counts = "n=0; touch ready; until test -e over; do n=$((n+1)); echo $n > first; echo $n > second; done"
    with running(project, counts, "--settle", "10s") as (_, sandbox):
        wait_until((sandbox / "second").exists)
        taken = [json_of(project, "checkpoint", "create", "latest")["checkpoint_id"] for _ in range(6)]
    for each in taken:
        json_of(project, "plan", "rollback", "--yes", "latest", each)
        # The shell empties a file before it writes it.
        first, second = ((sandbox / name).read_text() or None for name in ("first", "second"))
        if first is not None and second is not None:
            assert int(first) - int(second) in (0, 1)


def test_nothing_that_the_program_writes_meanwhile_is_lost(project: Project) -> None:
    appends = "n=0; touch ready; until test -e over; do n=$((n+1)); echo $n >> all; done; echo $n > count"
    with running(project, f"rm version.txt; {appends}", "--settle", "10s") as (_, sandbox):
        for _ in range(4):
            json_of(project, "plan", "rollback", "--yes", "--only", "version.txt", "latest", "start")
            (sandbox / "version.txt").unlink()
    count = int((sandbox / "count").read_text())
    assert (sandbox / "all").read_text().split() == [str(number) for number in range(1, count + 1)]


def test_what_takes_the_whole_plan_is_refused_as_before(project: Project) -> None:
    with running(project, WAITS):
        for words in (("plan", "rollback", "--yes", "latest", "start"), ("plan", "apply", "--yes", "latest")):
            assert json_of(project, *words, exit_code=5)["error"]["type"] == "ConflictError"
        same = ("checkpoint", "create", "--label", "one", "latest")
        json_of(project, *same)
        assert "already" in json_of(project, *same, exit_code=2)["error"]["message"]
        unknown = json_of(project, "plan", "rollback", "--yes", "--only", "nowhere", "latest", "start", exit_code=3)
        assert "nowhere" in unknown["error"]["message"]
        assert json_of(project, "plan", "status")["state"] == "processing"


def test_names_that_are_no_text_are_restored_too(project: Project) -> None:
    name = b"caf\xe9 \n"
    (Path(os.fsdecode(bytes(project.app) + b"/" + name))).write_text("strange\n")
    with running(project, f"rm caf*; {WAITS}") as (_, sandbox):
        found = project.run("rollback", "--yes", "--only", os.fsdecode(name), "latest", "start", cwd=project.app)
        assert found.exit_code == 0, found
        assert name in os.listdir(bytes(sandbox))


def test_a_home_with_a_very_long_path_has_a_door_as_well(project: Project) -> None:
    project.home = project.folder / ("h" * 120)
    with running(project, f"{HOLDFAST} mark inside; {WAITS}"):
        json_of(project, "checkpoint", "create", "--label", "outside", "latest")
    assert labels(project) == ["inside", "outside"]


def test_the_socket_is_the_users_own_and_goes_with_the_program(project: Project) -> None:
    with running(project, WAITS) as (_, sandbox):
        door = sandbox.parent / ".door"
        assert door.stat().st_mode & 0o777 == 0o600
    assert not door.exists()


def test_after_a_kill_the_socket_that_is_left_leads_nowhere(project: Project) -> None:
    with running(project, WAITS) as (process, sandbox):
        process.kill()
        process.wait()
    assert (sandbox.parent / ".door").exists()
    # It takes the lease of the dead process, and does by itself what nobody could be asked for.
    json_of(project, "checkpoint", "create", "--label", "after", "latest")
    assert not (sandbox.parent / ".door").exists()
    assert labels(project) == ["after"]
    json_of(project, "plan", "delete", "--yes", "latest")
    assert not sandbox.parent.exists()


def test_a_checkpoint_of_another_plan_cannot_be_asked_for(project: Project) -> None:
    other = project.json("plan", "execute", str(project.plan("  - {run: 'echo 2 > version.txt'}\n")))
    with running_second(project) as (plan_id, door):
        asked = RestorePaths(plan_id, other["last_checkpoint_id"], ("version.txt",), is_preview=False)
        with pytest.raises(StateError):
            ask(door, asked)


@contextmanager
def running_second(project: Project) -> Iterator[tuple[str, Path]]:
    before = set((project.home / "sandboxes").iterdir())
    process = project.start("run", "--", "sh", "-c", WAITS, cwd=project.app)

    def made() -> Path | None:
        new = set((project.home / "sandboxes").iterdir()) - before
        return next((each for each in new if (each / "app/ready").exists()), None)

    wait_until(lambda: made() is not None)
    folder = made()
    assert folder is not None
    try:
        yield folder.name, folder / ".door"
    finally:
        (folder / "app/over").touch()
        process.communicate(timeout=60)


# Killed

RESTORE = (
    "import os; from pathlib import Path; from holdfast.door.asking import ask\n"
    "from holdfast.door.wire import RestorePaths\n"
    "plan = os.environ['HOLDFAST_PLAN_ID']\n"
    "ask(Path(os.environ['HOLDFAST_SOCKET']), RestorePaths(plan, open('first').read().strip(), ('src',), False))\n"
)


@pytest.mark.unmeasured
def test_killed_at_any_moment_of_a_restore_nothing_is_lost(project: Project) -> None:
    (project.folder / "restore.py").write_text(RESTORE)
    restore = f"env -u COVERAGE_PROCESS_CONFIG {shlex.quote(sys.executable)} {project.folder / 'restore.py'}"
    script = (
        "echo mine > mine; rm -r src; "
        f"{HOLDFAST} mark before | cut -d' ' -f2 > marked; {HOLDFAST} mark again > /dev/null; "
        f"until test -e first; do sleep 0.01; done; touch ready; {restore}; touch done"
    )
    moment = 0
    while True:
        moment += 1
        plan_id = _restoring_plan(project, script)

        def execute(plan_id: str = plan_id) -> None:
            with Holdfast.open(project.app, home=project.home, environment=project.environment) as holdfast:
                holdfast.execute(plan_id, listener=lambda _: _give_first(project, plan_id))

        was_killed = killed_at(moment, execute, touching=".staging-")
        sandbox = project.home / "sandboxes" / plan_id / "app"
        if not was_killed:
            assert moment > 2, "no restore was killed"
            assert (sandbox / "src/main.py").exists()
            return
        json_of(project, "checkpoint", "create", "--label", "recovered", plan_id)
        assert (sandbox / "mine").read_text() == "mine\n"
        assert (sandbox / "src/main.py").exists() or not (sandbox / "done").exists()
        json_of(project, "plan", "rollback", "--yes", plan_id, "before")
        assert not (sandbox / "src").exists()
        json_of(project, "doctor")


def _restoring_plan(project: Project, script: str) -> str:
    with project.opened() as holdfast:
        return holdfast.create_program_plan(["sh", "-c", script], resources=[project.app], folder=project.app).plan_id


def _give_first(project: Project, plan_id: str) -> None:
    """Tell the program the id of the first checkpoint, which no variable names."""
    first = project.home / "sandboxes" / plan_id / "app" / "first"
    if not first.exists() and (first.parent / "marked").exists():
        with project.opened() as holdfast:
            found: Checkpoint = holdfast.store.checkpoints.of(plan_id)[0]
        first.write_text(found.checkpoint_id)
