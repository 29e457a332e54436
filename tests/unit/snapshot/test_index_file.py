"""The index file grows with what changed, and whatever happens to it, it gives no state but that of the tree."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.content.format import Entry
from holdfast.snapshot.scan import cache, known_tree
from holdfast.snapshot.scan.cache import IndexFile
from holdfast.snapshot.scan.hard_links import HardLinks
from holdfast.snapshot.scan.known_tree import KnownTree
from holdfast.system.stamps import Stamp
from tests.support.opens import opened_names
from tests.support.snapshots import Place
from tests.support.trees import write

Known = tuple[object, ...]


def settle() -> None:
    time.sleep(0.03)


def index_of(place: Place) -> Path:
    (file,) = place.caches
    return file


def everything(tree: KnownTree) -> dict[bytes, tuple[Entry | None, bytes | None, bytes, dict[bytes, Stamp]]]:
    return {path: (node.head, node.digest, node.encoded(), node.stamps) for path, node in tree.nodes()}


def known_from(place: Place) -> Known | None:
    """All that the next process would know, without looking at the tree."""
    loaded = IndexFile(index_of(place), place.root).load()
    if loaded is None:
        return None
    tree, state, finding = loaded
    links = tree.links
    return state, finding, everything(tree), dict(tree.unheld.items()), links.by_path, links.groups(), links.left


def remember(place: Place) -> bytes:
    """Let a process take a checkpoint and end; returns the index file that it leaves."""
    settle()
    place.take()
    place.next_process(remembering=True)
    return index_of(place).read_bytes()


@pytest.fixture(params=[40])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    place = Place(tmp_path)
    for number in range(request.param):
        write(place.root / f"folder {number}" / "inside" / "file", f"{number}")
    os.link(place.root / "folder 1" / "inside" / "file", place.root / "linked")
    os.mknod(place.root / "socket", stat.S_IFSOCK | 0o600)
    remember(place)
    return place


def change_something(place: Place, number: int = 3) -> None:
    write(place.root / f"folder {number}" / "inside" / "file", f"changed {time.time_ns()}")


def fresh_state(place: Place) -> str:
    """The state as a process without an index finds it."""
    folder = place.folder / "fresh"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    fresh = Place(folder, place.root)
    try:
        return fresh.take().state_hash
    finally:
        fresh.close()


def is_read_again(place: Place) -> bool:
    """Whether the next process reads files, although none changed."""
    place.next_process()
    with opened_names() as names:
        place.take()
    return "file" in names


# What is written


def test_nothing_is_written_if_nothing_changed(place: Place):
    before = index_of(place).stat()
    place.take()
    place.next_process(remembering=True)
    assert (index_of(place).stat().st_ino, index_of(place).stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_what_changed_is_added_at_the_end(place: Place):
    before = index_of(place).read_bytes()
    change_something(place)
    after = remember(place)
    assert after.startswith(before)
    assert len(after) - len(before) < len(before) // 3
    assert b"folder 3/inside" in after[len(before) :]
    assert b"folder 4/inside" not in after[len(before) :]


def test_it_does_not_grow_for_ever(place: Place):
    first = len(index_of(place).read_bytes())
    sizes = set()
    for number in range(40):
        change_something(place, number)
        sizes.add(len(remember(place)))
        assert place.take().state_hash == fresh_state(place)
    assert max(sizes) < 2 * first
    assert len(list(index_of(place).parent.iterdir())) == 1, "and no temporary file is left"


def test_it_does_not_get_too_many_parts(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cache, "_MOST_TREES", 3)
    for _ in range(8):
        change_something(place)
        remember(place)
        loaded = IndexFile(index_of(place), place.root).load()
        assert loaded is not None
        assert len(loaded[0].packed) <= 3
    assert place.take().state_hash == fresh_state(place)


def test_removed_directories_stay_forgotten_when_others_take_their_names(place: Place):
    shutil.rmtree(place.root / "folder 1")
    remember(place)
    write(place.root / "folder 1" / "other", "new")
    remember(place)
    assert place.take().state_hash == fresh_state(place)
    (place.root / "folder 1" / "inside").mkdir()
    remember(place)
    assert place.take().state_hash == fresh_state(place)


def test_a_removed_index_is_written_anew(place: Place):
    place.take()
    index_of(place).unlink()
    place.manager.remember()
    place.next_process()
    assert known_from(place) is not None


def test_many_directories_read_at_once_are_packed_and_still_known(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(known_tree, "_MOST_LOADED", 10)
    index_of(place).unlink()
    place.next_process()
    settle()
    place.take()
    change_something(place)
    changed = place.take()
    assert place.manager.state_of(place.root) == changed.state_hash == fresh_state(place)
    settle()
    place.take()
    place.next_process(remembering=True)
    assert not is_read_again(place)
    assert place.take().state_hash == changed.state_hash


# What is not used


@pytest.mark.parametrize("place", [5], indirect=True)
def test_an_index_torn_at_any_byte_is_one_that_was_written_as_a_whole(place: Place):
    first, known_first = index_of(place).read_bytes(), known_from(place)
    change_something(place)
    whole = remember(place)
    known = known_from(place)
    assert known is not None
    assert known != known_first
    for length in range(len(whole)):
        index_of(place).write_bytes(whole[:length])
        assert known_from(place) == (known_first if length >= len(first) else None), length


@pytest.mark.parametrize("place", [5], indirect=True)
def test_a_bit_flipped_anywhere_is_noticed(place: Place):
    first, known_first = index_of(place).read_bytes(), known_from(place)
    change_something(place)
    whole = remember(place)
    for position in range(len(whole)):
        spoiled = bytearray(whole)
        spoiled[position] ^= 1 << position % 8
        index_of(place).write_bytes(spoiled)
        assert known_from(place) == (known_first if position >= len(first) else None), position


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_after_a_torn_addition_the_state_is_right_and_the_index_whole_again(place: Place, share: float):
    first = len(index_of(place).read_bytes())
    change_something(place)
    whole = remember(place)
    index_of(place).write_bytes(whole[: first + int((len(whole) - first) * share)])
    place.next_process()
    assert place.take().state_hash == fresh_state(place)
    change_something(place, 4)
    remember(place)
    assert place.take().state_hash == fresh_state(place)
    assert not is_read_again(place)


def test_an_addition_that_the_disk_cut_short_is_ignored(place: Place, monkeypatch: pytest.MonkeyPatch):
    known = known_from(place)
    change_something(place)
    write_all = os.write
    with monkeypatch.context() as full:
        full.setattr(cache.os, "write", lambda descriptor, data: write_all(descriptor, data[: len(data) // 2]))
        remember(place)
    assert known_from(place) == known
    assert place.take().state_hash == fresh_state(place)
    remember(place)
    assert known_from(place) not in (known, None)


@pytest.mark.parametrize("failing", ["open", "write"])
def test_a_disk_that_refuses_leaves_the_index_as_it_was(place: Place, monkeypatch: pytest.MonkeyPatch, failing: str):
    known = known_from(place)
    change_something(place)
    settle()
    place.take()

    def refused(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(cache.os, failing, refused)
        place.manager.remember()
    place.next_process()
    assert known_from(place) == known


def test_what_two_processes_add_at_once_is_known_from_the_first_of_them(place: Place, monkeypatch: pytest.MonkeyPatch):
    other = Place(place.folder, place.root)
    for each in (place, other):
        change_something(place)
        settle()
        each.take()
    monkeypatch.setattr(IndexFile, "_can_grow", lambda _self, _tree: True)  # both looked before one of them wrote
    place.manager.remember()
    known = known_from(place)
    other.manager.remember()
    assert known_from(place) == known
    monkeypatch.undo()
    other.close()
    place.next_process()
    assert place.take().state_hash == fresh_state(place)
    remember(place)
    assert known_from(place) not in (known, None)


def test_what_another_process_wrote_meanwhile_is_replaced_as_a_whole(place: Place):
    other = Place(place.folder, place.root)
    for each in (place, other):
        change_something(place)
        settle()
        each.take()
        each.manager.remember()
    other.close()
    assert not is_read_again(place)
    assert place.take().state_hash == fresh_state(place)


def test_frames_of_another_index_are_not_taken_for_additions(place: Place, tmp_path: Path):
    """The digest of each frame depends on all before it."""
    base, known = index_of(place).read_bytes(), known_from(place)
    change_something(place)
    one = remember(place)[len(base) :]
    change_something(place, 4)
    two = remember(place)[len(base) + len(one) :]
    index_of(place).write_bytes(base + two)
    assert known_from(place) == known
    index_of(place).write_bytes(base + two + one)
    assert known_from(place) == known


def test_trees_without_facts_after_them_do_not_count(place: Place):
    base, known = index_of(place).read_bytes(), known_from(place)
    change_something(place)
    whole = remember(place)
    facts = whole.rindex(cache._MAGIC)
    assert facts > len(base)
    index_of(place).write_bytes(whole[:facts])
    assert known_from(place) == known


def test_an_index_of_the_version_before_is_ignored(place: Place):
    content = index_of(place).read_bytes()
    index_of(place).write_bytes(content.replace(b"HFINDEX7", b"HFINDEX6"))
    assert known_from(place) is None
    body = cache._encode([5, "boot", 1, b"state", None, [], {}, {}, {}, set()])
    index_of(place).write_bytes(cache.digest_of(body) + body)
    assert known_from(place) is None
    place.next_process()
    assert place.take().state_hash == fresh_state(place)


# Only what is needed is looked at


def listed_by(place: Place, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many directories a checkpoint lists."""
    listed: list[object] = []
    scandir = os.scandir
    with monkeypatch.context() as counting:
        counting.setattr(os, "scandir", lambda folder: listed.append(folder) or scandir(folder))
        place.take()
    return len(listed)


def loaded_of(place: Place) -> set[bytes]:
    return {path for path, _ in place.manager.indexes.of(place.root).known.loaded()}


@pytest.fixture
def held(place: Place) -> Place:
    """Without the socket: a directory with something that is not held is always listed."""
    (place.root / "socket").unlink()
    remember(place)
    return place


def test_what_was_known_before_an_addition_is_not_listed_again(held: Place, monkeypatch: pytest.MonkeyPatch):
    place = held
    change_something(place)
    remember(place)
    assert listed_by(place, monkeypatch) == 0, "what was added later counts"
    change_something(place, 4)
    settle()
    assert listed_by(place, monkeypatch) == 1
    assert listed_by(place, monkeypatch) == 0, "and what was loaded and changed since"


def test_a_change_loads_only_the_directories_on_the_way_to_it(held: Place):
    change_something(held)
    held.take()
    assert loaded_of(held) == {b"", b"folder 3", b"folder 3/inside"}


def test_a_removed_directory_takes_only_its_own_links_with_it(place: Place):
    known = place.manager.indexes.of(place.root).known
    assert known.links.groups() == ((b"folder 1/inside/file", b"linked"),)
    shutil.rmtree(place.root / "folder 2")
    place.take()
    assert known.links.left == set()
    shutil.rmtree(place.root / "folder 1")
    place.take()
    assert known.links.groups() == ()
    assert b"folder 1/inside/file" in known.links.left
    assert place.take().state_hash == fresh_state(place)


def test_files_with_names_outside_are_told_apart_as_names_come_and_go():
    links, file = HardLinks(), (1, 2)
    links.note(b"a", file, 2)
    assert links.with_names_outside() == [b"a"]
    links.note(b"b", file, 2)
    assert links.with_names_outside() == []
    links.note(b"a", file, 3)
    assert sorted(links.with_names_outside()) == [b"a", b"b"]
    again = HardLinks(dict(links.by_path), dict(links.counts))
    assert sorted(again.with_names_outside()) == [b"a", b"b"]
    links.leave(b"a")
    assert links.with_names_outside() == [b"b"]
    links.note(b"b", file, 1)
    assert links.with_names_outside() == []


def test_another_name_of_a_file_is_found_in_packed_directories(place: Place):
    loaded = IndexFile(index_of(place), place.root).load()
    assert loaded is not None
    tree = loaded[0]
    inode = (place.root / "folder 7" / "inside" / "file").stat().st_ino
    assert tree.paths_with_inode(inode) == [b"folder 7/inside/file"]
    assert len(list(tree.loaded())) < 10
    assert tree.paths_with_inode(2**64 - 1) == []


# Any changes


def _write_file(root: Path, path: str, content: int) -> None:
    target = root / path / "file"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(str(content))


def _remove(root: Path, path: str, _: int) -> None:
    shutil.rmtree(root / path, ignore_errors=True)


def _move(root: Path, path: str, number: int) -> None:
    if (root / path).is_dir() and not (root / f"moved {number}").exists():
        (root / path).rename(root / f"moved {number}")


def _link(root: Path, path: str, number: int) -> None:
    if (root / path / "file").is_file() and not (root / path / f"link {number}").exists():
        os.link(root / path / "file", root / path / f"link {number}")


def _replace_by_link(root: Path, path: str, number: int) -> None:
    if (root / path).is_dir() and not (root / f"moved {number}").exists():
        (root / path).rename(root / f"moved {number}")
        (root / path).symlink_to(root / f"moved {number}")


def _add_fifo(root: Path, path: str, number: int) -> None:
    if (root / path).is_dir() and not (root / path / f"fifo {number}").exists():
        os.mkfifo(root / path / f"fifo {number}")


def _change_mode(root: Path, path: str, number: int) -> None:
    if (root / path).is_dir():
        (root / path).chmod(0o700 + number)


Change = Callable[[Path, str, int], None]
_CHANGES: list[Change] = [_write_file, _remove, _move, _link, _replace_by_link, _add_fifo, _change_mode]
_PATHS = ["a", "a/b", "a/b/c", "a-b", "d", "d/e", "moved 1", "moved 1/b"]


@settings(max_examples=60, deadline=None)
@given(
    rounds=st.lists(
        st.lists(st.tuples(st.sampled_from(_CHANGES), st.sampled_from(_PATHS), st.integers(0, 5)), max_size=6),
        min_size=1,
        max_size=5,
    ),
    frames=st.integers(1, 4),
)
def test_after_any_changes_the_loaded_index_gives_the_state_of_the_tree(
    tmp_path_factory: pytest.TempPathFactory,
    rounds: list[list[tuple[Change, str, int]]],
    frames: int,
):
    place = Place(tmp_path_factory.mktemp("changes"))
    for path in _PATHS[:6]:
        _write_file(place.root, path, 0)
    remember(place)
    for changes in rounds:
        for change, path, number in changes:
            try:
                change(place.root, path, number)
            except (FileExistsError, NotADirectoryError):
                continue
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cache, "_MOST_TREES", frames)
            settle()
            assert place.take().state_hash == fresh_state(place)
            place.next_process(remembering=True)
    place.close()
