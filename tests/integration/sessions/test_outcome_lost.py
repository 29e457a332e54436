"""An undo whose process died when all was done and only its outcome was not recorded yet."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from holdfast import UndoResult
from holdfast.model import Plan
from holdfast.sessions import undoing
from tests.support.crashes import end_after, fork
from tests.support.sessions import Place


@pytest.fixture
def lost(place: Place) -> Place:
    with place.make().agent().call("write"):
        (place.root / "a.txt").write_text("by the agent\n")
        (place.root / "folder" / "new.txt").write_text("new\n")
    place.close()  # a fork must not have it open
    child = fork()
    if child == 0:
        end_after(lambda: _undo_and_die(place))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert (place.root / "a.txt").read_text() == "a\n"
    return place


def _undo_and_die(place: Place) -> None:
    real = undoing.record_outcome

    def die(*known: Any, is_late: bool = True) -> Plan:
        if not is_late:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*known, is_late=is_late)

    undoing.record_outcome = die
    place.open().in_place.undo()


@pytest.mark.parametrize("has_next_call", [False, True])
def test_what_a_person_wrote_since_is_not_taken_back_with_it(lost: Place, has_next_call: bool) -> None:
    (lost.root / "b.txt").write_text("mine\n")
    if has_next_call:
        with lost.agent().call("look"):
            pass
    in_place = lost.open().in_place
    assert next(call.is_undone for call in in_place.calls())
    result = in_place.redo()
    assert isinstance(result, UndoResult)
    assert sorted(change.file for change in result.changes) == ["a.txt", "folder/new.txt"]
    assert (lost.root / "b.txt").read_text() == "mine\n"
    assert (lost.root / "a.txt").read_text() == "by the agent\n"
    in_place.undo()
    assert not (lost.root / "folder" / "new.txt").exists()
    assert lost.call("checkpoint", "verify", result.plan.plan_id).exit_code == 0


def test_what_it_made_is_kept_until_then(lost: Place) -> None:
    holdfast = lost.open()
    holdfast.service.garbage.collect([])
    before = lost.tree()
    holdfast.in_place.redo()
    holdfast.in_place.undo()
    assert lost.differs_from(before) == []
