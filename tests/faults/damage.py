"""Damaged records and damaged content: a typed error that names it, or the right result, and never a wrong one."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.gate import Ended
from tests.faults.judging import real_files_that_count, without_its_own_affairs
from tests.faults.trial import Bench, Outcome
from tests.faults.verbs import VERBS, Verb
from tests.faults.world import World
from tests.support.trees import Tree, compare, describe

DAMAGED = 7
BROKEN_RECORDS = 8
_BY_NAME = {verb.name: verb for verb in VERBS}
NOT_FOUND = 3
_ENDINGS = frozenset((0, DAMAGED, BROKEN_RECORDS, NOT_FOUND))
"""Of a database that was removed it is true that it holds no such plan."""
STORES = ("objects.db", "holdfast.db")
_NAMES = (*STORES, "damaged", "missing", "checkpoint", "record")


def flip_a_bit(file: Path, chance: random.Random) -> str:
    content = bytearray(file.read_bytes())
    place, bit = chance.randrange(len(content)), chance.randrange(8)
    content[place] ^= 1 << bit
    file.write_bytes(content)
    return f"bit {bit} of byte {place} of {file.name} flipped"


def truncate(file: Path, chance: random.Random) -> str:
    length = chance.randrange(file.stat().st_size)
    with open(file, "r+b") as opened:
        opened.truncate(length)
    return f"{file.name} cut off at {length}"


def blank_a_page(file: Path, chance: random.Random) -> str:
    content = bytearray(file.read_bytes())
    page = chance.randrange(len(content) // 4096)
    content[page * 4096 : (page + 1) * 4096] = bytes(4096)
    file.write_bytes(content)
    return f"page {page} of {file.name} is zeros"


def remove(file: Path, _: random.Random) -> str:
    file.unlink()
    return f"{file.name} removed"


HARMS: tuple[Callable[[Path, random.Random], str], ...] = (
    flip_a_bit, flip_a_bit, flip_a_bit, flip_a_bit, truncate, truncate, blank_a_page, blank_a_page, remove,
)  # fmt: skip


def damaged(bench: Bench, seed: int) -> Outcome:
    """Harm one store of a complete plan's home, then look at everything and try a rollback or an apply."""
    chance = random.Random(f"damage {seed}")
    verb = _BY_NAME[("rollback", "apply")[seed // 2 % 2]]
    wanted = _undamaged(bench, verb)
    world, started = bench.world, time.monotonic()
    world.put_back(verb.stage)
    before = real_files_that_count(world)
    about = chance.choice(HARMS)(world.home / STORES[seed % 2], chance)
    looks = [
        _run(world, *words) for words in (("doctor",), ("checkpoint", "verify"), ("plan", "status", world.plan_id))
    ]
    done = _run(world, *verb.words(world))
    problems = [problem for ended in (*looks, done) for problem in _wrongly_ended(ended)]
    if looks[2].status == 0 and _data(looks[2]) != wanted.status and looks[0].status == 0:
        problems.append("plan status tells something else than before, and the doctor finds nothing")
    if done.status == 0:
        problems += [
            f"{verb.name} gave a wrong result: {each}" for each in compare(wanted.result, _result(world, verb))
        ]
    else:
        problems += [f"refused, but changed: {each}" for each in compare(before, real_files_that_count(world))]
        if looks[0].status == 0:
            problems.append(f"{verb.name} ended with {done.status}, but the doctor found nothing: {_said(done)}")
    return Outcome(problems, done, [about, *world.commands], time.monotonic() - started)


@dataclass(frozen=True)
class _Undamaged:
    status: Any
    result: Tree


def _undamaged(bench: Bench, verb: Verb) -> _Undamaged:
    """What the commands give when nothing is damaged."""
    if verb.name not in bench.remembered:
        world = bench.world
        world.put_back(verb.stage)
        status = _data(_run(world, "plan", "status", world.plan_id))
        assert _run(world, *verb.words(world)).status == 0
        bench.remembered[verb.name] = _Undamaged(status, _result(world, verb))
    found = bench.remembered[verb.name]
    assert isinstance(found, _Undamaged)
    return found


def _result(world: World, verb: Verb) -> Tree:
    if verb.changes_real_files:
        return real_files_that_count(world)
    return without_its_own_affairs(describe(world.sandbox("data")))


def _run(world: World, *words: str) -> Ended:
    return world.run("--format", "json", *words)


def _data(ended: Ended) -> Any:
    return json.loads(ended.output)["data"]


def _said(ended: Ended) -> str:
    return (ended.output + ended.errors)[-500:]


def _wrongly_ended(ended: Ended) -> list[str]:
    problems = []
    if ended.status not in _ENDINGS:
        problems.append(f"a command ended with {ended.status}: {_said(ended)}")
    if "Traceback" in _said(ended) or "Holdfast has a bug" in _said(ended):
        problems.append(f"a command did not expect it: {_said(ended)}")
    if ended.status in (DAMAGED, BROKEN_RECORDS) and not any(name in ended.output for name in _NAMES):
        problems.append(f"a command does not say what is damaged: {_said(ended)}")
    return problems
