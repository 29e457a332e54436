"""Makes complete files under temporary names, before they get their own names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from holdfast.content.difference import StateReader
from holdfast.content.format import PIECE_BYTES, REGULAR, SYMLINK, Entry
from holdfast.snapshot.restore.file_attributes import set_attributes, set_attributes_through
from holdfast.snapshot.restore.staging import Spare, Staging, temporary_names
from holdfast.system.calls import fill
from holdfast.system.once import once
from holdfast.system.progress import UNWATCHED, Metering
from holdfast.system.stopping import stop_if_asked


class NewFiles:
    """Makes files in the staging folder if there is one, otherwise beside their target."""

    def __init__(
        self,
        reader: StateReader,
        contents: Mapping[bytes, bytes],
        meter: Metering,
        staging: Staging | None,
        *,
        owner: str,
        is_real: bool,
    ) -> None:
        self._reader, self._contents = reader, contents
        self._meter, self._is_watched = meter, meter is not UNWATCHED
        self.staging = staging
        self._owner, self._is_real = owner, is_real
        self.proven: dict[bytes, tuple[int, int]] = {}
        """Files that were read back and found right before they got their names; device and inode."""

    @once
    def _names(self) -> Iterator[bytes]:
        return temporary_names(self._owner)

    def temporary_name(self) -> bytes:
        """A free name beside the target."""
        return next(self._names)

    def make(self, path: bytes, entry: Entry, parent: int) -> bytes:
        """Make a file for ``path``; returns its name in the staging folder or, without one, in ``parent``."""
        staging = self.staging
        if staging is None:
            return self._made(entry, parent, next(self._names))
        spare = staging.spare() if entry.kind in REGULAR else None
        if spare is None:
            return self._made(entry, staging.descriptor, staging.new_name())
        return self._refilled(spare, path, entry)

    def _made(self, entry: Entry, parent: int, name: bytes) -> bytes:
        if entry.is_file:
            self._write_file(entry, parent, name)
            return name
        if entry.kind == SYMLINK:
            os.symlink(entry.content, name, dir_fd=parent)
        else:
            os.mkfifo(name, 0o600, dir_fd=parent)
        set_attributes(name, parent, entry)
        return name

    def _write_file(self, entry: Entry, parent: int, name: bytes) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, entry.mode & 0o777 | 0o600, dir_fd=parent)
        try:
            self._write(descriptor, entry, self._contents.get(entry.content))
            set_attributes_through(descriptor, entry)
            if self._is_real:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _refilled(self, spare: Spare, path: bytes, entry: Entry) -> bytes:
        """Fill a spare file, and check its content while no other program can reach it."""
        name, descriptor, inode, attributes, status = spare
        try:
            content = self._contents.get(entry.content) if entry.size else b""
            is_plain = entry.size < PIECE_BYTES and not entry.xattrs
            if is_plain and content is not None and fill(descriptor, content, entry.mtime_ns):
                self.proven[path] = inode
                if self._is_watched:
                    self._meter.advance(size_bytes=entry.size)
                if attributes != (entry.mode, entry.uid, entry.gid):
                    set_attributes_through(descriptor, entry, status)
            else:
                self._write(descriptor, entry, content)
                set_attributes_through(descriptor, entry, status)
        finally:
            os.close(descriptor)
        return name

    def _write(self, descriptor: int, entry: Entry, known: bytes | None) -> None:
        """Write the content of the entry; ``known``: that content, if it has been read already."""
        for piece in self._reader.content(entry) if known is None else (known,):
            stop_if_asked()
            _write_sparsely(descriptor, piece)
            self._meter.advance(size_bytes=len(piece))
        if entry.size >= PIECE_BYTES:
            os.ftruncate(descriptor, entry.size)  # it may end in a hole


def _write_sparsely(descriptor: int, piece: bytes) -> None:
    """Write a piece; one of zeros only becomes a hole."""
    size = len(piece)
    if size == PIECE_BYTES and not piece.strip(b"\0"):
        os.lseek(descriptor, size, os.SEEK_CUR)
        return
    written = os.write(descriptor, piece)
    while written < size:
        written += os.write(descriptor, memoryview(piece)[written:])
