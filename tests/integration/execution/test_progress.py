"""Long work on files tells how far it has come, with the right totals, whoever does it."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from holdfast.app import Holdfast
from holdfast.events import Event, InSubplan
from holdfast.model import Plan
from holdfast.snapshot.scan import files
from holdfast.system import progress
from holdfast.system.progress import Work, Working
from tests.support.workshop import Workshop, run

FILES = 60
CONTENT = b"0123456789"
REWRITE = run("for each in files/*; do echo more >> $each; done", name="rewrite", resource="data")


@pytest.fixture(autouse=True)
def _little_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FEWEST_FILES", FILES // 2)
    monkeypatch.setattr(progress, "_TELL_EVERY_SECONDS", 0.0)


@pytest.fixture
def many(workshop: Workshop) -> Workshop:
    """Sixty files of ten bytes more in the folder of data."""
    (workshop.data / "files").mkdir()
    for number in range(FILES):
        (workshop.data / "files" / f"{number}").write_bytes(CONTENT)
    return workshop


def ends(told: list[Event]) -> list[tuple[str, str, int, int, int, int | None]]:
    """Each work that was told of, as it was in the end; what each of them told must hang together."""
    found, going_on = [], []
    for each in told:
        if isinstance(each, Working):
            going_on.append(each)
            if each.is_over:
                assert going_on[0].files_done == 0
                assert len(going_on) > (2 if each.work is Work.COPYING else FILES)  # many files are copied at once
                for one, next_one in pairwise(going_on):
                    assert (one.work, one.what, one.files_total) == (next_one.work, next_one.what, next_one.files_total)
                    assert one.files_done <= next_one.files_done
                    assert one.bytes_done <= next_one.bytes_done
                found.append(
                    (each.work, each.what, each.files_done, each.files_total, each.bytes_done, each.bytes_total)
                )
                going_on = []
    assert going_on == []
    return found


def whole(work: Work, files: int, size_bytes: int | None) -> tuple[str, str, int, int, int, int | None]:
    return (work, "data", files, files, size_bytes or 0, size_bytes)


def executed(holdfast: Holdfast, workshop: Workshop, *steps: dict[str, object]) -> tuple[Plan, list[Event]]:
    told: list[Event] = []
    plan = holdfast.create_plan(workshop.plan_file(*steps))
    result = holdfast.execute(plan.plan_id, listener=told.append)
    assert result.succeeded, result.plan.error
    return result.plan, told


def before(holdfast: Holdfast, plan: Plan) -> str:
    return next(
        each.checkpoint.checkpoint_id
        for each in holdfast.checkpoints(plan.plan_id)
        if each.checkpoint.metadata.reason == "before rewrite"
    )


def test_copying_a_sandbox_and_every_big_snapshot_are_told(many: Workshop) -> None:
    _, told = executed(many.open(), many, REWRITE)
    size_bytes = FILES * len(CONTENT) + len("1;2\n")
    copied, *later = ends(told)
    assert copied == whole(Work.COPYING, FILES + 1, size_bytes)
    assert whole(Work.SAVING, FILES, FILES * len(CONTENT + b"more\n")) in later


def test_what_is_left_out_of_a_repository_does_not_count(workshop: Workshop) -> None:
    for folder in ("kept", "ignored", "wanted"):
        (workshop.app / folder).mkdir()
        for number in range(FILES):
            (workshop.app / folder / f"{number}").write_bytes(CONTENT)
    (workshop.app / ".gitignore").write_text("ignored\nwanted\n")
    told: list[Event] = []
    holdfast = workshop.open(sandbox__include_ignored="wanted", sandbox__copy_ignored_limit="0 files")
    plan = holdfast.create_plan(workshop.plan_file(run("true")))
    holdfast.execute(plan.plan_id, listener=told.append)
    copied = [each for each in ends(told) if each[0] == Work.COPYING]
    assert [each[:4] for each in copied] == [("copying", "app", 2 * FILES + 2, 2 * FILES + 2)]


def test_a_snapshot_read_by_several_processes_is_told_alike(many: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PARALLEL_FROM_FILES", FILES)
    _, told = executed(many.open(), many, REWRITE)
    assert whole(Work.SAVING, FILES, FILES * len(CONTENT + b"more\n")) in ends(told)


def test_going_back_is_told_with_the_check_before_and_after(many: Workshop) -> None:
    holdfast = many.open()
    plan, _ = executed(holdfast, many, REWRITE)
    told: list[Event] = []
    holdfast.rollback(plan.plan_id, before(holdfast, plan), listener=told.append)
    found = ends(told)
    assert whole(Work.RESTORING, FILES, FILES * len(CONTENT)) in found
    # Files so young that they may have changed unseen are read once more, which is told as saving.
    assert {each[0] for each in found} - {Work.SAVING} == {Work.CHECKING, Work.RESTORING}
    assert all(each[2] == each[3] for each in found)


def test_removing_many_files_is_told_too(workshop: Workshop) -> None:
    holdfast = workshop.open()
    make = run(f"for n in $(seq {FILES}); do echo $n > $n; done", name="rewrite", resource="data")
    plan, _ = executed(holdfast, workshop, make)
    told: list[Event] = []
    holdfast.rollback(plan.plan_id, before(holdfast, plan), listener=told.append)
    assert whole(Work.RESTORING, FILES, 0) in ends(told)


def test_changing_attributes_writes_no_bytes(many: Workshop) -> None:
    holdfast = many.open()
    plan, _ = executed(holdfast, many, run("chmod 600 files/*", name="rewrite", resource="data"))
    told: list[Event] = []
    holdfast.rollback(plan.plan_id, before(holdfast, plan), listener=told.append)
    assert whole(Work.RESTORING, FILES, 0) in ends(told)


def test_applying_and_taking_it_back_are_told(many: Workshop) -> None:
    holdfast = many.open()
    plan, _ = executed(holdfast, many, REWRITE)
    for verb, content in ((holdfast.apply, CONTENT + b"more\n"), (holdfast.unapply, CONTENT)):
        told: list[Event] = []
        verb(plan.plan_id, listener=told.append)  # type: ignore[operator]
        assert whole(Work.WRITING, FILES, FILES * len(content)) in ends(told)
        assert (many.data / "files" / "0").read_bytes() == content


def test_a_checkpoint_by_hand_and_a_correction_are_told(many: Workshop) -> None:
    holdfast = many.open()
    plan, _ = executed(holdfast, many, REWRITE)
    for number in range(FILES):
        (many.sandbox(plan, "data") / "files" / f"{number}").write_bytes(b"by hand")
    told: list[Event] = []
    holdfast.create_checkpoint(plan.plan_id, listener=told.append)
    assert ends(told)[-1] == whole(Work.SAVING, FILES, FILES * len(b"by hand"))

    told.clear()
    decision = next(each for each in holdfast.decisions(plan.plan_id) if each.step_index == 0)
    holdfast.correct(decision.decision_id, guidance="not so", listener=told.append)
    assert whole(Work.RESTORING, FILES, FILES * len(CONTENT)) in ends(told)


def test_making_a_lost_sandbox_anew_is_told(many: Workshop) -> None:
    holdfast = many.open()
    plan, _ = executed(holdfast, many, run("true"))
    shutil.rmtree(many.sandbox(plan, "data"))
    told: list[Event] = []
    many.open().execute(plan.plan_id, listener=told.append)
    assert whole(Work.RESTORING, FILES + 1, FILES * len(CONTENT) + len("1;2\n")) in ends(told)


def test_what_subplans_do_is_told_as_theirs(many: Workshop) -> None:
    rewrite = "mkdir {name}; cp files/* {name}"
    subplans = [{"name": name, "steps": [run(rewrite.format(name=name), resource="data")]} for name in ("one", "two")]
    _, told = executed(many.open(), many, {"name": "both", "parallel": 2, "subplans": subplans})
    for name in ("one", "two"):
        own = [each.event for each in told if isinstance(each, InSubplan) and each.subplan.name == name]
        works = [each[0] for each in ends(own)]
        assert works[0] == Work.COPYING
        assert Work.SAVING in works


def test_the_bytes_of_one_large_file_are_told_on_the_way(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FEWEST_BYTES", 1_000_000)
    size_bytes = 9_000_000
    (workshop.data / "large").write_bytes(bytes(range(250)) * (size_bytes // 250))
    holdfast = workshop.open()
    plan, told = executed(holdfast, workshop, run("echo x >> large", name="rewrite", resource="data"))
    holdfast.rollback(plan.plan_id, before(holdfast, plan), listener=told.append)
    for work in (Work.SAVING, Work.CHECKING, Work.RESTORING):
        seen = [each.bytes_done for each in told if isinstance(each, Working) and each.work is work]
        assert any(0 < each < size_bytes for each in seen), work
        assert max(seen) >= size_bytes, work


def test_names_of_one_file_and_holes_are_counted_as_what_they_look_like(workshop: Workshop) -> None:
    folder: Path = workshop.data / "files"
    folder.mkdir()
    (folder / "0").write_bytes(CONTENT)
    for number in range(1, FILES):
        (folder / f"{number}").hardlink_to(folder / "0")
    with (folder / "sparse").open("wb") as file:
        file.truncate(1_000_000)
    _, told = executed(workshop.open(), workshop, run("true"))
    assert ends(told)[0] == whole(Work.COPYING, FILES + 2, FILES * len(CONTENT) + 1_000_000 + len("1;2\n"))


def test_a_listener_that_fails_over_it_does_not_stop_the_plan(many: Workshop) -> None:
    def fail(event: Event) -> None:
        assert not isinstance(event, Working)

    holdfast = many.open()
    plan = holdfast.create_plan(many.plan_file(REWRITE))
    assert holdfast.execute(plan.plan_id, listener=fail).succeeded


def test_what_watches_a_thread_hears_of_an_execution_without_a_listener(many: Workshop) -> None:
    opened, told = many.open(), list[Event]()
    with opened.watched_by(told.append):
        assert opened.execute(many.create(REWRITE).plan_id).succeeded
    assert {event.work for event in told if isinstance(event, Working)} >= {Work.COPYING, Work.SAVING}
