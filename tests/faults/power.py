"""Power cuts: the world lies on a disk of its own, and what is on that disk at one moment is all that is left.

The disk is an image on a loop device. At the moment of the cut the command is held at its gate, the image is copied,
the command is killed, and the copy is mounted in place of the image: what was written and not flushed is gone.
"""

from __future__ import annotations

import filecmp
import os
import random
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tests.faults.gate import Answer, Call, Ended, StopEverything
from tests.faults.trial import Bench, Outcome, Reference
from tests.faults.verbs import Verb, follow
from tests.faults.world import World

FILE_SYSTEMS = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}
_SIZE_BYTES = 320 << 20
_PATIENCE_SECONDS = 10.0


class CannotCut(Exception):
    """No power cuts here, and why."""


@cache
def why_not(file_system: str) -> str:
    """Why there are no power cuts on that file system here; empty if there are."""
    if os.geteuid() != 0:
        return "only root may mount an image"
    if shutil.which(FILE_SYSTEMS[file_system][0]) is None:
        return f"{FILE_SYSTEMS[file_system][0]} is not installed"
    return ""


def powerless(verb: Verb) -> Verb:
    """The verb where the machine is started anew in its middle: the next command finds what the power cut took.

    Files that no checkpoint holds do not survive that in the sandbox; they are kept in a checkpoint of their own.
    """
    if verb.changes_real_files:
        return verb

    def finish(world: World) -> None:
        follow(world, "plan", "execute", world.plan_id, also=(verb.ends_with,))
        verb.finish(world)

    return replace(verb, finish=finish, stage="half way" if verb.stage == "touched" else verb.stage)


@dataclass
class Disk:
    """An image, and where it is mounted."""

    folder: Path
    file_system: str

    @property
    def place(self) -> Path:
        return self.folder / "disk"

    def make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.place.mkdir(exist_ok=True)
        now = self.folder / "now.img"
        with open(now, "wb") as file:
            file.truncate(_SIZE_BYTES)
        _must(*FILE_SYSTEMS[self.file_system], str(now))
        self._mount("now.img")

    def keep_as_start(self) -> None:
        """Begin with what is on the disk now: its folders stay the same ones, which a home is known by."""
        self.unmount()
        _copy(self.folder / "now.img", self.folder / "start.img")

    def start_over(self) -> None:
        self.unmount()
        _copy(self.folder / "start.img", self.folder / "now.img")
        self._mount("now.img")

    def remember(self) -> None:
        """What is on the disk at one moment, and nothing that is only in memory.

        The kernel may write on while the image is copied: a copy is of one moment if nothing differs right after it.
        """
        now, cut = self.folder / "now.img", self.folder / "cut.img"
        _copy(now, cut)
        while not filecmp.cmp(now, cut, shallow=False):
            _copy(now, cut)

    def cut(self) -> None:
        """Go on with what was remembered, as after a power cut."""
        self.unmount()
        self._mount("cut.img")

    def _mount(self, image: str) -> None:
        # The same file system once more: its copy may still be known under the same id.
        options = "loop,nouuid" if self.file_system == "xfs" else "loop"
        _must("mount", "-o", options, str(self.folder / image), str(self.place))

    def unmount(self) -> None:
        while os.path.ismount(self.place):
            _must("umount", str(self.place))
        self._wait_until_released()

    def _wait_until_released(self) -> None:
        """A killed process that saw the disk in a name space of its own may still be on its way out."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while held := [image for image in _images_of_loop_devices() if image.parent == self.folder]:
            if time.monotonic() > deadline:
                raise CannotCut(f"still in use: {held}")
            time.sleep(0.01)


def _images_of_loop_devices() -> Iterator[Path]:
    for place in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):  # released meanwhile
            yield Path(place.read_text().strip())


def _must(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, check=False, text=True)
    if done.returncode != 0:
        raise CannotCut(f"{' '.join(words)}: {done.stderr.strip()}")


def _copy(source: Path, target: Path) -> None:
    _must("cp", "--sparse=always", str(source), str(target))


class PoweredBench(Bench):
    """A bench whose world lies on a disk that can lose its power."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        disk.make()
        super().__init__(World(disk.place / "world", kept=disk.folder / "kept"))
        disk.keep_as_start()

    def cut_at(self, verb: Verb, number: int | None, *, way: int = 0) -> Outcome:
        """Cut before that call; without one, right after the command has said that all is done."""
        verb = powerless(verb)
        self.reference(verb)
        self.disk.start_over()
        try:
            return self.try_with(verb, lambda world: self._cut(world, verb, number), way=way)
        finally:
            self.disk.unmount()

    def reference(self, verb: Verb) -> Reference:
        if verb.name not in self._references:
            self.disk.start_over()
        return super().reference(powerless(verb))

    def _cut(self, world: World, verb: Verb, number: int | None) -> Ended:
        subprocess.run(["sync", "-f", world.folder], check=True)

        def keeper(call: Call) -> Answer:
            if call.number == number:
                self.disk.remember()
                raise StopEverything
            return None

        ended = world.run(*verb.words(world), keeper=keeper)
        if not ended.was_stopped:
            self.disk.remember()
        self.disk.cut()
        world.boot = self.disk.folder / "boot id"
        world.boot.write_text(f"{uuid.uuid4()}\n")
        world.commands.append("power cut")
        return ended


_benches: dict[tuple[Path, str], PoweredBench] = {}


def bench_on(file_system: str, folder: Path) -> PoweredBench:
    """One for each file system is made, when it is needed first."""
    key = (folder, file_system)
    if key not in _benches:
        _benches[key] = PoweredBench(Disk(folder / f"power-{file_system}", file_system))
    return _benches[key]


def unmount_all() -> None:
    for bench in _benches.values():
        bench.disk.unmount()
    _benches.clear()


def cut_by_chance(bench: PoweredBench, verb: Verb, seed: int) -> Outcome:
    chance = random.Random(f"{verb.name} {seed}")
    points = bench.reference(verb).points
    number = None if seed % 6 == 5 else chance.randint(1, points)
    return bench.cut_at(verb, number, way=seed)


@contextmanager
def powered(file_system: str, folder: Path) -> Iterator[PoweredBench]:
    try:
        yield bench_on(file_system, folder)
    finally:
        unmount_all()
