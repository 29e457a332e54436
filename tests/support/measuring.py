"""Measuring a process that may not write where the measurements of the others are."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coverage import Coverage
from coverage.config import CoverageConfig


@contextmanager
def measured_in(folder: Path) -> Iterator[dict[str, str]]:
    """The variables with which a process writes its measurement into that folder; at the end it goes to the others."""
    measuring = Coverage.current()
    if measuring is None:
        yield {}
        return
    setting = CoverageConfig.deserialize(measuring.config.serialize())
    setting.data_file = str(folder / "measured")
    try:
        yield {"COVERAGE_PROCESS_CONFIG": setting.serialize()}
    finally:
        for file in folder.glob("measured.*"):
            shutil.move(file, f"{measuring.get_option('run:data_file')}.{file.name}")
