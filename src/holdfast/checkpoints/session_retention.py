"""Which moments of a session are kept, as a pure function: the newest, none that is too old; prompts outlive calls.

A session has many more moments than a plan of steps. What a person remembers later is what they asked for, so the
moments at which a prompt began are kept longer than those of the calls that followed from it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest

import msgspec

MOST_PROMPTS = 200
"""How many moments of prompts are kept beyond the newest moments."""
LONGEST = timedelta(days=30)


class MomentFacts(msgspec.Struct, frozen=True):
    group_id: str
    sequence: int
    label: str | None
    created_at: datetime


def going_moments(
    moments: Sequence[MomentFacts],
    prompts: Sequence[datetime],
    *,
    newest: int,
    at: datetime,
    needed: Collection[str] = (),
) -> list[str]:
    """The ids of the groups to remove, oldest first; ``prompts``: when prompts were given.

    The first moment, the last and labelled ones are always kept.
    """
    ordered = sorted(moments, key=lambda moment: moment.sequence)
    beginnings = _beginnings(ordered, prompts)
    older = [moment for moment in ordered[:-newest] if moment.group_id in beginnings] if newest < len(ordered) else []
    kept = {moment.group_id for moment in (*ordered[:1], *ordered[-newest:], *older[-MOST_PROMPTS:])}
    kept -= {moment.group_id for moment in ordered if at - moment.created_at > LONGEST}
    kept |= {moment.group_id for moment in (*ordered[:1], *ordered[-1:])}.union(needed)
    return [moment.group_id for moment in ordered if moment.group_id not in kept and moment.label is None]


def _beginnings(ordered: Sequence[MomentFacts], prompts: Sequence[datetime]) -> set[str]:
    """The moments that were the last when a prompt was given."""
    found: set[str] = set()
    waiting = sorted(prompts)
    for moment, following in zip_longest(ordered, ordered[1:]):
        while waiting and waiting[0] < moment.created_at:
            waiting.pop(0)
        if waiting and (following is None or waiting[0] < following.created_at):
            found.add(moment.group_id)
    return found
