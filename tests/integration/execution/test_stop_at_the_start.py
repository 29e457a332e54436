"""A request to stop while sandboxes are made is heard at any moment, and leaves nothing half made."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast.model import PlanState
from holdfast.snapshot.scan.reading import read_in_parallel
from holdfast.system.stopping import Stopped, stoppable
from tests.support.workshop import Workshop, files, run

AT_THE_START = "stopped while its sandboxes were made"


class AskedAt(threading.Event):
    """Set from the time on when it is asked for the nth time."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._left = number

    def is_set(self) -> bool:
        self._left -= 1
        if self._left <= 0:
            self.set()
        return super().is_set()


def _leftovers(workshop: Workshop) -> list[str]:
    return [path.name for path in workshop.home.glob("sandboxes/*/.*.unfinished")]


@pytest.mark.parametrize("in_parallel", [False, True])
def test_it_is_heard_at_any_moment_and_the_plan_can_be_executed_again(
    workshop: Workshop, in_parallel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_parallel:
        monkeypatch.setattr("holdfast.snapshot.scan.files.PARALLEL_FROM_FILES", 1)
    (workshop.data / "large").write_bytes(bytes(3_000_000))
    for number in range(5):
        (workshop.data / f"d{number}").mkdir()
        (workshop.data / f"d{number}" / "file").write_text(str(number))
    plan = workshop.create(run("true"))
    asked, stops = 1, 0
    while True:
        result = workshop.open().execute(plan.plan_id, cancelled=AskedAt(asked))
        if workshop.groups(plan):
            break
        stops += 1
        assert (result.plan.state, result.plan.error) == (PlanState.CANCELLED, AT_THE_START)
        assert _leftovers(workshop) == []
        asked += 1 + asked // 4
    assert stops > 8
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan, "data")) == files(workshop.data)


def test_a_sandbox_that_is_made_anew_is_stopped_and_made_later(workshop: Workshop) -> None:
    for number in range(20):
        (workshop.data / str(number)).write_text("x")
    plan = workshop.create(run("true"))
    holdfast = workshop.open()
    assert holdfast.execute(plan.plan_id).succeeded
    holdfast.rollback(plan.plan_id, workshop.groups(plan)[0].group_id)
    workshop.sandbox(plan, "data").rename(workshop.folder / "gone")
    result = workshop.open().execute(plan.plan_id, cancelled=AskedAt(5))
    assert (result.plan.state, result.plan.error) == (PlanState.CANCELLED, AT_THE_START)
    assert not workshop.sandbox(plan, "data").exists()
    assert _leftovers(workshop) == []
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan, "data")) == files(workshop.data)


class _Nobody:
    def add_packed(self, objects: object) -> None:
        pass


def test_processes_that_read_are_ended_with_whoever_waits_for_them(tmp_path: Path) -> None:
    with (tmp_path / "endless").open("wb") as written:
        written.truncate(1 << 42)  # a hole, which takes an hour to read
    stop = threading.Event()
    stop.set()
    with stoppable(stop), pytest.raises(Stopped):
        list(read_in_parallel(tmp_path, [(b"", b"endless")], _Nobody()))
