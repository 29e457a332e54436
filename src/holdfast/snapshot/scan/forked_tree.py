"""Learns a copy of a known tree while it is made: what is in the copy, and known of the original, is stored already.

Nothing is concluded from the original, which may change in between, or without a new ctime. A file is known if what was
written into its copy has the known digest, and the copy has the known attributes.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from holdfast.content.format import Entry
from holdfast.sandbox.bulk import CopiedFile
from holdfast.snapshot.scan.copied_tree import digests_of_copies, entry_of
from holdfast.snapshot.scan.entries import Moved, is_directory_as_wanted, read_entry
from holdfast.snapshot.scan.known_tree import KnownTree
from holdfast.snapshot.scan.nodes import Node
from holdfast.snapshot.scan.packed_tree import PackedTree
from holdfast.system.directories import Descent, join, names_in, split
from holdfast.system.stamps import RACY_NS, UNTRUSTED, Stamp, is_settled
from holdfast.system.stopping import stop_if_asked


class Lent(NamedTuple):
    """What is known of a tree, for a copy of it; it never changes."""

    packed: tuple[PackedTree, ...]
    state: bytes
    """As long as this state is stored, so is all known content."""
    finding: str | None


class _OnlyHashed:
    """Takes content of which only the digest is needed, until we are asked to stop."""

    def add_named(self, digest: bytes, content: bytes) -> None:  # noqa: ARG002 - as every sink
        stop_if_asked()


class ForkedTree:
    """Whatever is not as known is unknown, and is read by a scan."""

    def __init__(self, lent: Lent, copy: Path) -> None:
        self._lent, self._copy = lent, copy
        self._directories: set[bytes] = set()
        self._files: defaultdict[bytes, list[tuple[Entry, Stamp]]] = defaultdict(list)
        """By directory: what was written, and the stamps of the copies."""
        self._others: defaultdict[bytes, list[bytes]] = defaultdict(list)
        """By directory: the names of what was copied one by one, and not shown."""

    def note_directory(self, path: bytes, inode: int) -> None:  # noqa: ARG002 - it is looked at in the end
        self._directories.add(path)

    def note_files(self, files: Sequence[CopiedFile]) -> None:
        for file, digest in zip(files, digests_of_copies(files), strict=True):
            if (found := entry_of(file, digest)) is not None:
                self._files[file.directory].append(found)

    def note_entry(self, path: bytes) -> None:
        directory, name = split(path)
        self._others[directory].append(name)

    def learned(self) -> KnownTree | None:
        """What is known of the copy, now that it is in its place; None if it cannot be looked at."""
        time.sleep(RACY_NS / 1e9)  # otherwise the last of it would be too new to be told by its times
        tree = KnownTree(self._lent.packed)
        try:
            self._compare(tree, time.time_ns())
        except OSError:
            return None  # the first checkpoint reads all of it, and says what is wrong
        tree.pack_anew()
        return tree

    def _compare(self, tree: KnownTree, now_ns: int) -> None:
        """Leave in the tree only the stamps of what is the same in the copy, with those that it has there."""
        with Descent(self._copy, is_sandbox=True) as copies:
            for path, node in tree.nodes():
                stop_if_asked()
                found, node.stamp = dict[bytes, Stamp](), (0, UNTRUSTED)
                if path in self._directories:
                    found.update(self._copied_in(path, node, copies.open(path), tree))
                    node.stamp = self._own_stamp(path, node, copies, now_ns)
                known = {name: stamp for name, stamp in found.items() if is_settled(stamp[1], now_ns)}
                node.distrust(node.stamps.keys() - known.keys())
                node.stamps.update(known)

    def _copied_in(self, path: bytes, node: Node, copy: int, tree: KnownTree) -> Iterator[tuple[bytes, Stamp]]:
        """What of a directory is as known, with the stamps of the copies."""
        for entry, stamp in self._files[path]:
            if node.entries.get(entry.name) == entry:
                yield entry.name, stamp
        for name in filter(node.entries.__contains__, self._others[path]):
            with suppress(OSError, Moved):
                entry, found = read_entry(copy, name, _OnlyHashed())
                if node.entries.get(name) == entry:
                    tree.links.note(join(path, name), (found.st_dev, found.st_ino), found.st_nlink)
                    yield name, (found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size)

    def _own_stamp(self, path: bytes, node: Node, copies: Descent, now_ns: int) -> tuple[int, int]:
        """The stamp of a directory of the copy; no trusted one if it does not have the known names and attributes.

        A name may be known as a directory, and be a file by now, or the other way round.
        """
        descriptor = copies.open(path)
        found = os.fstat(descriptor)
        assert node.head is not None
        names = names_in(descriptor)
        is_known = (
            is_settled(found.st_ctime_ns, now_ns)
            and is_directory_as_wanted(node.head, descriptor, found, copies.mode_of(path, found))
            and names == node.stamps.keys() | node.children.keys()
            and {name for name in names if join(path, name) in self._directories} == node.children.keys()
        )
        return found.st_ino, found.st_ctime_ns if is_known else UNTRUSTED
