"""A commit is made of the changed files alone; what is committed of them already decides with the attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.errors import ConflictError
from holdfast.git.commit import CommitDraft, changed_by, make_commit
from holdfast.git.repository import GitRepository
from tests.support.repositories import git, make_repository
from tests.support.trees import write


def draft_of(root: Path, files: Mapping[str, str], *paths: str) -> CommitDraft:
    """A commit on top of the present one in which these files, or paths, are so."""
    repository = GitRepository.at(root)

    @contextmanager
    def work_tree() -> Iterator[Path]:
        folder = root.parent / "work tree"
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            write(folder / name, text)
        yield folder

    changed = tuple(path.encode() for path in (*files, *paths))
    return CommitDraft(repository, repository.head(), changed, work_tree, "a change\n")


def committed(root: Path, files: Mapping[str, str], path: str) -> str:
    commit = make_commit(draft_of(root, files))
    return git(root, "cat-file", "-p", f"{commit}:{path}")


def test_line_endings_that_are_committed_so_are_kept(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repository", {"windows.txt": "one\r\n"}, has_user=True)
    git(root, "config", "core.autocrlf", "true")
    files = {"windows.txt": "one\r\ntwo\r\n", "new.txt": "one\r\n"}
    assert committed(root, files, "windows.txt") == "one\r\ntwo\r"
    assert committed(root, files, "new.txt") == "one"


def test_attributes_that_are_not_among_the_files_are_those_of_the_commit(tmp_path: Path) -> None:
    files = {"deep/.gitattributes": "*.txt text\n", "deep/old": "1\n"}
    root = make_repository(tmp_path / "repository", files, has_user=True)
    assert committed(root, {"deep/er/new.txt": "one\r\n"}, "deep/er/new.txt") == "one"


def test_attributes_that_go_with_the_change_do_not_count(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repository", {".gitattributes": "*.txt text\n"}, has_user=True)
    commit = make_commit(draft_of(root, {"new.txt": "one\r\n"}, ".gitattributes"))
    assert git(root, "ls-tree", "--name-only", f"{commit}") == "new.txt"
    assert git(root, "cat-file", "-p", f"{commit}:new.txt") == "one\r"


def test_a_look_at_a_commit_stores_nothing(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repository", {"file": "1\n"}, has_user=True)
    before = sorted((root / ".git").rglob("*"))
    assert changed_by(draft_of(root, {"file": "1\n", "folder/new": "2\n"})) == {b"folder/new"}
    assert sorted((root / ".git").rglob("*")) == before


def test_a_commit_that_would_make_git_forget_other_files_is_refused(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repository", {"folder/one": "1\n"}, has_user=True)
    with pytest.raises(ConflictError, match=r"more of .* than the plan did"):
        make_commit(draft_of(root, {"folder": "a file\n"}))
