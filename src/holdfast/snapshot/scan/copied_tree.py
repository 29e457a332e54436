"""Learns a tree while it is copied: stores the contents, and knows the files so that the first scan reads none."""

from __future__ import annotations

import stat
import threading
import time
from collections.abc import Sequence

from holdfast.content.batch import Batch
from holdfast.content.format import FILE, Entry, digest_of
from holdfast.content.packing import new_compressor, pack
from holdfast.errors import QuotaError
from holdfast.sandbox.bulk import CopiedFile
from holdfast.snapshot.scan.entries import user_owner
from holdfast.snapshot.scan.known_tree import KnownTree
from holdfast.snapshot.scan.nodes import Node
from holdfast.system.directories import IS_ROOT, split
from holdfast.system.stamps import UNTRUSTED, Stamp, is_settled


def entry_of(file: CopiedFile, digest: bytes) -> tuple[Entry, Stamp] | None:
    """The copy of a file as an entry, and its stamp; None if it has extended attributes, which are not shown."""
    mode, uid, gid, mtime, size, _, inode, _, ctime, has_attributes = file.copy
    if has_attributes:
        return None
    owner = (uid, gid) if IS_ROOT else user_owner(gid)
    entry = Entry(file.name, FILE, stat.S_IMODE(mode), mtime, *owner, size, digest)
    return entry, (inode, ctime, mtime, size)


def digests_of_copies(files: Sequence[CopiedFile]) -> list[bytes]:
    """The digests of exactly what is in the copies; an empty file has none."""
    return [digest_of(file.content) if file.content else b"" for file in files]


class CopiedTree:
    """Files are known by the digests of what was written. Whatever was not shown is unknown, and is read by a scan.

    If the quota is used up, it learns nothing more: the first checkpoint has the means to make room.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._mutex = threading.Lock()
        self._tree = KnownTree()
        self._nodes: dict[bytes, Node] = {}
        self._is_over_quota = False

    def note_directory(self, path: bytes, inode: int) -> None:
        node = self._nodes[path] = Node() if path else self._tree.top
        node.stamp = (inode, UNTRUSTED)
        if path:
            above, name = split(path)
            self._nodes[above].children[name] = node

    def note_files(self, files: Sequence[CopiedFile]) -> None:
        if self._is_over_quota:
            return
        digests = digests_of_copies(files)
        new = self._batch.new_among(filter(None, digests))
        compressor = new_compressor()
        contents = {digest: file.content for digest, file in zip(digests, files, strict=True) if digest in new}
        rows = [(digest, len(content), pack(content, compressor)) for digest, content in contents.items()]
        with self._mutex:
            try:
                self._batch.add_new(rows)
            except QuotaError:
                self._is_over_quota = True
                return
            for file, digest in zip(files, digests, strict=True):
                self._note(file, digest)

    def note_entry(self, path: bytes) -> None:
        """Its content was not shown, so that it is read."""

    def _note(self, file: CopiedFile, digest: bytes) -> None:
        if (found := entry_of(file, digest)) is not None:
            entry, stamp = found
            node = self._nodes[file.directory]
            node.put(entry)
            node.note_stamp(file.name, stamp)

    def learned(self) -> KnownTree | None:
        """What is known, once its content is stored; None if it does not fit, or if nothing was shown."""
        if not self._is_over_quota:
            try:
                self._batch.commit()
            except QuotaError:
                self._is_over_quota = True
        if self._is_over_quota or not self._nodes:
            return None
        now_ns = time.time_ns()
        for node in self._nodes.values():
            node.distrust({name for name, stamp in node.stamps.items() if not is_settled(stamp[1], now_ns)})
        return self._tree
