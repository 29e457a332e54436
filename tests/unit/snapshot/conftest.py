from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.snapshots import Place


@pytest.fixture(params=["looking", "watching"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """What changed is found by looking at every file, or told by the kernel; nothing else may differ."""
    place = Place(tmp_path, watching=request.param == "watching")
    yield place
    place.close()


@pytest.fixture
def root(place: Place) -> Path:
    return place.root
