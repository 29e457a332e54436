"""What a directory holds, known entry by entry, so that looking again costs only what changed.

``TreeIndex.refresh`` brings the index up to date with the disk, stores new content and gives the state hash. The index
is also the stat cache: an entry whose inode, ctime, mtime, size and mode are as they were is not read again.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from holdfast.errors import SandboxError
from holdfast.snapshot.descent import IS_ROOT, Descent, depth, join, made_accessible, split
from holdfast.snapshot.directories import RecentDirectories
from holdfast.snapshot.format import (
    DIRECTORY,
    FIFO,
    FILE,
    PIECE_BYTES,
    PIECES,
    PIECES_FROM_BYTES,
    SYMLINK,
    UNKNOWN_OWNER,
    Entry,
    decode_directory,
    encode_directory,
    encode_pieces,
    encode_state,
)
from holdfast.snapshot.objects import Batch

_RACY_NS = 20_000_000
"""Before Linux 6.13 timestamps move in steps of up to 10 ms: a file changed that shortly before it was read may change
again without its timestamps moving, so it is read again the next time."""
_UNTRUSTED = -1
_RESTLESS_TRIES = 3
_KERNEL_XATTRS = (b"security.selinux", b"security.ima", b"security.evm")
_CACHE_VERSION = 1
_ENCODING, _ENCODING_ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()

Changed = Mapping[bytes, "set[bytes] | None"]
"""Directories in which something changed: the names, or None for the directory and all that lies below it."""


class _Moved(Exception):
    """Something was renamed or replaced while it was being read."""


Stamp = tuple[int, int, int, int]
"""Inode, ctime, mtime and size of a file when it was read; its mode cannot change without its ctime."""


class _Node:
    """One directory: its entries, their stamps, and its own entry in its parent.

    What comes from the cache stays packed until somebody needs it, because mostly nobody does.
    """

    __slots__ = ("_entries", "_packed", "_packed_stamps", "_stamps", "children", "digest", "head", "is_placed", "stamp")

    def __init__(self) -> None:
        self._entries: dict[bytes, Entry] = {}
        self._packed: bytes | None = None
        self._stamps: dict[bytes, Stamp] = {}
        self._packed_stamps: bytes | None = None
        self.children: dict[bytes, _Node] = {}
        self.digest: bytes | None = None
        self.head: Entry | None = None
        self.is_placed = False
        """Whether the parent lists this head."""
        self.stamp = (0, 0)

    @property
    def entries(self) -> dict[bytes, Entry]:
        if self._packed is not None:
            self._entries, self._packed = decode_directory(self._packed), None
        return self._entries

    @property
    def stamps(self) -> dict[bytes, Stamp]:
        if self._packed_stamps is not None:
            self._stamps, self._packed_stamps = _decode_stamps(self._packed_stamps), None
        return self._stamps

    def packed(self, path: bytes) -> _CachedNode:
        assert self.head is not None
        assert self.digest is not None
        entries = encode_directory(self._entries) if self._packed is None else self._packed
        stamps = msgspec.msgpack.encode(self._stamps) if self._packed_stamps is None else self._packed_stamps
        return _CachedNode(path, self.head, self.stamp, self.digest, entries, stamps)

    @classmethod
    def unpacked(cls, cached: _CachedNode) -> _Node:
        node = cls()
        node._packed, node._packed_stamps = cached.entries, cached.stamps
        node.digest, node.head, node.stamp, node.is_placed = cached.digest, cached.head, cached.stamp, True
        return node


class _CachedNode(msgspec.Struct, array_like=True, gc=False):
    path: bytes
    head: Entry
    stamp: tuple[int, int]
    digest: bytes
    entries: bytes
    stamps: bytes


_decode_stamps = msgspec.msgpack.Decoder(dict[bytes, Stamp]).decode


class _Cache(msgspec.Struct, array_like=True):
    version: int
    boot_id: str
    root_inode: int
    state: bytes
    nodes: list[_CachedNode]
    unheld: dict[bytes, str]
    linked: dict[bytes, tuple[int, int]]


class _FileToRead(msgspec.Struct):
    node: _Node
    directory: bytes
    name: bytes


class _Links:
    """Which paths are names of files that have several, and so which paths are one file."""

    def __init__(self, by_path: dict[bytes, tuple[int, int]] | None = None) -> None:
        self.by_path = by_path or {}
        self._by_inode: dict[tuple[int, int], set[bytes]] = {}
        for path, inode in self.by_path.items():
            self._by_inode.setdefault(inode, set()).add(path)
        self._groups: tuple[tuple[bytes, ...], ...] | None = None

    def note(self, path: bytes, found: os.stat_result) -> None:
        inode = (found.st_dev, found.st_ino)
        if found.st_nlink > 1 and self.by_path.get(path) != inode:
            self.forget(path)
            self.by_path[path] = inode
            self._by_inode.setdefault(inode, set()).add(path)
            self._groups = None
        elif found.st_nlink == 1:
            self.forget(path)

    def forget(self, path: bytes) -> None:
        inode = self.by_path.pop(path, None)
        if inode is not None:
            self._groups = None
            self._by_inode[inode].discard(path)

    def other_names(self, found: os.stat_result) -> list[bytes]:
        return list(self._by_inode.get((found.st_dev, found.st_ino), ()))

    def groups(self) -> tuple[tuple[bytes, ...], ...]:
        if self._groups is None:
            shared = (paths for paths in self._by_inode.values() if len(paths) > 1)
            self._groups = tuple(sorted(tuple(sorted(paths)) for paths in shared))
        return self._groups


class TreeIndex:
    def __init__(self, root: Path, recent: RecentDirectories) -> None:
        self.root = root
        self.recent = recent
        self.state: bytes | None = None
        self.unheld: dict[bytes, str] = {}
        self.links = _Links()
        self._top = _Node()

    def forget(self) -> None:
        """Start from nothing: the next refresh reads everything."""
        self.state, self.unheld, self.links, self._top = None, {}, _Links(), _Node()

    def refresh(self, batch: Batch, changed: Changed | None = None) -> bytes:
        """Look at the whole tree, or only at what ``changed`` names, and return the state hash."""
        if self.state is not None and not batch.has(self.state):
            # A state object lives exactly as long as the content below it: if it was collected, so was the rest.
            self.forget()
        if self.state is None:
            changed = None
        elif changed is not None and not changed:
            return self.state
        for _ in range(_RESTLESS_TRIES):
            try:
                self.state = self._refreshed(batch, changed)
                return self.state
            except _Moved:
                changed = None
            except BaseException:
                self.forget()
                raise
        self.forget()
        raise SandboxError(
            f"{self.root} keeps changing while it is read.", hint="Stop the program that works in it and try again."
        )

    def _refreshed(self, batch: Batch, changed: Changed | None) -> bytes:
        now_ns = time.time_ns()
        with Descent(self.root) as descent:
            look = _Look(self, descent, batch, now_ns)
            if changed is None:
                look.at_subtree(b"", self._top)
            else:
                look.at_changes(changed)
            look.read_files()
            look.encode_directories()
        head = self._top.head
        assert head is not None
        return batch.add(encode_state(head, self.links.groups()))

    def node_at(self, path: bytes) -> _Node | None:
        node: _Node | None = self._top
        for name in path.split(b"/") if path else ():
            node = node.children.get(name) if node else None
        return node

    def forget_entry(self, directory: bytes, node: _Node, name: bytes) -> None:
        path = join(directory, name)
        node.entries.pop(name, None)
        node.stamps.pop(name, None)
        self.links.forget(path)
        self.unheld.pop(path, None)
        if node.children.pop(name, None) is not None:
            below = path + b"/"
            for inside in [inside for inside in self.links.by_path if inside.startswith(below)]:
                self.links.forget(inside)
            for inside in [inside for inside in self.unheld if inside.startswith(below)]:
                del self.unheld[inside]
        node.digest = None

    # The cache that survives the process

    def save(self, file: Path) -> None:
        """Best effort and not synced: a lost or torn cache only means reading everything once more."""
        if self.state is None:
            return
        nodes = [node.packed(path) for path, node in self._nodes()]
        cache = _Cache(
            _CACHE_VERSION, _boot_id(), self.root.stat().st_ino, self.state, nodes, self.unheld, self.links.by_path
        )
        temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
        temporary.write_bytes(msgspec.msgpack.encode(cache))
        temporary.replace(file)

    def _nodes(self) -> Iterable[tuple[bytes, _Node]]:
        pending = [(b"", self._top)]
        while pending:
            path, node = pending.pop()
            yield path, node
            pending.extend((join(path, name), child) for name, child in node.children.items())

    def load(self, file: Path) -> None:
        """Take over what an earlier process knew; anything doubtful about the cache and it is not used."""
        try:
            cache = msgspec.msgpack.decode(file.read_bytes(), type=_Cache)
        except (OSError, msgspec.DecodeError):
            return
        # After a power cut a file can have its old timestamps and lost content, so nothing survives a reboot.
        expected = (_CACHE_VERSION, _boot_id(), self.root.stat().st_ino)
        if (cache.version, cache.boot_id, cache.root_inode) != expected:
            return
        nodes: dict[bytes, _Node] = {}
        for cached in cache.nodes:
            node = _Node.unpacked(cached)
            nodes[cached.path] = node
            if cached.path:
                directory, name = split(cached.path)
                nodes[directory].children[name] = node
        self._top, self.state = nodes[b""], cache.state
        self.unheld, self.links = cache.unheld, _Links(cache.linked)


class _Look:
    """One pass over the tree or a part of it: see what is there, read what is new, name the directories anew."""

    def __init__(self, index: TreeIndex, descent: Descent, batch: Batch, now_ns: int) -> None:
        self._index, self._descent, self._batch, self._now_ns = index, descent, batch, now_ns
        self._to_read: list[_FileToRead] = []
        self._to_encode: dict[bytes, _Node] = {}

    def at_subtree(self, path: bytes, node: _Node) -> None:
        pending = [(path, node)]
        while pending:
            directory, node = pending.pop()
            try:
                pending.extend(self._at_directory(directory, node))
            except PermissionError:
                self._leave_out(directory)

    def _at_directory(self, directory: bytes, node: _Node) -> list[tuple[bytes, _Node]]:
        """Look at every entry of one directory; the directories in it, to be looked at next."""
        descriptor = self._open(directory)
        stamps, links = node.stamps, self._index.links
        seen = set()
        below = []
        with os.scandir(descriptor) as listing:
            for item in listing:
                name = item.name.encode(_ENCODING, _ENCODING_ERRORS)
                try:
                    found = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                seen.add(name)
                stamp = (found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size)
                if stamps.get(name) == stamp:
                    if found.st_nlink > 1:
                        links.note(join(directory, name), found)
                    continue
                child = self._at_entry(directory, node, name, found)
                if child is not None:
                    below.append((join(directory, name), child))
        for name in (stamps.keys() | node.children.keys()) - seen:
            self._index.forget_entry(directory, node, name)
        for path in [path for path in self._index.unheld if split(path)[0] == directory and split(path)[1] not in seen]:
            del self._index.unheld[path]
        self._note_head(directory, node, descriptor)
        return below

    def _leave_out(self, directory: bytes) -> None:
        if not directory:
            raise SandboxError(
                f"{self._index.root} is not readable for this user.", hint="Give yourself the permission to read it."
            )
        parent_path, name = split(directory)
        parent = self._index.node_at(parent_path)
        assert parent is not None
        self._index.forget_entry(parent_path, parent, name)
        self._index.unheld[directory] = "not readable for this user"

    def _open(self, directory: bytes) -> int:
        try:
            return self._descent.open(directory)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _Moved from error
        except OSError as error:
            if error.errno == errno.ELOOP:  # a symlink was put in its place
                raise _Moved from error
            raise

    def _note_head(self, directory: bytes, node: _Node, descriptor: int) -> None:
        found = os.fstat(descriptor)
        stamp = (found.st_ino, found.st_ctime_ns)
        if node.head is None or node.stamp != stamp:
            head = directory_entry(split(directory)[1], descriptor)
            content = node.head.content if node.head is not None else b""
            head = msgspec.structs.replace(head, mode=self._descent.mode_of(found), content=content)
            if head != node.head:
                node.head, node.is_placed = head, False
            node.stamp = stamp if self._is_settled(found) else (found.st_ino, _UNTRUSTED)
        self._to_encode[directory] = node

    def _at_entry(self, directory: bytes, node: _Node, name: bytes, found: os.stat_result) -> _Node | None:
        """Note one entry; if it is a directory, its node."""
        kind = stat.S_IFMT(found.st_mode)
        if kind == stat.S_IFDIR:
            child = node.children.get(name)
            if child is None or (child.stamp[0] != found.st_ino):
                self._index.forget_entry(directory, node, name)
                child = node.children[name] = _Node()
            return child
        if name in node.children:
            self._index.forget_entry(directory, node, name)
        self._index.unheld.pop(join(directory, name), None)
        if kind in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO):
            self._to_read.append(_FileToRead(node, directory, name))
        else:
            self._index.forget_entry(directory, node, name)
            self._index.unheld[join(directory, name)] = _KIND_NAMES.get(kind, "an unknown kind of file")
        return None

    def at_changes(self, changed: Changed) -> None:
        for directory, names in changed.items():
            node = self._index.node_at(directory)
            if node is None:
                continue  # new, and found through its parent
            if names is None:
                self.at_subtree(directory, node)
            else:
                self._at_names(directory, node, names)
        for directory in list(self._to_encode):
            self._encode_ancestors(directory)

    def _at_names(self, directory: bytes, node: _Node, names: set[bytes]) -> None:
        descriptor = self._open(directory)
        for name in names:
            try:
                found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                self._index.forget_entry(directory, node, name)
                continue
            for other in self._index.links.other_names(found) if found.st_nlink > 1 else ():
                self._reread(other)
            child = self._at_entry(directory, node, name, found)
            if child is not None and child.head is None:
                self.at_subtree(join(directory, name), child)
                descriptor = self._open(directory)
            elif child is not None:
                self._note_head(join(directory, name), child, self._open(join(directory, name)))
                descriptor = self._open(directory)
        self._note_head(directory, node, descriptor)

    def _reread(self, path: bytes) -> None:
        """A write through one name of a file is not reported for its other names."""
        directory, name = split(path)
        node = self._index.node_at(directory)
        if node is not None and name in node.entries:
            self._to_read.append(_FileToRead(node, directory, name))
            self._to_encode[directory] = node

    def _encode_ancestors(self, directory: bytes) -> None:
        while directory:
            directory = split(directory)[0]
            if directory in self._to_encode:
                return
            node = self._index.node_at(directory)
            assert node is not None
            self._to_encode[directory] = node

    def read_files(self) -> None:
        for wanted in self._to_read:
            self._read(wanted)

    def _read(self, wanted: _FileToRead) -> None:
        node, directory, name = wanted.node, wanted.directory, wanted.name
        path = join(directory, name)
        descriptor = self._open(directory)
        node.digest = None
        try:
            entry, found = read_entry(descriptor, name, self._batch)
        except FileNotFoundError:
            self._index.forget_entry(directory, node, name)
            return
        except PermissionError:
            self._index.forget_entry(directory, node, name)
            self._index.unheld[path] = "not readable for this user"
            return
        node.entries[name] = entry
        ctime = found.st_ctime_ns if self._is_settled(found) else _UNTRUSTED
        node.stamps[name] = (found.st_ino, ctime, found.st_mtime_ns, found.st_size)
        self._index.links.note(path, found)

    def _is_settled(self, found: os.stat_result) -> bool:
        return found.st_ctime_ns < self._now_ns - _RACY_NS

    def encode_directories(self) -> None:
        for directory in sorted(self._to_encode, key=depth, reverse=True):
            node = self._to_encode[directory]
            head = node.head
            assert head is not None
            if node.digest is None:
                node.digest = self._batch.add(encode_directory(node.entries))
                self._index.recent.keep(node.digest, dict(node.entries))
            if head.content != node.digest:
                head = node.head = msgspec.structs.replace(head, content=node.digest)
                node.is_placed = False
            if directory and not node.is_placed:
                parent_path, name = split(directory)
                parent = self._to_encode[parent_path]
                parent.entries[name] = head
                parent.digest = None
                node.is_placed = True


_KIND_NAMES = {stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a block device", stat.S_IFCHR: "a character device"}


def directory_entry(name: bytes, descriptor: int) -> Entry:
    """A directory as an entry, without what it holds."""
    found = os.fstat(descriptor)
    return Entry(name, DIRECTORY, stat.S_IMODE(found.st_mode), found.st_mtime_ns, *_owner(found), 0, b"",
                 _xattrs(descriptor))  # fmt: skip


def read_entry(directory: int, name: bytes, batch: Batch) -> tuple[Entry, os.stat_result]:
    """One file, symlink or fifo as an entry, its content stored; and what the kernel said of it."""
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFREG:
        return _read_file(directory, name, batch)
    through = f"/proc/self/fd/{directory}/".encode() + name
    content = os.readlink(name, dir_fd=directory) if kind == stat.S_IFLNK else b""
    mode, shape = stat.S_IMODE(found.st_mode), SYMLINK if kind == stat.S_IFLNK else FIFO
    xattrs = _xattrs(through, follow_symlinks=False)
    return Entry(name, shape, mode, found.st_mtime_ns, *_owner(found), 0, content, xattrs), found


def _read_file(directory: int, name: bytes, batch: Batch) -> tuple[Entry, os.stat_result]:
    descriptor = _open_for_reading(name, directory)
    try:
        tries = 0
        while True:
            tries += 1
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                raise _Moved
            kind, size, content = _stored_content(descriptor, before.st_size, batch)
            after = os.fstat(descriptor)
            if (before.st_mtime_ns, before.st_ctime_ns, before.st_size) == (
                after.st_mtime_ns, after.st_ctime_ns, size,
            ) or tries == _RESTLESS_TRIES:  # fmt: skip
                break
            os.lseek(descriptor, 0, os.SEEK_SET)
        mode = stat.S_IMODE(after.st_mode)
        return Entry(name, kind, mode, after.st_mtime_ns, *_owner(after), size, content, _xattrs(descriptor)), after
    finally:
        os.close(descriptor)


def _open_for_reading(name: bytes, directory: int) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=directory)
    except PermissionError:
        with made_accessible(name, directory, 0o400):
            return os.open(name, flags, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # it was replaced by a symlink or a socket
            raise _Moved from error
        raise


def _stored_content(descriptor: int, size: int, batch: Batch) -> tuple[int, int, bytes]:
    """Kind, size and digest of what the file holds now."""
    if size < PIECES_FROM_BYTES:
        content = _read_fully(descriptor, PIECES_FROM_BYTES)
        if len(content) < PIECES_FROM_BYTES:
            return FILE, len(content), batch.add(content) if content else b""
        os.lseek(descriptor, 0, os.SEEK_SET)
    digests, total = [], 0
    while piece := _read_fully(descriptor, PIECE_BYTES):
        digests.append(batch.add(piece))
        total += len(piece)
    return PIECES, total, batch.add(encode_pieces(digests))


def _read_fully(descriptor: int, limit: int) -> bytes:
    content = os.read(descriptor, limit)
    if not content or len(content) == limit:
        return content
    parts, total = [content], len(content)
    while total < limit and (part := os.read(descriptor, limit - total)):
        parts.append(part)
        total += len(part)
    return b"".join(parts) if len(parts) > 1 else content


_OWN_GROUPS = frozenset((os.getegid(), *os.getgroups()))


def _owner(found: os.stat_result) -> tuple[int, int]:
    """The owner, where this user could set it again."""
    if IS_ROOT or (found.st_uid == os.geteuid() and found.st_gid in _OWN_GROUPS):
        return found.st_uid, found.st_gid
    return UNKNOWN_OWNER, UNKNOWN_OWNER


def _xattrs(target: int | bytes, *, follow_symlinks: bool = True) -> tuple[tuple[bytes, bytes], ...]:
    try:
        names = os.listxattr(target, follow_symlinks=follow_symlinks)
        if not names:
            return ()
        wanted = sorted(name for name in map(os.fsencode, names) if is_held_xattr(name))
        return tuple((name, os.getxattr(target, name, follow_symlinks=follow_symlinks)) for name in wanted)
    except OSError:
        return ()  # this file system has none


def is_held_xattr(xattr: bytes) -> bool:
    if IS_ROOT:
        return xattr not in _KERNEL_XATTRS
    return xattr.startswith((b"user.", b"system.posix_acl_"))


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
