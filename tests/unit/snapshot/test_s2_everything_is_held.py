"""S2: everything is held: every kind of entry, with its mode, time, owner, extended attributes and links."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.limits import few_open_files
from tests.support.snapshots import Place
from tests.support.trees import (
    A_MOMENT_NS,
    FAR_PAST_NS,
    IS_ROOT,
    ODD_NAMES,
    compare,
    describe,
    disk_bytes,
    make_deep,
    make_odd_tree,
    make_sparse,
    set_mtime,
    write,
)

Change = Callable[[Path], object]
MIB = 1 << 20


def assert_comes_back(place: Place, wreck: Change) -> None:
    """Whatever ``wreck`` does to the tree, going back gives what was there, and the same state hash (S4)."""
    before = describe(place.root)
    checkpoint = place.take()
    wreck(place.root)
    assert compare(before, describe(place.root)) != [], "nothing was wrecked"
    place.go_back(checkpoint)
    assert compare(before, describe(place.root)) == []
    assert place.manager.state_of(place.root) == checkpoint.state_hash
    place.next_process()
    assert place.take().state_hash == checkpoint.state_hash


def empty(root: Path) -> None:
    for path in list(root.iterdir()):
        if path.is_dir() and not path.is_symlink():
            os.chmod(path, 0o700)
            shutil.rmtree(path)
        else:
            path.unlink()


def test_s2_one_of_everything_comes_back_after_all_was_removed(place: Place, root: Path):
    make_odd_tree(root)
    assert_comes_back(place, empty)


def test_s2_one_of_everything_is_removed_when_there_was_nothing(place: Place):
    assert_comes_back(place, make_odd_tree)


def test_s2_everything_comes_back_when_every_attribute_was_changed(place: Place, root: Path):
    make_odd_tree(root)

    def change_attributes(root: Path) -> None:
        for path in [root, *root.rglob("*")]:
            if not path.is_symlink():
                os.chmod(path, 0o777 if path.is_dir() else 0o666)
                if path.is_dir() or path.is_file():
                    os.setxattr(path, "user.added", b"later")
        for path in [root, *root.rglob("*")]:
            set_mtime(path, 42)

    assert_comes_back(place, change_attributes)


def nothing(_: Path) -> None:
    pass


def rewrite_with_the_old_time(path: Path, content: bytes) -> None:
    status = path.stat()
    path.write_bytes(content)
    set_mtime(path, status.st_mtime_ns)


@pytest.mark.parametrize(
    ("make", "wreck"),
    [
        pytest.param(lambda r: write(r / "f", "old"), lambda r: write(r / "f", "new"), id="content"),
        pytest.param(lambda r: write(r / "f", "old"), lambda r: (r / "f").unlink(), id="file removed"),
        pytest.param(nothing, lambda r: write(r / "f", "new"), id="file added"),
        pytest.param(lambda r: write(r / "f"), lambda r: write(r / "f", "filled"), id="empty file filled"),
        pytest.param(lambda r: write(r / "f", "old"), lambda r: write(r / "f"), id="file emptied"),
        pytest.param(
            lambda r: write(r / "f", "old"),
            lambda r: rewrite_with_the_old_time(r / "f", b"new"),
            id="same size and time",
        ),
        pytest.param(lambda r: write(r / "f", mode=0o600), lambda r: (r / "f").chmod(0o644), id="private file opened"),
        pytest.param(lambda r: write(r / "f", "x", mode=0), lambda r: (r / "f").chmod(0o644), id="mode 0000"),
        pytest.param(lambda r: write(r / "f", "x", mode=0o4755), lambda r: (r / "f").chmod(0o755), id="setuid lost"),
        pytest.param(lambda r: write(r / "f", "x", mode=0o4755), lambda r: (r / "f").unlink(), id="setuid removed"),
        pytest.param(
            lambda r: write(r / "f", mtime_ns=A_MOMENT_NS),
            lambda r: set_mtime(r / "f", A_MOMENT_NS + 1),
            id="1 ns later",
        ),
        pytest.param(lambda r: write(r / "f", mtime_ns=FAR_PAST_NS), lambda r: set_mtime(r / "f", 0), id="far past"),
        pytest.param(lambda r: write(r / "f", mtime_ns=-1), lambda r: set_mtime(r / "f", 0), id="1 ns before 1970"),
        pytest.param(
            lambda r: write(r / "f", mtime_ns=7_000_000_000 * 10**9), lambda r: set_mtime(r / "f", 0), id="far future"
        ),
        pytest.param(lambda r: (r / "d").mkdir(), lambda r: (r / "d").rmdir(), id="empty directory removed"),
        pytest.param(nothing, lambda r: (r / "d" / "e").mkdir(parents=True), id="empty directories added"),
        pytest.param(lambda r: (r / "d").mkdir(0o700), lambda r: (r / "d").chmod(0o755), id="directory opened"),
        pytest.param(lambda r: (r / "d").mkdir(), lambda r: (r / "d").chmod(0o2775), id="directory made setgid"),
        pytest.param(lambda r: (r / "d").mkdir(), lambda r: (r / "d").chmod(0o1777), id="directory made sticky"),
        pytest.param(lambda r: (r / "d").mkdir(), lambda r: set_mtime(r / "d", 1), id="time of a directory"),
        pytest.param(nothing, lambda r: r.chmod(0o711), id="mode of the root"),
        pytest.param(nothing, lambda r: set_mtime(r, 1), id="time of the root"),
        pytest.param(nothing, lambda r: os.setxattr(r, "user.a", b"1"), id="attribute of the root"),
        pytest.param(lambda r: os.symlink("a", r / "s"), lambda r: relink(r / "s", "b"), id="symlink turned"),
        pytest.param(lambda r: os.symlink("/etc/passwd", r / "s"), lambda r: (r / "s").unlink(), id="absolute symlink"),
        pytest.param(lambda r: os.symlink("x", r / "s"), lambda r: set_mtime(r / "s", 1), id="time of a symlink"),
        pytest.param(lambda r: os.mkfifo(r / "p", 0o600), lambda r: (r / "p").chmod(0o666), id="fifo opened"),
        pytest.param(lambda r: os.mkfifo(r / "p", 0o600), lambda r: (r / "p").unlink(), id="fifo removed"),
        pytest.param(
            lambda r: os.setxattr(write(r / "f"), "user.a", b"1"),
            lambda r: os.setxattr(r / "f", "user.a", b"2"),
            id="attribute changed",
        ),
        pytest.param(
            lambda r: os.setxattr(write(r / "f"), "user.a", b"1"),
            lambda r: os.removexattr(r / "f", "user.a"),
            id="attribute removed",
        ),
        pytest.param(lambda r: write(r / "f"), lambda r: os.setxattr(r / "f", "user.a", b"1"), id="attribute added"),
    ],
)
def test_s2_comes_back(place: Place, root: Path, make: Change, wreck: Change):
    make(root)
    assert_comes_back(place, wreck)


def relink(path: Path, target: str) -> None:
    path.unlink()
    os.symlink(target, path)


@pytest.mark.skipif(not IS_ROOT, reason="only root may give files away")
def test_s2_the_owner_comes_back_where_we_may_set_it(place: Place, root: Path):
    for name in ("file", "set-user-id"):
        write(root / name, "x", mode=0o4755 if name == "set-user-id" else 0o644)
    (root / "directory").mkdir()
    os.symlink("file", root / "symlink")
    for name in ("file", "directory", "symlink"):
        os.chown(root / name, 1234, 4321, follow_symlinks=False)

    def take_them(root: Path) -> None:
        for path in root.iterdir():
            os.chown(path, 99, 98, follow_symlinks=False)

    assert_comes_back(place, take_them)


@pytest.mark.skipif(not IS_ROOT, reason="needs attributes that only root may set")
def test_s2_attributes_that_only_root_may_set_come_back(place: Place, root: Path):
    capability = b"\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    write(root / "ping", "#!", mode=0o755)
    os.setxattr(root / "ping", "security.capability", capability)
    write(root / "trusted", "x")
    os.setxattr(root / "trusted", "trusted.note", b"root's")
    os.symlink("ping", root / "symlink")
    os.setxattr(root / "symlink", "trusted.note", b"of the link itself", follow_symlinks=False)
    assert_comes_back(place, empty)


def test_s2_access_lists_come_back_and_those_of_the_directory_are_not_inherited(place: Place, root: Path):
    """A directory may give every new file in it an access list; what is restored gets its own, or none."""
    write(root / "d" / "without", "x", mode=0o640)
    entries = ((1, 7, -1), (2, 7, 1000), (4, 5, -1), (16, 7, -1), (32, 5, -1))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(root / "d", "system.posix_acl_default", acl)
    except OSError:
        pytest.skip("this file system has no access lists")
    write(root / "d" / "with", "x")
    assert os.listxattr(root / "d" / "with") == ["system.posix_acl_access"]

    def wreck(root: Path) -> None:
        (root / "d" / "without").unlink()
        (root / "d" / "with").unlink()

    assert_comes_back(place, wreck)


# Hard links


def test_s2_hard_links_across_directories_come_back(place: Place, root: Path):
    first = write(root / "one" / "a", "shared")
    (root / "two").mkdir()
    os.link(first, root / "two" / "b")
    os.link(first, root / "c")
    assert_comes_back(place, empty)


def test_s2_names_that_were_parted_become_one_file_again(place: Place, root: Path):
    first = write(root / "one" / "a", "shared")
    (root / "two").mkdir()
    os.link(first, root / "two" / "b")

    def part(root: Path) -> None:
        (root / "two" / "b").unlink()
        write(root / "two" / "b", "shared")

    assert_comes_back(place, part)


def test_s2_files_that_became_one_are_parted_again(place: Place, root: Path):
    write(root / "a", "same", mtime_ns=A_MOMENT_NS)
    write(root / "b", "same", mtime_ns=A_MOMENT_NS)

    def join(root: Path) -> None:
        (root / "b").unlink()
        os.link(root / "a", root / "b")

    assert_comes_back(place, join)


def test_s2_links_come_back_when_nothing_else_tells_the_two_states_apart(place: Place, root: Path):
    """All times are the same before and after, those of the directories too."""
    write(root / "d" / "a", "same", mtime_ns=A_MOMENT_NS)
    os.link(root / "d" / "a", root / "d" / "b")
    set_mtime(root / "d", A_MOMENT_NS)

    def part(root: Path) -> None:
        (root / "d" / "b").unlink()
        write(root / "d" / "b", "same", mode=(root / "d" / "a").stat().st_mode & 0o7777, mtime_ns=A_MOMENT_NS)
        set_mtime(root / "d", A_MOMENT_NS)

    assert_comes_back(place, part)


def test_s2_files_are_parted_when_nothing_else_tells_the_two_states_apart(place: Place, root: Path):
    write(root / "d" / "a", "same", mtime_ns=A_MOMENT_NS)
    write(root / "e" / "b", "same", mtime_ns=A_MOMENT_NS)
    set_mtime(root / "e", A_MOMENT_NS)

    def join(root: Path) -> None:
        (root / "e" / "b").unlink()
        os.link(root / "d" / "a", root / "e" / "b")
        set_mtime(root / "e", A_MOMENT_NS)

    assert_comes_back(place, join)


def test_s2_a_changed_partition_of_several_links_comes_back(place: Place, root: Path):
    for group in ("ab", "cd"):
        write(root / group[0], "same", mtime_ns=A_MOMENT_NS)
        os.link(root / group[0], root / group[1])

    def swap(root: Path) -> None:
        (root / "b").unlink()
        (root / "c").rename(root / "b")
        os.link(root / "a", root / "c")

    assert_comes_back(place, swap)


def test_s2_hard_links_of_symlinks_and_fifos_come_back(place: Place, root: Path):
    os.symlink("target", root / "s")
    os.link(root / "s", root / "t", follow_symlinks=False)
    os.mkfifo(root / "p")
    os.link(root / "p", root / "q")
    assert_comes_back(place, empty)


def test_s2_a_write_through_one_name_of_a_file_is_seen_under_the_other(place: Place, root: Path):
    write(root / "one" / "a", "shared")
    (root / "two").mkdir()
    os.link(root / "one" / "a", root / "two" / "b")
    assert_comes_back(place, lambda root: (root / "two" / "b").write_text("written"))


# Kinds that change


KINDS: dict[str, Change] = {
    "nothing": nothing,
    "file": lambda path: write(path, "a file"),
    "empty directory": lambda path: path.mkdir(),
    "directory": lambda path: [write(path / name, name) for name in ("x", "deeper/y", "deeper/still/z")],
    "symlink": lambda path: os.symlink("..", path),
    "dangling symlink": lambda path: os.symlink("nowhere", path),
    "fifo": lambda path: os.mkfifo(path),
}


@pytest.mark.parametrize("after", KINDS)
@pytest.mark.parametrize("before", KINDS)
def test_s2_whatever_a_name_becomes_it_comes_back(place: Place, root: Path, before: str, after: str):
    write(root / "neighbour", "stays")
    KINDS[before](root / "it")
    expected = describe(root)
    checkpoint = place.take()
    if (root / "it").is_dir() and not (root / "it").is_symlink():
        shutil.rmtree(root / "it")
    elif os.path.lexists(root / "it"):
        (root / "it").unlink()
    KINDS[after](root / "it")
    place.go_back(checkpoint)
    assert compare(expected, describe(root)) == []


# Names, depth, closed directories


@pytest.mark.parametrize("name", ODD_NAMES)
def test_s2_odd_names_come_back(place: Place, root: Path, name: bytes):
    directory = os.fsencode(root) + b"/" + name
    os.mkdir(directory)
    with open(directory + b"/" + name, "wb") as file:
        file.write(name)
    os.symlink(name, directory + b"/link")
    assert_comes_back(place, empty)


@pytest.fixture
def clean_up(place: Place) -> Iterator[None]:
    """Python's own removal of trees, which pytest uses, may not get that deep."""
    yield
    subprocess.run(["rm", "-rf", place.root, place.folder / "taken away"], check=True)


@pytest.mark.usefixtures("clean_up")
def test_s2_what_lies_500_directories_deep_comes_back(place: Place, root: Path):
    leaf = os.fsencode(root) + b"/" + make_deep(root, 500)
    before = describe(root)
    checkpoint = place.take()
    with open(leaf, "ab") as file:
        file.write(b", changed")
    place.go_back(checkpoint)
    assert compare(before, describe(root)) == []
    os.rename(root / "d", place.folder / "taken away")
    place.go_back(checkpoint)
    assert compare(before, describe(root)) == []


@pytest.mark.usefixtures("clean_up")
def test_s2_a_tree_deeper_than_a_process_may_open_files_comes_back(place: Place, root: Path):
    make_deep(root, 300)
    before = describe(root)
    with few_open_files(100):
        checkpoint = place.take()
        os.rename(root / "d", place.folder / "taken away")
        place.go_back(checkpoint)
    assert compare(before, describe(root)) == []


def test_s2_a_read_only_directory_full_of_files_comes_back(place: Place, root: Path):
    for number in range(50):
        write(root / "closed" / f"file {number}", str(number), mode=0o444)
    (root / "closed").chmod(0o555)

    def wreck(root: Path) -> None:
        (root / "closed").chmod(0o755)
        for number in range(0, 50, 2):
            (root / "closed" / f"file {number}").unlink()
        write(root / "closed" / "added", "x")
        (root / "closed").chmod(0o555)

    assert_comes_back(place, wreck)


def test_s2_ignored_files_and_nested_repositories_are_files_like_any_other(place: Place, root: Path):
    write(root / ".git" / "HEAD", "ref: refs/heads/main\n")
    write(root / ".gitignore", "*.log\nbuild/\n.env\n")
    write(root / ".env", "secret")
    write(root / "build" / "out.log", "log")
    write(root / "vendor" / "lib" / ".git" / "objects" / "pack" / "p.pack", b"\x00" * 100, mode=0o444)
    write(root / "vendor" / "lib" / "code", "code")
    assert_comes_back(place, empty)


# Large and sparse files


def test_s2_a_large_file_comes_back_after_every_kind_of_change(place: Place, root: Path):
    content = os.urandom(5 * MIB + 12345)
    write(root / "large", content)
    assert_comes_back(place, lambda root: os.truncate(root / "large", 3 * MIB))
    assert_comes_back(place, lambda root: os.truncate(root / "large", 9 * MIB))
    assert_comes_back(place, lambda root: write(root / "large", "small now"))
    assert_comes_back(place, lambda root: write(root / "large", content[::-1]))
    assert (root / "large").read_bytes() == content


@pytest.mark.parametrize("size", [4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 5 * MIB])
def test_s2_files_around_the_size_at_which_they_are_cut_into_pieces_come_back(place: Place, root: Path, size: int):
    write(root / "f", os.urandom(1000) * (size // 1000) + b"x" * (size % 1000))
    assert_comes_back(place, lambda root: (root / "f").unlink())


def test_s2_a_sparse_file_stays_sparse(place: Place, root: Path):
    file = make_sparse(root / "sparse", 64 * MIB, data={0: b"beginning", 32 * MIB + 7: b"middle"})
    assert disk_bytes(file) < 4 * MIB, "this file system has no sparse files"
    assert_comes_back(place, lambda root: (root / "sparse").unlink())
    assert disk_bytes(file) < 8 * MIB


@pytest.mark.parametrize("size", [MIB - 1, MIB, MIB + 1, 2 * MIB, 4 * MIB])
def test_s2_a_file_of_zeros_comes_back_at_its_size(place: Place, root: Path, size: int):
    write(root / "blank", bytes(size))
    assert_comes_back(place, lambda root: write(root / "blank", "no longer blank"))


def test_s2_a_file_of_holes_only_comes_back(place: Place, root: Path):
    make_sparse(root / "sparse", 16 * MIB, data={})
    make_sparse(root / "small and sparse", 100_000, data={})
    assert_comes_back(place, empty)
    assert disk_bytes(root / "sparse") < MIB
