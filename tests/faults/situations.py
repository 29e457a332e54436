"""Situations that are no crash: a sandbox gone, a folder that may only be read, a clock that jumps, others at work."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from holdfast.app import Holdfast
from holdfast.model import Lease
from tests.faults import homes, owners, spared
from tests.faults.gate import NAME_FILES, Answer, Call, Ended, Keeper, stop_at
from tests.faults.hooks import hooks_killed
from tests.faults.judging import doctor_says
from tests.faults.trial import Bench, Outcome
from tests.faults.undos import undos_at_once
from tests.faults.verbs import VERBS, Refused, available_verbs, follow
from tests.faults.world import World
from tests.support.trees import compare, describe

_BY_NAME = {verb.name: verb for verb in VERBS}
_CONFLICT = 5
_NOTHING_TO_DO = 4
_PROCESSES = 8


# A sandbox that something removed


def sandbox_removed(bench: Bench, seed: int) -> Outcome:
    """The verb says what is missing or makes it anew; ``plan execute`` always does."""
    verb = _BY_NAME[("rollback", "apply", "resume", "checkpoint")[seed % 4]]
    names = (("app",), ("data",), ("app", "data"))[seed // 4 % 3]

    def without_them(world: World) -> Ended:
        for name in names:
            shutil.rmtree(world.sandbox(name))
        ended = world.run(*verb.words(world))
        if ended.status not in (0, 6):
            raise Refused(f"without its sandbox it ended with {ended.status}: {ended.errors[-500:]}")
        if ended.status == 6:
            follow(world, "plan", "execute", world.plan_id)
            if verb.name == "checkpoint":  # what was in it and in no checkpoint is gone with it
                world.put_back(verb.stage)
        return ended

    return bench.try_with(verb, without_them, way=1)


# A folder in which nothing may be changed


FOLDERS = ("home", "home/sandboxes", "real", "real/data set", "home/indexes", "tmp")


def folder_read_only(bench: Bench, seed: int) -> Outcome:
    verbs = available_verbs()
    verb, folder = verbs[seed % len(verbs)], FOLDERS[seed // len(verbs) % len(FOLDERS)]
    return bench.try_out(verb, _read_only(folder), way=seed, kills=False)


def _read_only(folder: str) -> Keeper:
    def keeper(call: Call) -> Answer:
        is_in_it = call.path == folder or call.path.startswith(f"{folder}/")
        return errno.EACCES if is_in_it and call.name in NAME_FILES else None

    return keeper


# A clock that jumps


@cache
def faketime() -> Path | None:
    """The library that shifts a program's clock, if it is installed."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    return found[0] if found else None


JUMPS = ("-365d", "-1d", "+1d", "+365d")


def clock_jumps(bench: Bench, seed: int) -> Outcome:
    """Killed in the middle with one clock, gone on with the other."""
    verbs = available_verbs()
    verb, jump = verbs[seed % len(verbs)], JUMPS[seed // len(verbs) % len(JUMPS)]
    shifted = {
        "LD_PRELOAD": str(faketime()), "FAKETIME": jump, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_NO_CACHE": "1",
    }  # fmt: skip
    point = 1 + seed * 37 % bench.reference(verb).points

    def disturbed(world: World) -> Ended:
        usual, leavings = dict(world.environment), set(_leavings_of_faketime())
        try:
            world.environment.update(shifted)
            return world.run(*verb.words(world), keeper=stop_at(point), as_a_program=True)
        finally:
            world.environment.clear()
            world.environment.update(usual)
            for path in set(_leavings_of_faketime()) - leavings:
                path.unlink(missing_ok=True)

    return bench.try_with(verb, disturbed, way=seed)


def _leavings_of_faketime() -> list[Path]:
    """It cannot clear up after itself in a process that is killed."""
    return [*Path("/dev/shm").glob("faketime_shm_*"), *Path("/dev/shm").glob("sem.faketime_sem_*")]


# Others at work


def eight_resume(bench: Bench, seed: int) -> Outcome:
    """Eight processes resume one plan at once: one does it, the others say who does it or that it is done."""
    verb = _BY_NAME["resume"]

    def all_at_once(world: World) -> Ended:
        started = [world.start(*verb.words(world)) for _ in range(_PROCESSES)]
        said = [process.communicate(timeout=60)[0] for process in started]
        codes = sorted(process.returncode for process in started)
        world.commands.append(f"8 x resume -> {codes}")
        if 0 not in codes or any(code not in (0, _NOTHING_TO_DO, _CONFLICT) for code in codes):
            raise Refused(f"eight at once ended with {codes}: {said}")
        for text, process in zip(said, started, strict=True):
            if process.returncode == _CONFLICT and "process" not in text:
                raise Refused(f"it does not say who is at work: {text}")
        return world.run("plan", "status", world.plan_id)

    return bench.try_with(verb, all_at_once, way=seed)


def collected_beside(bench: Bench, seed: int) -> Outcome:
    """Checkpoints of one plan are taken while another plan is pruned and deleted, and its content collected."""
    world, outcome, began = bench.world, Outcome(), time.monotonic()
    world.put_back("two plans")
    other = world.notes["other_plan_id"]
    for number in range(3):
        (world.sandbox("data") / f"fresh {number}").write_text(f"{number} of {seed}\n" * 500)
        taking = world.start("checkpoint", "create", "--label", f"moment {number}", world.plan_id)
        words = (("checkpoint", "prune", "--keep", "2", other), ("plan", "delete", "--yes", other))[number == 1]
        deleting = world.start(*words)
        for process in (taking, deleting):
            said = process.communicate(timeout=60)[0]
            if process.returncode != 0 and not (process is deleting and number == 2 and process.returncode == 3):
                outcome.problems.append(f"ended with {process.returncode}: {said[-500:]}")
    outcome.problems += doctor_says(world)
    if outcome.held:
        outcome.problems += _each_moment_comes_back(world, seed)
    outcome.story, outcome.seconds = list(world.commands), time.monotonic() - began
    return outcome


def _each_moment_comes_back(world: World, seed: int) -> list[str]:
    problems = []
    for number in range(3):
        follow(world, "plan", "rollback", "--yes", world.plan_id, f"moment {number}")
        there = sorted(path.name for path in world.sandbox("data").glob("fresh *"))
        if there != [f"fresh {each}" for each in range(number + 1)]:
            problems.append(f"moment {number} came back with {there}")
        if (world.sandbox("data") / f"fresh {number}").read_text() != f"{number} of {seed}\n" * 500:
            problems.append(f"moment {number} came back with other content")
    return problems


def owner_stopped(bench: Bench, seed: int) -> Outcome:
    """SIGSTOP, long silence, another process takes over and finishes; SIGCONT: the first does no harm any more."""
    verb = _BY_NAME["execute"]

    def taken_over(world: World) -> Ended:
        process = world.start(*verb.words(world))
        try:
            _wait_until(lambda: world.sandbox("data").is_dir(), process)
            time.sleep(seed % 10 * 0.02)
            if not _stopped_without_a_lock(world, process):
                return world.run("plan", "status", world.plan_id)
            _long_ago(world)
            follow(world, "plan", "resume", world.plan_id, also=(4,))
            before = describe(world.home / "sandboxes"), world.real_files()
            process.send_signal(signal.SIGCONT)
            said = process.communicate(timeout=60)[0]
            world.commands.append(f"the first owner, continued -> {process.returncode}")
            if process.returncode not in (0, -signal.SIGKILL):
                raise Refused(f"the first owner ended with {process.returncode}: {said[-600:]}")
            after = describe(world.home / "sandboxes"), world.real_files()
            for old, new in zip(before, after, strict=True):
                if found := compare(old, new):
                    raise Refused(f"the first owner changed something: {found[:5]}")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGCONT)
                process.kill()
                process.communicate()
        return world.run("plan", "status", world.plan_id)

    return bench.try_with(verb, taken_over, way=seed)


def _wait_until(is_so: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 30
    while not is_so() and process.poll() is None:
        if time.monotonic() > deadline:
            raise Refused("the plan did not begin")
        time.sleep(0.005)


def _stopped_without_a_lock(world: World, process: subprocess.Popen[str]) -> bool:
    """Stop it, but not inside of a transaction: then nobody could write before it is continued or killed."""
    while process.poll() is None:
        process.send_signal(signal.SIGSTOP)
        connection = sqlite3.connect(world.home / "holdfast.db", timeout=0.1, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
            return process.poll() is None
        except sqlite3.OperationalError:
            process.send_signal(signal.SIGCONT)
            time.sleep(0.005)
        finally:
            connection.close()
    return False


def _long_ago(world: World) -> None:
    """As if the owner had been silent for a year: nobody waits for that in a test."""
    with Holdfast.open(world.app, home=world.home, environment=world.environment) as holdfast:
        lease = holdfast.store.find(Lease, world.plan_id)
        if lease is None or lease.owner is None:
            return
        with holdfast.store.transaction():
            at = lease.heartbeat_at.replace(year=lease.heartbeat_at.year - 1)
            holdfast.store.save(lease.model_copy(update={"heartbeat_at": at}))


@dataclass(frozen=True)
class Situation:
    what: str
    attempt: Callable[[Bench, int], Outcome]
    count: int
    """How many different ones there are."""
    missing: Callable[[], str] = lambda: ""
    """Why it cannot be tried here."""


SITUATIONS = (
    Situation("a sandbox removed", sandbox_removed, 12),
    Situation("a folder that may only be read", folder_read_only, 60),
    Situation(
        "the clock jumps a day or a year",
        clock_jumps,
        80,
        lambda: "" if faketime() else "libfaketime is not installed (Debian: faketime)",
    ),
    Situation("eight processes resume one plan", eight_resume, 25),
    Situation("collection beside checkpoints", collected_beside, 25),
    Situation("an owner stopped, replaced and continued", owner_stopped, 30),
    Situation("a home moved after a kill", homes.moved_home, 120),
    Situation("a home copied after a kill", homes.copied_home, 110),
    Situation("records lost after a kill, and put back", homes.records_lost, 120),
    Situation("two record stores on one content store", homes.two_record_stores, 60),
    Situation("two to four plans applied to one folder at once", owners.applies_at_once, 200),
    Situation("undos, redos and checkpoints of one folder at once", undos_at_once, 60),
    Situation("the hooks of a call, killed while they are recorded", hooks_killed, 250),
    Situation("kills while sandboxes are made, spared, taken and deleted", spared.spares_killed, 250),
    Situation("a half-applied folder used by another command", owners.half_applied_used, 240),
)
