"""The hooks of real agents, as they were recorded, said to the real process while their work is really done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import CallNumber, PromptNumber
from holdfast.errors import StateError
from holdfast.model import PlanState
from holdfast.verbs.in_place import InPlace
from tests.support.guards import RECORDED, Replay, guarded
from tests.support.repositories import git, status
from tests.support.sessions import Place

_FILES = {
    "app.py": 'print("hello")\n',
    "notes.txt": "notes\n",
    "README.md": "read me\n",
    ".gitignore": "build/\n.env\n",
    ".env": "SECRET=1\n",
}
_AT_ONCE = "-parallel"
RECORDINGS = sorted(file.stem for file in RECORDED.glob("*.jsonl"))
ONE_BY_ONE = [name for name in RECORDINGS if not name.endswith(_AT_ONCE)]


@pytest.fixture
def replay(request: pytest.FixtureRequest, place: Place) -> Iterator[Replay]:
    place.make(_FILES)
    with guarded(place) as started:
        yield Replay(started, request.param)


@pytest.mark.parametrize("replay", ONE_BY_ONE, indirect=True)
def test_each_call_of_a_recorded_session_is_undone_exactly(replay: Replay, place: Place) -> None:
    in_place = _replayed(replay, place)
    assert not [call for call in in_place.calls() if call.is_interrupted]
    assert all(call.prompt_number == 1 for call in in_place.calls())
    assert len(replay.trees) > 5

    for tree in replay.trees[-2::-1]:
        in_place.undo()
        assert place.differs_from(tree) == []
    with pytest.raises(StateError):
        in_place.undo()
    for tree in replay.trees[1:]:
        in_place.redo()
        assert place.differs_from(tree) == []
    git(place.root, "fsck", "--strict")


@pytest.mark.parametrize("replay", [name for name in RECORDINGS if name.endswith(_AT_ONCE)], indirect=True)
def test_calls_at_once_subagents_and_calls_that_never_end_are_undone_and_redone(replay: Replay, place: Place) -> None:
    in_place = _replayed(replay, place)
    in_place.undo(CallNumber(1))
    assert place.differs_from(replay.trees[0]) == []
    in_place.redo()
    assert place.differs_from(replay.trees[-1]) == []


def _replayed(replay: Replay, place: Place) -> InPlace:
    replay.run()
    assert [each for each in replay.answers if each[1].exit_code != 0 or each[1].stderr] == []
    in_place = place.open().in_place
    (session,) = in_place.sessions()
    assert session.state is PlanState.COMPLETE
    assert not [call for call in in_place.calls() if call.is_running]
    return in_place


def test_the_guard_may_be_killed_between_any_two_hooks(place: Place) -> None:
    place.make(_FILES)
    with guarded(place) as started:
        replay = Replay(started, "claude-code")
        events, replay.trees = replay.events, [place.tree()]
        for number in (3, 4, 9, 13, 20):
            begun = len(replay.answers)
            replay.run(events[begun:number])
            started.kill()
            started.start()
        replay.run(events[len(replay.answers) :])
        in_place = place.open().in_place
        assert {call.prompt_number for call in in_place.calls()} == {1}
        in_place.undo(PromptNumber(1))
        assert place.differs_from(replay.trees[0]) == []
        assert status(place.root) == []


def test_two_agents_at_once_in_one_folder(place: Place) -> None:
    place.make(_FILES)
    with guarded(place) as started:
        one, two = Replay(started, "claude-code"), Replay(started, "gemini-cli")
        one.run(one.events[:9])
        two.run(two.events[:4])
        one.run(one.events[9:])
        two.run(two.events[4:])
        assert started.status()["agents"] == ["claude-code", "gemini-cli"]
    in_place = place.open().in_place
    assert [plan.session.agent for plan in in_place.sessions() if plan.session] == ["gemini-cli", "claude-code"]
    assert not any(call.is_running for plan in in_place.sessions() for call in in_place.calls(plan))
