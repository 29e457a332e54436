from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sessions import Agent, Place
from tests.support.trees import fast_disk


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(dir=fast_disk()) as folder:
        made = Place(Path(folder))
        yield made
        made.close()


@pytest.fixture
def agent(place: Place) -> Agent:
    return place.make().agent()
