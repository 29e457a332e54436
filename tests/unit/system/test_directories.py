"""Directories below a root are opened once and stay open; whatever happens, none stays open for good."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.system.directories import Descent


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("one/deep/er", "two"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def test_a_directory_is_opened_once(tree: Path):
    before = open_descriptors()
    with Descent(tree) as descent:
        for path in (b"", b"one", b"one/deep/er", b"two"):
            found = os.fstat(descent.open(path))
            assert os.path.samestat(found, os.stat(tree / os.fsdecode(path)))
            assert descent.open(path) == descent.open(path)
        descent.forget()
        assert list(descent) == [b""]
        assert os.path.samestat(os.fstat(descent.open(b"two")), os.stat(tree / "two"))
    assert open_descriptors() == before


def forget_one_that_cannot_be_closed_again(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, mode: int) -> None:
        raise PermissionError(1, "it was given away")

    with Descent(tree) as descent:
        for path in (b"one", b"two"):
            descent.open(path)
        descent.closed_modes[b"two"] = 0o300
        with monkeypatch.context() as failing:
            failing.setattr(os, "fchmod", refuse)
            descent.forget()


def test_a_directory_that_cannot_be_closed_to_us_again_is_the_error_and_nothing_stays_open(
    tree: Path, monkeypatch: pytest.MonkeyPatch
):
    before = open_descriptors()
    with pytest.raises(PermissionError, match="given away"):
        forget_one_that_cannot_be_closed_again(tree, monkeypatch)
    assert open_descriptors() == before
