"""Single paths of a tree that others work in: what is swapped while it is read is read again, or refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.content.format import FILE, SYMLINK
from holdfast.errors import SandboxError
from holdfast.snapshot.scan.entries import Moved
from holdfast.snapshot.selection import links_among, select
from tests.support.moments import just_before
from tests.support.snapshots import Place
from tests.support.trees import write


def make_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("elsewhere")


def test_a_file_that_becomes_a_symlink_while_it_is_read_is_a_symlink(place: Place, root: Path) -> None:
    path = write(root / "x", "content")
    with place.manager.storing() as batch, just_before("open", "x", lambda: make_link(path)):
        found = select(root, [b"x"], batch)[b"x"]
    assert (found.kind, found.content) == (SYMLINK, b"elsewhere")


def test_a_symlink_that_becomes_a_file_while_it_is_read_is_a_file(
    place: Place, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "x").symlink_to("elsewhere")
    readlink, left = os.readlink, []

    def replaced_first(name: bytes, *, dir_fd: int) -> bytes:
        if not left:
            left.append(True)
            (root / "x").unlink()
            write(root / "x", "content")
        return readlink(name, dir_fd=dir_fd)

    monkeypatch.setattr("os.readlink", replaced_first)
    with place.manager.storing() as batch:
        assert select(root, [b"x"], batch)[b"x"].kind == FILE


def test_what_never_settles_is_refused(place: Place, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root / "x", "content")

    def moved(*_: object) -> None:
        raise Moved

    monkeypatch.setattr("holdfast.snapshot.selection.read_entry", moved)
    with place.manager.storing() as batch, pytest.raises(SandboxError, match="'x' keeps changing"):
        select(root, [b"x"], batch)


def test_a_file_that_vanishes_while_other_names_are_looked_for_is_left_out(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.link(write(root / "one", "x"), root / "two")
    walk = os.walk

    def with_one_that_is_gone(top: bytes) -> Iterator[tuple[bytes, list[bytes], list[bytes]]]:
        for folder, folders, files in walk(top):
            yield folder, folders, [*files, b"gone"]

    monkeypatch.setattr("os.walk", with_one_that_is_gone)
    assert links_among(root, [b"one"]) == ((b"one", b"two"),)
