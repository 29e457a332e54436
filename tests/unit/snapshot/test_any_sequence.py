"""Any tree, any sequence of changes, snapshots and restores: after every restore the tree is exactly what it was."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from holdfast.snapshot.sandbox_checkpoint import SandboxCheckpoint
from tests.support.snapshots import SANDBOX_ID, Place
from tests.support.trees import FAR_PAST_NS, IS_ROOT, Thing, compare, describe, fast_disk, make_socket
from tests.unit.snapshot.neighbour import Records, take

ROOT = Path(__file__).parents[3]
NAMES = ["a", "b", "c", "ü \n", os.fsdecode(b"\xff")]
names = st.sampled_from(NAMES)
contents = st.one_of(st.sampled_from([b"", b"x", b"same", b"y" * 5000]), st.binary(max_size=50))
LARGE_CONTENTS = [b"large" * 900_000, b"large" * 900_000 + b"!", bytes(4 << 20)]
times = st.sampled_from([0, 1, FAR_PAST_NS, 1_700_000_000_123_456_789])
file_modes = st.sampled_from([0o644, 0o600, 0o755, 0o4755] + ([0o000] if IS_ROOT else []))
directory_modes = st.sampled_from([0o755, 0o700, 0o2775, 0o1777] + ([0o000, 0o555] if IS_ROOT else []))
places = st.lists(names, min_size=1, max_size=3).map("/".join)


class AnySequence(RuleBasedStateMachine):
    watching = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=fast_disk()))
        self.place = Place(self.folder, watching=self.watching)
        self.root = self.place.root
        self.taken: list[tuple[SandboxCheckpoint, dict[bytes, Thing]]] = []
        self.opened: list[int] = []

    def teardown(self) -> None:
        self._close_all()
        self.place.close()
        while self.folder.exists():  # what a restore replaced may be going at the same time
            shutil.rmtree(self.folder, ignore_errors=True)

    def _at(self, where: str) -> Path:
        """That place, with directories on the way to it; what else stands in the way of them goes."""
        path = self.root
        for name in where.split("/")[:-1]:
            path /= name
            if not path.is_dir() or path.is_symlink():
                path.unlink(missing_ok=True)
                path.mkdir()
        return self.root / where

    def _cleared(self, where: str) -> Path:
        path = self._at(where)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        return path

    def _existing(self, choice: int) -> Path | None:
        """Any entry, chosen by a number; the order does not depend on the file system."""
        paths = sorted(self.root.rglob("*"), key=os.fsencode)
        return paths[choice % len(paths)] if paths else None

    @initialize()
    def snapshot_of_nothing(self) -> None:
        self.take()

    # Changes

    @rule(where=places, content=contents)
    def write(self, where: str, content: bytes) -> None:
        path = self._at(where)
        if path.is_dir() or path.is_symlink() or path.is_fifo() or path.is_socket():
            path = self._cleared(where)
        path.write_bytes(content)

    @rule(choice=st.sampled_from(range(len(LARGE_CONTENTS))))
    def write_large(self, choice: int) -> None:
        self._cleared("large").write_bytes(LARGE_CONTENTS[choice])

    @rule(choice=st.integers(0, 100), content=st.binary(min_size=1, max_size=10))
    def append(self, choice: int, content: bytes) -> None:
        path = self._existing(choice)
        if path is not None and stat.S_ISREG(path.lstat().st_mode):
            with path.open("ab") as file:
                file.write(content)

    @rule(where=places)
    def make_directory(self, where: str) -> None:
        self._cleared(where).mkdir()

    @rule(where=places, leads_to=st.sampled_from(["a", "..", "/etc", "b/c", "no\nwhere"]))
    def make_symlink(self, where: str, leads_to: str) -> None:
        os.symlink(leads_to, self._cleared(where))

    @rule(where=places)
    def make_fifo(self, where: str) -> None:
        os.mkfifo(self._cleared(where))

    @rule(where=places)
    def make_socket(self, where: str) -> None:
        make_socket(self._cleared(where))

    @rule(choice=st.integers(0, 100), where=places)
    def link(self, choice: int, where: str) -> None:
        source = self._existing(choice)
        if source is None or stat.S_ISDIR(source.lstat().st_mode) or source.is_socket():
            return
        descriptor_path = self.folder / "linking"
        os.link(source, descriptor_path, follow_symlinks=False)
        target = self._cleared(where)
        descriptor_path.rename(target)
        descriptor_path.unlink(missing_ok=True)

    @rule(choice=st.integers(0, 100), where=places)
    def rename(self, choice: int, where: str) -> None:
        source = self._existing(choice)
        target = self.root / where
        if source is None or source == target or target.is_relative_to(source) or source.is_relative_to(target):
            return
        moving = self.folder / "moving"
        source.rename(moving)
        moving.rename(self._cleared(where))

    @rule(choice=st.integers(0, 100), where=places)
    def link_directly(self, choice: int, where: str) -> None:
        source = self._existing(choice)
        if source is not None and stat.S_ISREG(source.lstat().st_mode):
            target = self._cleared(where)
            if source.is_file():
                os.link(source, target)

    @rule(choice=st.integers(0, 100), where=places)
    def rename_over(self, choice: int, where: str) -> None:
        source, target = self._existing(choice), self._at(where)
        if source is not None and source.is_file() and not target.is_dir():
            source.rename(target)

    # What is written to a file that is open is told of the name it was opened by, which it may have lost

    @rule(choice=st.integers(0, 100))
    def open(self, choice: int) -> None:
        path = self._existing(choice)
        if path is not None and stat.S_ISREG(path.lstat().st_mode):
            self.opened.append(os.open(path, os.O_RDWR))

    @precondition(lambda self: self.opened)
    @rule(choice=st.integers(0, 100), content=st.binary(min_size=1, max_size=10))
    def write_to_open(self, choice: int, content: bytes) -> None:
        os.pwrite(self.opened[choice % len(self.opened)], content, 0)

    def _close_all(self) -> None:
        while self.opened:
            os.close(self.opened.pop())

    @rule(choice=st.integers(0, 100))
    def remove(self, choice: int) -> None:
        path = self._existing(choice)
        if path is not None:
            self._cleared(os.fspath(path.relative_to(self.root)))

    @rule(choice=st.integers(0, 100), file_mode=file_modes, directory_mode=directory_modes)
    def change_mode(self, choice: int, file_mode: int, directory_mode: int) -> None:
        path = self._existing(choice)
        if path is not None and not path.is_symlink() and not path.is_socket():
            path.chmod(directory_mode if path.is_dir() else file_mode)

    @rule(choice=st.integers(0, 100), time=times)
    def change_time(self, choice: int, time: int) -> None:
        path = self._existing(choice) or self.root
        os.utime(path, ns=(time, time), follow_symlinks=False)

    @rule(time=times)
    def change_all_times(self, time: int) -> None:
        """So that states differ in nothing but what was changed."""
        for path in [*self.root.rglob("*"), self.root]:
            os.utime(path, ns=(time, time), follow_symlinks=False)

    @rule(choice=st.integers(0, 100), value=st.sampled_from([b"1", b"2", b""]))
    def set_attribute(self, choice: int, value: bytes) -> None:
        path = self._existing(choice)
        if path is not None and stat.S_IFMT(path.lstat().st_mode) in (stat.S_IFREG, stat.S_IFDIR):
            os.setxattr(path, "user.test", value)

    # What is tested

    def snapshot(self) -> SandboxCheckpoint:
        return self.place.take()

    def collect(self) -> None:
        self.place.collect(lambda: {checkpoint.state_hash for checkpoint, _ in self.taken})

    @rule()
    def take(self) -> None:
        before = describe(self.root)
        self.taken.append((self.snapshot(), _held(before)))
        assert compare(before, describe(self.root)) == [], "taking a snapshot changed the tree"

    @precondition(lambda self: self.taken)
    @rule(choice=st.integers(0, 100))
    def go_back(self, choice: int) -> None:
        checkpoint, tree = self.taken[choice % len(self.taken)]
        sockets = _sockets(self.root)
        restored = self.place.go_back(checkpoint)
        assert compare(tree, _held(describe(self.root))) == []
        kept = sum(_sockets(place) for _, place in restored.set_aside)
        assert _sockets(self.root) + kept == sockets, "a socket was deleted"

    @rule(remembering=st.booleans())
    def next_process(self, remembering: bool) -> None:
        self._close_all()  # which names they had lost, the next one does not know
        self.place.next_process(remembering=remembering)

    @rule(choice=st.integers(0, 100))
    def collect_all_but_one(self, choice: int) -> None:
        if self.taken:
            self.taken = [self.taken[choice % len(self.taken)]]
            self.collect()


def _held(tree: dict[bytes, Thing]) -> dict[bytes, Thing]:
    """Without what no snapshot holds."""
    return {path: thing for path, thing in tree.items() if thing.kind != "socket"}


def _sockets(root: Path) -> int:
    return sum(thing.kind == "socket" for thing in describe(root).values())


class WatchedSequence(AnySequence):
    watching = True


class SharedSequence(AnySequence):
    """Another process takes checkpoints of another tree, and collects, in the same store at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.records = Records(self.folder / "records", "sequence")
        command = [sys.executable, "-m", "tests.unit.snapshot.neighbour", str(self.folder)]
        self.neighbour = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self.neighbour.stdout is not None
        assert self.neighbour.stdout.readline() == b"at work\n"

    def teardown(self) -> None:
        output = self.neighbour.communicate()[0].decode()
        super().teardown()
        assert self.neighbour.returncode == 0, output

    def snapshot(self) -> SandboxCheckpoint:
        return take(self.place.manager, self.root, self.records, sandbox_id=SANDBOX_ID)

    def collect(self) -> None:
        kept = {checkpoint.state_hash for checkpoint, _ in self.taken}
        self.records.keep_only(kept)
        self.place.collect(self.records.all)


class SharedWatchedSequence(SharedSequence):
    watching = True


@pytest.mark.unmeasured
@pytest.mark.parametrize(
    ("machine", "examples"), [(AnySequence, 40), (WatchedSequence, 40), (SharedSequence, 8), (SharedWatchedSequence, 8)]
)
def test_after_every_restore_the_tree_is_exactly_what_it_was(machine: Any, examples: int):
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
