"""Titles of checkpoints: a few words, made when a checkpoint is taken and stored with it.

They are shown wherever checkpoints are listed, so a title is one line without control characters.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model import Checkpoint, CheckpointGroup, Moment, Trigger
from holdfast.names import name_text

_LONGEST_PART = 60
_BY_IMPORTANCE = ("removed", "changed", "added")
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


def left_for(target: CheckpointGroup) -> str:
    """The title of the state that a rollback to that group leaves."""
    return f"{_OF_PLANS[Moment.BEFORE_ROLLBACK]} to {title_of(target)}"


def changes_in_words(changes: Iterable[tuple[str, str]]) -> str:
    """The most important of these changes (action, path), and the number of the others; empty if there are none."""
    # Titles are read to find the moment at which something was lost, so removed paths come first.
    named = sorted(changes, key=lambda change: (_BY_IMPORTANCE.index(change[0]), change[1]))
    if not named:
        return ""
    (verb, path), others = named[0], len(named) - 1
    return f"{verb} {shortened(name_text(path))}" + (f" and {others} more" if others else "")


def shortened(text: str) -> str:
    """The first line of the text, cut to the longest part of a title."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _LONGEST_PART else line[: _LONGEST_PART - 1] + "…"
