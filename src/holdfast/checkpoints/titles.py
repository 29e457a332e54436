"""What a checkpoint is called: a few words of its own, made when it is taken and stored with it.

They are shown wherever checkpoints are listed, so they are one line, with nothing in it that a terminal would obey.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model import Checkpoint, CheckpointGroup, Moment, Trigger
from holdfast.names import name_text

_LONGEST_PART = 60
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
    Moment.BEFORE_ROLLBACK: "left by going back",
}


def checkpoint_title(checkpoint: Checkpoint, group: CheckpointGroup) -> str:
    """What a checkpoint is called, after its label if it has one; earlier versions stored no title."""
    title = checkpoint.metadata.title or title_of(group)
    return f'"{group.label}" {title}' if group.label else title


def title_of(group: CheckpointGroup, *, try_number: int = 1) -> str:
    """What the moment of a group is called, as far as its record tells."""
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
    """What the state is called that going back to that group leaves."""
    return f"{_OF_PLANS[Moment.BEFORE_ROLLBACK]} to {title_of(target)}"


def changes_in_words(removed: Iterable[str], added: Iterable[str], changed: Iterable[str]) -> str:
    """One of the paths, the one that matters most, and how many there are beside it; nothing if there is none."""
    named = [(verb, path) for verb, paths in _verbs(removed, added, changed) for path in sorted(paths)]
    if not named:
        return ""
    (verb, path), others = named[0], len(named) - 1
    return f"{verb} {shortened(name_text(path))}" + (f" and {others} more" if others else "")


def _verbs(
    removed: Iterable[str], added: Iterable[str], changed: Iterable[str]
) -> tuple[tuple[str, Iterable[str]], ...]:
    # A title is read to find the moment at which something was lost.
    return ("removed", removed), ("changed", changed), ("added", added)


def shortened(text: str) -> str:
    """One line of it, and the beginning of that."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _LONGEST_PART else line[: _LONGEST_PART - 1] + "…"
