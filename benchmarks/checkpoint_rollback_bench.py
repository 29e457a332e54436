"""What going back costs: ten changed files, and a state that shares nothing with the present one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from benchmarks.prepared import LEVELS, SIZES, make_trees, open_watching, take_first_checkpoints, tree_of
from benchmarks.trees import change_files


class _Rollback:
    """Every sample is one call after one setup; `snapshot` is files alone, `whole` the plan's records too."""

    params = (SIZES, LEVELS)
    param_names = ("files", "level")
    number = 1
    warmup_time = 0.0
    timeout = 300.0

    def setup_cache(self) -> Path:
        make_trees(Path.cwd())
        take_first_checkpoints(Path.cwd())
        return Path.cwd()

    def setup(self, folder: Path, files: int, level: str) -> None:
        self._level = open_watching(folder, files, level)

    def teardown(self, folder: Path, files: int, level: str) -> None:
        self._level.close()


class TenFiles(_Rollback):
    repeat = (5, 30, 20.0)

    def setup(self, folder: Path, files: int, level: str) -> None:
        super().setup(folder, files, level)
        change_files(tree_of(folder, files), files, 10, int.from_bytes(os.urandom(2)))

    def time_rollback(self, folder: Path, files: int, level: str) -> None:
        self._level.rollback()

    def peakmem_rollback(self, folder: Path, files: int, level: str) -> None:
        self._level.rollback()


class EveryFile(_Rollback):
    repeat = (2, 5, 20.0)

    def setup(self, folder: Path, files: int, level: str) -> None:
        super().setup(folder, files, level)
        for entry in tree_of(folder, files).iterdir():
            shutil.rmtree(entry)

    def time_rollback(self, folder: Path, files: int, level: str) -> None:
        self._level.rollback()
