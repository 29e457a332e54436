"""A copy of a known tree is known without reading it, and never wrong: what changed before it was copied is read."""

from __future__ import annotations

import mmap
import os
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
from blake3 import blake3

from holdfast.sandbox.bulk import CopiedFile, CopySink
from holdfast.sandbox.copying import TreeCopy
from holdfast.system.stamps import UNTRUSTED
from tests.support.opens import opened_names
from tests.support.snapshots import Place
from tests.support.trees import compare, describe, difference_of, make_odd_tree, write

FILES = 300


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    make_odd_tree(place.root)
    for number in range(FILES):
        write(place.root / f"directory {number % 20}" / f"file {number}", f"content {number}")
    (place.root / "link").symlink_to("directory 1")
    write(place.root / "file large", b"large" * 1_000_000)
    settle()
    yield place
    place.close()


def settle() -> None:
    """Until what was written is old enough to be told by its times."""
    time.sleep(0.05)


class Fork(Place):
    """A copy of a tree, in the same store, taken by a sibling of the manager that knows the tree."""

    def __init__(self, parent: Place, *, lent: bool = True) -> None:
        self.parent = parent
        manager = parent.manager
        known = manager.lend([parent.root]) if lent else None
        self.sibling = manager.sibling(known)
        super().__init__(parent.folder, parent.folder / f"fork {os.urandom(4).hex()}")
        self.root.rmdir()

    def _open(self) -> None:
        self.manager, self._watch = self.sibling, ExitStack()

    def copied(self, meanwhile: Callable[[CopySink], CopySink] = lambda sink: sink) -> Fork:
        with self.manager.learning(self.root, None, self.parent.root) as sink:
            unfinished = self.root.with_name("unfinished")
            TreeCopy(self.parent.root, unfinished, name="app", is_ours=True, sink=meanwhile(sink)).run()
            unfinished.rename(self.root)
        return self


@pytest.fixture
def fork(parent: Place) -> Iterator[Callable[..., Fork]]:
    made: list[Fork] = []

    def make(*, lent: bool = True) -> Fork:
        made.append(Fork(parent, lent=lent))
        return made[-1]

    yield make
    for each in made:
        each.close()


@contextmanager
def read_files() -> Iterator[set[str]]:
    found = set[str]()
    with opened_names() as names:
        yield found
    found |= {name for name in names if name.startswith("file ")}


def test_the_first_snapshot_of_a_fork_reads_no_file_and_is_the_state_of_its_parent(parent: Place, fork):
    state = parent.take().state_hash
    copy = fork().copied()
    with read_files() as read:
        assert copy.take().state_hash == state
    assert read == set()
    assert copy.found_anew() == state
    assert difference_of(parent.root, copy.root) == []


def test_nothing_of_a_fork_is_stored_again(parent: Place, fork):
    parent.take()
    stored_bytes = parent.manager.objects.content_bytes()
    fork().copied().take()
    assert parent.manager.objects.content_bytes() == stored_bytes


def test_a_fork_can_be_changed_and_restored(parent: Place, fork):
    parent.take()
    copy = fork().copied()
    before, checkpoint = describe(copy.root), copy.take()
    for path in copy.root.glob("directory */*"):
        path.unlink()
    write(copy.root / "directory 1" / "new", "new")
    assert copy.take().state_hash == copy.found_anew()
    copy.go_back(checkpoint)
    assert compare(before, describe(copy.root)) == []


def _same_size_and_time(path: Path) -> None:
    before = path.stat()
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replaced(root: Path) -> None:
    write(root / "new file 3", "other 3")
    (root / "new file 3").rename(root / "directory 3" / "file 3")


def _into_a_database(root: Path) -> None:
    with sqlite3.connect(root / "directory 3" / "data.db") as database:
        database.execute("CREATE TABLE x (y)")
    database.close()


def _with_time_kept(folder: Path, change: Callable[[Path], object]) -> None:
    before = folder.stat()
    change(folder)
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))


def _into(root: Path, name: str, make: Callable[[Path], object]) -> None:
    """Replace what has that name by something else, with the time of the directory around it kept."""

    def replace(_: Path) -> None:
        (root / name).rename(root.with_name(f"replaced {os.urandom(4).hex()}"))
        make(root / name)

    _with_time_kept((root / name).parent, replace)


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda root: write(root / "directory 3" / "file 3", "changed 3"),
    "content, with its size and time": lambda root: _same_size_and_time(root / "directory 3" / "file 3"),
    "large file": lambda root: write(root / "file large", b"other" * 1_000_000),
    "replaced": _replaced,
    "mode": lambda root: (root / "directory 3" / "file 3").chmod(0o600),
    "attribute": lambda root: os.setxattr(root / "directory 3" / "file 3", "user.note", b"1"),
    "attribute of a folder": lambda root: os.setxattr(root / "directory 3", "user.note", b"1"),
    "time of a folder": lambda root: os.utime(root / "directory 3", ns=(1, 1)),
    "mode of a folder": lambda root: (root / "directory 3").chmod(0o700),
    "symlink": lambda root: ((root / "link").unlink(), (root / "link").symlink_to("directory 2")),
    "new file": lambda root: write(root / "directory 3" / "file new", "new"),
    "new folder": lambda root: write(root / "new" / "deep" / "file new", "new"),
    "removed": lambda root: (root / "directory 3" / "file 3").unlink(),
    "removed folder": lambda root: (root / "directory 3").rename(root.with_name("elsewhere")),
    "second name": lambda root: os.link(root / "directory 3" / "file 3", root / "directory 4" / "file two"),
    "database": _into_a_database,
    "new file, with the time kept": lambda root: _with_time_kept(
        root / "directory 3", lambda folder: write(folder / "file new", "new")
    ),
    "removed, with the time kept": lambda root: _with_time_kept(
        root / "directory 3", lambda folder: (folder / "file 3").unlink()
    ),
    "folder into a file": lambda root: _into(root, "directory 3", lambda path: write(path, "a file")),
    "folder into a symlink": lambda root: _into(root, "directory 3", lambda path: path.symlink_to("directory 1")),
    "folder into a fifo": lambda root: _into(root, "directory 3", os.mkfifo),
    "folder into another": lambda root: _into(root, "directory 3", lambda path: write(path / "file 3", "other")),
    "file into a folder": lambda root: _into(root, "directory 3/file 3", lambda path: write(path / "file in", "x")),
    "file into an empty folder": lambda root: _into(root, "directory 3/file 3", Path.mkdir),
    "file into a symlink": lambda root: _into(root, "directory 3/file 3", lambda path: path.symlink_to("file 23")),
    "file into a fifo": lambda root: _into(root, "directory 3/file 3", os.mkfifo),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_before_it_was_copied_is_read(parent: Place, fork, change: str):
    parent.take()
    copy = fork()
    CHANGES[change](parent.root)
    copy.copied()
    assert copy.take().state_hash == copy.found_anew()
    assert difference_of(parent.root, copy.root) == []


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_since_the_parent_was_looked_at_last_is_lent_as_it_is_now(parent: Place, fork, change: str):
    parent.take()
    CHANGES[change](parent.root)
    settle()
    copy = fork().copied()
    with read_files() as read:
        state = copy.take().state_hash
    assert read == set()
    assert state == copy.found_anew()


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_in_a_fork_before_its_first_snapshot_is_seen(parent: Place, fork, change: str):
    parent.take()
    copy = fork().copied()
    CHANGES[change](copy.root)
    assert copy.take().state_hash == copy.found_anew()


def test_a_file_written_to_in_the_moment_after_the_look_is_read(parent: Place, fork):
    """Another write in the same moment may leave the same times."""
    parent.take()
    file = parent.root / "directory 3" / "file 3"
    write(file, "written just now", mtime_ns=1)
    copy = fork()
    with file.open("r+b") as opened:
        opened.write(b"another content!")
    os.utime(file, ns=(1, 1))
    copy.copied()
    with read_files() as read:
        state = copy.take().state_hash
    assert read == {"file 3"}
    assert state == copy.found_anew()


@pytest.mark.parametrize("name", ["directory 3/file 3", "file large", "directory 3/file with an attribute"])
def test_what_a_memory_mapping_changed_without_a_new_time_is_read(parent: Place, fork, name: str):
    file = parent.root / name
    write(file, file.read_bytes() if file.exists() else b"content")
    if "attribute" in name:
        os.setxattr(file, "user.note", b"1")
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapping:
        mapping[0] = mapping[0]  # only the first write after the page was saved gives the file another time
        settle()
        parent.take()
        copy = fork()
        before = file.stat()
        mapping[0] ^= 1
        assert file.stat().st_ctime_ns == before.st_ctime_ns, "this would be seen in any case"
        copy.copied()
    checkpoint, content = copy.take(), (copy.root / name).read_bytes()
    assert checkpoint.state_hash == copy.found_anew()
    (copy.root / name).unlink()
    copy.go_back(checkpoint)
    assert (copy.root / name).read_bytes() == content == file.read_bytes()


class _ChangesWhileCopied:
    """Changes one file of the original just before it is copied, and another one after that."""

    def __init__(self, root: Path, sink: CopySink) -> None:
        self._root, self._sink = root, sink
        self.note_entry = sink.note_entry

    def note_directory(self, path: bytes, inode: int) -> None:
        if path == b"directory 3":
            _same_size_and_time(self._root / "directory 3" / "file 3")
        self._sink.note_directory(path, inode)

    def note_files(self, files: list[CopiedFile]) -> None:
        _same_size_and_time(self._root / "directory 4" / "file 4")
        self._sink.note_files(files)


def test_a_file_that_changed_while_others_were_copied_is_read(parent: Place, fork):
    parent.take()
    copy = fork().copied(partial(_ChangesWhileCopied, parent.root))
    with read_files() as read:
        state = copy.take().state_hash
    assert read == {"file 3"}
    assert state == copy.found_anew()
    assert (copy.root / "directory 4" / "file 4").read_text() == "content 4"


def test_what_gets_an_access_list_when_it_is_copied_is_read(parent: Place, fork):
    """A folder may give one to all that is made in it."""
    parent.take()
    copy = fork()
    entries = [(0x01, 6, -1), (0x02, 4, 12345), (0x04, 4, -1), (0x10, 7, -1), (0x20, 4, -1)]
    packed = b"".join(struct.pack("<HHi", *entry) for entry in entries)
    os.setxattr(parent.folder, "system.posix_acl_default", struct.pack("<I", 2) + packed)
    copy.copied()
    assert "system.posix_acl_access" in os.listxattr(copy.root / "directory 3" / "file 3"), "nothing is tested"
    assert copy.take().state_hash == copy.found_anew()


def test_nothing_that_is_too_new_to_be_told_by_its_times_is_known(parent: Place, fork, monkeypatch):
    """The clock may be set back while we wait until nothing is."""
    state = parent.take().state_hash
    copy, present_ns = fork(), time.time_ns
    with monkeypatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: present_ns() - 3_600_000_000_000)
        copy.copied()
    known = copy.manager.indexes.of(copy.root).known
    for path, node in known.nodes():
        assert node.stamp[1] == UNTRUSTED, path
        assert set(node.stamps.values()) <= {(0, 0, 0, 0)}, path
    assert copy.take().state_hash == state == copy.found_anew()


def test_if_a_fork_cannot_be_looked_at_after_it_was_copied_all_of_it_is_read(parent: Place, fork):
    parent.take()
    copy = fork()
    elsewhere = copy.root.with_name("elsewhere")
    with copy.manager.learning(copy.root, None, parent.root) as sink:
        TreeCopy(parent.root, copy.root, name="app", is_ours=True, sink=sink).run()
        (copy.root / "directory 3").rename(elsewhere)
    elsewhere.rename(copy.root / "directory 3")
    with read_files() as read:
        state = copy.take().state_hash
    assert len(read) > FILES
    assert state == copy.found_anew()


def test_a_file_with_several_names_keeps_them_in_the_state_of_a_fork(parent: Place, fork):
    os.link(parent.root / "directory 3" / "file 3", parent.root / "directory 4" / "file two")
    settle()
    state = parent.take().state_hash
    copy = fork().copied()
    assert copy.take().state_hash == state
    for path in copy.root.glob("directory */*"):
        path.unlink()
    copy.go_back(state)
    assert (copy.root / "directory 3" / "file 3").samefile(copy.root / "directory 4" / "file two")


def test_a_fork_of_a_fork_is_known_too(parent: Place, fork):
    state = parent.take().state_hash
    copy = fork().copied()
    settle()
    again = Fork(copy).copied()
    with read_files() as read:
        assert again.take().state_hash == state
    assert read == set()
    again.close()


def test_several_forks_are_made_of_what_was_lent_once(parent: Place):
    state = parent.take().state_hash
    forks = [Fork(parent) for _ in range(3)]
    assert [each.copied().take().state_hash for each in forks] == [state] * 3
    for each in forks:
        each.close()


def test_without_what_the_parent_knows_all_is_read(parent: Place, fork):
    state = parent.take().state_hash
    assert fork(lent=False).copied().take().state_hash == state


def test_what_is_lent_is_forgotten_if_its_content_may_be_gone(parent: Place, fork):
    parent.take()
    copy = fork()
    parent.collect(set)
    copy.copied()
    checkpoint, before = copy.take(), describe(copy.root)
    (copy.root / "directory 3" / "file 3").unlink()
    copy.go_back(checkpoint)
    assert compare(before, describe(copy.root)) == []


def test_what_was_learned_of_a_fork_is_forgotten_if_its_content_may_be_gone(parent: Place, fork):
    parent.take()
    copy = fork().copied()
    parent.collect(set)
    checkpoint, before = copy.take(), describe(copy.root)
    (copy.root / "directory 3" / "file 3").unlink()
    copy.go_back(checkpoint)
    assert compare(before, describe(copy.root)) == []


def test_what_is_lent_is_not_used_if_content_was_found_damaged_since(parent: Place, fork):
    """It is stored again, from the files of the fork."""
    parent.take()
    copy = fork()
    file = parent.root / "directory 3" / "file 3"
    content = file.read_bytes()
    digest = blake3(content).digest()
    parent.manager.objects.damage.found.add(digest)
    parent.manager.objects.holding.note_damage_now()
    copy.copied()
    checkpoint = copy.take()
    copy_of_file = copy.root / "directory 3" / "file 3"
    copy_of_file.unlink()
    copy.go_back(checkpoint)
    assert copy_of_file.read_bytes() == content
    assert parent.stored_damage() == 0
