"""Keeps the index of a tree in one file for the next process.

The file is a sequence of frames: packed trees, and after them the facts that belong to all trees so far. What changed
is added at the end, so saving costs only that. The digest of a frame depends on all frames before it: what was not
written as a whole, or not on top of exactly what is there, is ignored with all that follows. If much in the file is out
of date, it is written anew.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.content.format import DIGEST_BYTES, digest_of
from holdfast.snapshot.scan.hard_links import HardLinks
from holdfast.snapshot.scan.known_tree import KnownTree
from holdfast.snapshot.scan.packed_tree import PackedTree
from holdfast.snapshot.scan.unheld_paths import UnheldPaths
from holdfast.system.directories import USER
from holdfast.system.machine import boot_id

_MAGIC = b"HFINDEX7"
"""The last character is the version."""
_TREE, _FACTS = 0, 1
_HEAD = struct.Struct(f"=8sQQ{DIGEST_BYTES}s")
"""The head of a frame: magic, kind, size of the body that follows, digest."""
_FIRST = bytes(DIGEST_BYTES)
"""Stands for the digest before the first frame."""
_MOST_TREES = 64
"""Finding a directory in that many packed trees takes a fraction of a millisecond."""


class _Facts(msgspec.Struct, array_like=True):
    boot_id: str
    user: tuple[int, ...]
    root_inode: int
    state: bytes
    finding: str | None
    unheld: dict[bytes, str]
    linked: dict[bytes, tuple[int, int]]
    link_counts: dict[tuple[int, int], int]
    left: list[bytes]


_encode = msgspec.msgpack.Encoder().encode
_decode_facts = msgspec.msgpack.Decoder(_Facts).decode


class _Content(NamedTuple):
    """What a file has up to the last facts in it."""

    trees: tuple[PackedTree, ...]
    facts: bytes
    size: int
    digest: bytes
    """That of the last frame."""


_EMPTY = _Content((), b"", 0, _FIRST)


class IndexFile:
    """The file of one tree, as this process last read or wrote it."""

    def __init__(self, file: Path, root: Path) -> None:
        self._file, self._root = file, root
        self._content = _EMPTY

    def load(self) -> tuple[KnownTree, bytes, str | None] | None:
        """The tree as an earlier process knew it, its state and its finding; None if the file may be wrong."""
        try:
            content = _read(self._file.read_bytes())
            facts = _decode_facts(content.facts)
        except (OSError, msgspec.DecodeError):
            return None
        # After a power cut a file can have its old timestamps and lost content, so no cache survives a reboot.
        if (facts.boot_id, facts.user, facts.root_inode) != (boot_id(), USER, self._root.stat().st_ino):
            return None
        self._content = content
        links = HardLinks(facts.linked, facts.link_counts, set(facts.left))
        return KnownTree(content.trees, links, UnheldPaths(facts.unheld)), facts.state, facts.finding

    def save(self, tree: KnownTree, state: bytes, finding: str | None) -> None:
        """Write what changed, if possible and without fsync: after a loss everything is read again, and no more."""
        tree.pack()
        facts = self._facts(tree, state, finding)
        try:
            if not self._can_grow(tree):
                self._write_anew(tree, facts)
            elif len(tree.packed) > len(self._content.trees) or facts != self._content.facts:
                self._add(tree, facts)
        except OSError:
            pass  # if the disk is full, for example, the user should see the errors that matter

    def _facts(self, tree: KnownTree, state: bytes, finding: str | None) -> bytes:
        links = tree.links
        counts = {inode: links.counts[inode] for inode in links.by_path.values()}
        root_inode, left = self._root.stat().st_ino, sorted(links.left)
        return _encode(_Facts(boot_id(), USER, root_inode, state, finding, tree.unheld, links.by_path, counts, left))

    def _can_grow(self, tree: KnownTree) -> bool:
        """Whether the file is still as we know it, the tree has grown from it, and it has not grown too much."""
        trees = self._content.trees
        if not trees or len(tree.packed) > _MOST_TREES or tree.packed[: len(trees)] != list(trees):
            return False
        first, *others = (len(each.content) for each in tree.packed)
        try:
            return sum(others) <= first // 2 and self._file.stat().st_size == self._content.size
        except FileNotFoundError:
            return False

    def _add(self, tree: KnownTree, facts: bytes) -> None:
        before = self._content
        frames, digest = _framed(tree.packed[len(before.trees) :], facts, before.digest)
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            # At once: another process may do the same, and then one of the two is ignored.
            written = os.write(descriptor, frames)
        finally:
            os.close(descriptor)
        if written == len(frames):
            self._content = _Content(tuple(tree.packed), facts, before.size + len(frames), digest)

    def _write_anew(self, tree: KnownTree, facts: bytes) -> None:
        if len(tree.packed) > 1:
            tree.pack_anew()
        frames, digest = _framed(tree.packed, facts, _FIRST)
        temporary = self._file.with_name(f"{self._file.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(frames)
            temporary.replace(self._file)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
        self._content = _Content(tuple(tree.packed), facts, len(frames), digest)


def _framed(trees: Sequence[PackedTree], facts: bytes, digest: bytes) -> tuple[bytes, bytes]:
    """Frames that follow the one with that digest; and the digest of the last."""
    frames: list[bytes | memoryview] = []
    bodies: list[tuple[int, bytes | memoryview]] = [(_TREE, tree.content) for tree in trees]
    for kind, body in (*bodies, (_FACTS, facts)):
        digest = _frame_digest(digest, kind, body)
        frames += (_HEAD.pack(_MAGIC, kind, len(body), digest), body)
    return b"".join(frames), digest


def _frame_digest(before: bytes, kind: int, body: bytes | memoryview) -> bytes:
    return digest_of(_HEAD.pack(_MAGIC, kind, len(body), before) + digest_of(body))


def _read(content: bytes) -> _Content:
    found, trees = _EMPTY, []
    for kind, start, end, digest in _whole_frames(content):
        if kind == _TREE:
            trees.append(PackedTree(content, start))
        else:
            found = _Content(tuple(trees), content[start:end], end, digest)
    return found


def _whole_frames(content: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Kind, place and digest of each frame, until one is not as it should be."""
    end, before = 0, _FIRST
    while end + _HEAD.size <= len(content):
        magic, kind, size, digest = _HEAD.unpack_from(content, end)
        start = end + _HEAD.size
        end = start + size
        if magic != _MAGIC or end > len(content):
            return
        if _frame_digest(before, kind, memoryview(content)[start:end]) != digest:
            return
        yield kind, start, end, digest
        before = digest
