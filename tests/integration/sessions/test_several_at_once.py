"""Calls side by side, subagents, several agents, agents that die: what is known of who did what, and undoing it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast import CallNumber, OnlyCall, ToCheckpoint, UndoResult
from holdfast.errors import ConflictError, NotFoundError
from holdfast.model import SessionInfo
from holdfast.system.machine import process_of
from tests.support.sessions import Agent, Place


@pytest.fixture
def living() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-Sc", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def _write(place: Place, name: str) -> None:
    (place.root / name).write_text(f"{name}\n")


def _there(place: Place, *names: str) -> list[str]:
    return [name for name in names if (place.root / name).exists()]


def test_calls_at_the_same_time_are_joined_and_said_to_be(agent: Agent, place: Place) -> None:
    agent.does("before", lambda: _write(place, "zero"))
    one = agent.begin("one")
    two = agent.begin("two", beside=(one,))
    _write(place, "1")
    agent.end(one, beside=(two,))
    _write(place, "2")
    agent.end(two, beside=(one,))
    titles = [each.view.checkpoint.metadata.title for each in agent.in_place.moments()]
    assert any("calls 2 and 3, at the same time" in title for title in titles), titles
    assert {call.number for blamed in agent.in_place.blame("1") for call in blamed.calls} == {2, 3}

    result = agent.in_place.undo(OnlyCall(2))
    assert isinstance(result, UndoResult)
    assert [call.number for call in result.calls] == [2, 3]
    assert _there(place, "zero", "1", "2") == ["zero"]
    agent.in_place.redo()
    assert _there(place, "zero", "1", "2") == ["zero", "1", "2"]


def test_calls_one_after_the_other_are_kept_apart(agent: Agent, place: Place) -> None:
    agent.does("one", lambda: _write(place, "1"))
    agent.does("two", lambda: _write(place, "2"))
    result = agent.in_place.undo(OnlyCall(1))
    assert isinstance(result, UndoResult)
    assert [call.number for call in result.calls] == [1]
    assert _there(place, "1", "2") == ["2"]


def test_calls_of_a_subagent_can_be_undone_alone_or_with_the_call_that_started_it(agent: Agent, place: Place) -> None:
    outer = agent.begin("a task", tool="Task")
    for name in ("1", "2"):
        inner = agent.begin(name, inside=outer)
        _write(place, name)
        agent.end(inner)
    agent.end(outer)
    before = place.tree()
    result = agent.in_place.undo(OnlyCall(2))
    assert isinstance(result, UndoResult)
    assert [call.number for call in result.calls] == [2]
    assert _there(place, "1", "2") == ["2"]
    agent.in_place.redo()
    assert place.differs_from(before) == []
    result = agent.in_place.undo(OnlyCall(1))
    assert isinstance(result, UndoResult)
    assert [call.number for call in result.calls] == [1, 2, 3]
    assert _there(place, "1", "2") == []
    agent.in_place.redo()
    assert place.differs_from(before) == []
    agent.in_place.undo(OnlyCall(2))
    agent.in_place.undo(OnlyCall(1))
    agent.in_place.redo()
    assert [call.is_undone for call in agent.in_place.calls()] == [False, True, False]
    assert _there(place, "1", "2") == ["2"]


def test_two_agents_in_one_folder_are_undone_each_alone(agent: Agent, place: Place) -> None:
    other = Agent(agent.in_place, "s2", name="codex")
    agent.does("one", lambda: _write(place, "1"))
    other.does("two", lambda: _write(place, "2"))
    agent.does("three", lambda: _write(place, "3"))
    agent.in_place.undo(session=other.plan_id)
    assert _there(place, "1", "2", "3") == ["1", "3"]
    agent.in_place.undo()
    assert _there(place, "1", "2", "3") == ["1"]
    agent.in_place.redo()
    agent.in_place.redo()
    assert _there(place, "1", "2", "3") == ["1", "2", "3"]
    who = {name: [call.plan_id for call in agent.in_place.blame(name)[-1].calls] for name in "12"}
    assert who == {"1": [agent.plan_id], "2": [other.plan_id]}


def test_what_two_agents_did_at_the_same_time_is_refused_and_said(agent: Agent, place: Place) -> None:
    other = Agent(agent.in_place, "s2", name="codex")
    first = agent.in_place.moments()[-1].view.checkpoint.checkpoint_id
    one = agent.begin("one")
    two = other.begin("two")
    _write(place, "1")
    _write(place, "2")
    agent.end(one)
    other.end(two)
    before = place.tree()
    with pytest.raises(ConflictError, match="at the same time as"):
        agent.in_place.undo(session=agent.plan_id)
    assert place.differs_from(before) == []
    agent.in_place.undo(ToCheckpoint(first, is_exact=True))
    assert _there(place, "1", "2") == []


def test_nothing_is_undone_while_a_call_runs(place: Place, living: int) -> None:
    agent = place.make().agent()
    _is_process(agent, living)
    agent.does("one", lambda: _write(place, "1"))
    agent.does("two", lambda: _write(place, "2"))
    agent.in_place.undo()  # the agent goes on after it
    run = agent.begin("sleep 1000")
    before = place.tree()
    for undo in (agent.in_place.undo, agent.in_place.undo_preview, agent.in_place.redo_preview, agent.in_place.redo):
        with pytest.raises(ConflictError, match=r"call 3: Bash sleep 1000 of claude-code .* is running"):
            undo()
    assert place.differs_from(before) == []
    agent.end(run)
    agent.in_place.redo()
    assert _there(place, "1", "2") == ["1", "2"]


def test_a_call_that_begins_while_a_person_is_asked_is_not_disturbed(agent: Agent, place: Place) -> None:
    other = Agent(place.open().in_place, "s2", name="codex")
    agent.does("one", lambda: _write(place, "1"))

    def confirm(_: object) -> bool:
        other.begin("sleep 1000")
        return True

    with pytest.raises(ConflictError, match="is running"):
        agent.in_place.undo(confirm=confirm)
    assert _there(place, "1") == ["1"]


def test_what_an_agent_did_that_was_killed_in_a_call_is_undone(place: Place, living: int) -> None:
    agent = place.make().agent()
    _is_process(agent, living)
    agent.does("one", lambda: _write(place, "1"))
    agent.begin("write and be killed")
    _write(place, "2")
    _is_process(agent, living, is_dead=True)
    preview = agent.in_place.undo_preview()
    assert [call.number for call in preview.wish.calls] == [2]
    agent.in_place.undo()
    assert _there(place, "1", "2") == ["1"]
    assert [call.is_interrupted for call in agent.in_place.calls()] == [False, True]
    agent.in_place.redo()
    assert _there(place, "1", "2") == ["1", "2"]


def _is_process(agent: Agent, pid: int, *, is_dead: bool = False) -> None:
    process = process_of(pid)
    assert process is not None
    assert process.started_at is not None
    started_at = process.started_at - (1000.0 if is_dead else 0)
    with agent.in_place.recording(agent.plan_id) as (plan, recording):
        info = SessionInfo(agent="claude-code", version="2.1", session_id="s1", pid=pid, process_started_at=started_at)
        recording.begin(plan, info)


def test_two_undos_at_once_undo_one_call_each(agent: Agent, place: Place) -> None:
    for name in "123":
        agent.does(name, lambda name=name: _write(place, name))  # type: ignore[misc]
    other = place.open().in_place
    other.patience_seconds = 0

    def confirm(_: object) -> bool:
        with pytest.raises(ConflictError):
            other.undo()
        return True

    agent.in_place.undo(confirm=confirm)
    other.undo()
    assert _there(place, "1", "2", "3") == ["1"]
    other.redo()
    agent.in_place.redo()
    assert _there(place, "1", "2", "3") == ["1", "2", "3"]


def test_the_newest_moments_are_kept_and_what_is_gone_is_refused(agent: Agent, place: Place) -> None:
    with agent.in_place.recording(agent.plan_id) as (plan, _):
        store = place.open().store
    with store.transaction():
        store.save(plan.changed(policy=plan.policy.model_copy(update={"max_checkpoints": 5})))
    agent.does("first", lambda: _write(place, "0"))
    kept = agent.in_place.checkpoint("keep me").checkpoint.checkpoint_id
    for number in range(1, 31):
        agent.does(f"write {number}", lambda number=number: _write(place, f"{number}"))  # type: ignore[misc]
    assert len(agent.in_place.moments()) < 20
    before = place.tree()
    for target in (OnlyCall(5), CallNumber(2), ToCheckpoint(kept)):
        with pytest.raises(NotFoundError, match="no longer kept"):
            agent.in_place.undo(target)
        assert place.differs_from(before) == []
    agent.in_place.undo(CallNumber(31))
    assert not (place.root / "30").exists()
    agent.in_place.undo(ToCheckpoint(kept, is_exact=True))
    assert _there(place, *map(str, range(31))) == ["0"]
    agent.in_place.redo()
    assert _there(place, *map(str, range(31))) == [str(number) for number in range(30)]
