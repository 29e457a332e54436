"""Keeps the index of a tree in one file for the next process."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from holdfast.content.format import DIGEST_BYTES, digest_of
from holdfast.snapshot.scan.known_tree import HardLinks, KnownTree
from holdfast.snapshot.scan.nodes import CachedNode, Node
from holdfast.system.machine import boot_id

_CACHE_VERSION = 5


class _Cache(msgspec.Struct, array_like=True):
    version: int
    boot_id: str
    root_inode: int
    state: bytes
    finding: str | None
    nodes: list[CachedNode]
    unheld: dict[bytes, str]
    linked: dict[bytes, tuple[int, int]]
    link_counts: dict[tuple[int, int], int]
    left: set[bytes]


_decode_cache = msgspec.msgpack.Decoder(_Cache).decode


def save_tree(file: Path, root: Path, tree: KnownTree, state: bytes, finding: str | None) -> None:
    """Write the cache, if possible and without fsync: a lost or torn cache only means reading everything again."""
    links = tree.links
    cache = _Cache(
        _CACHE_VERSION,
        boot_id(),
        root.stat().st_ino,
        state,
        finding,
        _packed(tree.top),
        tree.unheld,
        links.by_path,
        {inode: links.counts[inode] for inode in links.by_path.values()},
        links.left,
    )
    temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    content = msgspec.msgpack.encode(cache)
    try:
        with temporary.open("wb") as written:
            written.write(digest_of(content))
            written.write(content)
        temporary.replace(file)
    except OSError:
        # If the disk is full, for example, the user should see the errors that matter.
        with suppress(OSError):
            temporary.unlink()


def load_tree(file: Path, root: Path) -> tuple[KnownTree, bytes, str | None] | None:
    """The tree as an earlier process knew it, its state and its finding; None if the cache may be wrong."""
    with _without_garbage_collection():
        cache = _read(file)
        # After a power cut a file can have its old timestamps and lost content, so no cache survives a reboot.
        if cache is None or (cache.version, cache.boot_id, cache.root_inode) != (
            _CACHE_VERSION, boot_id(), root.stat().st_ino,
        ):  # fmt: skip
            return None
        nodes = [Node.unpacked(cached) for cached in cache.nodes]
        for cached, node in zip(cache.nodes[1:], nodes[1:], strict=True):
            nodes[cached.parent].children[cached.head.name] = node
        links = HardLinks(cache.linked, cache.link_counts, cache.left)
        return KnownTree(nodes[0], links, cache.unheld), cache.state, cache.finding


def _packed(top: Node) -> list[CachedNode]:
    packed: list[CachedNode] = []
    pending = [(0, top)]
    while pending:
        parent, node = pending.pop()
        pending.extend((len(packed), child) for child in node.children.values())
        packed.append(node.packed(parent))
    return packed


def _read(file: Path) -> _Cache | None:
    try:
        content = memoryview(file.read_bytes())
        digest, content = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
        return _decode_cache(content) if digest_of(content) == digest else None
    except (OSError, msgspec.DecodeError):
        return None


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Loading creates many objects that all stay; searching them for garbage would be a third of the work."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
