from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.guards import Guarded, guarded
from tests.support.sessions import Place, made_place


@pytest.fixture
def place() -> Iterator[Place]:
    with made_place() as made:
        yield made


@pytest.fixture
def guard(place: Place) -> Iterator[Guarded]:
    place.make()
    with guarded(place) as started:
        yield started
