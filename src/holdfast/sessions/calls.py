"""The prompts and calls of sessions, read from the records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from holdfast.db.store import Store
from holdfast.model import Decision, DecisionType, Plan, RunStatus, SessionInfo, StepRun


class Prompt(msgspec.Struct, frozen=True):
    """What a person asked an agent to do."""

    number: int
    text: str
    decision_id: str


class Call(msgspec.Struct, frozen=True):
    """One call of a tool by an agent; in the session of a person, something written until writing paused."""

    number: int
    """Counted from 1 in its session."""
    prompt_number: int | None
    tool: str
    what: str
    started_at: datetime
    finished_at: datetime | None
    is_failed: bool
    is_interrupted: bool
    is_undone: bool
    plan_id: str
    decision_id: str
    parent_decision_id: str | None
    """The prompt, or the call of a subagent that made this one."""
    run_id: str
    call_id: str | None
    """As the agent calls it."""
    before_id: str | None
    """The group with the files as they were before it."""
    after_id: str | None
    """The group with what it changed; None if it changed nothing."""

    @property
    def is_running(self) -> bool:
        return self.finished_at is None

    @property
    def changed_something(self) -> bool:
        return self.after_id is not None

    @property
    def title(self) -> str:
        return f"call {self.number}: {self.tool} {self.what}".rstrip() if self.tool else f"change {self.number}"

    def overlaps(self, other: Call) -> bool:
        """Whether both ran at the same time, so that it is unknown which of them changed what."""
        ended_first = other.finished_at is not None and other.finished_at <= self.started_at
        began_later = self.finished_at is not None and self.finished_at <= other.started_at
        return not ended_first and not began_later


def prompts_of(decisions: Iterable[Decision]) -> list[Prompt]:
    asked = [each for each in decisions if each.type is DecisionType.USER_INTERVENTION]
    return [Prompt(number, each.chosen, each.decision_id) for number, each in enumerate(asked, 1)]


def calls_of(store: Store, plan: Plan) -> list[Call]:
    """The calls of a session, in the order in which they began; damaged records are left out."""
    decisions = store.decisions.of(plan.plan_id, sound_only=True)
    by_id = {each.decision_id: each for each in decisions}
    numbers = {each.decision_id: each.number for each in prompts_of(decisions)}
    runs = store.runs.of(plan.plan_id, sound_only=True)
    return [
        _call(run, by_id[run.decision_id], _prompt_above(run.decision_id, by_id, numbers))
        for run in runs
        if run.decision_id in by_id
    ]


def _prompt_above(decision_id: str | None, by_id: dict[str, Decision], numbers: dict[str, int]) -> int | None:
    while decision_id is not None and decision_id not in numbers:
        decision = by_id.get(decision_id)
        decision_id = decision.parent_decision_id if decision else None
    return None if decision_id is None else numbers[decision_id]


def _call(run: StepRun, decision: Decision, prompt_number: int | None) -> Call:
    return Call(
        number=run.step_index + 1,
        prompt_number=prompt_number,
        tool=decision.question,
        what=decision.chosen,
        started_at=run.started_at,
        finished_at=run.finished_at,
        is_failed=run.status is RunStatus.FAILED,
        is_interrupted=run.status is RunStatus.INTERRUPTED,
        is_undone=run.is_superseded,
        plan_id=run.plan_id,
        decision_id=decision.decision_id,
        parent_decision_id=decision.parent_decision_id,
        run_id=run.run_id,
        call_id=run.call_id,
        before_id=run.group_before_id,
        after_id=run.group_after_id,
    )


def together_with(chosen: Sequence[Call], calls: Sequence[Call]) -> list[Call]:
    """These calls, and all that cannot be told from them because they ran at the same time; in order of their start.

    What a subagent does is part of the call that started it.
    """
    parents = {each.decision_id: each.parent_decision_id for each in calls}
    found, waiting = {each.run_id: each for each in chosen}, list(chosen)
    while waiting:
        one = waiting.pop()
        for other in calls:
            if other.run_id in found or other.is_undone or not other.changed_something or not other.overlaps(one):
                continue  # one that a person did not allow has no end either, and changed nothing
            if not (_is_inside(one, other, parents) or _is_inside(other, one, parents)):
                found[other.run_id] = other
                waiting.append(other)
    outermost = [
        one
        for one in found.values()
        if not any(_is_inside(one, other, parents) for other in found.values() if other is not one)
    ]
    return sorted(outermost, key=lambda call: (call.started_at, call.number))


def with_inner(outer: Sequence[Call], calls: Sequence[Call]) -> list[Call]:
    """These calls and those of their subagents."""
    parents = {each.decision_id: each.parent_decision_id for each in calls}
    return [each for each in calls if each in outer or any(_is_inside(each, one, parents) for one in outer)]


def _is_inside(inner: Call, outer: Call, parents: Mapping[str, str | None]) -> bool:
    above = inner.parent_decision_id
    while above is not None and above != outer.decision_id:
        above = parents.get(above)
    return above is not None


def name_of(info: SessionInfo | None) -> str:
    """Who works in a session."""
    if info is None or not info.agent:
        return "what you and your programs write"
    return f"{info.agent} {info.version}".rstrip()
