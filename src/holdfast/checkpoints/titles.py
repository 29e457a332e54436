"""Titles of checkpoints: a few words, made when a checkpoint is taken and stored with it.

They are shown wherever checkpoints are listed, so a title is one line without control characters.
"""

from __future__ import annotations

from collections.abc import Collection

from holdfast.model import Checkpoint, CheckpointGroup, Moment, Plan, Trigger
from holdfast.names import name_text

_LONGEST_PART = 60
_BACK = "back at"
NAMED_BY_CHANGES = frozenset(
    (Moment.SETTLED.value, Moment.MANUAL.value, Trigger.ON_TOOL_WRITE_COMPLETE.value, Trigger.ON_ERROR.value)
)
"""Moments of a program that are named by what changed since the moment before."""
_OF_STEPS: dict[str, str] = {
    Trigger.BEFORE_STEP: "before {step}",
    Trigger.ON_TOOL_WRITE: "before {step}",
    Trigger.ON_TOOL_WRITE_COMPLETE: "after {step}",
    Trigger.ON_ERROR: "failed: {step}",
    Moment.ROLLBACK: "back at {step}",
    Moment.SETTLED: "during {step}",
}
_OF_PLANS: dict[str, str] = {
    Moment.PRE_EXECUTE: "before the first step",
    Moment.POST_EXECUTE: "after the last step",
    Moment.PRE_APPLY: "before apply",
    Moment.BEFORE_ROLLBACK: "left by a rollback",
}


def checkpoint_title(checkpoint: Checkpoint, group: CheckpointGroup) -> str:
    """The label, if there is one, and the title of a checkpoint; earlier versions stored no title."""
    title = checkpoint.metadata.title or title_of(group)
    return f'"{group.label}" {title}' if group.label else title


def title_of(group: CheckpointGroup, *, try_number: int = 1) -> str:
    """The title that follows from the record of a group."""
    first = group.triggers[0]
    if first in _OF_STEPS:
        title = _OF_STEPS[first].format(step=_step(group))
    else:
        title = _OF_PLANS.get(first) or group.reason or first
    turns = [("try", try_number), ("attempt", group.attempt)]
    return ", ".join((name_text(title), *(f"{word} {number}" for word, number in turns if number > 1)))


def _step(group: CheckpointGroup) -> str:
    if group.step_index is None:
        return "the start" if group.last_completed_step < 0 else "the end"
    return f"step {group.step_index + 1}: {shortened(group.step or '')}"


def left_for(target: CheckpointGroup, name: str | None = None) -> str:
    """The title of the state that a rollback to that group leaves. ``name``: the group's own, if it has one."""
    return f"{_OF_PLANS[Moment.BEFORE_ROLLBACK]} to {name or title_of(target)}"


def back_at(group: CheckpointGroup, name: str | None = None) -> str:
    """The title of a group that a rollback made. ``name``: that of the group that it restored."""
    if name is None:
        return title_of(group)
    return name if name.startswith(_BACK) else f"{_BACK}: {name}"


def has_own_name(plan: Plan, group: CheckpointGroup) -> bool:
    """Whether only the stored title says what moment of a program it is."""
    index = group.step_index
    is_named = not (NAMED_BY_CHANGES | {Moment.ROLLBACK.value}).isdisjoint(group.triggers)
    return is_named and index is not None and any(step.is_program for step in plan.steps[index : index + 1])


def title_with_changes(group_title: str, triggers: Collection[str], step_index: int, words: str) -> str:
    """The title of a moment of a program; without words, nothing changed that a person would see."""
    if Moment.SETTLED in triggers:
        return words or f"{group_title}: no file changed"
    if not words or Moment.MANUAL in triggers:
        return words or group_title
    ended = "failed:" if Trigger.ON_ERROR in triggers else "after"
    return f"{ended} step {step_index + 1}: {words}"


def shortened(text: str) -> str:
    """The first line of the text, cut to the longest part of a title."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _LONGEST_PART else line[: _LONGEST_PART - 1] + "…"
