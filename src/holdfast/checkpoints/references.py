"""References: finds the checkpoint that an id, a prefix or a label names; reads moments like ``@-2``; checks labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.errors import AmbiguousError, CheckpointNotFoundError, UsageError
from holdfast.model import Checkpoint
from holdfast.names import DISPLAY_PREFIX, NOT_IN_A_NAME, did_you_mean, display_ids, name_text
from holdfast.system.ids import is_id

CANDIDATES_SHOWN = 10
LONGEST_LABEL = 100
START = "start"
HOW_MOMENTS_ARE_NAMED = (
    "Moments are named `@` (now), `@-2` (two before), `@{10 minutes ago}`, `@{90s}`, `@{14:30}` and `start`."
)
# As text: compiled when they are needed, which is rarely.
_BACK = r"@(?:-(\d{1,9}))?"
_TIME = r"@\{(.*)\}"
_AGO = r"(\d{1,9})\s*([a-z]+)(?:\s*,?\s*(?:and\s+)?)"
_UNITS = {
    "s": ("s", "sec", "secs", "second", "seconds"),
    "m": ("m", "min", "mins", "minute", "minutes"),
    "h": ("h", "hour", "hours"),
    "d": ("d", "day", "days"),
}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_CLOCK = r"(\d{1,2}):(\d{2})(?::(\d{2}))?"


class MomentsBack(NamedTuple):
    """``@`` and ``@-N``: so many moments before the head, along its line."""

    moments: int


class MomentAt(NamedTuple):
    """``@{TIME}``: the newest moment at or before that time."""

    at: datetime


class FirstMoment(NamedTuple):
    """``start``."""


MomentReference = MomentsBack | MomentAt | FirstMoment


def moment_reference(reference: str, present: datetime) -> MomentReference | None:
    """The moment that this means, if it is of the form of one. ``present``: now, in the user's time zone."""
    wanted = reference.strip()
    if wanted.lower() == START:
        return FirstMoment()
    if not wanted.startswith("@"):
        return None
    if back := re.fullmatch(_BACK, wanted):
        return MomentsBack(int(back[1] or 0))
    if within := re.fullmatch(_TIME, wanted):
        at = _time_named(within[1].strip().lower(), present)
        return None if at is None else MomentAt(at)
    return None


def _time_named(text: str, present: datetime) -> datetime | None:
    with suppress(ValueError, OverflowError):
        if clock := re.fullmatch(_CLOCK, text):
            hour, minute, second = (int(each or 0) for each in clock.groups())
            at = present.replace(hour=hour, minute=minute, second=second, microsecond=0)
            return _whole_second(at if at <= present else at - timedelta(days=1))
        if (seconds := _seconds_ago(text)) is not None:
            return present - timedelta(seconds=seconds)
        at = datetime.fromisoformat(text)
        return _whole_second(at if at.tzinfo is not None else at.replace(tzinfo=present.tzinfo))
    return None


def _whole_second(at: datetime) -> datetime:
    """The end of that second: lists show times without fractions."""
    return at.replace(microsecond=999_999)


def _seconds_ago(text: str) -> int | None:
    """How long ago; None if it is not said in seconds, minutes, hours and days."""
    spans = text.removesuffix("ago").rstrip() + " "
    if not spans.strip() or re.sub(_AGO, "", spans).strip():
        return None
    total = 0
    for number, word in re.findall(_AGO, spans):
        unit = next((unit for unit, words in _UNITS.items() if word in words), None)
        if unit is None:
            return None
        total += int(number) * _SECONDS[unit]
    return total


def resolve_checkpoint(reference: str, checkpoints: Sequence[Checkpoint]) -> Checkpoint:
    """The one checkpoint of a plan with that id, display id, unique prefix of an id, label or group id.

    Ids come before labels. A label that is also a prefix of another checkpoint's id is refused as ambiguous.
    """
    ordered = sorted(checkpoints, key=lambda checkpoint: (checkpoint.sequence, checkpoint.checkpoint_id))
    wanted = reference.strip()
    if exact := _with_full_id(wanted, ordered):
        return exact
    by_id = _with_id_prefix(wanted, ordered)
    by_label = _first_of_each_group(each for each in ordered if each.metadata.label == reference)
    if wanted[: len(DISPLAY_PREFIX)].lower() == DISPLAY_PREFIX and len(by_id) == 1:
        return by_id[0]
    found = {each.checkpoint_id: each for each in (*by_id, *by_label)}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise AmbiguousError(
            f'"{reference}" fits {len(found)} checkpoints of this plan',
            hint=f"Say which one: {_shown(list(found.values()), ordered)}.",
        )
    raise _not_found(reference, ordered)


def refuse_label(label: str) -> None:
    """Refuse a label that does not fit on a line, or that looks like the id of a checkpoint."""
    if not label.strip():
        raise UsageError("The label is empty.", hint="Leave it out, or choose another.")
    if NOT_IN_A_NAME.search(label):
        raise UsageError(
            f"The label '{name_text(label[:LONGEST_LABEL])}' holds control characters.",
            hint="Choose a label of one line.",
        )
    if len(label) > LONGEST_LABEL:
        raise UsageError(
            f"The label has {len(label)} characters; at most {LONGEST_LABEL} are allowed.", hint="Choose a shorter one."
        )
    if label.strip().lower().startswith(DISPLAY_PREFIX) or is_id(label.strip()):
        raise UsageError(f'The label "{label}" looks like the id of a checkpoint.', hint="Choose another label.")
    if label.strip().startswith("@") or label.strip().lower() == START:
        raise UsageError(f'The label "{label}" looks like a moment. {HOW_MOMENTS_ARE_NAMED}', hint="Choose another.")


def _with_full_id(wanted: str, ordered: Sequence[Checkpoint]) -> Checkpoint | None:
    full = wanted.upper()
    by_id = (each for each in ordered if each.checkpoint_id == full)
    by_group = (each for each in ordered if each.group_id == full)
    return next(by_id, None) or next(by_group, None)


def _with_id_prefix(wanted: str, ordered: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Checkpoints whose ids have the prefix; if there are none, the first of each group whose id has it."""
    prefix = wanted.upper().removeprefix(DISPLAY_PREFIX.upper())
    if not prefix:
        return []
    by_id = [each for each in ordered if each.checkpoint_id.startswith(prefix)]
    return by_id or _first_of_each_group(each for each in ordered if each.group_id.startswith(prefix))


def _first_of_each_group(ordered: Iterable[Checkpoint]) -> list[Checkpoint]:
    first: dict[str, Checkpoint] = {}
    for each in ordered:
        first.setdefault(each.group_id, each)
    return list(first.values())


def _not_found(reference: str, ordered: Sequence[Checkpoint]) -> CheckpointNotFoundError:
    labels = {each.metadata.label for each in ordered if each.metadata.label is not None}
    newest = ordered[-CANDIDATES_SHOWN:]
    if reference.strip().startswith("@"):
        return CheckpointNotFoundError(f'"{reference}" names no moment', hint=HOW_MOMENTS_ARE_NAMED)
    return CheckpointNotFoundError(
        f'this plan has no checkpoint "{reference}"{did_you_mean(reference, labels)}',
        hint=f"The newest are {_shown(newest, ordered)}." if newest else "The plan has no checkpoints yet.",
    )


def _shown(candidates: Sequence[Checkpoint], ordered: Sequence[Checkpoint]) -> str:
    names = display_ids(each.checkpoint_id for each in ordered)
    shown = [
        names[each.checkpoint_id] + (f' ("{each.metadata.label}")' if each.metadata.label is not None else "")
        for each in candidates[:CANDIDATES_SHOWN]
    ]
    more = len(candidates) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
