"""Sandboxes that are made, kept as spares, taken and deleted, over and over, while kills come at random moments."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.chance import TARGETS, killer_of
from tests.faults.trial import Bench, Outcome, left_processes
from tests.faults.verbs import Refused, follow
from tests.faults.world import World
from tests.support.trees import compare, describe, write

KILLS = 4
"""In each trial."""
_MADE, _TAKEN, _DELETED = "made", "taken", "deleted"
_IS_GONE = 3


def spares_killed(bench: Bench, seed: int) -> Outcome:
    """Whatever was killed, the next sandbox is what the folder is, and nothing else ever changes that folder."""
    world, outcome, began = bench.world, Outcome(), time.monotonic()
    if "spares" not in bench.remembered:
        bench.remembered["spares"] = _durations(world)
    world.put_back("created")
    mounts = _mounts(world)
    try:
        _Cycle(world, random.Random(f"spares {seed}"), bench.remembered["spares"]).run()
    except (Refused, TimeoutError, AssertionError) as error:
        outcome.problems.append(str(error))
    outcome.problems += left_processes()
    if (left := _mounts(world)) != mounts:
        outcome.problems.append(f"other mounts than before: {left}")
    outcome.story, outcome.seconds = list(world.commands), time.monotonic() - began
    return outcome


def _mounts(world: World) -> list[str]:
    """Those in the world: others may mount something elsewhere meanwhile."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if line.split()[4].startswith(f"{world.folder}/")]


def _durations(world: World) -> dict[str, float]:
    """How long each part of the cycle takes, if nothing disturbs it."""
    world.put_back("created")
    found = {}
    for what in (_MADE, _DELETED, _TAKEN):
        if what != _DELETED:
            _create(world)
        started = time.monotonic()
        follow(world, *_words(world, what))
        found[what] = time.monotonic() - started
    return found


def _create(world: World) -> None:
    """A plan that changes nothing, so that its sandboxes stay what the folders were."""
    folders = {"app": {"type": "git", "path": "real/app"}, "data": {"type": "directory", "path": "real/data set"}}
    plan = {"name": "nothing", "resources": folders, "steps": [{"name": "look", "run": "true"}]}
    file = world.folder / "nothing.yaml"
    file.write_text(json.dumps(plan))
    world.notes["plan_id"] = world.must("plan", "create", str(file))["plan_id"]


def _words(world: World, what: str) -> tuple[str, ...]:
    return ("plan", "delete", "--yes", world.plan_id) if what == _DELETED else ("plan", "execute", world.plan_id)


class _Cycle:
    def __init__(self, world: World, chance: random.Random, durations: object) -> None:
        assert isinstance(durations, dict)
        self._world, self._chance, self._durations = world, chance, durations

    def run(self) -> None:
        what = _MADE
        for _ in range(KILLS):
            if what != _DELETED:
                self._change_folders()
                _create(self._world)
            real = self._world.real_files()
            self._killed(what)
            self._assert_untouched(real)
            follow(self._world, *_words(self._world, what), also=(_IS_GONE,) if what == _DELETED else (4,))
            if what != _DELETED:
                self._assert_as_the_folders()
            self._assert_untouched(real)
            what = _TAKEN if what == _DELETED else _DELETED

    def _killed(self, what: str) -> None:
        seconds = self._chance.uniform(0, 1.1 * self._durations[what])
        kill = killer_of(self._chance.choice(TARGETS[:2]), seconds, self._chance)
        self._world.run_while(kill, *_words(self._world, what))

    def _change_folders(self) -> None:
        """What a person does between two plans."""
        for _ in range(self._chance.randint(0, 3)):
            folder = self._chance.choice((self._world.app, self._world.data))
            self._chance.choice(_CHANGES)(folder, self._chance)

    def _assert_untouched(self, real: object) -> None:
        found = compare(real, self._world.real_files())
        assert found == [], f"the user's files: {found[:5]}"

    def _assert_as_the_folders(self) -> None:
        """Told without Holdfast: file by file, and what git says."""
        world = self._world
        for name, folder in (("app", world.app), ("data", world.data)):
            sandbox, without = world.sandbox(name), (b".git",) if name == "app" else ()
            found = compare(describe(folder, without=without), describe(sandbox, without=without))
            # The folder of a repository gets a new .git, and so another time.
            found = [each for each in found if not (name == "app" and each.startswith("b'': mtime_ns"))]
            assert found == [], f"sandbox {name} is not what the folder is: {found[:5]}"
        for words in (("status", "--porcelain", "--ignored"), ("ls-files", "--stage")):
            said = [_git(world, folder, *words) for folder in (world.app, world.sandbox("app"))]
            assert said[0] == said[1], f"git says of the sandbox {said[1]} instead of {said[0]}"


def _git(world: World, folder: Path, *words: str) -> str:
    from tests.support.repositories import git

    return git(folder, *words, environment=world.environment)


def _files(folder: Path) -> list[Path]:
    found = [Path(top, name) for top, _, names in os.walk(folder) for name in names if ".git" not in Path(top).parts]
    return sorted(path for path in found if path.is_file() and not path.is_symlink() and path.stat().st_nlink == 1)


def _change(folder: Path, chance: random.Random) -> None:
    for path in chance.sample(_files(folder), 1):
        path.chmod(0o644)
        path.write_bytes(os.urandom(chance.randint(0, 5_000)))


def _same_size_and_time(folder: Path, chance: random.Random) -> None:
    for path in chance.sample(_files(folder), 1):
        before = path.stat()
        path.chmod(0o644)
        path.write_bytes(os.urandom(before.st_size))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _new(folder: Path, chance: random.Random) -> None:
    number = chance.randint(0, 9)
    write(folder / f"new folder {number % 3}" / f"new {number}", f"{chance.random()}\n")


def _removed(folder: Path, chance: random.Random) -> None:
    files = _files(folder)
    if len(files) > 3:
        chance.choice(files).unlink()


def _moved(folder: Path, chance: random.Random) -> None:
    path = chance.choice(_files(folder))
    path.rename(path.with_name(f"moved {chance.randint(0, 99)} {path.name[-20:]}"))


def _mode(folder: Path, chance: random.Random) -> None:
    chance.choice(_files(folder)).chmod(chance.choice((0o600, 0o755)))


_CHANGES: tuple[Callable[[Path, random.Random], None], ...] = (
    _change,
    _same_size_and_time,
    _new,
    _removed,
    _moved,
    _mode,
)
