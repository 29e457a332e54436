"""What is told of paths, and made of an index, without git is exactly what git would tell and make."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from holdfast.git import index as indexes
from holdfast.git.index import as_entries, changes_between, keep_index, new_index, put_index_back, replace_index
from holdfast.git.index_file import IndexFile
from holdfast.git.plain_paths import _Reading, are_as_committed, index_after, is_nothing_staged
from holdfast.git.repository import GitRepository
from holdfast.git.trees import CommittedFolders, TreeEntry
from tests.support.repositories import git
from tests.support.trees import A_MOMENT_NS, IS_ROOT, set_mtime, write

OURS, OTHER, GROUP = 1001, 1002, 2000
FOLDERS = ["", "a/", "a/b/", "a/b/c/", "a.b/", "z/", "z/" + "y" * 60 + "/"]
NAMES = ["a", "b.txt", "long" * 30, "odd ä\n", "\udcff", "x"]
ROUNDS = 15


@pytest.fixture(params=["sha1", "sha256"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> GitRepository:
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet", f"--object-format={request.param}")
    for folder in FOLDERS:
        for name in NAMES:
            path = f"{folder}{name}"
            if f"{path}/" not in FOLDERS:
                write(root / path, f"{path!r}\n", mtime_ns=A_MOMENT_NS)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "one")
    return GitRepository.at(root)


def committed(repository: GitRepository, *paths: bytes) -> CommittedFolders:
    return CommittedFolders.on_the_way_to(repository, repository.head(), paths)


def plain(repository: GitRepository, *paths: str) -> bool:
    asked = [os.fsencode(path) for path in paths]
    return are_as_committed(repository, committed(repository, *asked), asked)


def changed_at_random(root: Path, chance: random.Random) -> None:
    """Some files changed, made, removed, and other kinds of files than before."""
    listed = [path for path in git(root, "ls-files", "-z").split("\0") if path and path != "intended"]
    for path in chance.sample(listed, 5):
        place, what = root / path, chance.choice(["content", "gone", "mode", "link"])
        if what in ("gone", "link"):
            place.unlink(missing_ok=True)
        if what == "link":
            place.symlink_to(f"{chance.random()}")
        if what == "mode" and not place.is_symlink():
            place.chmod(place.stat().st_mode ^ 0o111)
        if what == "content" and not place.is_symlink():
            write(place, f"{chance.random()}\n", mtime_ns=A_MOMENT_NS + chance.randrange(10**9))
    for _ in range(3):
        write(root / chance.choice(FOLDERS) / f"new{chance.randrange(10**6)}", "new\n", mtime_ns=A_MOMENT_NS)


def made_by_git(repository: GitRepository, old: str | None, new: str) -> Path:
    """The index that git makes of the present one, beside it."""
    index = repository.git_dir / "index of git"
    shutil.copy(repository.index_path, index)
    variables = {**os.environ, "GIT_INDEX_FILE": str(index)}
    args = ["git", "update-index", "--add", "--remove", "-z", "--stdin"]
    listed = b"".join(path + b"\0" for path in changes_between(repository, old, new))
    subprocess.run(args, cwd=repository.root, env=variables, input=listed, check=True)
    return index


def commit_of_everything(repository: GitRepository) -> str:
    """A commit of the files, of which the index knows nothing."""
    variables = {**os.environ, "GIT_INDEX_FILE": str(repository.git_dir / "index of the commit")}
    git(repository.root, "add", "--all", environment=variables)
    tree = git(repository.root, "write-tree", environment=variables)
    return git(repository.root, "commit-tree", "-p", "HEAD", "-m", "next", tree)


def asked_of(repository: GitRepository, index: Path, *words: str) -> str:
    return git(repository.root, *words, environment={**os.environ, "GIT_INDEX_FILE": str(index)})


@pytest.mark.parametrize("form", ["plain", "version 3", "no checksum"])
def test_the_index_after_a_change_is_the_one_that_git_makes(repository: GitRepository, form: str) -> None:
    chance, root = random.Random(20), repository.root
    if form == "version 3":
        write(root / "intended", "later\n")
        git(root, "add", "--intent-to-add", "intended")
        (root / "intended").unlink()
    if form == "no checksum":
        git(root, "update-index", "--force-write-index")
        size = len(repository.head() or "") // 2
        content = repository.index_path.read_bytes()
        repository.index_path.write_bytes(content[:-size] + bytes(size))
    for _ in range(ROUNDS):
        old = repository.head()
        changed_at_random(root, chance)
        new = commit_of_everything(repository)
        made = index_after(repository, as_entries(changes_between(repository, old, new)))
        assert made is not None
        others = made_by_git(repository, old, new)
        repository.index_path.write_bytes(made)
        for words in (("ls-files", "--stage", "--debug", "-z"), ("ls-files", "-v", "-z")):
            assert asked_of(repository, repository.index_path, *words) == asked_of(repository, others, *words)
        # Both use the cached trees.
        assert git(root, "write-tree") == git(root, "rev-parse", f"{new}^{{tree}}")
        git(root, "update-ref", "HEAD", new)
        assert git(root, "status", "--porcelain") == (" D intended" if form == "version 3" else "")
        assert git(root, "diff-files", "--name-only") == ("intended" if form == "version 3" else "")
        assert git(root, "fsck", "--strict", "--cache", "--no-dangling", "--no-progress") == ""


def test_cached_trees_of_other_folders_are_kept(repository: GitRepository) -> None:
    root, old = repository.root, repository.head()
    write(root / "a/b/x", "changed\n")
    new = commit_of_everything(repository)
    made = index_after(repository, as_entries(changes_between(repository, old, new)))
    assert made is not None
    others = made_by_git(repository, old, new).read_bytes()
    assert _trees_in(made) == _trees_in(others)


def _trees_in(index: bytes) -> bytes:
    at = index.index(b"TREE")
    return index[at : at + 8 + int.from_bytes(index[at + 4 : at + 8])]


def with_a_filter(root: Path) -> None:
    write(root / ".git/info/attributes", "* text eol=crlf\n")


def in_conflict(root: Path) -> None:
    digest = git(root, "rev-parse", "HEAD:a/x")
    lines = "".join(f"100644 {digest} {stage}\ta/x\n" for stage in (1, 2, 3))
    git(root, "rm", "-q", "--cached", "a/x")
    subprocess.run(["git", "update-index", "--index-info"], cwd=root, input=lines.encode(), check=True)


def split_up(root: Path) -> None:
    git(root, "update-index", "--split-index")


def untracked_cached(root: Path) -> None:
    git(root, "update-index", "--untracked-cache")


def version_four(root: Path) -> None:
    git(root, "update-index", "--index-version", "4")


def not_looked_at(root: Path) -> None:
    git(root, "update-index", "--assume-unchanged", "a/x")


def skipped(root: Path) -> None:
    git(root, "update-index", "--skip-worktree", "a/x")


def intended(root: Path) -> None:
    git(root, "rm", "-q", "--cached", "a/x")
    git(root, "add", "--intent-to-add", "a/x")


def staged(root: Path) -> None:
    write(root / "a/x", "staged\n")
    git(root, "add", "a/x")


def something_below(root: Path) -> None:
    digest = git(root, "rev-parse", "HEAD:a/x")
    git(root, "rm", "-q", "--cached", "a/x")
    git(root, "update-index", "--add", "--cacheinfo", f"100644,{digest},a/x/below")


def something_above(root: Path) -> None:
    digest = git(root, "rev-parse", "HEAD:a/x")
    git(root, "rm", "-q", "-r", "--cached", "a")
    git(root, "update-index", "--add", "--cacheinfo", f"100644,{digest},a")


def not_an_index(root: Path) -> None:
    write(root / ".git/index", "DIRC and more that is no index of git at all")


def missing(root: Path) -> None:
    (root / ".git/index").unlink()


INDEXES = [
    in_conflict, split_up, untracked_cached, version_four, not_looked_at, skipped, intended, staged,
    something_below, something_above, not_an_index, missing,
]  # fmt: skip


@pytest.mark.parametrize("made", INDEXES)
def test_what_is_not_plain_in_the_index_is_left_to_git(repository: GitRepository, made) -> None:
    root, old = repository.root, repository.head()
    write(root / "a/x", "changed\n")
    new = commit_of_everything(repository)
    changes = as_entries(changes_between(repository, old, new))
    git(root, "checkout", "--quiet", "--", "a/x")
    assert plain(repository, "a/x")
    assert is_nothing_staged(repository, changes)
    made(root)
    assert not plain(repository, "a/x")
    if made not in (not_looked_at, skipped):
        assert not is_nothing_staged(repository, changes)
    write(root / "a/x", "changed\n")
    if made is not staged:
        assert index_after(repository, changes) is None


def file_changed(root: Path) -> None:
    write(root / "a/x", "changed\n", mtime_ns=A_MOMENT_NS)


def file_removed(root: Path) -> None:
    (root / "a/x").unlink()


def mode_changed(root: Path) -> None:
    (root / "a/x").chmod(0o755)


def now_a_link(root: Path) -> None:
    (root / "a/x").unlink()
    (root / "a/x").symlink_to("b")


def now_a_folder(root: Path) -> None:
    (root / "a/x").unlink()
    write(root / "a/x/in it", "")


def folder_now_a_link(root: Path) -> None:
    (root / "a").rename(root / "elsewhere")
    (root / "a").symlink_to("elsewhere")


def another_head(root: Path) -> None:
    write(root / "a/x", "committed\n")
    git(root, "stash", "--quiet")
    git(root, "update-ref", "HEAD", "stash@{0}")


@pytest.mark.parametrize(
    "change", [file_changed, file_removed, mode_changed, now_a_link, now_a_folder, folder_now_a_link, another_head]
)
def test_what_is_not_as_committed_is_not_taken_for_it(repository: GitRepository, change) -> None:
    assert plain(repository, "a/x", "a/b/x", "no such file", "nor/here")
    change(repository.root)
    assert not plain(repository, "a/x", "a/b/x", "no such file", "nor/here")
    assert not plain(repository, "a/x")


def test_a_file_that_is_not_tracked_is_not_as_committed(repository: GitRepository) -> None:
    write(repository.root / "a/new", "")
    assert plain(repository, "a/x")
    assert not plain(repository, "a/new")


def test_a_file_that_was_only_touched_or_written_in_the_second_of_the_index_is_read(repository: GitRepository) -> None:
    root = repository.root
    os.utime(root / "a/x")
    assert plain(repository, "a/x")
    now = (repository.index_path).stat().st_mtime_ns
    set_mtime(root / "a/x", now)
    git(root, "update-index", "--refresh")
    content = (root / "a/x").read_bytes()
    write(root / "a/x", content.swapcase().decode(), mtime_ns=now)
    set_mtime(repository.index_path, now)
    assert not plain(repository, "a/x")


@pytest.mark.parametrize("version", ["2", "4"])
def test_what_was_written_right_after_git_noted_a_file_is_seen_after_the_index_was_replaced(
    repository: GitRepository, version: str
) -> None:
    root, old = repository.root, repository.head()
    git(root, "config", "core.trustCtime", "false")  # nobody can set that time
    git(root, "update-index", "--index-version", version)
    write(root / "a/x", "changed\n", mtime_ns=A_MOMENT_NS)
    variables = {**os.environ, "GIT_INDEX_FILE": str(repository.git_dir / "index of the commit")}
    git(root, "read-tree", "HEAD", environment=variables)
    git(root, "add", "a/x", environment=variables)
    new = git(root, "commit-tree", "-p", "HEAD", "-m", "x", git(root, "write-tree", environment=variables))
    noted = A_MOMENT_NS
    write(root / "z/x", "one\n", mtime_ns=noted)
    git(root, "add", "z/x")
    with (root / "z/x").open("r+") as file:
        file.write("two\n")
    for place in (root / "z/x", repository.index_path):
        set_mtime(place, noted)
    assert git(root, "status", "--porcelain", "z/x") == "MM z/x"
    replace_index(repository, new_index(repository, old, new), "token")
    assert git(root, "status", "--porcelain", "z/x") == "MM z/x"
    assert git(root, "ls-files", "--stage", "a/x").split()[1] == git(root, "rev-parse", f"{new}:a/x")


def test_a_file_of_which_git_commits_something_else_is_left_to_git(repository: GitRepository) -> None:
    root, old = repository.root, repository.head()
    write(root / ".git/info/attributes", "* text eol=crlf\n")
    write(root / "a/x", "changed\r\n")
    new = commit_of_everything(repository)
    assert index_after(repository, as_entries(changes_between(repository, old, new))) is None
    repository.index_path.write_bytes(new_index(repository, old, new))
    git(root, "update-ref", "HEAD", new)
    assert git(root, "status", "--porcelain") == ""


def test_a_file_that_takes_the_place_of_a_folder_leaves_no_cached_tree_of_it(repository: GitRepository) -> None:
    root, old = repository.root, repository.head()
    shutil.rmtree(root / "a/b")
    write(root / "a/b", "a file now\n")
    (root / "z/x").unlink()
    write(root / "z/x/below", "a folder now\n")
    new = commit_of_everything(repository)
    made = index_after(repository, as_entries(changes_between(repository, old, new)))
    assert made is not None
    repository.index_path.write_bytes(made)
    assert git(root, "write-tree") == git(root, "rev-parse", f"{new}^{{tree}}")
    git(root, "update-ref", "HEAD", new)
    assert git(root, "status", "--porcelain") == ""
    assert git(root, "fsck", "--strict", "--cache", "--no-dangling", "--no-progress") == ""


def test_a_cut_off_index_is_not_understood(repository: GitRepository) -> None:
    content = repository.index_path.read_bytes()
    size = len(repository.head() or "") // 2
    copy = repository.git_dir / "cut"
    for end in (0, 5, 12, 40, 100, len(content) // 2, len(content) - size - 1):
        copy.write_bytes(content[:end])
        assert IndexFile.read(copy, size) is None


def test_the_second_of_an_index_is_not_rounded_up(repository: GitRepository) -> None:
    moment = A_MOMENT_NS // 10**9 * 10**9 + 999_999_999
    set_mtime(repository.index_path, moment)
    found = IndexFile.read(repository.index_path, len(repository.head() or "") // 2)
    assert found is not None
    assert found.written_at == moment // 10**9


def test_a_file_that_git_marked_to_be_read_again_is_read(repository: GitRepository) -> None:
    """Git notes the size 0, and reads the file even if that is its size now."""
    root = repository.root
    git(root, "config", "core.trustCtime", "false")
    write(root / "a/x", "", mtime_ns=A_MOMENT_NS)
    content = bytearray(repository.index_path.read_bytes())
    place = content.index(b"a/x\0") - 2 - len(repository.head() or "") // 2 - 40
    found = (root / "a/x").stat()
    for at, number in (
        (0, found.st_ctime_ns // 10**9),
        (4, found.st_ctime_ns % 10**9),
        (8, A_MOMENT_NS // 10**9),
        (12, A_MOMENT_NS % 10**9),
        (20, found.st_ino),
        (36, 0),
    ):
        content[place + at : place + at + 4] = (number & 0xFFFFFFFF).to_bytes(4)
    repository.index_path.write_bytes(_signed(content, repository))
    assert git(root, "status", "--porcelain", "a/x") == " M a/x"
    assert not plain(repository, "a/x")
    git(root, "add", "a/x")
    git(root, "commit", "--quiet", "--message", "empty")
    assert plain(repository, "a/x")


def _signed(content: bytearray, repository: GitRepository) -> bytes:
    size = len(repository.head() or "") // 2
    digest = hashlib.sha1 if size == 20 else hashlib.sha256
    return bytes(content[:-size]) + digest(content[:-size], usedforsecurity=False).digest()


FILTERS = {
    "ends of lines": ("* text", "one\r\ntwo\r\n"),
    "ends of lines where a piece ends": ("* text", "x" * ((1 << 20) - 1) + "\r\n"),
    "ends of lines by a setting": ("", "one\r\ntwo\r\n"),
    "ident": ("* ident", "$Id: of another file $\n"),
    "filter": ("* filter=upper", "lower\n"),
    "encoding": ("* working-tree-encoding=UTF-16LE", "ab"),
}


@pytest.mark.parametrize("kind", FILTERS)
@pytest.mark.parametrize("place", [".gitattributes", ".git/info/attributes", "global"])
def test_what_git_would_commit_in_another_form_is_left_to_git(
    repository: GitRepository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, place: str
) -> None:
    """The file is what is committed, byte for byte, and git says all the same that it is modified."""
    root, old = repository.root, repository.head()
    attributes, text = FILTERS[kind]
    git(root, "config", "filter.upper.clean", "tr a-z A-Z")
    write(root / "a/x", text, mtime_ns=A_MOMENT_NS)
    new = commit_of_everything(repository)
    git(root, "reset", "--quiet", new)
    assert plain(repository, "a/x")
    if kind == "ends of lines by a setting":
        git(root, "config", "core.autocrlf", "true")
        write(root / ".gitattributes", "a/x text=auto\n" if place == ".gitattributes" else "")
    where = tmp_path / "attributes" if place == "global" else root / place
    if attributes:
        write(where, f"{attributes}\n")
    git(root, "config", "core.attributesFile", str(tmp_path / "attributes"))
    set_mtime(root / "a/x", A_MOMENT_NS + 10**9)
    assert not plain(repository, "a/x")
    git(root, "update-index", "--cacheinfo", f"100644,{git(root, 'rev-parse', f'{old}:a/x')},a/x")
    assert index_after(repository, as_entries(changes_between(repository, old, new))) is None


def test_attributes_that_change_nothing_in_a_file_do_not_matter(repository: GitRepository) -> None:
    root, old = repository.root, repository.head()
    write(root / ".gitattributes", "* text=auto ident\nz/* -text\n")
    git(root, "add", ".gitattributes")
    write(root / "z/x", "one\r\n")
    write(root / "a/x", "changed\n")
    new = commit_of_everything(repository)
    assert index_after(repository, as_entries(changes_between(repository, old, new))) is not None


def test_attributes_that_are_in_the_index_alone_are_left_to_git(repository: GitRepository) -> None:
    root = repository.root
    write(root / ".gitattributes", "* text\n")
    write(root / "a/x", "one\n")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "two")
    (root / ".gitattributes").unlink()
    set_mtime(root / "a/x", A_MOMENT_NS)
    assert not plain(repository, "a/x")


def test_attributes_in_a_symlink_are_left_to_git_which_takes_those_of_the_index(repository: GitRepository) -> None:
    write(repository.root / ".gitattributes", "*.txt filter=up\n")
    git(repository.root, "add", ".gitattributes")
    git(repository.root, "commit", "--quiet", "--message", "attributes")
    git(repository.root, "config", "filter.up.clean", "tr a-z A-Z")
    (repository.root / ".gitattributes").unlink()
    (repository.root / ".gitattributes").symlink_to("elsewhere")
    (repository.root / "a" / "b.txt").touch()
    assert "a/b.txt" in git(repository.root, "diff-files", "--name-only").splitlines()
    assert not plain(repository, "a/b.txt")


@pytest.mark.parametrize("pieces", [[b"$", b"I", b"d$"], [b"\r", b"\n"], [b"x$I", b"d"], [b"$Id$"]])
def test_a_mark_is_found_however_short_the_pieces_are_that_a_file_is_read_in(pieces: list[bytes]) -> None:
    reading = _Reading(TreeEntry(0o100644, bytes(20)), 4)
    for piece in pieces:
        reading.add(piece)
    assert reading.marks


def test_what_git_makes_of_an_index_keeps_what_was_written_right_after_git_noted_it(repository: GitRepository) -> None:
    """Even if the index then gets a later time, as from a program that copies it."""
    root, old = repository.root, repository.head()
    git(root, "config", "core.trustCtime", "false")
    git(root, "update-index", "--index-version", "4")
    write(root / "a/x", "changed\n")
    new = commit_of_everything(repository)
    write(root / "z/x", "one\n", mtime_ns=A_MOMENT_NS)
    git(root, "add", "z/x")
    with (root / "z/x").open("r+") as file:
        file.write("two\n")
    for place in (root / "z/x", repository.index_path):
        set_mtime(place, A_MOMENT_NS)
    made = new_index(repository, old, new)
    repository.index_path.write_bytes(made)
    assert git(root, "status", "--porcelain", "z/x") == "MM z/x"


@pytest.mark.parametrize("version", ["2", "4"])
def test_a_clean_file_does_not_become_a_modified_one_when_the_index_is_replaced(
    repository: GitRepository, version: str
) -> None:
    root, old = repository.root, repository.head()
    git(root, "update-index", "--index-version", version)
    write(root / "a/x", "changed\n")
    new = commit_of_everything(repository)
    for name in ("z/x", "z/a"):
        os.utime(root / name)
    git(root, "update-index", "--refresh", check=False)  # in the second in which they were written
    replace_index(repository, new_index(repository, old, new), "token")
    git(root, "update-ref", "HEAD", new)
    for _ in range(2):
        assert git(root, "diff-files", "--name-only") == ""
        assert git(root, "diff", "--name-only") == ""
        assert git(root, "status", "--porcelain") == ""
        subprocess.run(["git", "status", "--porcelain"], cwd=root, check=True, capture_output=True)


def test_the_first_index_of_a_repository_is_not_newer_than_its_lock(repository: GitRepository) -> None:
    content = repository.index_path.read_bytes()
    repository.index_path.unlink()
    set_mtime(write(repository.index_lock, ""), A_MOMENT_NS)
    replace_index(repository, content, "token")
    assert repository.index_path.stat().st_mtime_ns == A_MOMENT_NS


def told_of(place: Path) -> tuple[object, ...]:
    found = place.stat()
    return place.read_bytes(), found.st_mode, found.st_mtime_ns, found.st_uid, found.st_gid


@pytest.mark.parametrize("way", ["another name", "a copy"])
def test_the_index_that_was_kept_comes_back_with_time_mode_and_owner(
    repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    index, kept = repository.index_path, tmp_path / "kept" / ".index"
    index.chmod(0o640)
    if IS_ROOT:
        os.chown(index, 1234, 4321)
    set_mtime(index, A_MOMENT_NS)
    before = told_of(index)
    if way == "a copy":
        monkeypatch.setattr(os, "link", not_permitted)
    keep_index(repository, kept)
    replace_index(repository, b"another", "token")
    index.chmod(0o600)
    set_mtime(index, A_MOMENT_NS + 5 * 10**9)
    assert put_index_back(repository, kept, "token")
    assert told_of(index) == before
    assert not kept.exists()
    assert not put_index_back(repository, kept, "token")
    assert told_of(index) == before


def not_permitted(*_: object) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


AS_ANOTHER_USER = f"""
import os, sys
from pathlib import Path
from holdfast.git.index import keep_index, put_index_back, replace_index
from holdfast.git.repository import GitRepository

def refuse(*_):
    raise PermissionError(1, "Operation not permitted")

root, kept = Path(sys.argv[1]), Path(sys.argv[2]) / "index"
if sys.argv[3] == "a copy":
    os.link = refuse
repository = GitRepository(root, root / ".git", root / ".git", "sha1")
os.setgroups([{GROUP}])
os.setresgid({OURS}, {OURS}, {OURS})
os.setresuid({OURS}, {OURS}, {OURS})
keep_index(repository, kept)
replace_index(repository, b"another", "token")
assert repository.index_path.stat().st_gid == {GROUP}
assert put_index_back(repository, kept, "token")
"""


@pytest.mark.skipif(not IS_ROOT, reason="only root may become another user")
@pytest.mark.parametrize("way", ["another name", "a copy"])
def test_in_the_repository_of_a_group_the_index_stays_that_groups(repository: GitRepository, way: str) -> None:
    """The index is another user's, so on many machines it gets no second name; the folder of the plan is ours."""
    with tempfile.TemporaryDirectory() as name:  # others may not look into the folders of pytest
        root, kept = Path(name) / "repository", Path(name) / "kept"
        Path(name).chmod(0o755)
        shutil.copytree(repository.root, root, symlinks=True)
        kept.mkdir()
        os.chown(kept, OURS, OURS)
        for place in (root / ".git", root / ".git" / "index"):
            os.chown(place, OTHER, GROUP)
        (root / ".git").chmod(0o2775)
        (root / ".git" / "index").chmod(0o664)
        set_mtime(root / ".git" / "index", A_MOMENT_NS)
        before = told_of(root / ".git" / "index")
        command = [sys.executable, "-c", AS_ANOTHER_USER, str(root), str(kept), way]
        variables = {name: value for name, value in os.environ.items() if name != "COVERAGE_PROCESS_CONFIG"}
        subprocess.run(command, check=True, env=variables)
        after = told_of(root / ".git" / "index")
    content, mode, mtime_ns, owner, group = after
    assert (content, mode, mtime_ns) == before[:3]
    assert (owner, group) == (OTHER if way == "another name" else OURS, GROUP)


def test_several_threads_may_ask_what_commits_change(repository: GitRepository) -> None:
    failures: list[BaseException] = []

    def ask(number: int) -> None:
        try:
            for each in range(3000):
                indexes.note_changes(repository, str(number), str(each), {})
                assert changes_between(repository, str(number), str(each)) == {}
        except BaseException as failure:  # noqa: BLE001 - told by the assertion below
            failures.append(failure)

    def compared(*_: object) -> dict[bytes, tuple[bytes, bytes]]:
        return {}

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(indexes, "compared", compared)
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
    assert failures == []
    assert len(indexes._KNOWN) <= 8
