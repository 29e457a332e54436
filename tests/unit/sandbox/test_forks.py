"""Forks of one sandbox that are made at the same time are all exact."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.model import Resource, ResourceType
from holdfast.sandbox.making import fork
from tests.support.trees import IS_ROOT, difference_of, write
from tests.support.unprivileged import folder_for_nobody, run_unprivileged

FORKS, FILES = 4, 150


@pytest.mark.skipif(not IS_ROOT, reason="only root can look into closed folders without opening them")
def test_forks_that_a_user_makes_at_the_same_time_have_every_closed_file_and_its_mode() -> None:
    """Such files and folders are made accessible for a moment, which no other fork may see."""
    with folder_for_nobody() as folder:
        assert run_unprivileged(left_out_of_forks, str(folder)) == []
        for number in range(FORKS):
            assert difference_of(folder / "parent", folder / f"fork {number}") == []


def left_out_of_forks(place: str) -> list[str]:
    folder = Path(place)
    parent, children = resource(folder / "parent"), [resource(folder / f"fork {number}") for number in range(FORKS)]
    root = Path(parent.sandbox_path)
    for number in range(FILES):
        write(root / "closed" / f"{number}", f"{number}\n")
        file = write(root / "open" / f"{number}", f"{number}\n")
        os.setxattr(file, "user.color", b"blue")
        file.chmod(0o000)
    (root / "closed").chmod(0o000)
    with ThreadPoolExecutor(FORKS) as pool:
        made = list(pool.map(lambda child: fork(parent, child), children))
    return [each.path for child in made for each in child.left_out]


def resource(place: Path) -> Resource:
    return Resource(name="data", type=ResourceType.DIRECTORY, path=str(place), sandbox_path=str(place))
