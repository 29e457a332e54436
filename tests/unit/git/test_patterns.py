"""Patterns are compared by git, with no other rules than theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.git.patterns import matching
from holdfast.git.repository import GitRepository
from holdfast.git.work_tree import ignored_among
from tests.support.repositories import git, make_repository
from tests.support.trees import write

PATHS = [b"a", b"a/x.o", b"a/keep.o", b"b", b"b/a", b":c", b"line\nbreak.o", b"caf\xe9"]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (b"a/\n", {b"a", b"a/x.o", b"a/keep.o"}),
        (b"/a\n", {b"a", b"a/x.o", b"a/keep.o"}),
        (b"a\n", {b"a", b"a/x.o", b"a/keep.o", b"b/a"}),
        (b"*.o\n!keep.o\n", {b"a/x.o", b"line\nbreak.o"}),
        (b":c\ncaf?\n", {b":c", b"caf\xe9"}),
        (b"a/*\n", {b"a/x.o", b"a/keep.o"}),
        (b"# nothing\n", set()),
    ],
)
def test_the_paths_that_match(lines: bytes, found: set[bytes]):
    assert matching(lines, PATHS, {b"a", b"b"}) == found


def test_the_rules_of_the_user_are_not_among_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "git" / "ignore", "b\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    assert matching(b":c\n", PATHS, {b"a", b"b"}) == {b":c"}


def test_what_git_tracks_is_not_ignored_nor_the_folder_it_lies_in(tmp_path: Path):
    place = make_repository(tmp_path / "project")
    write(place / "build" / "kept", "x")
    git(place, "add", "build/kept")
    paths = [b"build", b"build/kept", b"build/out", b"other", b"other/build", b"a.txt"]
    folders = {b"build", b"other", b"other/build"}
    found = ignored_among(GitRepository.at(place), {b".gitignore": b"build/\na.txt\n"}, folders, paths)
    assert found == {b"build/out", b"other/build"}
