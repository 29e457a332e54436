from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import gate
from tests.faults.power import unmount_all
from tests.faults.trial import Bench
from tests.faults.world import World
from tests.support.trees import fast_disk


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-faults-", dir=fast_disk()))
    yield folder
    unmount_all()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def bench(place: Path) -> Bench:
    if gate.missing():
        pytest.skip(f"fault campaign: {gate.missing()}")
    gate.become_reaper()
    return Bench(World(place / "world"))
