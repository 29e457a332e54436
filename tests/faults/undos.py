"""Several undos, redos and checkpoints of one folder at once: each is done whole or refused."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from tests.faults import in_place
from tests.faults.judging import Tree, doctor_says, leftovers
from tests.faults.trial import Bench, Outcome, left_processes
from tests.faults.verbs import follow
from tests.faults.world import World
from tests.support.trees import compare

_STAGES = "each number of calls undone"
_FINE = frozenset((0, 4, 5))
"""Done, nothing left to do, and another process was at work."""
_UNDO, _REDO = ("undo", "--yes"), ("redo", "--yes")


def undos_at_once(bench: Bench, seed: int) -> Outcome:
    began, outcome, world = time.monotonic(), Outcome(), bench.world
    trees = _trees(bench)
    world.put_back(in_place.DONE)
    chance = random.Random(f"undos {seed}")
    checkpoint = (*in_place.CLEARS_UP, world.plan_id)
    words = [_UNDO, *(chance.choice((_UNDO, _UNDO, _REDO, checkpoint)) for _ in range(1 + seed % 3))]
    outcome.problems += _at_once(world, words)
    follow(world, *checkpoint)
    undone = in_place.undone_calls(world)
    if undone != sorted(undone):
        outcome.problems.append(f"calls in the middle are undone: {undone}")
    outcome.problems += compare(trees[sum(undone)], in_place.files_of(world.real))
    while any(in_place.undone_calls(world)):
        follow(world, *_REDO)
    outcome.problems += compare(trees[0], in_place.files_of(world.real))
    outcome.problems += [f"left behind: {each}" for each in leftovers(world) if not each.startswith("tmp/")]
    outcome.problems += doctor_says(world) + left_processes()
    outcome.story, outcome.seconds = list(world.commands), time.monotonic() - began
    return outcome


def _trees(bench: Bench) -> list[Tree]:
    """The person's files with no call undone, with the last one, and so on."""
    if _STAGES not in bench.remembered:
        world = bench.world
        world.put_back(in_place.DONE)
        trees = [in_place.files_of(world.real)]
        for _ in in_place.undone_calls(world):
            follow(world, *_UNDO)
            trees.append(in_place.files_of(world.real))
        bench.remembered[_STAGES] = trees
    found = bench.remembered[_STAGES]
    assert isinstance(found, list)
    return found


def _at_once(world: World, words: Sequence[tuple[str, ...]]) -> list[str]:
    problems = []
    running = [world.start(*each) for each in words]
    for each, process in zip(words, running, strict=True):
        said, _ = process.communicate(timeout=120)
        world.commands.append(f"at once: {' '.join(each)} -> {process.returncode}")
        if process.returncode not in _FINE:
            problems.append(f"`{' '.join(each)}` ended with {process.returncode}: {said[-400:]}")
    return problems
