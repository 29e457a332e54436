"""System calls that Python does not offer, or only one at a time; ``_calls.c`` has the same in C."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import struct
import sys
import time
from array import array

from holdfast.system.stamps import STAMPS_HEAD, STAMPS_ROW, Stamp, pack_stamps

_OPENAT2 = 437  # the same on every architecture
_RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x04, 0x08
_HEADER = struct.Struct("iIII")
"""The head of an event: watch, mask, cookie, and the length of the name that follows."""
_SECOND_NS = 1_000_000_000
_TO_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TO_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CLONE = 0x40049409
_DATABASE_BEGINS = b"SQLite format 3\0"
_LABEL = "security.selinux"
"""Every file of some systems has one."""
Status = tuple[int, int, int, int, int, int, int, int, int, int]
"""Mode, user, group, mtime, size, device, inode, number of names, ctime; then, only for a descriptor, whether it has
extended attributes. Making an ``os.stat_result`` takes twice as long as the system call."""
_libc = ctypes.CDLL(None, use_errno=True)
_rename = getattr(_libc, "renameat2", None)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW = _How(os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH)


def open_beneath(root: int, path: bytes) -> int:
    """Open a directory far below another in one step and through no symlink (``openat2``).

    -1 if this kernel cannot, if the path is too long, or if we may not enter a directory on the way.
    """
    _refuse_null(path)
    if sys.platform != "linux":
        return -1
    descriptor = int(_libc.syscall(_OPENAT2, root, path, ctypes.byref(_HOW), ctypes.sizeof(_HOW)))
    if descriptor < 0 and (code := ctypes.get_errno()) in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
        raise OSError(code, os.strerror(code), path)
    return descriptor


def rename_specially(directory: int, name: bytes, new_directory: int, new_name: bytes, flags: int) -> int:
    """Call ``renameat2``; returns the number of the error, or 0."""
    _refuse_null(name)
    _refuse_null(new_name)
    if _rename is None:
        return errno.ENOSYS
    return 0 if _rename(directory, name, new_directory, new_name, flags) == 0 else ctypes.get_errno()


def _refuse_null(name: bytes) -> None:
    """Refuse a null byte: the kernel would cut the name there."""
    if b"\0" in name:
        raise ValueError("embedded null byte")


def set_mtime(descriptor: int, mtime_ns: int) -> None:
    """Set the time of the last change, and that of the last access, of an open file."""
    os.utime(descriptor, ns=(mtime_ns, mtime_ns))


def fill(descriptor: int, content: bytes, mtime_ns: int) -> bool:
    """Write the content into an empty file, set its time and read it back.

    Returns whether it now has exactly this content and no extended attributes; if not, its content is undefined.
    """
    try:
        if os.listxattr(descriptor):
            return False
    except OSError:
        pass  # this file system has no extended attributes
    written = 0
    while written < len(content):
        more = os.pwrite(descriptor, memoryview(content)[written:], written)
        if not more:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        written += more
    set_mtime(descriptor, mtime_ns)
    return os.pread(descriptor, len(content) + 1, 0) == content


def status_of(directory: int, name: bytes) -> Status:
    """The status of a name in a directory; a symlink is not followed."""
    return status_from(os.stat(name, dir_fd=directory, follow_symlinks=False))


def status_through(descriptor: int) -> Status:
    """The status of an open file."""
    try:
        has_attributes = bool(os.listxattr(descriptor))
    except OSError:
        has_attributes = False  # this file system has no extended attributes
    return status_from(os.fstat(descriptor), has_attributes=has_attributes)


def status_from(found: os.stat_result, *, has_attributes: bool = False) -> Status:
    return (
        found.st_mode,
        found.st_uid,
        found.st_gid,
        found.st_mtime_ns,
        found.st_size,
        found.st_dev,
        found.st_ino,
        found.st_nlink,
        found.st_ctime_ns,
        int(has_attributes),
    )


CopiedFile = tuple[bool, Status, Status]
"""Whether the original stayed as it was while it was read; its status; and that of the copy, which has attributes only
if it got other ones than a security label."""


def copy_files(
    source: int,
    target: int,
    names: tuple[bytes, ...],
    room: bytearray | memoryview,
    most_bytes: int,
    groups: bytes | None,
) -> list[CopiedFile | None]:
    """Copy small files, with their attributes, from one open directory into another, in which they are new.

    Their contents are put into ``room``, one after the other: exactly what is in the copies. The list ends early, when
    there is no room left for the next file. None stands for what has to be copied on its own: it cannot be read, is not
    a regular file, is larger than ``most_bytes``, or has several names, holes, extended attributes or the beginning of
    a SQLite database. ``groups``: those that files may be given to, as packed numbers; None for root.
    """
    done: list[CopiedFile | None] = []
    place = 0
    given = None if groups is None else frozenset(memoryview(groups).cast("I"))
    for name in names:
        _refuse_null(name)
        try:
            original = os.open(name, _TO_READ, dir_fd=source)
        except OSError:
            done.append(None)
            continue
        try:
            before = os.fstat(original)
            content = _small_content(original, before, most_bytes)
            if content is not None and len(content) >= len(room) - place:
                break
            after = os.fstat(original)
            if content is None or after.st_size != before.st_size:
                done.append(None)
                continue
            room[place : place + len(content)] = content
            place += len(content)
            is_steady = _moment(before) == _moment(after)
            copied = _made_copy(original, content, after, (target, name), given, is_steady=is_steady)
            done.append((is_steady, status_from(after), copied))
        finally:
            os.close(original)
    return done


def _small_content(original: int, found: os.stat_result, most_bytes: int) -> bytes | None:
    """All of an open file; None if it has to be copied on its own."""
    is_plain = stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_blocks * 512 >= found.st_size
    if not is_plain or found.st_size > most_bytes or set(_attributes(original)) - {_LABEL}:
        return None
    try:
        content = os.pread(original, found.st_size + 1, 0)
    except OSError:
        return None
    return None if len(content) != found.st_size or content.startswith(_DATABASE_BEGINS) else content


def _made_copy(
    original: int,
    content: bytes,
    found: os.stat_result,
    place: tuple[int, bytes],
    groups: frozenset[int] | None,
    *,
    is_steady: bool,
) -> Status:
    target, name = place
    copy = os.open(name, _TO_MAKE, 0o600, dir_fd=target)
    try:
        written = len(content) if is_steady and _is_cloned(original, copy, content, found) else 0
        while written < len(content):
            written += os.pwrite(copy, memoryview(content)[written:], written)
        if groups is None:
            os.fchown(copy, found.st_uid, found.st_gid)
        elif found.st_gid in groups and os.fstat(copy).st_gid != found.st_gid:
            os.fchown(copy, -1, found.st_gid)
        if _LABEL in _attributes(original):
            _copy_label(original, copy)
        os.fchmod(copy, stat.S_IMODE(found.st_mode))
        os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))
        return status_from(os.fstat(copy), has_attributes=bool(set(_attributes(copy)) - {_LABEL}))
    finally:
        os.close(copy)


def _is_cloned(original: int, copy: int, content: bytes, found: os.stat_result) -> bool:
    """Share the blocks of the original, if what was read from it is certainly what they hold.

    A program may have changed it through a mapping since, without a new ctime; but sharing makes the kernel note the
    next change, so if the content is read as before after that, it is what is shared.
    """
    if found.st_ctime_ns >= time.time_ns() - _SECOND_NS:
        return False  # a change in this moment may not show in its times
    try:
        fcntl.ioctl(copy, _CLONE, original)
    except OSError:
        return False
    if os.pread(original, len(content), 0) == content and _moment(os.fstat(original)) == _moment(found):
        return True
    os.ftruncate(copy, 0)
    return False


def _attributes(descriptor: int) -> list[str]:
    try:
        return os.listxattr(descriptor)
    except OSError:
        return []  # this file system has no extended attributes


def _copy_label(original: int, copy: int) -> None:
    try:
        os.setxattr(copy, _LABEL, os.getxattr(original, _LABEL))
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENODATA):
            raise


def _moment(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def can_mount(folder: bytes) -> bool:
    """Whether processes of this user may mount a folder in a namespace of their own; tried in a child process.

    False also means that it is not known. Here it always is: a child that runs Python could wait forever for a lock
    that another thread had when it was forked.
    """
    _refuse_null(folder)
    return False


def compare_stamps(root: int, packed: bytes | memoryview) -> bytes:
    """Compare packed stamps (``system/stamps.py``) of any number of directories below ``root`` with the disk.

    Returns a byte for each: 0 if neither the directory nor a file in it changed, 1 if it did or cannot be opened.
    """
    answers, packed, place = bytearray(), memoryview(packed), 0
    while place < len(packed):
        size = _stamps_size(packed[place:])
        answers.append(not _is_same_directory(root, bytes(packed[place : place + size])))
        place += size
    return bytes(answers)


def _stamps_size(packed: bytes | memoryview) -> int:
    if len(packed) >= STAMPS_HEAD.size:
        size, path_bytes, count, _, _, _ = STAMPS_HEAD.unpack_from(packed)
        if STAMPS_HEAD.size + path_bytes + count * STAMPS_ROW.size < size <= len(packed):
            return int(size)
    raise ValueError("these are no packed stamps")


def _is_same_directory(root: int, packed: bytes) -> bool:
    _, path_bytes, count, _, _, _ = STAMPS_HEAD.unpack_from(packed)
    rows = len(packed) - count * STAMPS_ROW.size
    path, *names, last = packed[STAMPS_HEAD.size : rows].split(b"\0")
    if len(path) != path_bytes or len(names) != count or last:
        return False
    try:
        directory = open_beneath(root, path or b".")
    except OSError:
        return False
    if directory < 0:
        return False
    try:
        return _are_same_files(directory, packed, names, rows)
    except OSError:
        return False
    finally:
        os.close(directory)


def _are_same_files(directory: int, packed: bytes, names: list[bytes], rows: int) -> bool:
    _, _, _, nanoseconds, inode, seconds = STAMPS_HEAD.unpack_from(packed)
    found = os.fstat(directory)
    if (found.st_ino, found.st_ctime_ns) != (inode, seconds * _SECOND_NS + nanoseconds):
        return False
    for name, (inode, size, *times) in zip(names, STAMPS_ROW.iter_unpack(packed[rows:]), strict=True):
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        ctime, mtime = divmod(found.st_ctime_ns, _SECOND_NS), divmod(found.st_mtime_ns, _SECOND_NS)
        if (found.st_ino, found.st_size, ctime[0], mtime[0], ctime[1], mtime[1]) != (inode, size, *times):
            return False
    return True


Listing = tuple[bytes, list[bytes], list[tuple[bytes, int, int, int]], int, int, int, int, bool]
"""Packed stamps of all but the folders; the names of the folders; name, device, inode and disk space of each file with
several names; the newest ctime; how many files, their size, the disk space of the directory and of files with one name;
whether all is on one file system and nothing is a socket or a device."""


def list_directory(directory: int, path: bytes, skip: tuple[bytes, ...]) -> Listing:
    """List an open directory without the names ``skip``; ``path`` is put into the stamps."""
    own = os.fstat(directory)
    stamps = dict[bytes, Stamp]()
    folders, linked = list[bytes](), list[tuple[bytes, int, int, int]]()
    newest, size_bytes, disk_bytes, is_plain = own.st_ctime_ns, 0, own.st_blocks * 512, True
    for name in map(os.fsencode, os.listdir(directory)):
        if name in skip:
            continue
        try:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            continue
        is_plain &= found.st_dev == own.st_dev
        if stat.S_ISDIR(found.st_mode):
            folders.append(name)
            continue
        is_plain &= stat.S_IFMT(found.st_mode) in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO)
        newest, size_bytes = max(newest, found.st_ctime_ns), size_bytes + found.st_size
        if found.st_nlink > 1:
            linked.append((name, found.st_dev, found.st_ino, found.st_blocks * 512))
        else:
            disk_bytes += found.st_blocks * 512
        stamps[name] = (found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size)
    packed = pack_stamps(path, (own.st_ino, own.st_ctime_ns), stamps)
    return packed, folders, linked, newest, len(stamps), size_bytes, disk_bytes, is_plain


_INDEX_HEAD = struct.Struct(">4sII")
_NO_INDEX = "this is no index of a known form"
INDEX_STATS = struct.Struct(">10I")
"""Stat data in git's index: seconds and nanoseconds of ctime and mtime, device, inode, mode, user, group and size."""


def index_stats(root: int, paths: bytes) -> bytes:
    """The stat data of many paths below ``root``, a null byte after each; zeros for one that cannot be looked at."""
    return b"".join(_index_stats_of(root, path) for path in paths.split(b"\0")[:-1])


def _index_stats_of(root: int, path: bytes) -> bytes:
    try:
        found = os.stat(path, dir_fd=root, follow_symlinks=False)
    except OSError:
        return bytes(INDEX_STATS.size)
    times = (*divmod(found.st_ctime_ns, _SECOND_NS), *divmod(found.st_mtime_ns, _SECOND_NS))
    stats = (*times, found.st_dev, found.st_ino, found.st_mode, found.st_uid, found.st_gid, found.st_size)
    return INDEX_STATS.pack(*(each & 0xFFFFFFFF for each in stats))


def index_offsets(content: bytes | memoryview, digest_size: int) -> bytes:
    """Where each entry of a git index begins, and where the last one ends, as native numbers of 32 bits.

    ValueError: it is not an index in order, of a version in which each entry stands for itself.
    """
    body = bytes(content[: max(0, len(content) - digest_size)])
    if len(body) <= _INDEX_HEAD.size or len(body) >= 1 << 32:
        raise ValueError(_NO_INDEX)
    signature, version, entries = _INDEX_HEAD.unpack_from(body)
    if signature != b"DIRC" or version not in (2, 3) or entries >= len(body) // INDEX_STATS.size:
        raise ValueError(_NO_INDEX)
    offsets, place, before = array("I"), _INDEX_HEAD.size, b""
    for _ in range(entries):
        offsets.append(place)
        size, name = _index_entry_at(body, place, INDEX_STATS.size + digest_size)
        if not size or name < before:
            raise ValueError(_NO_INDEX)
        place, before = place + size, name
    offsets.append(place)
    return offsets.tobytes()


def _index_entry_at(body: bytes, place: int, flags_after: int) -> tuple[int, bytes]:
    """Its size and its name; no size if it reaches beyond the end."""
    flags_at = place + flags_after
    if flags_at + 2 >= len(body):
        return 0, b""
    flags = int.from_bytes(body[flags_at : flags_at + 2])
    name_at = flags_at + (4 if flags & 0x4000 else 2)
    end = body.find(b"\0", name_at)
    size = (end - place + 8) & ~7
    if end < 0 or flags & 0xFFF != min(end - name_at, 0xFFF) or place + size > len(body):
        return 0, b""
    return size, body[name_at:end]


def events_in(data: bytes, says_more: int, expected: list[tuple[int, int, bytes]]) -> list[tuple[int, int, int, bytes]]:
    """The events in what inotify sent: watch, mask, cookie and name of each.

    Usually several events in a row say that the same name changed; only the first is returned, unless its mask has a
    bit of ``says_more``. Events that are ``expected`` (watch, mask and name), in that order, are not returned, but
    removed from that list.
    """
    found = []
    position, last = 0, None
    while position + _HEADER.size <= len(data):
        watch, mask, cookie, length = _HEADER.unpack_from(data, position)
        position += _HEADER.size + length
        if position > len(data):
            break
        name = data[position - length : position].rstrip(b"\0")
        if expected and (watch, mask, name) == expected[0]:
            del expected[0]
            last = None
        elif mask & says_more or (watch, name) != last:
            found.append((watch, mask, cookie, name))
            last = None if mask & says_more else (watch, name)
    return found
