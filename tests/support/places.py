"""Fixtures that several folders of tests share: their conftest imports them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repositories import settings_of_a_person
from tests.support.snapshots import Place


@pytest.fixture(params=["looking", "watching"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """What changed is found by looking at every file, or told by the kernel; nothing else may differ."""
    place = Place(tmp_path, watching=request.param == "watching")
    yield place
    place.close()


@pytest.fixture(name="root")
def place_root(place: Place) -> Path:
    return place.root


@pytest.fixture(autouse=True)
def person(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git finds the settings of a person, and no others."""
    for name, value in settings_of_a_person(tmp_path_factory.mktemp("person")).items():
        monkeypatch.setenv(name, value)


@pytest.fixture(name="root")
def sandbox_root(tmp_path: Path) -> Path:
    """A sandbox, with something beside it that must never be reached."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("untouched")
    sandbox = tmp_path / "sandbox"
    sandbox.mkdir()
    return sandbox


@pytest.fixture
def outside(root: Path) -> Path:
    return root.parent / "outside"
