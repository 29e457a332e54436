"""Thinning: which moments of a long history are missed least, as a pure function.

All of the newest are kept, and before them fewer and fewer. It depends only on the groups that are there, so it can be
asked again after each new one: what it keeps stays spread over the whole history.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from typing import Protocol


class Group(Protocol):
    """What has to be known of a checkpoint group."""

    @property
    def group_id(self) -> str: ...

    @property
    def sequence(self) -> int: ...

    @property
    def checkpoints(self) -> int: ...


def thinned(ordered: Sequence[Group], protected: Collection[str], excess: int, newest: int) -> list[str]:
    """The ids of the groups to remove, so many that ``excess`` checkpoints go, if as many are not protected.

    ``ordered``: all groups, oldest first. ``newest``: so many checkpoints at the end are kept as long as others can go.
    """
    going = _Line(ordered, protected, _beginning_of_newest(ordered, newest)).least_missed(excess)
    left = excess - sum(ordered[place].checkpoints for place in going)
    for place, group in enumerate(ordered):
        if left > 0 and place not in going and group.group_id not in protected:
            going[place] = None
            left -= group.checkpoints
    return [ordered[place].group_id for place in going]


def _beginning_of_newest(ordered: Sequence[Group], newest: int) -> int:
    """The place of the first of the groups at the end that have so many checkpoints together."""
    place = len(ordered)
    while place > 0 and newest - ordered[place - 1].checkpoints >= 0:
        place -= 1
        newest -= ordered[place].checkpoints
    return place


class _Line:
    """The groups in a line, of which some are taken out.

    A group is missed less the smaller the gap is that it leaves, compared with how far back it is.
    """

    def __init__(self, ordered: Sequence[Group], protected: Collection[str], end: int) -> None:
        self._ordered = ordered
        self._before = {place: place - 1 for place in range(len(ordered))}
        self._after = {place: place + 1 for place in range(len(ordered))}
        # The first and the last have no gap.
        places = range(1, min(end, len(ordered) - 1))
        self._removable = {place for place in places if ordered[place].group_id not in protected}

    def least_missed(self, excess: int) -> dict[int, None]:
        going: dict[int, None] = {}
        waiting = [(self._missed(place), place) for place in sorted(self._removable)]
        heapq.heapify(waiting)
        while waiting and excess > 0:
            missed, place = heapq.heappop(waiting)
            if missed != (now := self._missed(place)):
                heapq.heappush(waiting, (now, place))  # a neighbour has gone since
                continue
            excess -= self._ordered[place].checkpoints
            going[place] = None
            self._take_out(place)
        return going

    def _missed(self, place: int) -> float:
        number = self._ordered[place].sequence
        before, after = self._ordered[self._before[place]], self._ordered[self._after[place]]
        return (after.sequence - before.sequence) / max(1, self._ordered[-1].sequence - number)

    def _take_out(self, place: int) -> None:
        before, after = self._before[place], self._after[place]
        self._after[before], self._before[after] = after, before
