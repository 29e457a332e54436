"""Directories come, move and go while they are watched, and files in them get and lose names: every change is seen."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from holdfast.system.paths import write_file
from tests.support.snapshots import Place
from tests.support.trees import fast_disk, write

choices = st.integers(0, 100)
places = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)


class WatchedDirectories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=fast_disk()))
        self.place = Place(self.folder, watching=True)
        self.root, self.outside = self.place.root, self.folder / "outside"
        self.opened: list[int] = []

    def teardown(self) -> None:
        for descriptor in self.opened:
            os.close(descriptor)
        self.place.close()
        shutil.rmtree(self.folder)

    @initialize()
    def begin(self) -> None:
        for path in ("a/a/f", "a/f", "b/f", "f"):
            write(self.root / path, path)
        os.link(self.root / "f", self.root / "a" / "second")
        self.take()

    def _one(self, choice: int, is_wanted: Callable[[Path], bool]) -> Path | None:
        paths = sorted(filter(is_wanted, self.root.rglob("*")))
        return paths[choice % len(paths)] if paths else None

    @rule(where=places)
    def make_directory(self, where: str) -> None:
        (self.root / where).mkdir(parents=True, exist_ok=True)

    @rule(where=places)
    def write_in_a_directory_of_ours(self, where: str) -> None:
        watch = partial(self.place.manager.trackers.watch_new, self.root)
        write_file(self.root, f"{where}/f", b"ours", on_directory=watch)

    @rule(choice=choices, where=places)
    def move_directory(self, choice: int, where: str) -> None:
        source, target = self._one(choice, Path.is_dir), self.root / where
        if source is not None and target.parent.is_dir() and not target.is_relative_to(source) and not target.exists():
            source.rename(target)

    @rule(choice=choices)
    def move_out(self, choice: int) -> None:
        source = self._one(choice, Path.is_dir)
        if source is not None and not self.outside.exists():
            source.rename(self.outside)

    @precondition(lambda self: self.outside.exists())
    @rule(where=places)
    def move_in(self, where: str) -> None:
        if (self.root / where).parent.is_dir() and not (self.root / where).exists():
            self.outside.rename(self.root / where)

    @rule(choice=choices)
    def remove_directory(self, choice: int) -> None:
        if (path := self._one(choice, Path.is_dir)) is not None:
            shutil.rmtree(path)

    @rule(choice=choices, into=choices, name=st.sampled_from("fg"))
    def link(self, choice: int, into: int, name: str) -> None:
        source, directory = self._one(choice, Path.is_file), self._one(into, Path.is_dir)
        if source is not None and directory is not None and not (directory / name).exists():
            os.link(source, directory / name)

    @rule(choice=choices)
    def append(self, choice: int) -> None:
        if (path := self._one(choice, Path.is_file)) is not None:
            with path.open("a") as file:
                file.write("more")

    @rule(choice=choices)
    def remove_file(self, choice: int) -> None:
        if (path := self._one(choice, Path.is_file)) is not None:
            path.unlink()

    @rule(new=places, choice=choices, then=st.sampled_from(["keep", "remove the name", "remove all"]))
    def write_through_a_name_in_a_new_directory(self, new: str, choice: int, then: str) -> None:
        """In one rule, because events may be read between two rules; there may have been such a directory before."""
        directory = self.root / new
        shutil.rmtree(directory, ignore_errors=True)
        source = self._one(choice, Path.is_file)
        if source is None:
            return
        directory.mkdir(parents=True)
        os.link(source, directory / "t")
        with (directory / "t").open("a") as file:
            file.write("through")
        if then != "keep":
            (directory / "t").unlink()
        if then == "remove all":
            directory.rmdir()

    @rule(choice=choices)
    def open(self, choice: int) -> None:
        if (path := self._one(choice, Path.is_file)) is not None and len(self.opened) < 5:
            self.opened.append(os.open(path, os.O_RDWR))

    @precondition(lambda self: self.opened)
    @rule(choice=choices, content=st.binary(min_size=1, max_size=4))
    def write_to_open(self, choice: int, content: bytes) -> None:
        os.pwrite(self.opened[choice % len(self.opened)], content, 0)

    @rule()
    def take(self) -> None:
        seen = self.place.take().state_hash
        assert self.place.found_anew() == seen


@pytest.mark.unmeasured
def test_a_checkpoint_of_watched_directories_is_what_a_full_scan_finds():
    run_state_machine_as_test(
        WatchedDirectories,
        settings=settings(
            max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
