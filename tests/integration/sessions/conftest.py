from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.sessions import Agent, Place, made_place


@pytest.fixture
def place() -> Iterator[Place]:
    with made_place() as made:
        yield made


@pytest.fixture
def agent(place: Place) -> Agent:
    return place.make().agent()
