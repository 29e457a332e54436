"""An index carried over to a copy: git takes the same files for unchanged as in the original and need not read them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.git.index_stats import CarriedIndex, carried_over
from tests.support.repositories import git
from tests.support.trees import A_MOMENT_NS, set_mtime, write

NAMES = ["a", "deep/er/file", "deep/er/file2", "deep/other", "empty", "exec", "long/" + "x" * 200, "odd ä\n", "z" * 7]


@pytest.fixture(params=["sha1", "sha256"])
def original(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    root = tmp_path / "original"
    root.mkdir()
    git(root, "init", "--quiet", f"--object-format={request.param}")
    for name in NAMES:
        write(root / name, "" if name == "empty" else f"{name}\n", mtime_ns=A_MOMENT_NS)
    (root / "exec").chmod(0o755)
    os.symlink("a", root / "link")
    set_mtime(root / "link", A_MOMENT_NS)
    git(root, "add", "--all")
    git(root, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "-m", "x")
    return root


def carried(original: Path, *, except_for: tuple[bytes, ...] = ()) -> tuple[Path, CarriedIndex | None]:
    """A copy of the repository whose index, if it could be carried over, is the carried one."""
    copy = original.with_name("copy")
    shutil.copytree(original, copy, symlinks=True)
    index = original / ".git" / "index"
    one, other = (os.open(tree, os.O_RDONLY) for tree in (original, copy))
    try:
        found = carried_over(index.read_bytes(), int(index.stat().st_mtime), one, other, except_for)
    finally:
        os.close(one)
        os.close(other)
    if found is not None:
        (copy / ".git" / "index").write_bytes(found.content)
    return copy, found


def taken_for_changed(repository: Path) -> set[str]:
    """The files that git would have to read to know whether they changed."""
    return set(filter(None, git(repository, "diff-files", "--name-only", "-z").split("\0")))


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_git_finds_every_file_of_the_copy_unchanged_without_reading_it(original: Path, version: str):
    git(original, "update-index", "--index-version", version)
    if version == "3":  # git writes it only if an entry has flags that need it
        write(original / "intended", "later\n", mtime_ns=A_MOMENT_NS)
        git(original, "add", "--intent-to-add", "intended")
    shutil.copytree(original, original.with_name("plain copy"), symlinks=True)
    assert len(taken_for_changed(original.with_name("plain copy"))) > len(NAMES)
    before = taken_for_changed(original)
    copy, found = carried(original)
    assert found is not None
    assert found.is_complete is (version != "3")
    assert taken_for_changed(copy) == before
    assert git(copy, "ls-files", "--stage") == git(original, "ls-files", "--stage")
    git(copy, "fsck", "--strict")
    assert git(copy, "status", "--porcelain=v2") == git(original, "status", "--porcelain=v2")


def test_what_changed_stays_changed_and_the_rest_is_known(original: Path):
    write(original / "a", "changed\n", mtime_ns=A_MOMENT_NS)
    (original / "exec").chmod(0o644)
    (original / "deep" / "other").unlink()
    os.utime(original / "empty")
    copy, found = carried(original)
    assert found is not None
    assert not found.is_complete
    assert taken_for_changed(copy) == {"a", "exec", "deep/other", "empty"}
    assert git(copy, "status", "--porcelain=v2") == git(original, "status", "--porcelain=v2")


def test_a_file_of_the_second_in_which_the_index_was_written_is_left_to_git(original: Path):
    write(original / "new", "content\n")
    git(original, "add", "new")
    written_ns = (original / ".git" / "index").stat().st_mtime_ns
    set_mtime(original / "new", written_ns)
    git(original, "update-index", "--refresh")
    set_mtime(original / ".git" / "index", written_ns)
    copy, found = carried(original)
    assert found is not None
    assert not found.is_complete
    assert taken_for_changed(copy) == {"new"}


def test_a_file_that_is_not_copied_byte_for_byte_is_left_to_git(original: Path):
    copy, found = carried(original, except_for=(b"deep/er/file",))
    assert found is not None
    assert not found.is_complete
    assert taken_for_changed(copy) == {"deep/er/file"}


def test_files_in_conflict_stay_in_conflict(original: Path):
    blob = git(original, "hash-object", "-w", "a")
    lines = "".join(f"100644 {blob} {stage}\tconflict\n" for stage in (1, 2, 3))
    write(original.with_name("lines"), lines)
    git(original, "read-tree", "HEAD")
    git(original, "update-index", "--refresh")
    with original.with_name("lines").open() as given:
        subprocess.run(["git", "update-index", "--index-info"], cwd=original, stdin=given, check=True)
    copy, found = carried(original)
    assert found is not None
    assert git(copy, "ls-files", "--unmerged") == git(original, "ls-files", "--unmerged") != ""


def split_up(repository: Path) -> None:
    git(repository, "update-index", "--split-index")


def without_checksum(repository: Path) -> None:
    index = repository / ".git" / "index"
    size = 20 if "sha1" in git(repository, "rev-parse", "--show-object-format") else 32
    index.write_bytes(index.read_bytes()[:-size] + bytes(size))


def cut_short(repository: Path) -> None:
    index = repository / ".git" / "index"
    index.write_bytes(index.read_bytes()[:-100])


@pytest.mark.parametrize("make_odd", [split_up, without_checksum, cut_short])
def test_an_index_of_another_form_is_not_carried_over(original: Path, make_odd: Callable[[Path], None]):
    make_odd(original)
    assert carried(original)[1] is None
