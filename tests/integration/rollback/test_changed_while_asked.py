"""What is written into a sandbox while a verb decides or a person is asked counts, also if no event reports it."""

from __future__ import annotations

import mmap
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.apply import preview
from holdfast.checkpoints.rollback import Rollback
from holdfast.errors import SandboxError, StateError
from holdfast.model import Moment, Plan, RollbackResult
from holdfast.rollback import paths
from holdfast.snapshot.scan.changes import ChangeReport
from holdfast.snapshot.scan.scan import Scan
from tests.support.workshop import Workshop, files, run


@pytest.fixture
def plan(workshop: Workshop) -> Plan:
    return workshop.open().execute(workshop.create(run("echo changed > version.txt; echo kept > other")).plan_id).plan


def _writing_mapped(path: Path) -> Callable[[object], bool]:
    """Says yes, and writes into memory that is mapped to the file: there is no event of that."""
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)

    def confirm(_: object) -> bool:
        mapped[0:1] = b"M"
        mapped.flush()
        return True

    return confirm


def _start(workshop: Workshop, plan: Plan) -> str:
    return workshop.groups(plan)[0].group_id


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[Scan]:
    """Scans that look at every file of a sandbox."""
    found: list[Scan] = []
    run_scan = Scan.run

    def run_and_note(scan: Scan, report: ChangeReport) -> None:
        if not report.is_complete:
            found.append(scan)
        run_scan(scan, report)

    monkeypatch.setattr(Scan, "run", run_and_note)
    return found


@pytest.mark.parametrize(("confirm", "count"), [(None, 1), (lambda _: True, 2)])
@pytest.mark.parametrize("verb", ["rollback", "restore paths", "correct", "apply"])
@pytest.mark.unmeasured
def test_a_sandbox_is_scanned_once_and_once_more_after_a_question(
    workshop: Workshop, scanned: list[Scan], plan: Plan, verb: str, confirm: Callable[[object], bool] | None, count: int
) -> None:
    opened, start = workshop.open(), _start(workshop, plan)
    decision = next(each for each in opened.decisions(plan.plan_id) if each.step_index == 0)
    scanned.clear()
    if verb == "apply":
        opened.apply(plan.plan_id, confirm=confirm)
    elif verb == "correct":
        opened.correct(decision.decision_id, guidance="x", confirm=confirm)
    else:
        only = ["version.txt"] if verb == "restore paths" else []
        opened.rollback(plan.plan_id, start, only=only, confirm=confirm)
    assert len(scanned) == count * len(plan.resources)


@pytest.mark.parametrize("only", [(), ("version.txt",)])
def test_what_is_written_through_mapped_memory_is_kept_by_a_rollback(
    workshop: Workshop, plan: Plan, only: tuple[str, ...]
) -> None:
    sandbox, opened = workshop.sandbox(plan), workshop.open()
    confirm = _writing_mapped(sandbox / "version.txt")
    result = opened.rollback(plan.plan_id, _start(workshop, plan), only=only, confirm=confirm)
    assert isinstance(result, RollbackResult)
    assert files(sandbox)["version.txt"] == "1\n"
    opened.rollback(plan.plan_id, result.left_group_id or "")
    assert files(sandbox)["version.txt"] == "Mhanged\n"


def test_what_is_written_through_mapped_memory_is_kept_by_a_correction(workshop: Workshop, plan: Plan) -> None:
    sandbox, opened = workshop.sandbox(plan), workshop.open()
    decision = next(each for each in opened.decisions(plan.plan_id) if each.step_index == 0)
    opened.correct(decision.decision_id, guidance="x", confirm=_writing_mapped(sandbox / "version.txt"))
    assert files(sandbox)["version.txt"] == "1\n"
    left = workshop.groups(plan)[-2]
    opened.rollback(plan.plan_id, left.group_id)
    assert files(sandbox)["version.txt"] == "Mhanged\n"


def test_what_is_written_through_mapped_memory_keeps_a_result_from_being_applied(
    workshop: Workshop, plan: Plan
) -> None:
    confirm = _writing_mapped(workshop.sandbox(plan) / "version.txt")
    with pytest.raises(StateError, match="something changed them"):
        workshop.open().apply(plan.plan_id, confirm=confirm)


def test_a_rollback_that_keeps_nothing_tells_also_what_came_meanwhile(workshop: Workshop, plan: Plan) -> None:
    sandbox, opened = workshop.sandbox(plan), workshop.open()

    def confirm(_: object) -> bool:
        (sandbox / "late").write_text("late")
        return True

    result = opened.rollback(plan.plan_id, _start(workshop, plan), keeps_present=False, confirm=confirm)
    assert isinstance(result, RollbackResult)
    assert [each.rpartition(":")[2] for each in result.lost] == ["late"]
    assert "late" in [each.file for each in result.changes]


def test_a_rollback_that_keeps_nothing_is_not_begun_if_the_sandbox_went_meanwhile(
    workshop: Workshop, plan: Plan
) -> None:
    opened = workshop.open()

    def confirm(_: object) -> bool:
        shutil.rmtree(workshop.sandbox(plan))
        return True

    with pytest.raises(SandboxError, match="missing"):
        opened.rollback(plan.plan_id, _start(workshop, plan), keeps_present=False, confirm=confirm)
    assert opened.status(plan.plan_id).cut_short == ()


# Also without a question: deciding takes time, and programs may write meanwhile


def _writes_meanwhile(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, file: Path, text: str) -> None:
    """The first call of that function is followed by a write into the sandbox."""
    original, calls = getattr(owner, name), []

    def wrapped(*args: object, **named: object) -> object:
        result = original(*args, **named)
        if not calls:
            file.write_text(text)
        calls.append(name)
        return result

    monkeypatch.setattr(owner, name, wrapped)


def test_what_is_written_while_a_result_is_compared_is_neither_applied_nor_recorded_as_the_result(
    workshop: Workshop, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, result = workshop.sandbox(plan) / "version.txt", workshop.groups(plan)[-1].states
    _writes_meanwhile(monkeypatch, preview._Analysis, "run", file, "never validated")
    opened = workshop.open()
    opened.apply(plan.plan_id)
    assert files(workshop.app)["version.txt"] == "changed\n"
    [recorded] = [group.states for group in workshop.groups(plan) if Moment.PRE_APPLY in group.triggers]
    assert recorded == result
    opened.unapply(plan.plan_id)
    with pytest.raises(StateError, match="something changed them"):
        opened.apply(plan.plan_id)
    assert files(workshop.app)["version.txt"] == "1\n"


@pytest.mark.parametrize("only", [(), ("version.txt",)])
@pytest.mark.parametrize("name", ["version.txt", "late"])
def test_a_rollback_is_refused_if_what_it_touches_was_written_after_it_looked(
    workshop: Workshop, plan: Plan, monkeypatch: pytest.MonkeyPatch, name: str, only: tuple[str, ...]
) -> None:
    sandbox, opened = workshop.sandbox(plan), workshop.open()
    _writes_meanwhile(monkeypatch, Rollback, "keep_present", sandbox / name, "no group holds this")
    with pytest.raises(SandboxError, match="since it was looked at; nothing was restored"):
        opened.rollback(plan.plan_id, _start(workshop, plan), only=only)
    assert opened.status(plan.plan_id).cut_short == ()
    assert files(sandbox)[name] == "no group holds this"


def test_a_rollback_leaves_alone_what_was_written_elsewhere_after_it_looked(
    workshop: Workshop, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = workshop.sandbox(plan, "data") / "late"
    _writes_meanwhile(monkeypatch, Rollback, "keep_present", late, "no group holds this")
    workshop.open().rollback(plan.plan_id, _start(workshop, plan))
    assert files(workshop.sandbox(plan))["version.txt"] == "1\n"
    assert late.read_text() == "no group holds this"


def test_a_file_that_was_not_asked_for_keeps_what_is_written_while_paths_are_restored(
    workshop: Workshop, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = workshop.sandbox(plan)
    _writes_meanwhile(monkeypatch, paths, "_expected", sandbox / "other", "my new work")
    result = workshop.open().rollback(plan.plan_id, _start(workshop, plan), only=["version.txt"])
    assert isinstance(result, RollbackResult)
    assert (files(sandbox)["version.txt"], files(sandbox)["other"]) == ("1\n", "my new work")
    assert [each.file for each in result.changes] == ["version.txt"]
