"""Kills at moments that only chance chooses: of the group, of everything, of one process; and again while going on."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.faults.gate import descendants, is_running, program_of, stop_at
from tests.faults.trial import Bench, Outcome
from tests.faults.verbs import Verb

TARGETS = ("the process group", "everything", "the step's processes", "the step's supervisor")
_WITHOUT_STEPS = ("checkpoint", "rollback", "apply", "unapply", "prune", "collect", "undo", "redo")


def targets_of(verb: Verb) -> tuple[str, ...]:
    return TARGETS[:2] if verb.name in _WITHOUT_STEPS else TARGETS


def killed_by_chance(bench: Bench, verb: Verb, seed: int) -> Outcome:
    chance = random.Random(f"{verb.name} {seed}")
    target = chance.choice(targets_of(verb))
    seconds = chance.uniform(0, 1.1 * bench.reference(verb).seconds)
    killer = killer_of(target, seconds, chance)
    return bench.try_with(verb, lambda world: world.run_while(killer, *verb.words(world)), way=seed)


def killed_again(bench: Bench, verb: Verb, seed: int) -> Outcome:
    """Killed, then what goes on is killed as well, one to three times."""
    chance = random.Random(f"again {verb.name} {seed}")
    points = bench.reference(verb).points
    first = chance.randint(1, points)
    later = [chance.randint(1, max(60, points // 2)) for _ in range(chance.randint(1, 3))]
    return bench.try_with(
        verb,
        lambda world: world.run(*verb.words(world), keeper=stop_at(first)),
        way=seed,
        then_stopped_at=later,
    )


def killer_of(target: str, seconds: float, chance: random.Random) -> Callable[[int], None]:
    def kill_group(child: int) -> None:
        time.sleep(seconds)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)

    def kill_everything(child: int) -> None:
        time.sleep(seconds)
        while running := descendants():
            for process in running:
                _kill(process)

    def kill_below(child: int) -> None:
        wants_supervisor = target == "the step's supervisor"
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline and is_running(child):
            found = [each for each in descendants(of=child) if _is_supervisor(each) == wants_supervisor]
            found = [each for each in found if program_of(each) != "git" or wants_supervisor]
            if found:
                time.sleep(chance.uniform(0, 0.02))
                for process in found:
                    _kill(process)
                return
            time.sleep(0.001)

    return {"the process group": kill_group, "everything": kill_everything}.get(target, kill_below)


def _is_supervisor(pid: int) -> bool:
    try:
        return b"supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
