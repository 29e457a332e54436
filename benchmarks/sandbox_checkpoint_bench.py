"""What a checkpoint of a sandbox costs: the first one, of nothing, of ten files, of a large file, in a new process."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from benchmarks.peers import used_bytes
from benchmarks.prepared import (
    LEVELS,
    SIZES,
    make_trees,
    open_prepared,
    open_watching,
    store_of,
    take_first_checkpoints,
    tree_of,
)
from benchmarks.trees import append_random, change_files

CHANGED_FILES = 10


class _Once:
    """Every sample is one call after one setup, because a checkpoint changes what the next one costs."""

    params: tuple[tuple[int, ...], tuple[str, ...]] = (SIZES, LEVELS)
    param_names = ("files", "level")
    number = 1
    warmup_time = 0.0
    timeout = 300.0


class FirstCheckpoint(_Once):
    repeat = (2, 5, 20.0)

    def setup_cache(self) -> Path:
        make_trees(Path.cwd())
        return Path.cwd()

    def setup(self, folder: Path, files: int, level: str) -> None:
        store = store_of(folder, files, level)
        shutil.rmtree(store, ignore_errors=True)
        store.mkdir()
        self._level = open_prepared(folder, files, level)

    def teardown(self, folder: Path, files: int, level: str) -> None:
        self._level.close()

    def time_first_checkpoint(self, folder: Path, files: int, level: str) -> None:
        self._level.checkpoint()

    def peakmem_first_checkpoint(self, folder: Path, files: int, level: str) -> None:
        self._level.checkpoint()


class _Known(_Once):
    repeat = (5, 30, 20.0)

    def setup_cache(self) -> Path:
        make_trees(Path.cwd())
        take_first_checkpoints(Path.cwd())
        return Path.cwd()


class NothingChanged(_Known):
    def setup(self, folder: Path, files: int, level: str) -> None:
        self._level = open_watching(folder, files, level)

    def teardown(self, folder: Path, files: int, level: str) -> None:
        self._level.close()

    def time_checkpoint(self, folder: Path, files: int, level: str) -> None:
        self._level.checkpoint()


class TenFilesChanged(_Known):
    def setup(self, folder: Path, files: int, level: str) -> None:
        self._level = open_watching(folder, files, level)
        self._turn = int.from_bytes(os.urandom(2))
        self._change(folder, files)

    def _change(self, folder: Path, files: int) -> None:
        self._turn += 1
        change_files(tree_of(folder, files), files, CHANGED_FILES, self._turn)

    def teardown(self, folder: Path, files: int, level: str) -> None:
        self._level.close()

    def time_checkpoint(self, folder: Path, files: int, level: str) -> None:
        self._level.checkpoint()

    def peakmem_checkpoint(self, folder: Path, files: int, level: str) -> None:
        self._level.checkpoint()

    def track_disk(self, folder: Path, files: int, level: str) -> float:
        """What one more checkpoint of ten changed files adds to the stores, on average over a hundred."""
        before = self._stored_bytes(folder, files, level)
        for _ in range(100):
            self._change(folder, files)
            self._level.checkpoint()
        self._level.close()
        after = self._stored_bytes(folder, files, level)
        self._level = open_prepared(folder, files, level)
        return (after - before) / 100

    def _stored_bytes(self, folder: Path, files: int, level: str) -> int:
        return sum(used_bytes(path) for path in store_of(folder, files, level).glob("*.db*"))

    track_disk.unit = "bytes"  # type: ignore[attr-defined]


class LargeFileGrew(_Once):
    params = (SIZES[:1], LEVELS)
    repeat = (3, 10, 20.0)

    def setup_cache(self) -> Path:
        make_trees(Path.cwd())
        append_random(self._large(Path.cwd(), SIZES[0]), 100 << 20)
        take_first_checkpoints(Path.cwd())
        return Path.cwd()

    def _large(self, folder: Path, files: int) -> Path:
        return tree_of(folder, files) / "large.bin"

    def setup(self, folder: Path, files: int, level: str) -> None:
        self._level = open_watching(folder, files, level)
        append_random(self._large(folder, files), 1 << 20)

    def teardown(self, folder: Path, files: int, level: str) -> None:
        self._level.close()

    def time_checkpoint(self, folder: Path, files: int, level: str) -> None:
        self._level.checkpoint()


class NewProcess(_Known):
    """Nobody watched meanwhile: what is known comes from the cache, and everything is looked at."""

    def teardown(self, folder: Path, files: int, level: str) -> None:
        self._level.close()

    def time_checkpoint(self, folder: Path, files: int, level: str) -> None:
        self._level = open_prepared(folder, files, level)
        self._level.checkpoint()
