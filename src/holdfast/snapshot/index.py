"""What a directory holds, known entry by entry, so that looking again costs only what changed.

``TreeIndex.refresh`` brings the index up to date with the disk, stores new content and gives the state hash. The index is
also the stat cache: an entry whose inode, ctime, mtime, size and mode are as they were is not read again.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from holdfast.errors import SandboxError
from holdfast.snapshot.descent import IS_ROOT, Descent, depth, join, made_accessible, split
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

Changed = Mapping[bytes, "set[bytes] | None"]
"""Directories in which something changed: the names, or None for the directory and all that lies below it."""


class _Moved(Exception):
    """Something was renamed or replaced while it was being read."""


class _Node:
    """One directory: its entries, what the kernel said of each when it was read, and its own entry in its parent."""

    __slots__ = ("children", "digest", "entries", "head", "stamp", "stamps")

    def __init__(self) -> None:
        self.entries: dict[bytes, Entry] = {}
        self.stamps: dict[bytes, tuple[int, int]] = {}
        self.children: dict[bytes, _Node] = {}
        self.digest: bytes | None = None
        self.head: Entry | None = None
        self.stamp = (0, 0)


class _CachedNode(msgspec.Struct, array_like=True, gc=False):
    path: bytes
    head: Entry
    stamp: tuple[int, int]
    digest: bytes
    entries: list[Entry]
    stamps: list[tuple[int, int]]


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


class TreeIndex:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.state: bytes | None = None
        self.unheld: dict[bytes, str] = {}
        self._linked: dict[bytes, tuple[int, int]] = {}
        self._top = _Node()

    def forget(self) -> None:
        """Start from nothing: the next refresh reads everything."""
        self.state, self.unheld, self._linked, self._top = None, {}, {}, _Node()

    def refresh(self, batch: Batch, changed: Changed | None = None) -> bytes:
        """Look at the whole tree, or only at what ``changed`` names, and return the state hash."""
        if self.state is not None and not batch.has(self.state):
            # A state object lives exactly as long as the content below it: if it was collected, so was the rest.
            self.forget()
        if self.state is None:
            changed = None
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
        return batch.add(encode_state(head, self._link_groups()))

    def _link_groups(self) -> tuple[tuple[bytes, ...], ...]:
        groups: dict[tuple[int, int], list[bytes]] = {}
        for path, inode in self._linked.items():
            groups.setdefault(inode, []).append(path)
        return tuple(sorted(tuple(sorted(paths)) for paths in groups.values() if len(paths) > 1))

    def paths_linked_with(self, inode: tuple[int, int]) -> list[bytes]:
        return [path for path, known in self._linked.items() if known == inode]

    def node_at(self, path: bytes) -> _Node | None:
        node: _Node | None = self._top
        for name in path.split(b"/") if path else ():
            node = node.children.get(name) if node else None
        return node

    def forget_entry(self, directory: bytes, node: _Node, name: bytes) -> None:
        path = join(directory, name)
        node.entries.pop(name, None)
        node.stamps.pop(name, None)
        self._linked.pop(path, None)
        self.unheld.pop(path, None)
        if node.children.pop(name, None) is not None:
            below = path + b"/"
            for known in (self._linked, self.unheld):
                for inside in [inside for inside in known if inside.startswith(below)]:
                    del known[inside]  # type: ignore[attr-defined]
        node.digest = None

    def note_links(self, path: bytes, found: os.stat_result) -> None:
        if found.st_nlink > 1:
            self._linked[path] = (found.st_dev, found.st_ino)
        else:
            self._linked.pop(path, None)

    # The cache that survives the process

    def save(self, file: Path) -> None:
        """Best effort and not synced: a lost or torn cache only means reading everything once more."""
        if self.state is None:
            return
        nodes = [
            _CachedNode(path, node.head, node.stamp, node.digest, list(node.entries.values()),
                        [node.stamps.get(name, (0, _UNTRUSTED)) for name in node.entries])
            for path, node in self._nodes()
            if node.head is not None and node.digest is not None
        ]  # fmt: skip
        cache = _Cache(
            _CACHE_VERSION, _boot_id(), self.root.stat().st_ino, self.state, nodes, self.unheld, self._linked
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
        if (cache.version, cache.boot_id) != (_CACHE_VERSION, _boot_id()) or cache.root_inode != self.root.stat().st_ino:
            return
        nodes: dict[bytes, _Node] = {}
        for cached in cache.nodes:
            node = _Node()
            node.entries = {entry.name: entry for entry in cached.entries}
            node.stamps = dict(zip(node.entries, cached.stamps, strict=True))
            node.digest, node.head, node.stamp = cached.digest, cached.head, cached.stamp
            nodes[cached.path] = node
            if cached.path:
                directory, name = split(cached.path)
                nodes[directory].children[name] = node
        self._top, self.state = nodes[b""], cache.state
        self.unheld, self._linked = cache.unheld, cache.linked


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
        seen = set()
        below = []
        with os.scandir(descriptor) as listing:
            for item in listing:
                name = os.fsencode(item.name)
                try:
                    found = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                seen.add(name)
                child = self._at_entry(directory, node, name, found)
                if child is not None:
                    below.append((join(directory, name), child))
        for name in node.entries.keys() - seen:
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
            node.head = msgspec.structs.replace(head, mode=self._descent.mode_of(found), content=node.digest or b"")
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
        known = node.entries.get(name)
        if (
            known is not None
            and node.stamps.get(name) == (found.st_ino, found.st_ctime_ns)
            and known.mtime_ns == found.st_mtime_ns
            and known.mode == stat.S_IMODE(found.st_mode)
            and (known.size == found.st_size or kind != stat.S_IFREG)
        ):
            if found.st_nlink > 1:
                self._index.note_links(join(directory, name), found)
            return None
        if known is None or known.kind == DIRECTORY:
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
            for linked in self._index.paths_linked_with((found.st_dev, found.st_ino)) if found.st_nlink > 1 else ():
                self._reread(linked)
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
        node.stamps[name] = (found.st_ino, found.st_ctime_ns if self._is_settled(found) else _UNTRUSTED)
        self._index.note_links(path, found)

    def _is_settled(self, found: os.stat_result) -> bool:
        return found.st_ctime_ns < self._now_ns - _RACY_NS

    def encode_directories(self) -> None:
        for directory in sorted(self._to_encode, key=depth, reverse=True):
            node = self._to_encode[directory]
            head = node.head
            assert head is not None
            if node.digest is None:
                node.digest = self._batch.add(encode_directory(node.entries))
            if head.content != node.digest:
                head = node.head = msgspec.structs.replace(head, content=node.digest)
            if directory:
                parent_path, name = split(directory)
                parent = self._to_encode[parent_path]
                if parent.entries.get(name) != head:
                    parent.entries[name] = head
                    parent.digest = None


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
        for _ in range(_RESTLESS_TRIES):
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                raise _Moved
            kind, size, content = _stored_content(descriptor, before.st_size, batch)
            after = os.fstat(descriptor)
            if (before.st_mtime_ns, before.st_ctime_ns, before.st_size) == (
                after.st_mtime_ns, after.st_ctime_ns, size,
            ):  # fmt: skip
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
