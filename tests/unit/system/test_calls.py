"""The compiled system calls and the plain ones are two forms of the same: every test here runs with both."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import struct
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.system import calls as chosen
from holdfast.system import plain_calls
from holdfast.system.both import both
from holdfast.system.stamps import UNTRUSTED, Stamp, own_stamp, pack_stamps, path_in, unpack_stamps
from tests.support.repositories import git, make_repository
from tests.support.trees import FAR_PAST_NS, make_socket, set_mtime, write

NO_REPLACE, EXCHANGE = 1, 2
COMPARED_AT_ONCE = 16384
FAR_FUTURE_NS = 15_000_000_000_123_456_789
"""In the year 2445: more nanoseconds than fit into 64 bits with a sign."""


def compiled() -> ModuleType:
    if not chosen.ARE_COMPILED:
        pytest.skip("there was no compiler when Holdfast was installed")
    return import_module("holdfast.system._calls")


@pytest.fixture(params=["compiled", "plain"])
def calls(request: pytest.FixtureRequest) -> ModuleType:
    return compiled() if request.param == "compiled" else plain_calls


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def empty_file(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    yield descriptor
    os.close(descriptor)


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="nothing to compile with")
def test_where_there_is_a_compiler_the_compiled_form_is_used():
    assert chosen.ARE_COMPILED
    assert chosen.fill is compiled().fill


# Looking


@pytest.fixture
def many(tmp_path: Path) -> dict[bytes, Stamp]:
    for number in range(1100):
        write(tmp_path / f"file {number}", "x" * number)
    set_mtime(tmp_path / "file 3", FAR_PAST_NS)
    set_mtime(tmp_path / "file 4", 0)
    os.symlink("nowhere", tmp_path / "link")
    found = {}
    for name in sorted(os.fsencode(path.name) for path in tmp_path.iterdir()):
        status = os.lstat(os.fsencode(tmp_path) + b"/" + name)
        found[name] = (status.st_ino, status.st_ctime_ns, status.st_mtime_ns, status.st_size)
    return found


def packed_as(folder: Path, stamps: dict[bytes, Stamp], path: bytes = b"") -> bytes:
    found = os.stat(os.path.join(os.fsencode(folder), path))
    return pack_stamps(path, (found.st_ino, found.st_ctime_ns), stamps)


def test_stamps_are_the_same_after_unpacking(tmp_path: Path, many: dict[bytes, Stamp]):
    packed = packed_as(tmp_path, many, b".")
    assert unpack_stamps(packed) == many
    assert path_in(packed) == b"."
    assert unpack_stamps(pack_stamps(b"", (2**64 - 1, UNTRUSTED), {})) == {}
    assert own_stamp(pack_stamps(b"", (2**64 - 1, UNTRUSTED), {})) == (2**64 - 1, UNTRUSTED)


def test_what_did_not_change_is_the_same(calls: ModuleType, tmp_path: Path, folder: int, many: dict[bytes, Stamp]):
    assert calls.compare_stamps(folder, packed_as(tmp_path, many)) == b"\0"
    assert calls.compare_stamps(folder, packed_as(tmp_path, {})) == b"\0"
    assert calls.compare_stamps(folder, b"") == b""


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("by", [-1, 1, 10**9, -(10**9)])
def test_any_other_stamp_is_a_change(
    calls: ModuleType, tmp_path: Path, folder: int, many: dict[bytes, Stamp], part: int, by: int
):
    stamp = list(many[b"file 700"])
    stamp[part] = max(stamp[part] + by, 0) if part == 0 else stamp[part] + by
    inode, ctime, mtime, size = stamp
    assert calls.compare_stamps(folder, packed_as(tmp_path, many | {b"file 700": (inode, ctime, mtime, size)})) == b"\1"


def test_an_untrusted_stamp_is_always_a_change(
    calls: ModuleType, tmp_path: Path, folder: int, many: dict[bytes, Stamp]
):
    inode, _, mtime, size = many[b"file 1"]
    assert calls.compare_stamps(folder, packed_as(tmp_path, {b"file 1": (inode, UNTRUSTED, mtime, size)})) == b"\1"
    assert calls.compare_stamps(folder, pack_stamps(b"", (os.stat(tmp_path).st_ino, UNTRUSTED), many)) == b"\1"


def test_each_directory_gets_its_answer(calls: ModuleType, tmp_path: Path, folder: int, many: dict[bytes, Stamp]):
    write(tmp_path / "below" / "deep" / "file", "x")
    os.symlink("below", tmp_path / "link to below")
    missing = many[b"file 1"]
    packed = [
        packed_as(tmp_path, many),
        packed_as(tmp_path, {b"missing": missing}),
        packed_as(tmp_path, {}, b"below/deep"),
        pack_stamps(b"not there", (1, 1), {}),
        packed_as(tmp_path, {}, b"link to below"),
        packed_as(tmp_path, {}, b"link to below/deep"),
        packed_as(tmp_path, {}, b".."),
        pack_stamps(b"file 1", missing[:2], {}),
        packed_as(tmp_path, {}, b"below"),
    ]
    answers = bytes([0, 1, 0, 1, 1, 1, 1, 1, 0])
    assert calls.compare_stamps(folder, b"".join(packed)) == answers
    assert calls.compare_stamps(folder, memoryview(b"before" + b"".join(packed))[6:]) == answers


@pytest.mark.parametrize("form", ["compiled", "plain"])
@given(data=st.binary(max_size=200), cut=st.integers(0, 300), place=st.integers(0, 150), byte=st.integers(0, 255))
def test_what_is_no_packed_stamps_is_refused_or_a_change(form: str, data: bytes, cut: int, place: int, byte: int):
    """The compiled form must not read beyond its end, whatever is in it."""
    calls = compiled() if form == "compiled" else plain_calls
    good = pack_stamps(b"a path", (1, 2), {b"one": (1, 2, 3, 4), b"two": (5, 6, 7, 8)})
    spoiled = bytearray(good)
    spoiled[min(place, len(good) - 1)] = byte
    for packed in (data, good[:cut], bytes(spoiled), good + data):
        try:
            answers = calls.compare_stamps(-1, packed)
        except ValueError:
            continue
        assert set(answers) <= {1}


def test_a_status_is_what_the_kernel_says(calls: ModuleType, tmp_path: Path, folder: int):
    write(tmp_path / "file", "content")
    os.link(tmp_path / "file", tmp_path / "other name")
    set_mtime(tmp_path / "file", FAR_PAST_NS)
    write(tmp_path / "of the future", mtime_ns=FAR_FUTURE_NS)
    os.symlink("file", tmp_path / "link")
    (tmp_path / "closed").mkdir(mode=0o500)
    os.mkfifo(tmp_path / "fifo")
    for name in (b"file", b"of the future", b"link", b"closed", b"fifo"):
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        mode, uid, gid, mtime, size, device, inode, names, ctime, _ = calls.status_of(folder, name)
        assert (mode, uid, gid) == (found.st_mode, found.st_uid, found.st_gid)
        assert (mtime, ctime, size) == (found.st_mtime_ns, found.st_ctime_ns, found.st_size)
        assert (device, inode, names) == (found.st_dev, found.st_ino, found.st_nlink)
    with pytest.raises(FileNotFoundError):
        calls.status_of(folder, b"missing")


def test_a_status_through_a_descriptor_says_whether_there_are_attributes(
    calls: ModuleType, tmp_path: Path, folder: int
):
    found = os.fstat(folder)
    mode, *_, inode, _, _, has_attributes = calls.status_through(folder)
    assert (mode, inode, has_attributes) == (found.st_mode, found.st_ino, 0)
    os.setxattr(tmp_path, "user.color", b"blue")
    assert calls.status_through(folder)[-1] == 1
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        calls.status_through(-1)


def test_a_mode_is_told_with_the_kind(calls: ModuleType, tmp_path: Path, folder: int):
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    assert calls.status_of(folder, b"sticky")[0] == stat.S_IFDIR | 0o1777


# Opening


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux opens beneath")
def test_a_directory_is_opened_from_afar_but_never_through_a_symlink(calls: ModuleType, tmp_path: Path, folder: int):
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    write(tmp_path / "a" / "file", "x")
    os.symlink("a", tmp_path / "link")
    os.symlink("b", tmp_path / "a" / "last")
    opened = calls.open_beneath(folder, b"a/b/c")
    assert os.fstat(opened).st_ino == (tmp_path / "a" / "b" / "c").stat().st_ino
    assert not os.get_inheritable(opened)
    os.close(opened)
    refused = {
        b"link/b": errno.ELOOP,
        b"a/last": errno.ENOTDIR,
        b"a/no/c": errno.ENOENT,
        b"a/file/c": errno.ENOTDIR,
    }
    for path, code in refused.items():
        with pytest.raises(OSError, match=os.strerror(code)):
            calls.open_beneath(folder, path)
    assert calls.open_beneath(folder, b"a/" * 3000) == -1, "a path that long is opened step by step"
    assert calls.open_beneath(folder, b"../" + os.fsencode(tmp_path.name)) == -1


# Renaming


def test_two_names_change_places(calls: ModuleType, tmp_path: Path, folder: int):
    write(tmp_path / "one", "1")
    write(tmp_path / "other", "2")
    assert calls.rename_specially(folder, b"one", folder, b"other", EXCHANGE) == 0
    assert [(tmp_path / name).read_text() for name in ("one", "other")] == ["2", "1"]
    assert calls.rename_specially(folder, b"one", folder, b"missing", EXCHANGE) == errno.ENOENT


def test_a_null_byte_does_not_cut_a_name_off(calls: ModuleType, tmp_path: Path, folder: int):
    (tmp_path / "a").mkdir()
    for broken, whole in ((b"a\0x", b"b"), (b"a", b"b\0x")):
        with pytest.raises(ValueError, match="null byte"):
            calls.rename_specially(folder, broken, folder, whole, NO_REPLACE)
    with pytest.raises(ValueError, match="null byte"):
        calls.open_beneath(folder, b"a\0x")
    with pytest.raises(ValueError, match="null byte"):
        calls.can_mount(os.fsencode(tmp_path / "a") + b"\0x")
    assert (tmp_path / "a").is_dir()


def test_a_name_that_is_taken_is_left_alone(calls: ModuleType, tmp_path: Path, folder: int):
    write(tmp_path / "one", "1")
    write(tmp_path / "taken", "2")
    assert calls.rename_specially(folder, b"one", folder, b"taken", NO_REPLACE) == errno.EEXIST
    assert (tmp_path / "taken").read_text() == "2"
    assert calls.rename_specially(folder, b"one", folder, b"free", NO_REPLACE) == 0
    assert (tmp_path / "free").read_text() == "1"


def test_a_kernel_that_cannot_rename_so_says_it(monkeypatch: pytest.MonkeyPatch, folder: int):
    monkeypatch.setattr(plain_calls, "_rename", None)
    assert plain_calls.rename_specially(folder, b"one", folder, b"other", EXCHANGE) == errno.ENOSYS


# Mounting


def test_what_is_not_there_cannot_be_mounted(calls: ModuleType, tmp_path: Path):
    assert not calls.can_mount(os.fsencode(tmp_path / "missing"))


def test_trying_to_mount_leaves_no_mount_and_no_process_behind(calls: ModuleType, tmp_path: Path):
    before = Path("/proc/self/mountinfo").read_text()
    calls.can_mount(os.fsencode(tmp_path))
    assert Path("/proc/self/mountinfo").read_text() == before
    assert not [each for each in psutil.Process().children() if each.status() == psutil.STATUS_ZOMBIE]


# Filling


@pytest.mark.parametrize("size", [0, 1, *range(COMPARED_AT_ONCE - 1, COMPARED_AT_ONCE + 2), 3 * COMPARED_AT_ONCE + 7])
@pytest.mark.parametrize("mtime_ns", [FAR_PAST_NS, -1, 0, 1_999_999_999_123_456_789, FAR_FUTURE_NS])
def test_a_file_is_filled_and_found_to_hold_it(calls: ModuleType, empty_file: int, size: int, mtime_ns: int):
    content = bytes(number % 251 for number in range(size))
    assert calls.fill(empty_file, content, mtime_ns)
    assert os.pread(empty_file, size + 1, 0) == content
    assert os.fstat(empty_file).st_mtime_ns == mtime_ns


@pytest.mark.parametrize("size", [0, 5, COMPARED_AT_ONCE - 1, COMPARED_AT_ONCE, 2 * COMPARED_AT_ONCE])
def test_what_follows_the_content_is_noticed(calls: ModuleType, empty_file: int, size: int):
    os.ftruncate(empty_file, size + 1)
    assert not calls.fill(empty_file, b"x" * size, 0)


def test_a_file_that_was_given_attributes_is_left_as_it_is(calls: ModuleType, empty_file: int):
    os.setxattr(empty_file, "user.color", b"blue")
    assert not calls.fill(empty_file, b"content", 0)
    assert os.fstat(empty_file).st_size == 0


def test_a_full_disk_is_an_error(calls: ModuleType):
    full = os.open("/dev/full", os.O_RDWR)
    try:
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            calls.fill(full, b"content", 0)
    finally:
        os.close(full)


def test_a_file_that_cannot_be_written_to_or_read_back_is_an_error(calls: ModuleType, tmp_path: Path):
    write(tmp_path / "file", "")
    for flags in (os.O_RDONLY, os.O_WRONLY):
        descriptor = os.open(tmp_path / "file", flags)
        try:
            with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
                calls.fill(descriptor, b"content", 0)
        finally:
            os.close(descriptor)


# What inotify tells

SAYS_MORE = 0x40000300
masks = st.sampled_from([0x2, 0x4, 0x8, 0x100, 0x200, 0x40000004])
names = st.sampled_from([b"", b"a", b"b", b"a longer name", b"\xff\n"])
events = st.lists(st.tuples(st.integers(-1, 3), masks, st.integers(0, 2**32 - 1), names), max_size=12)


def as_told(events: list[tuple[int, int, int, bytes]]) -> bytes:
    told = b""
    for watch, mask, cookie, name in events:
        padded = name + b"\0" * (16 - len(name) % 16) if name else b""
        told += struct.pack("iIII", watch, mask, cookie, len(padded)) + padded
    return told


@pytest.mark.parametrize("form", ["compiled", "plain"])
@given(told=events)
def test_events_are_told_once_unless_they_say_more(form: str, told: list[tuple[int, int, int, bytes]]):
    calls = compiled() if form == "compiled" else plain_calls
    expected = [
        event
        for number, event in enumerate(told)
        if event[1] & SAYS_MORE
        or not number
        or told[number - 1][1] & SAYS_MORE
        or (event[0], event[3]) != (told[number - 1][0], told[number - 1][3])
    ]
    assert calls.events_in(as_told(told), SAYS_MORE, []) == expected


def test_half_an_event_is_none(calls: ModuleType):
    told = as_told([(1, 2, 0, b"whole"), (1, 2, 0, b"cut off")])
    whole = calls.events_in(told[:-1], SAYS_MORE, [])
    assert whole == calls.events_in(told[: 32 + 5], SAYS_MORE, []) == [(1, 2, 0, b"whole")]


def test_what_is_expected_is_left_out_once_and_in_order(calls: ModuleType):
    told = [(1, 0x80, 7, b"a"), (1, 0x2, 0, b"a"), (1, 0x40, 8, b"a"), (2, 0x4, 0, b""), (1, 0x80, 9, b"a")]
    expected = [(1, 0x80, b"a"), (1, 0x40, b"a"), (2, 0x4, b""), (3, 0x4, b"")]
    assert calls.events_in(as_told(told), SAYS_MORE, expected) == [told[1], told[4]]
    assert expected == [(3, 0x4, b"")]
    for other in ((2, 0x80, b"a"), (1, 0x40, b"a"), (1, 0x80, b"b"), (1, 0x80, b"ab"), (1, 0x80, b"")):
        expected = [other]
        assert calls.events_in(as_told(told[:1]), SAYS_MORE, expected) == told[:1], other
        assert expected == [other]


def test_what_follows_something_expected_is_told(calls: ModuleType):
    told = [(1, 0x2, 0, b"a"), (1, 0x4, 0, b"a"), (1, 0x2, 0, b"a")]
    assert calls.events_in(as_told(told), SAYS_MORE, [(1, 0x4, b"a")]) == [told[0], told[2]]


# Who calls them wrongly, hears of it; only C has to take care of that itself.


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("open_beneath", (0,)),
        ("open_beneath", ("0", b"a")),
        ("open_beneath", (0, "a")),
        ("open_beneath", (2**40, b"a")),
        ("open_beneath", (0, b"a\0b")),
        ("rename_specially", (0, b"a", 0, b"b")),
        ("rename_specially", (0, "a", 0, b"b", 0)),
        ("rename_specially", (0, b"a", 0, "b", 0)),
        ("rename_specially", (0, b"a", None, b"b", 0)),
        ("rename_specially", (0, b"a", 0, b"b", "0")),
        ("rename_specially", (None, b"a", 0, b"b", 0)),
        ("fill", (0, b"a")),
        ("fill", (None, b"a", 0)),
        ("fill", (0, "a", 0)),
        ("fill", (0, b"a", 2**100)),
        ("fill", (0, b"a", -(2**100))),
        ("fill", (0, b"a", "0")),
        ("compare_stamps", (0,)),
        ("compare_stamps", (None, b"")),
        ("compare_stamps", (0, "")),
        ("compare_stamps", (0, b"a")),
        ("list_directory", (0, b"")),
        ("list_directory", (None, b"", ())),
        ("list_directory", (0, "", ())),
        ("list_directory", (0, b"", [])),
        ("list_directory", (0, b"", ("a",))),
        ("index_offsets", (b"",)),
        ("index_offsets", ("", 20)),
        ("index_offsets", (b"", "20")),
        ("index_stats", (0,)),
        ("index_stats", (None, b"")),
        ("index_stats", (0, "")),
        ("status_of", (0,)),
        ("status_of", (None, b"a")),
        ("status_of", (0, "a")),
        ("status_through", ()),
        ("status_through", ("0",)),
        ("set_mtime", (0,)),
        ("set_mtime", (None, 0)),
        ("set_mtime", (0, "0")),
        ("events_in", (b"", 0)),
        ("events_in", ("", 0, [])),
        ("events_in", (b"", -1, [])),
        ("events_in", (b"", None, [])),
        ("events_in", (b"", 0, ())),
        ("events_in", (as_told([(1, 2, 0, b"a")]), 0, [1])),
        ("events_in", (as_told([(1, 2, 0, b"a")]), 0, [(None, 2, b"a")])),
        ("events_in", (as_told([(1, 2, 0, b"a")]), 0, [(1, 2, "a")])),
    ],
)
def test_wrong_arguments_are_refused(function: str, arguments: tuple[object, ...]):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        getattr(compiled(), function)(*arguments)


# Copying


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "copies").mkdir()
    descriptor = os.open(tmp_path / "copies", os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


OWN_GROUPS = None if os.geteuid() == 0 else struct.pack("=I", os.getegid())


def test_small_files_are_copied_with_all_they_have(calls: ModuleType, tmp_path: Path, folder: int, copies: int):
    write(tmp_path / "plain", "content", mode=0o640, mtime_ns=FAR_PAST_NS)
    write(tmp_path / "set-user-id", "x" * 5000, mode=0o4755)
    write(tmp_path / "empty")
    write(tmp_path / "of the future", "later", mtime_ns=FAR_FUTURE_NS)
    names = (b"plain", b"set-user-id", b"empty", b"of the future")
    room = bytearray(10_000)
    done = calls.copy_files(folder, copies, names, room, 5000, OWN_GROUPS)
    assert bytes(room[:5013]) == b"content" + b"x" * 5000 + b"later" + b"\0"
    for name, (is_steady, original, copy) in zip(names, done, strict=True):
        assert is_steady
        assert original[:9] == calls.status_of(folder, name)[:9]
        assert copy[:9] == calls.status_of(copies, name)[:9]
        assert copy[:5] == original[:5]
        assert (tmp_path / "copies" / os.fsdecode(name)).read_bytes() == (tmp_path / os.fsdecode(name)).read_bytes()


def test_whatever_is_not_a_small_plain_file_is_left_to_the_caller(
    calls: ModuleType, tmp_path: Path, folder: int, copies: int
):
    write(tmp_path / "large", "x" * 5001)
    write(tmp_path / "database", b"SQLite format 3\0" + bytes(100))
    write(tmp_path / "coloured", "x")
    os.setxattr(tmp_path / "coloured", "user.color", b"blue")
    write(tmp_path / "linked", "x")
    os.link(tmp_path / "linked", tmp_path / "linked too")
    with open(tmp_path / "holes", "wb") as file:
        file.truncate(5000)
    os.symlink("large", tmp_path / "symlink")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    odd = ("large", "database", "coloured", "linked", "linked too", "holes", "symlink", "fifo", "directory", "missing")
    names = tuple(map(os.fsencode, odd))
    assert calls.copy_files(folder, copies, names, bytearray(10_000), 5000, OWN_GROUPS) == [None] * len(odd)
    assert os.listdir(copies) == []


def test_copying_ends_when_there_is_no_room_for_more(calls: ModuleType, tmp_path: Path, folder: int, copies: int):
    for name in ("one", "two", "three"):
        write(tmp_path / name, name)
    names = (b"one", b"two", b"three")
    for room_bytes, count in ((0, 0), (3, 0), (4, 1), (7, 2), (11, 2), (12, 3)):
        room = bytearray(room_bytes)
        assert len(calls.copy_files(folder, copies, names, room, 100, OWN_GROUPS)) == count
        assert sorted(map(os.fsencode, os.listdir(copies))) == sorted(names[:count])
        for name in os.listdir(copies):
            os.unlink(name, dir_fd=copies)


def test_a_copy_replaces_nothing(calls: ModuleType, tmp_path: Path, folder: int, copies: int):
    write(tmp_path / "file", "new")
    os.symlink(tmp_path / "elsewhere", tmp_path / "copies" / "file")
    with pytest.raises(FileExistsError):
        calls.copy_files(folder, copies, (b"file",), bytearray(100), 100, OWN_GROUPS)
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(ValueError, match="null"):
        calls.copy_files(folder, copies, (b"fi\0le",), bytearray(100), 100, OWN_GROUPS)


# Listing


def test_a_directory_is_listed_with_all_that_tells_whether_it_changed(calls: ModuleType, tmp_path: Path, folder: int):
    write(tmp_path / "file", "content", mtime_ns=FAR_FUTURE_NS)
    write(tmp_path / "one", "x" * 5000)
    os.link(tmp_path / "one", tmp_path / "two")
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "fifo")
    write(tmp_path / "folder" / "inside")
    write(tmp_path / os.fsdecode(b"not \xff text"))
    stamps, folders, linked, newest, files, size_bytes, disk_bytes, is_plain = calls.list_directory(folder, b"at", ())
    names = {os.fsencode(path.name): path.lstat() for path in tmp_path.iterdir() if path.name != "folder"}
    own, one = tmp_path.stat(), names[b"one"]
    assert unpack_stamps(stamps) == {
        name: (each.st_ino, each.st_ctime_ns, each.st_mtime_ns, each.st_size) for name, each in names.items()
    }
    assert (path_in(stamps), own_stamp(stamps)) == (b"at", (own.st_ino, own.st_ctime_ns))
    assert folders == [b"folder"]
    assert sorted(linked) == [(name, one.st_dev, one.st_ino, one.st_blocks * 512) for name in (b"one", b"two")]
    assert newest == max(own.st_ctime_ns, *(each.st_ctime_ns for each in names.values()))
    assert (files, size_bytes) == (len(names), sum(each.st_size for each in names.values()))
    assert disk_bytes == 512 * (own.st_blocks + sum(each.st_blocks for each in names.values() if each.st_nlink == 1))
    assert is_plain


def test_what_a_list_says_is_unchanged_as_long_as_nothing_changes(calls: ModuleType, tmp_path: Path, folder: int):
    write(tmp_path / "file", "content")
    listed = calls.list_directory(folder, b"", ())
    assert calls.list_directory(folder, b"", ()) == listed
    assert calls.compare_stamps(folder, listed[0]) == b"\0"
    os.utime(tmp_path / "file", ns=(1, 1))
    assert calls.list_directory(folder, b"", ()) != listed
    assert calls.compare_stamps(folder, listed[0]) == b"\1"


def test_a_list_is_without_what_is_to_be_skipped(calls: ModuleType, tmp_path: Path, folder: int):
    for name in ("file", "files", "folder/inside", "other/inside"):
        write(tmp_path / name, "x" * 700)
    stamps, folders, _, _, files, size_bytes, _, _ = calls.list_directory(folder, b"", (b"file", b"folder"))
    assert (set(unpack_stamps(stamps)), folders, files, size_bytes) == ({b"files"}, [b"other"], 1, 700)


def test_a_socket_is_not_plain(calls: ModuleType, tmp_path: Path, folder: int):
    make_socket(tmp_path / "socket")
    assert calls.list_directory(folder, b"", ())[-1] is False
    assert calls.list_directory(folder, b"", (b"socket",))[-1] is True


def test_another_file_system_is_not_plain(calls: ModuleType):
    root = os.open("/", os.O_RDONLY)
    try:
        assert calls.list_directory(root, b"", ())[-1] is False, "/proc is mounted there"
    finally:
        os.close(root)


def test_what_is_no_directory_cannot_be_listed(calls: ModuleType, empty_file: int):
    with pytest.raises(NotADirectoryError):
        calls.list_directory(empty_file, b"", ())


def test_stat_data_is_what_git_puts_into_its_index(calls: ModuleType, tmp_path: Path):
    make_repository(tmp_path / "project", {"file": "content\n", "folder/other": ""})
    (tmp_path / "project" / "link").symlink_to("file")
    git(tmp_path / "project", "add", "--all")
    index = (tmp_path / "project" / ".git" / "index").read_bytes()
    root = os.open(tmp_path / "project", os.O_RDONLY)
    try:
        found = calls.index_stats(root, b"file\0missing\0folder/other\0link\0")
    finally:
        os.close(root)
    assert len(found) == 4 * 40
    assert found[40:80] == bytes(40)
    for at in (0, 80, 120):
        stats = found[at : at + 40]
        # Git notes its own form of the mode.
        assert stats[:24] in index
        assert stats[28:] in index


@pytest.mark.parametrize(("kind", "digest_size"), [("sha1", 20), ("sha256", 32)])
def test_the_entries_of_an_index_are_found(calls: ModuleType, tmp_path: Path, kind: str, digest_size: int):
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "--quiet", f"--object-format={kind}")
    names = [f"{'x' * length}/file" for length in range(1, 20)] + ["/".join(["y" * 200] * 21)]
    for name in names:
        git(root, "update-index", "--add", "--cacheinfo", f"100644,{'1' * digest_size * 2},{name}")
    write(root / "intended", "")
    git(root, "add", "--intent-to-add", "intended")
    index = (root / ".git" / "index").read_bytes()
    offsets = memoryview(calls.index_offsets(memoryview(index), digest_size)).cast("I")
    assert len(offsets) == len(names) + 2
    for name, at, end in zip(sorted([*names, "intended"]), offsets, offsets[1:], strict=False):
        assert index[at + 40 + digest_size : end].rstrip(b"\0").endswith(name.encode())
    for cut in (0, 11, 12, 13, offsets[1], offsets[-1] + digest_size - 1):
        with pytest.raises(ValueError, match="no index"):
            calls.index_offsets(index[:cut], digest_size)


@pytest.mark.parametrize("wrong", ["signature", "version", "count", "length", "order", "extended"])
def test_what_is_no_index_in_order_has_no_entries(calls: ModuleType, wrong: str):
    def entry(name: bytes, flags: int | None = None) -> bytes:
        stored = bytes(60) + (len(name) if flags is None else flags).to_bytes(2) + name + b"\0"
        return stored + bytes(-len(stored) % 8)

    entries = [entry(b"a"), entry(b"b"), entry(b"b"), entry(b"c")]
    head = [b"DIRC", (2).to_bytes(4), (4).to_bytes(4)]
    assert len(calls.index_offsets(b"".join([*head, *entries, bytes(20)]), 20)) == 5 * 4
    if wrong in ("signature", "version", "count"):
        at = ("signature", "version", "count").index(wrong)
        head[at] = (4 if wrong == "version" else 1000).to_bytes(4)
    elif wrong == "order":
        entries.reverse()
    else:
        entries[1] = entry(b"b", 2 if wrong == "length" else 0x4001)
    with pytest.raises(ValueError, match="no index"):
        calls.index_offsets(b"".join([*head, *entries, bytes(20)]), 20)


def test_two_things_are_done_at_the_same_time():
    first, second = threading.Event(), threading.Event()

    def one() -> str:
        first.set()
        assert second.wait(10)
        return "one"

    def other() -> str:
        second.set()
        assert first.wait(10)
        return "other"

    assert both(one, other) == ("one", "other")


def test_without_more_threads_two_things_are_done_one_after_the_other(monkeypatch: pytest.MonkeyPatch):
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert both(lambda: 1, lambda: 2) == (1, 2)
