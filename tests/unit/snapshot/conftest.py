from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.snapshots import Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.close()


@pytest.fixture
def root(place: Place) -> Path:
    return place.root
