"""A tree with some paths changed is the one that git makes through a whole index."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.errors import SandboxError
from holdfast.git.repository import GitRepository
from holdfast.git.trees import CommittedFolders, TreeEntry, write_changed_tree
from tests.support.repositories import git, make_repository

NAMES = [b"a", b"a.b", b"a-b", b"b", b"two\nlines", b"\xff", b":x"]
MODES = [0o100644, 0o100755, 0o120000, 0o160000]
EXAMPLES = 12

Entries = Mapping[bytes, TreeEntry | None]


@pytest.fixture(params=["sha1", "sha256"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> GitRepository:
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet", f"--object-format={request.param}")
    return GitRepository.at(root)


def some_path(chance: random.Random) -> bytes:
    return b"/".join(chance.choice(NAMES) for _ in range(chance.randint(1, 4)))


def some_entry(chance: random.Random, digest_bytes: int) -> TreeEntry:
    return TreeEntry(chance.choice(MODES), chance.randbytes(digest_bytes))


def through_an_index(repository: GitRepository, tree: str | None, entries: Entries, digest_bytes: int) -> str:
    """As git itself makes it: what goes first, then what comes."""
    root, index = repository.root, repository.git_dir / "index"
    index.unlink(missing_ok=True)
    if tree is not None:
        git(root, "read-tree", tree)
    going = [(path, TreeEntry(0, bytes(digest_bytes))) for path, entry in entries.items() if entry is None]
    coming = [(path, entry) for path, entry in entries.items() if entry is not None]
    lines = [b"%06o %s\t%s\0" % (each.mode, each.digest.hex().encode(), path) for path, each in (*going, *coming)]
    args = ["git", "update-index", "-z", "--index-info"]
    subprocess.run(args, cwd=root, input=b"".join(lines), check=True, capture_output=True)
    return git(root, "write-tree", "--missing-ok")


def test_it_is_the_tree_that_git_makes_through_an_index(repository: GitRepository) -> None:
    chance = random.Random(20)
    digest_bytes = len(git(repository.root, "hash-object", "--stdin")) // 2
    commit: str | None = None
    for _ in range(EXAMPLES):
        known = [os.fsencode(path) for path in git(repository.root, "ls-files", "-z").split("\0") if path]
        changed = {some_path(chance) for _ in range(chance.randint(1, 6))} | set(chance.sample(known, len(known) // 3))
        # As in files, nothing can be at a path and below it.
        coming: list[bytes] = []
        for path in sorted(changed):
            if chance.random() < 0.7 and not any(path.startswith(other + b"/") for other in coming):
                coming.append(path)
        entries = {path: some_entry(chance, digest_bytes) if path in coming else None for path in changed}
        before = CommittedFolders.on_the_way_to(repository, commit, entries)
        made = write_changed_tree(repository, before, entries, {})
        assert made == through_an_index(repository, commit, entries, digest_bytes)
        commit = git(repository.root, "-c", "user.name=x", "-c", "user.email=x@x", "commit-tree", "-m", "x", made)


def test_a_tree_without_its_last_file_is_empty(tmp_path: Path) -> None:
    repository = GitRepository.at(make_repository(tmp_path / "repository", {"deep/er/file": "1\n"}, has_user=True))
    entries = {b"deep/er/file": None}
    before = CommittedFolders.on_the_way_to(repository, repository.head(), entries)
    assert write_changed_tree(repository, before, entries, {}) == git(repository.root, "mktree", check=False)


def test_a_commit_that_git_cannot_read_is_refused(repository: GitRepository) -> None:
    nothing = "1" * len(git(repository.root, "hash-object", "--stdin"))
    with pytest.raises(SandboxError, match="cannot read the commit"):
        CommittedFolders.on_the_way_to(repository, nothing, [b"file"])
