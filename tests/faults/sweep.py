"""The sweep: every call with which a verb changes a file is a point, and at every point every fault is tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.faults.gate import FAILURES, Call, Keeper, changes_nothing, fail_at, kill_caller_at, stop_at
from tests.faults.trial import Bench, Outcome
from tests.faults.verbs import Verb

KILL = "kill -9 of everything"
KILL_ONE = "kill -9 of one process below"
FAULTS = (KILL, KILL_ONE, *(failure.name for failure in FAILURES))
_BY_NAME = {failure.name: failure for failure in FAILURES}
_AS_A_PROGRAM_EACH = 16
"""Every so many trials all commands are programs of their own, as a user starts them, and not forks."""


@dataclass(frozen=True)
class Point:
    verb: Verb
    fault: str
    number: int
    call: str

    @property
    def name(self) -> str:
        return f"{self.fault}/{self.verb.name}/{self.number}"


def points_of(bench: Bench, verb: Verb) -> Iterator[Point]:
    for call in bench.reference(verb).calls:
        for fault in FAULTS if call.number % verb.errors_at_each == 0 else (KILL,):
            if can_happen(fault, call):
                yield Point(verb, fault, call.number, str(call))


def can_happen(fault: str, call: Call) -> bool:
    if fault == KILL:
        # Killed before a flush or after it, the files are the same; the point after it tries that.
        return not changes_nothing(call)
    if fault == KILL_ONE:
        return call.program != "holdfast"
    return _BY_NAME[fault].can_hit(call) and not _is_lock_of_git(call)


def _is_lock_of_git(call: Call) -> bool:
    """git passes over a lock of a finished change that it cannot remove: what a step's git leaves is in the sandbox."""
    return call.program == "git" and call.name.startswith("unlink") and call.path.endswith(".lock")


def keeper_of(point: Point) -> Keeper:
    if point.fault == KILL:
        return stop_at(point.number)
    if point.fault == KILL_ONE:
        return kill_caller_at(point.number)
    failing = fail_at(point.number, _BY_NAME[point.fault])
    # Processes that run at the same time do not always come in the same order.
    return lambda call: None if _is_lock_of_git(call) else failing(call)


def try_point(bench: Bench, point: Point) -> Outcome:
    return bench.try_out(
        point.verb,
        keeper_of(point),
        way=point.number,
        as_programs=point.number % _AS_A_PROGRAM_EACH == 0,
        kills=point.fault == KILL,
    )


def sample(points: list[Point], count: int) -> list[Point]:
    """So many of them, evenly spread and the same every time, of each fault."""
    chosen = []
    for fault in FAULTS:
        some = [point for point in points if point.fault == fault]
        step = max(1, len(some) / count)
        chosen += [some[int(number * step)] for number in range(min(count, len(some)))]
    return chosen
