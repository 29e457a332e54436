"""Several plans on one real folder: applied at once, and used after an apply of one of them was killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.system import folder_mark
from tests.faults.gate import stop_at
from tests.faults.judging import doctor_says, leftovers
from tests.faults.trial import Bench, Outcome, left_processes
from tests.faults.verbs import Refused, follow
from tests.faults.world import World
from tests.support.trees import write

_LINES = 40
_PLANS = 4
_KINDS = ("directory", "git", "both")
_STAGE = "several plans"
_CONFLICT, _STATE = 5, 4
COMMANDS = ("run", "apply", "dry run", "unapply")


@dataclass(frozen=True)
class _Planned:
    """A plan that changes one line of a file they all change, and makes files of its own."""

    plan_id: str
    number: int
    kind: str
    home: str
    """The name of its home's folder."""

    def folders(self, world: World) -> list[Path]:
        folders = {"directory": [world.data], "git": [world.app], "both": [world.app, world.data]}
        return folders[self.kind]

    @property
    def line(self) -> int:
        return 1 + self.number * (_LINES // _PLANS)

    def signs(self, world: World) -> list[bool]:
        """For each thing it changes, whether that is there."""
        found = []
        for folder in self.folders(world):
            lines = (folder / "shared.txt").read_text().splitlines()
            found.append(lines[self.line - 1].endswith("x"))
            found += [(folder / f"own {self.number} {each}.txt").exists() for each in range(6)]
        return found

    def script(self) -> str:
        return (
            f"set -e; sed -i {self.line}s/$/x/ shared.txt; "
            f"for each in 0 1 2 3 4 5; do echo new > 'own {self.number} '$each.txt; done"
        )


@contextmanager
def _home(world: World, name: str) -> Iterator[None]:
    before = world.home
    world.home = world.folder / name
    world.environment["HOLDFAST_HOME"] = str(world.home)
    try:
        yield
    finally:
        world.home = before
        world.environment["HOLDFAST_HOME"] = str(before)


def _plans(bench: Bench) -> list[_Planned]:
    """All plans of every kind and home, executed; the world is put back to that moment."""
    world = bench.world
    if _STAGE not in bench.remembered:
        bench.remembered[_STAGE] = list(_make(world))
        world.keep(_STAGE)
    world.put_back(_STAGE)
    plans = bench.remembered[_STAGE]
    assert isinstance(plans, list)
    return plans


def _make(world: World) -> Iterator[_Planned]:
    world.put_back("created")
    follow(world, "plan", "delete", "--yes", world.plan_id)
    for folder in (world.app, world.data):
        write(folder / "shared.txt", "".join(f"{number}\n" for number in range(_LINES)))
    world.git("add", "shared.txt")
    world.git("commit", "--quiet", "--message", "shared", "shared.txt")
    paths = {"app": ("git", world.app), "data": ("directory", world.data)}
    wanted = {"directory": ["data"], "git": ["app"], "both": ["app", "data"]}
    for home in ("home", "other home"):
        with _home(world, home):
            for kind in _KINDS:
                for number in range(_PLANS):
                    planned = _Planned("", number, kind, home)
                    document = {
                        "name": f"{kind} {number}",
                        "resources": {
                            name: {"type": paths[name][0], "path": str(paths[name][1])} for name in wanted[kind]
                        },
                        "steps": [
                            {"name": f"work on {name}", "resource": name, "run": planned.script()}
                            for name in wanted[kind]
                        ],
                    }
                    file = write(world.folder / "one of several.yaml", json.dumps(document))
                    plan_id = world.must("plan", "create", str(file))["plan_id"]
                    follow(world, "plan", "execute", plan_id)
                    yield _Planned(plan_id, number, kind, home)


# At once


def applies_at_once(bench: Bench, seed: int) -> Outcome:
    """Two to four plans are applied at once: what says Applied is there, what refuses has left nothing."""
    began, outcome = time.monotonic(), Outcome()
    world, every = bench.world, _plans(bench)
    chance = random.Random(f"at once {seed}")
    kind = _KINDS[seed % 2] if seed % 5 else "both"
    homes = ("home",) if seed % 3 else ("home", "other home")
    chosen = []
    for number in range(2 + seed // 2 % 3):
        home = homes[number % len(homes)]
        chosen += [each for each in every if (each.kind, each.number, each.home) == (kind, number, home)]
    codes = _at_once(world, chosen, [chance.uniform(0, 0.05) for _ in chosen])
    try:
        outcome.problems += _judged(world, chosen, codes)
        for planned, code in zip(chosen, codes, strict=True):
            if code:
                with _home(world, planned.home):
                    follow(world, "plan", "apply", "--yes", planned.plan_id)
        outcome.problems += _judged(world, chosen, [0] * len(chosen))
    except (Refused, AssertionError) as error:
        outcome.problems.append(str(error))
    outcome.problems += left_processes()
    outcome.story, outcome.seconds = list(world.commands), time.monotonic() - began
    return outcome


def _at_once(world: World, chosen: Sequence[_Planned], delays: Sequence[float]) -> list[int]:
    """How they end; they begin at the same moment, but for these delays."""
    gate, opening = os.pipe()
    children = []
    for planned, delay in zip(chosen, delays, strict=True):
        child = os.fork()
        if child == 0:
            status = 70
            try:
                os.close(opening)
                with _home(world, planned.home):
                    os.read(gate, 1)
                    time.sleep(delay)
                    with open(world.kept / f"said {planned.number}", "wb") as said:
                        os.dup2(said.fileno(), 1)
                        os.dup2(said.fileno(), 2)
                    status = world.call("plan", "apply", "--yes", planned.plan_id)
            finally:
                os._exit(status)
        children.append(child)
    os.close(gate)
    os.close(opening)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    world.commands.append(f"{len(chosen)} x apply ({chosen[0].kind}) -> {codes}")
    return codes


def _judged(world: World, chosen: Sequence[_Planned], codes: Sequence[int]) -> list[str]:
    problems = []
    if 0 not in codes or set(codes) - {0, _CONFLICT}:
        said = [(world.kept / f"said {each.number}").read_text()[-300:] for each in chosen]
        problems.append(f"applies at once ended with {codes}: {said}")
    for planned, code in zip(chosen, codes, strict=True):
        signs = planned.signs(world)
        if not (all(signs) if code == 0 else not any(signs)):
            problems.append(f"plan {planned.number} ended with {code}, and of its change is there: {signs}")
        with _home(world, planned.home):
            state = world.must("plan", "status", planned.plan_id)["state"]
            if state != ("applied" if code == 0 else "complete"):
                problems.append(f"plan {planned.number} ended with {code} and is {state}")
    return problems + _left(world)


def _left(world: World) -> list[str]:
    """What nothing may leave: temporary files, locks, marks, and a repository that is not sound."""
    # A temporary folder that a kill left is removed when the next one is made.
    found = [f"left behind: {each}" for each in leftovers(world) if not each.startswith("tmp/")]
    found += [f"left behind: {each}" for each in world.real.rglob("*.kept-*")]
    folders = (world.real, world.app, world.data)
    found += [f"{folder} is still marked" for folder in folders if folder_mark.find_on(folder) is not None]
    asked = ["git", "fsck", "--no-progress", "--no-dangling"]
    said = subprocess.run(asked, cwd=world.app, env=world.environment, capture_output=True, check=False)
    found += [f"git: {said.stderr.decode()}"] if said.returncode else []
    status = world.git("status", "--porcelain").splitlines()
    found += [f"git: {line}" for line in status if "own " in line or "shared" in line]
    return found + doctor_says(world)


# Half applied


def half_applied_used(bench: Bench, seed: int) -> Outcome:
    """An apply is killed, then another command uses the folder: it never copies a mixture or builds upon one."""
    began, outcome = time.monotonic(), Outcome()
    world, every = bench.world, _plans(bench)
    kind, command = _KINDS[seed % 3], COMMANDS[seed // 3 % len(COMMANDS)]
    home = "other home" if seed // 12 % 2 else "home"
    killed = next(each for each in every if (each.kind, each.number, each.home) == (kind, 0, "home"))
    second = next(each for each in every if (each.kind, each.number, each.home) == (kind, 2, home))
    words = ("plan", "apply", "--yes", killed.plan_id)
    point = _point(bench, words, kind, seed)
    try:
        if command == "unapply":
            with _home(world, home):
                follow(world, "plan", "apply", "--yes", second.plan_id)
        world.run(*words, keeper=stop_at(point))
        _use(world, command, killed, second)
    except (Refused, AssertionError) as error:
        outcome.problems.append(str(error))
    if outcome.held:
        outcome.problems += _left(world)
    outcome.problems += left_processes()
    outcome.story, outcome.seconds = list(world.commands), time.monotonic() - began
    return outcome


def _point(bench: Bench, words: Sequence[str], kind: str, seed: int) -> int:
    """One of the calls of an apply's second half; how many there are is counted once for each kind."""
    world, name = bench.world, f"calls of an apply: {kind}"
    if name not in bench.remembered:
        ended = world.run(*words, keeper=lambda _: None)
        assert ended.status == 0, ended.errors
        bench.remembered[name] = len(ended.calls)
        world.put_back(_STAGE)
    points = bench.remembered[name]
    assert isinstance(points, int)
    return points - seed * 37 % (points // 2)


def _use(world: World, command: str, killed: _Planned, second: _Planned) -> None:
    """The command must refuse, and name what helps, or put right first what was cut short."""
    signs = killed.signs(world)
    is_mixture = any(signs) and not all(signs)
    world.commands.append(f"killed with {signs.count(True)} of {len(signs)} changes there")
    is_applied = world.must("plan", "status", killed.plan_id)["state"] == "applied"
    with _home(world, second.home):
        words = _words(world, command, second)
        ended = world.run(*words)
    said = ended.errors + ended.output
    if ended.status == _STATE:
        named = f"holdfast plan execute {killed.plan_id}"
        if named not in said or (second.home != killed.home and "HOLDFAST_HOME=" not in said):
            raise Refused(f"it does not name what helps: {said}")
        if second.home == killed.home and command != "dry run":
            raise Refused(f"it did not put right what was cut short: {said}")
        follow(world, "plan", "execute", killed.plan_id)
        with _home(world, second.home):
            follow(world, *words, also=(_CONFLICT,) if is_applied else ())
    elif ended.status == 0 and is_mixture and (second.home != killed.home or command == "dry run"):
        raise Refused(f"a mixture was used: {signs}")
    elif ended.status != 0 and not (is_applied and ended.status == _CONFLICT):
        raise Refused(f"it ended with {ended.status}: {said}")
    follow(world, "plan", "execute", killed.plan_id)
    is_applied = world.must("plan", "status", killed.plan_id)["state"] == "applied"
    if killed.signs(world) != [is_applied] * len(signs):
        raise Refused(f"it {'is' if is_applied else 'is not'} applied, and is there: {killed.signs(world)}")
    with _home(world, second.home):
        _look_into_sandboxes(world, command, killed, is_applied)


def _words(world: World, command: str, second: _Planned) -> tuple[str, ...]:
    if command == "run":
        folders = [word for folder in second.folders(world) for word in ("--resource", str(folder))]
        return ("run", *folders, "--", "true")
    if command == "dry run":
        return "plan", "apply", "--dry-run", second.plan_id
    return "plan", command, "--yes", second.plan_id


def _look_into_sandboxes(world: World, command: str, killed: _Planned, is_applied: bool) -> None:
    if command != "run":
        return
    made = world.must("plan", "status", "latest")["plan_id"]
    for folder in killed.folders(world):
        sandbox = world.home / "sandboxes" / made / folder.name.replace(" ", "-")
        found = [(sandbox / f"own {killed.number} {each}.txt").exists() for each in range(6)]
        if found != [is_applied] * 6:
            raise Refused(f"{sandbox} is a copy of a mixture: {found}")
    follow(world, "plan", "delete", "--yes", made)
