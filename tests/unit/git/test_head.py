from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.git.head import git_head, head_of
from holdfast.git.repository import GitRepository
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


def told(repository: Path) -> tuple[str | None, str | None]:
    found = GitRepository.at(repository)
    return found.branch(), found.head()


def asked(repository: Path) -> tuple[str | None, str | None]:
    words = git(repository, "symbolic-ref", "--quiet", "HEAD", check=False)
    return words or None, git(repository, "rev-parse", "--quiet", "--verify", "HEAD", check=False) or None


def test_a_repository_tells_what_git_tells(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert told(repository) == asked(repository) == ("refs/heads/main", None)
    made = commit(repository)
    assert told(repository) == asked(repository) == ("refs/heads/main", made)
    git(repository, "symbolic-ref", "refs/heads/other", "refs/heads/main")
    git(repository, "symbolic-ref", "HEAD", "refs/heads/other")
    assert told(repository) == asked(repository)
    git(repository, "symbolic-ref", "HEAD", "refs/remotes/origin/main")
    assert told(repository) == asked(repository)
    git(repository, "checkout", "--quiet", "--detach", made)
    assert told(repository) == asked(repository) == (None, made)
    linked = tmp_path_factory.mktemp("linked") / "tree"
    git(repository, "worktree", "add", "--quiet", "-b", "topic/one", str(linked))
    commit(linked)
    git(repository, "pack-refs", "--all")
    assert told(linked) == asked(linked)
    assert told(linked)[0] == "refs/heads/topic/one"


def test_branches_in_another_form_than_files_are_left_to_git(repository: Path) -> None:
    commit(repository)
    (repository / ".git" / "HEAD").write_text("ref: refs/heads/.invalid\n")
    (repository / ".git" / "refs" / "heads" / ".invalid").write_text("1" * 40 + "\n")
    assert head_of(repository / ".git", repository / ".git") is None


@pytest.mark.parametrize(
    "said",
    [
        b"ref: refs/heads/ma\0in\n",
        b"ref: refs/heads//main\n",
        b"ref: refs/heads/./main\n",
        b"ref: refs/heads/../heads/main\n",
        b"ref:  refs/heads/main\n",
        b" ref: refs/heads/main\n",
        b"ref: refs/heads/main \n",
        b"ref: refs/heads/main/\n",
        b"ref: refs/heads/main.lock\n",
        b"ref: refs/heads/@{0}\n",
        b"ref: refs/heads/\n",
        b" " + b"1" * 40 + b"\n",
        b"0" * 40 + b"\n",
    ],
)
def test_a_head_that_git_would_not_write_is_left_to_git(repository: Path, said: bytes) -> None:
    commit(repository)
    (repository / ".git" / "HEAD").write_bytes(said)
    (repository / ".git" / "refs" / "heads" / "@{0}").write_text("1" * 40)
    assert head_of(repository / ".git", repository / ".git") is None


def a_link(place: Path) -> None:
    place.rename(place.with_name("elsewhere"))
    place.symlink_to("elsewhere")


def a_fifo(place: Path) -> None:
    place.unlink()
    os.mkfifo(place)


@pytest.mark.parametrize("made", [a_link, a_fifo])
def test_a_packed_branch_does_not_count_if_it_has_a_file_that_cannot_be_read(repository: Path, made) -> None:
    commit(repository)
    git(repository, "pack-refs", "--all")
    commit(repository)
    made(repository / ".git" / "refs" / "heads" / "main")
    assert head_of(repository / ".git", repository / ".git") is None
    assert git_head(repository) is None
    if made is a_link:
        assert told(repository) == asked(repository)


def test_a_folder_in_the_place_of_a_packed_branch_is_no_branch(repository: Path) -> None:
    commit(repository)
    git(repository, "pack-refs", "--all")
    (repository / ".git" / "refs" / "heads" / "main").mkdir()
    assert told(repository) == asked(repository)
    assert head_of(repository / ".git", repository / ".git") is not None


@pytest.mark.parametrize("what", ["missing", "zero", "tree", "tag"])
@pytest.mark.parametrize("place", ["HEAD", "refs/heads/main"])
def test_a_branch_at_what_is_no_commit_is_left_to_git(repository: Path, what: str, place: str) -> None:
    commit(repository)
    git(repository, "tag", "--annotate", "--message", "x", "marked")
    digests = {
        "missing": "1" * 40,
        "zero": "0" * 40,
        "tree": git(repository, "rev-parse", "HEAD^{tree}"),
        "tag": git(repository, "rev-parse", "marked"),
    }
    (repository / ".git" / place).write_text(f"{digests[what]}\n")
    expected = git(repository, "rev-parse", "--quiet", "--verify", "HEAD^{commit}", check=False) or None
    assert GitRepository.at(repository).head() == expected


def test_a_packed_commit_is_one(repository: Path) -> None:
    commit(repository)
    git(repository, "repack", "-a", "-d", "-q")
    assert told(repository) == asked(repository)
    assert told(repository)[1] is not None
