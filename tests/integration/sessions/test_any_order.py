"""Calls, a person's edits, undo and redo in any order, compared with a model that knows files and nothing else.

If nobody changed what is undone, the folder is exactly what the model says. Otherwise undo may refuse, and then nothing
is changed; or it merges, and then redo brings back what was there, to the last nanosecond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast import CallNumber, Declined, LastCall, OnlyCall, ToCheckpoint, UndoResult
from holdfast.errors import ConflictError, StateError
from holdfast.sessions.wishes import Target
from tests.support.sessions import Agent, Place, made_place
from tests.support.workshop import files

Files = dict[str, str]
Delta = Mapping[str, tuple[str | None, str | None]]

_AGENTS = ("one.txt", "two.txt", "sub/three.txt", "sub/deep/four.txt")
_PERSONS = ("mine.txt", "sub/mine.txt", "own/mine.txt")
_TEXTS = st.one_of(st.none(), st.sampled_from(["a\n", "b\nc\n", "d" * 5000 + "\n"]))
_edits = st.dictionaries(st.sampled_from(_AGENTS), _TEXTS, max_size=3)
_of_a_person = st.dictionaries(st.sampled_from(_PERSONS * 3 + _AGENTS), _TEXTS, min_size=1, max_size=2)


@dataclass
class Made:
    """A call, and what it changed."""

    number: int
    delta: Delta
    is_undone: bool = False


@dataclass
class Undone:
    calls: list[Made]
    delta: Delta = field(default_factory=dict)


def _between(before: Files, after: Files) -> Delta:
    names = before.keys() | after.keys()
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def _without(present: Files, deltas: Sequence[Delta]) -> Files | None:
    """The files if these changes, given newest first, had not happened; None if others changed the same since."""
    found = dict(present)
    for delta in deltas:
        for name, (old, new) in delta.items():
            if found.get(name) not in (old, new):
                return None
            if old is None:
                found.pop(name, None)
            else:
                found[name] = old
    return found


class AnyOrder(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.opened = ExitStack()
        self.place: Place = self.opened.enter_context(made_place())
        self.place.make(dict.fromkeys((*_AGENTS[:2], _PERSONS[0]), "at first\n"), has_git=False)
        self.agent: Agent = self.place.agent()
        self.model: Files = files(self.place.root)
        self.calls: list[Made] = []
        self.undone: list[Undone] = []
        self.moments: dict[str, dict[bytes, object]] = {}

    def teardown(self) -> None:
        if hasattr(self, "opened"):
            self.opened.close()

    def _write(self, edits: Mapping[str, str | None]) -> None:
        for name, text in edits.items():
            file = self.place.root / name
            if self.model.get(name) == text:
                continue
            if text is None:
                file.unlink()
                del self.model[name]
            else:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
                self.model[name] = text

    @rule(edits=_edits)
    def agent_works(self, edits: Mapping[str, str | None]) -> None:
        before = dict(self.model)
        self.agent.does("work", lambda: self._write(edits))
        self.calls.append(Made(len(self.calls) + 1, _between(before, self.model)))
        checkpoint = self.agent.in_place.moments(1)[0].view.checkpoint.checkpoint_id
        self.moments[checkpoint] = self.place.tree()

    @rule(edits=_of_a_person)
    def person_works(self, edits: Mapping[str, str | None]) -> None:
        self._write(edits)

    def _in_force(self) -> list[Made]:
        return [call for call in self.calls if not call.is_undone]

    @precondition(lambda self: any(call.delta for call in self._in_force()))
    @rule()
    def undo_the_last(self) -> None:
        last = [call for call in self._in_force() if call.delta][-1]
        self._undo(LastCall(), [last])

    @precondition(lambda self: self._in_force())
    @rule(data=st.data())
    def undo_one(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self._in_force()))
        self._undo(OnlyCall(one.number), [one])

    @precondition(lambda self: self._in_force())
    @rule(data=st.data())
    def undo_from(self, data: st.DataObject) -> None:
        first = data.draw(st.sampled_from(self._in_force()))
        self._undo(CallNumber(first.number), [call for call in self._in_force() if call.number >= first.number])

    def _undo(self, target: Target, calls: list[Made]) -> None:
        expected = _without(self.model, [call.delta for call in reversed(calls)])
        before = dict(self.model)
        if self._change(lambda: self.agent.in_place.undo(target), expected):
            for call in calls:
                call.is_undone = True
            self.undone.append(Undone(calls, _between(self.model, before)))

    @precondition(lambda self: self.undone)
    @rule()
    def redo(self) -> None:
        last = self.undone[-1]
        expected = _without(self.model, [{name: (new, old) for name, (old, new) in last.delta.items()}])
        if self._change(self.agent.in_place.redo, expected):
            for call in last.calls:
                call.is_undone = False
            self.undone.pop()

    @precondition(lambda self: self.moments)
    @rule(data=st.data())
    def undo_to_a_moment_exactly(self, data: st.DataObject) -> None:
        checkpoint = data.draw(st.sampled_from(sorted(self.moments)))
        before, target = dict(self.model), ToCheckpoint(checkpoint, is_exact=True)
        expected = self.agent.in_place.undo_preview(target)
        if expected.present == expected.wanted and not expected.wish.calls:
            with pytest.raises(StateError, match="Nothing would change"):
                self.agent.in_place.undo(target)
            return
        self.agent.in_place.undo(target)
        assert self.place.differs_from(self.moments[checkpoint]) == []
        self._take_over(before)

    @precondition(lambda self: self._in_force())
    @rule(data=st.data())
    def undo_one_by_force_and_redo(self, data: st.DataObject) -> None:
        one, tree = data.draw(st.sampled_from(self._in_force())), self.place.tree()
        self.agent.in_place.undo(OnlyCall(one.number), force=True)
        self.agent.in_place.redo()
        assert self.place.differs_from(tree) == []

    def _take_over(self, before: Files) -> None:
        """Of what the model does not foresee: which calls are undone, and what the folder holds."""
        self.model = files(self.place.root)
        calls = []
        for mine, call in zip(self.calls, self.agent.in_place.calls(), strict=True):
            if call.is_undone and not mine.is_undone:
                calls.append(mine)
            mine.is_undone = call.is_undone
        self.undone.append(Undone(calls, _between(self.model, before)))

    def _change(self, do: Callable[[], UndoResult | Declined], expected: Files | None) -> bool:
        """Undo or redo; whether it was done."""
        tree = self.place.tree()
        try:
            do()
        except ConflictError:
            assert expected is None
            assert self.place.differs_from(tree) == []
            return False
        present = files(self.place.root)
        if expected is not None:
            assert present == expected
        self.model = present
        return True

    @invariant()
    def the_folder_is_what_the_model_says(self) -> None:
        if not hasattr(self, "model"):
            return
        assert files(self.place.root) == self.model
        assert [call.is_undone for call in self.agent.in_place.calls()] == [call.is_undone for call in self.calls]

    @precondition(lambda self: any(call.delta for call in self._in_force()))
    @rule()
    def undo_and_redo(self) -> None:
        tree = self.place.tree()
        try:
            self.agent.in_place.undo()
        except ConflictError:
            assert self.place.differs_from(tree) == []
            return
        self.agent.in_place.redo()
        assert self.place.differs_from(tree) == []


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=12, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
