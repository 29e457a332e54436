"""Commits are read from their own files; what git has packed, or damage, is not known."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from holdfast.git.commits import CommitText, ask_for_commit, count_commits, read_commit
from holdfast.git.head import ReadFile, git_head, head_in
from holdfast.git.repository import GitRepository
from tests.support.repositories import git, head, make_repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    make_repository(tmp_path, {"a": "1\n"}, has_user=True)
    return tmp_path


def reading(repository: Path) -> ReadFile:
    def read(name: bytes) -> bytes | None:
        path = repository / ".git" / name.decode()
        return path.read_bytes() if path.is_file() else None

    return read


def commit(repository: Path, *message: str) -> str:
    words = [word for each in message for word in ("-m", each)]
    git(repository, "commit", "--quiet", "--allow-empty", "--allow-empty-message", *words)
    return head(repository)


def test_parents_and_subject_are_read(repository: Path) -> None:
    first = head(repository)
    second = commit(repository, "fix the parser", "because")
    read = reading(repository)
    assert read_commit(read, second) == CommitText((first,), "fix the parser")
    assert read_commit(read, first) is not None
    assert read_commit(read, commit(repository, "")) == CommitText((second,), "")
    assert read_commit(read, commit(repository, "größer")) is not None


def test_what_is_no_commit_or_not_there_is_not_known(repository: Path) -> None:
    read = reading(repository)
    assert read_commit(read, git(repository, "rev-parse", "HEAD^{tree}").strip()) is None
    assert read_commit(read, "0" * 40) is None
    assert read_commit(lambda _: b"rotten", "0" * 40) is None
    assert read_commit(lambda _: zlib.compress(b"blob 3\0abc"), "0" * 40) is None


def test_commits_are_counted_up_to_the_one_before(repository: Path) -> None:
    first = head(repository)
    one, two = commit(repository, "one"), commit(repository, "two")
    read = reading(repository)
    assert count_commits(read, two, first) == 2
    assert count_commits(read, two, one) == 1
    assert count_commits(read, two, two) == 0
    assert count_commits(read, two, None) == 3
    assert count_commits(read, first, two) is None


def test_packed_commits_are_not_known(repository: Path) -> None:
    first = head(repository)
    newest = commit(repository, "one")
    git(repository, "gc", "--quiet")
    assert read_commit(reading(repository), newest) is None
    assert count_commits(reading(repository), newest, first) is None
    assert head_in(reading(repository)) == git_head(repository)


def test_git_is_asked_for_packed_commits_with_the_settings_of_the_real_repository(tmp_path: Path) -> None:
    real, copy = tmp_path / "real", tmp_path / 'a "copy": with \\ signs'
    make_repository(real, {"a": "1\n"}, has_user=True)
    git(tmp_path, "clone", "--quiet", str(real), str(copy))
    git(copy, "config", "user.name", "a")
    git(copy, "config", "user.email", "b")
    newest = commit(copy, "fix the parser")
    git(copy, "gc", "--quiet")
    (copy / ".git/config").write_text("damaged [")
    found = ask_for_commit(GitRepository.at(real), copy / ".git/objects", newest)
    assert found == CommitText((head(real),), "fix the parser")
    assert ask_for_commit(GitRepository.at(real), copy / "elsewhere", newest) is None


def test_very_many_commits_are_not_counted(repository: Path) -> None:
    text = b"tree %040d\nparent %s\n\nagain\n" % (0, b"1" * 40)
    endless = zlib.compress(b"commit %d\0%s" % (len(text), text))
    assert count_commits(lambda _: endless, "1" * 40, "2" * 40) is None
