"""How processes are measured that tests start."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coverage import Coverage
from coverage.config import CoverageConfig


def setting_of_processes(setting: str) -> str:
    """The setting with which coverage measures a process, without the search for files that the process did not run.

    The one that runs the tests names them; it takes a process longer than most commands.
    """
    config = CoverageConfig.deserialize(setting)
    if config.source_dirs:
        config.run_include, config.source_dirs = [f"{folder}/**" for folder in config.source_dirs], []
    return config.serialize()


@contextmanager
def measured_in(folder: Path) -> Iterator[dict[str, str]]:
    """The variables with which a process that may not write elsewhere writes its measurement into that folder.

    At the end it goes to the others.
    """
    measuring = Coverage.current()
    if measuring is None:
        yield {}
        return
    setting = CoverageConfig.deserialize(setting_of_processes(measuring.config.serialize()))
    setting.data_file = str(folder / "measured")
    try:
        yield {"COVERAGE_PROCESS_CONFIG": setting.serialize()}
    finally:
        for file in folder.glob("measured.*"):
            shutil.move(file, f"{measuring.get_option('run:data_file')}.{file.name}")
