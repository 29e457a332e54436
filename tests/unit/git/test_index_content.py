"""What an index of git says, told from what git only notes in it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from holdfast.git.index_content import mean_the_same, meaning_of
from tests.support.repositories import git
from tests.support.trees import write

NAMES = [
    "a",
    "deep/er/file",
    "deep/er/file2",
    "deep/other",
    "exec",
    "long/" + "x" * 200,
    "odd ä\n",
    "z" * 7,
    "z" * 8,
]


@pytest.fixture(params=["sha1", "sha256"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet", f"--object-format={request.param}")
    for name in NAMES:
        write(root / name, f"{name}\n")
    (root / "exec").chmod(0o755)
    os.symlink("a", root / "link")
    git(root, "add", "--all")
    git(root, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "-m", "x")
    return root


def index_of(repository: Path) -> bytes:
    return (repository / ".git" / "index").read_bytes()


def listed(repository: Path) -> list[tuple[bytes, int, str, int]]:
    lines = [line for line in os.fsencode(git(repository, "ls-files", "--stage", "-z")).split(b"\0") if line]
    facts = [(line.partition(b"\t")[2], *line.partition(b"\t")[0].decode().split()) for line in lines]
    return [(path, int(mode, 8), digest, int(stage)) for path, mode, digest, stage in facts]


def read(repository: Path) -> list[tuple[bytes, int, str, int]]:
    meaning = meaning_of(index_of(repository))
    assert meaning is not None
    return [(each.path, each.mode, each.digest.hex(), each.flags[0] >> 12 & 3) for each in meaning.entries]


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_it_is_what_git_itself_lists(repository: Path, version: str):
    git(repository, "update-index", "--index-version", version)
    assert read(repository) == listed(repository)
    git(repository, "update-index", "--skip-worktree", "a")
    assert read(repository) == listed(repository)


def test_the_sides_of_a_conflict_are_told_apart(repository: Path):
    digest = git(repository, "rev-parse", "HEAD:a")
    lines = "".join(f"100644 {digest} {stage}\ta\n" for stage in (1, 2, 3))
    git(repository, "rm", "-q", "--cached", "a")
    subprocess.run(["git", "update-index", "--index-info"], cwd=repository, input=lines.encode(), check=True)
    assert [stage for path, _, _, stage in read(repository) if path == b"a"] == [1, 2, 3]
    assert read(repository) == listed(repository)


def touched(repository: Path) -> None:
    for name in NAMES:
        os.utime(repository / name, (1, 1))
    git(repository, "update-index", "-q", "--refresh")


def untracked_cache(repository: Path) -> None:
    git(repository, "update-index", "--untracked-cache")


def version_4(repository: Path) -> None:
    git(repository, "update-index", "--index-version", "4")


@pytest.mark.parametrize("note", [touched, untracked_cache, version_4])
def test_what_git_only_notes_does_not_count(repository: Path, note):
    before = index_of(repository)
    note(repository)
    assert index_of(repository) != before
    assert mean_the_same(before, index_of(repository))


@pytest.mark.parametrize(
    "command",
    [
        "update-index --skip-worktree a",
        "update-index --assume-unchanged a",
        "update-index --chmod=+x a",
        "rm -q --cached a",
        "add -N new",
        "add new",
    ],
)
def test_everything_else_counts(repository: Path, command: str):
    write(repository / "new", "")
    before = index_of(repository)
    git(repository, *command.split())
    assert not mean_the_same(before, index_of(repository))


def test_a_file_of_which_only_the_intent_is_known_is_not_an_empty_one(repository: Path):
    write(repository / "new", "")
    git(repository, "add", "-N", "new")
    intended = index_of(repository)
    git(repository, "add", "new")
    assert not mean_the_same(intended, index_of(repository))


def test_what_is_no_sound_index_is_like_nothing(repository: Path):
    content = index_of(repository)
    flipped = content[:50] + bytes([content[50] ^ 1]) + content[51:]
    for other in (b"", b"refs", content[:-1], content[:100], flipped, bytes(64), b"DIRC" + bytes(60)):
        assert meaning_of(other) is None
        assert not mean_the_same(other, other)


def test_a_checksum_may_be_left_out(repository: Path):
    content = index_of(repository)
    size = {40: 20, 64: 32}[len(git(repository, "rev-parse", "HEAD"))]
    assert mean_the_same(content, content[:-size] + bytes(size))
