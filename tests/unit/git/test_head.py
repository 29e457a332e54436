from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.git.head import git_head
from holdfast.model import GitHead
from tests.support.repositories import git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    return tmp_path


def commit(repository: Path) -> str:
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "one")
    return git(repository, "rev-parse", "HEAD")


def test_a_branch_without_a_commit_has_none(repository: Path) -> None:
    assert git_head(repository) == GitHead(commit=None, branch="main")


def test_commit_and_branch_are_those_that_git_tells(repository: Path) -> None:
    made = commit(repository)
    assert git_head(repository) == GitHead(commit=made, branch="main")
    git(repository, "checkout", "--quiet", "-b", "topic/one")
    made = commit(repository)
    assert git_head(repository) == GitHead(commit=made, branch="topic/one")


def test_packed_branches_are_found_and_not_taken_for_others(repository: Path) -> None:
    first = commit(repository)
    git(repository, "branch", "other/main")
    second = commit(repository)
    git(repository, "pack-refs", "--all")
    assert git_head(repository) == GitHead(commit=second, branch="main")
    git(repository, "checkout", "--quiet", "other/main")
    assert git_head(repository) == GitHead(commit=first, branch="other/main")


def test_a_loose_branch_is_newer_than_a_packed_one(repository: Path) -> None:
    commit(repository)
    git(repository, "pack-refs", "--all")
    made = commit(repository)
    assert git_head(repository) == GitHead(commit=made, branch="main")


def test_a_detached_head_is_on_no_branch(repository: Path) -> None:
    made = commit(repository)
    git(repository, "checkout", "--quiet", "--detach")
    assert git_head(repository) == GitHead(commit=made, branch=None)


def test_hashes_of_sha256_are_hashes(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--object-format=sha256", "--initial-branch", "main")
    made = commit(tmp_path)
    assert len(made) == 64
    assert git_head(tmp_path) == GitHead(commit=made, branch="main")


@pytest.mark.parametrize(
    "head", [b"", b"nonsense", b"ref: ../../../etc/passwd", b"ref: refs/../../x", b"ref: refs/a\0b", b"\xff" * 50]
)
def test_a_head_that_says_nothing_is_none(repository: Path, head: bytes) -> None:
    (repository / ".git" / "HEAD").write_bytes(head)
    assert git_head(repository) is None


def test_what_stands_in_the_place_of_a_head_is_neither_followed_nor_waited_for(repository: Path) -> None:
    head = repository / ".git" / "HEAD"
    head.unlink()
    assert git_head(repository) is None
    os.mkfifo(head)
    assert git_head(repository) is None
    head.unlink()
    head.symlink_to("/proc/self/environ")
    assert git_head(repository) is None
    head.unlink()
    head.mkdir()
    assert git_head(repository) is None


def test_a_folder_without_a_repository_has_no_head(tmp_path: Path) -> None:
    assert git_head(tmp_path) is None
