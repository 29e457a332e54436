"""The rows of the campaign's table: what is tried, and every case of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.faults.chance import killed_again, killed_by_chance
from tests.faults.damage import damaged
from tests.faults.power import FILE_SYSTEMS, bench_on, cut_by_chance, why_not
from tests.faults.situations import SITUATIONS
from tests.faults.sweep import FAULTS, points_of, try_point
from tests.faults.trial import Bench, Outcome
from tests.faults.verbs import Verb, available_verbs

RANDOM_KILLS = 2000
KILLS_WHILE_GOING_ON = 500
POWER_CUTS = 60
"""On each file system."""
DAMAGES = 400


@dataclass(frozen=True)
class Case:
    verb: str
    number: int
    about: str
    """Where in the verb, or which variant."""
    attempt: Callable[[Bench], Outcome]


@dataclass(frozen=True)
class Row:
    what: str
    cases: Callable[[Bench], Iterator[Case]]
    missing: Callable[[], str] = lambda: ""
    """Why it cannot be tried here."""


def _swept(fault: str) -> Callable[[Bench], Iterator[Case]]:
    def cases(bench: Bench) -> Iterator[Case]:
        for verb in available_verbs():
            for point in points_of(bench, verb):
                if point.fault == fault:
                    yield Case(verb.name, point.number, point.call, lambda bench, point=point: try_point(bench, point))

    return cases


def _by_chance(attempt: Callable[[Bench, Verb, int], Outcome], count: int) -> Callable[[Bench], Iterator[Case]]:
    def cases(_: Bench) -> Iterator[Case]:
        verbs = available_verbs()
        for number in range(count):
            verb = verbs[number % len(verbs)]
            yield Case(verb.name, number, f"seed {number}", lambda bench, verb=verb, n=number: attempt(bench, verb, n))

    return cases


def _on_a_disk(file_system: str, count: int) -> Callable[[Bench], Iterator[Case]]:
    def cases(bench: Bench) -> Iterator[Case]:
        verbs = available_verbs()
        for number in range(count):
            verb = verbs[number % len(verbs)]

            def attempt(bench: Bench, verb: Verb = verb, seed: int = number // len(verbs)) -> Outcome:
                return cut_by_chance(bench_on(file_system, bench.world.folder.parent), verb, seed)

            yield Case(verb.name, number, f"seed {number}", attempt)

    return cases


def _seeded(attempt: Callable[[Bench, int], Outcome], count: int) -> Callable[[Bench], Iterator[Case]]:
    def cases(_: Bench) -> Iterator[Case]:
        for number in range(count):
            yield Case("", number, f"seed {number}", lambda bench, n=number: attempt(bench, n))

    return cases


ROWS: tuple[Row, ...] = (
    *(Row(f"{fault} at every call", _swept(fault)) for fault in FAULTS),
    Row("kill -9 at a random moment", _by_chance(killed_by_chance, RANDOM_KILLS)),
    Row("kill -9 again while going on", _by_chance(killed_again, KILLS_WHILE_GOING_ON)),
    *(
        Row(f"power cut on {name}", _on_a_disk(name, POWER_CUTS), lambda name=name: why_not(name))
        for name in FILE_SYSTEMS
    ),
    Row("objects.db or holdfast.db damaged", _seeded(damaged, DAMAGES)),
    *(Row(each.what, _seeded(each.attempt, each.count), each.missing) for each in SITUATIONS),
)
