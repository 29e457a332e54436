"""A sample of the fault campaign, the same every time; `make faults` tries everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.chance import killed_again, killed_by_chance
from tests.faults.damage import damaged
from tests.faults.power import bench_on, cut_by_chance, why_not
from tests.faults.situations import SITUATIONS, Situation
from tests.faults.sweep import FAULTS, KILL, points_of, sample, try_point
from tests.faults.trial import Bench, Outcome
from tests.faults.verbs import VERBS, Verb, available_verbs


@pytest.fixture(params=[verb.name for verb in VERBS])
def verb(request: pytest.FixtureRequest) -> Verb:
    found = [verb for verb in available_verbs() if verb.name == request.param]
    if not found:
        pytest.skip(f"this version has no `{request.param}`")
    return found[0]


def assert_held(outcome: Outcome, about: str) -> None:
    assert outcome.held, "\n".join((about, *outcome.problems, *outcome.story))


def test_a_verb_that_meets_a_fault_comes_to_the_same_end(bench: Bench, verb: Verb) -> None:
    points = list(points_of(bench, verb))
    kills = [point for point in points if point.fault == KILL]
    # Another fault for each verb, so that all of them are met.
    other = [fault for fault in FAULTS if fault != KILL][VERBS.index(verb) % (len(FAULTS) - 1)]
    for point in (*sample(kills, 2), *sample([point for point in points if point.fault == other], 1)):
        assert_held(try_point(bench, point), f"{point.name}: {point.call}")


@pytest.mark.parametrize("database", ["holdfast.db", "objects.db"])
def test_what_a_killed_command_committed_is_not_lost_on_a_full_disk(bench: Bench, database: str) -> None:
    """SQLite would remove the write-ahead log if it could neither read it nor make its index anew."""
    resume = next(verb for verb in available_verbs() if verb.name == "resume")
    points = [
        point for point in points_of(bench, resume) if point.fault == "ENOSPC" and f"{database}-shm" in point.call
    ]
    for point in points[:3]:
        assert_held(try_point(bench, point), f"{point.name}: {point.call}")


def test_a_verb_killed_at_a_random_moment_comes_to_the_same_end(bench: Bench, verb: Verb) -> None:
    for seed in range(1):
        assert_held(killed_by_chance(bench, verb, seed), f"seed {seed}")


def test_a_verb_killed_again_while_it_goes_on_comes_to_the_same_end(bench: Bench, verb: Verb) -> None:
    for seed in range(1):
        assert_held(killed_again(bench, verb, seed), f"seed {seed}")


@pytest.mark.parametrize("file_system", ["ext4"])
def test_a_power_cut_loses_nothing(bench: Bench, place: Path, verb: Verb, file_system: str) -> None:
    if why_not(file_system):
        pytest.skip(f"power cuts on {file_system}: {why_not(file_system)}")
    # Seed 5 cuts right after the command has said that all is done.
    assert_held(cut_by_chance(bench_on(file_system, place), verb, 5), "seed 5")


@pytest.mark.parametrize("seed", range(8))
def test_damage_is_named_or_harmless(bench: Bench, seed: int) -> None:
    assert_held(damaged(bench, seed), f"seed {seed}")


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.what)
def test_a_situation_harms_nothing(bench: Bench, situation: Situation) -> None:
    if situation.missing():
        pytest.skip(f"{situation.what}: {situation.missing()}")
    assert_held(situation.attempt(bench, 0), "seed 0")
