"""As a user who is not root: a step that closes its sandbox, or the folder around it, to its own user."""

from __future__ import annotations

import encodings.utf_8_sig  # noqa: F401 - as those of Holdfast below
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast.execution.executor
import holdfast.execution.preflight
import holdfast.planfile
import holdfast.snapshot.manager  # noqa: F401 - all packages are imported by a user who can read them
from holdfast.app import Holdfast
from holdfast.events import StepFinished
from holdfast.model import Plan
from tests.support.trees import IS_ROOT
from tests.support.unprivileged import NOBODY, folder_for_nobody, run_unprivileged

pytestmark = pytest.mark.skipif(not IS_ROOT, reason="only root can look into what is closed to everybody, to compare")


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_for_nobody() as folder:
        (folder / "data" / "d").mkdir(parents=True)
        (folder / "data" / "d" / "file").write_text("1\n")
        for path in (folder / "data", *(folder / "data").rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        (folder / "data").chmod(0o755)
        (folder / "data" / "d").chmod(0o755)
        yield folder


_ONE_STEP = "  - {name: one, tool: write_file, args: {path: new, content: x}}\n"
_WITH_A_SUBPLAN = f"""{_ONE_STEP}\
  - name: divided
    subplans: [{{name: sub, steps: [{{name: nothing, tool: write_file, args: {{path: more, content: x}}}}]}}]
"""


def _plan_file(folder: Path, steps: str) -> Path:
    file = folder / "plan.yaml"
    file.write_text(f"name: closing\nresources: {{data: {{type: directory, path: data}}}}\nsteps:\n{steps}")
    return file


def _executed(holdfast: Holdfast, folder: Path, close: str, header: str = _ONE_STEP) -> Plan:
    """The plan after its steps; when the first one has ended, the sandbox is changed as a step would do it.

    The processes of a step need an interpreter that this user may start, which tests cannot rely on.
    """
    plan = holdfast.create_plan(_plan_file(folder, header))

    def listen(event: object) -> None:
        if isinstance(event, StepFinished) and event.index == 0:
            sandbox = Path(plan.resources[0].sandbox_path)
            for mode, *names in (each.split() for each in close.split(";")):
                for name in names:
                    (sandbox / name).chmod(int(mode, 8))

    return holdfast.execute(plan.plan_id, listener=listen).plan


def execute_and_go_back(folder: str, close: str) -> dict[str, object]:
    """How the plan ended, the modes of its sandbox, and what is there after going back to the beginning."""
    place = Path(folder)
    with Holdfast.open(place, home=place / "home", environment=os.environ) as holdfast:
        plan = _executed(holdfast, place, close)
        sandbox = Path(plan.resources[0].sandbox_path)
        closed = plan.last_checkpoint_id or ""
        mode = stat.S_IMODE(sandbox.stat().st_mode)
        first = holdfast.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id
        holdfast.rollback(plan.plan_id, first)
        found = {str(path.relative_to(sandbox)): stat.S_IMODE(path.stat().st_mode) for path in sandbox.rglob("*")}
        mode_before = stat.S_IMODE(sandbox.stat().st_mode)
    with Holdfast.open(place, home=place / "home", environment=os.environ) as holdfast:
        holdfast.rollback(plan.plan_id, closed)
        mode_again = stat.S_IMODE(sandbox.stat().st_mode)
        holdfast.delete(plan.plan_id)
    return {
        "state": plan.state,
        "modes": [mode_before, mode, mode_again],
        "found": found,
        "is_gone": not sandbox.exists(),
    }


@pytest.mark.parametrize(
    ("close", "mode"),
    [
        ("000 .", 0o000),
        ("000 d/file d .", 0o000),
        ("300 .; 000 ..", 0o300),
        ("000 .. ", 0o755),
    ],
)
def test_a_plan_that_closes_its_sandbox_comes_to_its_end_and_back(folder: Path, close: str, mode: int) -> None:
    found = run_unprivileged(execute_and_go_back, str(folder), close)
    assert found == {
        "state": "complete",
        "modes": [0o755, mode, mode],
        "found": {"d": 0o755, "d/file": 0o644},
        "is_gone": True,
    }


def fork_what_is_closed(folder: str) -> list[object]:
    """How the plan ended, what its fork left out, and what the first checkpoint of the fork has below the folder."""
    place = Path(folder)
    with Holdfast.open(place, home=place / "home", environment=os.environ) as holdfast:
        plan = _executed(holdfast, place, "000 d/file d", _WITH_A_SUBPLAN)
        [subplan] = holdfast.store.plans.below(plan.plan_id)
        [state] = holdfast.checkpoints(subplan.plan_id)[0].group.states.values()
        reader = holdfast.service.manager.reader
        held = [reader.find(reader.state(state), path) for path in (b"d", b"d/file")]
        return [plan.state, plan.error, subplan.resources[0].left_out, [each and each.mode for each in held]]


def test_a_fork_holds_what_is_closed(folder: Path) -> None:
    assert run_unprivileged(fork_what_is_closed, str(folder)) == ["complete", None, [], [0, 0]]
