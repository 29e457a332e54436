"""Reads the files that a scan found new or changed, stores their content, and notes them as known."""

from __future__ import annotations

import errno
from pathlib import Path

import msgspec

from holdfast.content.batch import Batch
from holdfast.content.format import FILE, Entry
from holdfast.errors import SandboxError
from holdfast.snapshot.scan.counting import counted_batch, counted_sink
from holdfast.snapshot.scan.entries import Moved, Sink, read_entry
from holdfast.snapshot.scan.known_tree import KnownTree
from holdfast.snapshot.scan.nodes import Node
from holdfast.snapshot.scan.reading import PARALLEL_FROM_FILES, read_in_parallel
from holdfast.system.directories import Descent, join
from holdfast.system.progress import Metering, Work, meter_of
from holdfast.system.stamps import UNTRUSTED, Stamp, is_settled
from holdfast.system.stopping import stop_if_asked


def open_directory(descent: Descent, directory: bytes) -> int:
    try:
        return descent.open(directory)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Moved from error
    except OSError as error:
        if error.errno == errno.ELOOP:  # a symlink was put in its place
            raise Moved from error
        raise


class FileToRead(msgspec.Struct):
    node: Node
    directory: bytes
    name: bytes
    is_file: bool = False
    """It was a regular file a moment ago."""
    size: int = 0


class _UnknownContent:
    """Passes on the content of a file unless its digest is known: known content is stored, or in this batch."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.known = b""

    def add_named(self, digest: bytes, content: bytes) -> None:
        stop_if_asked()
        if digest != self.known:
            self._batch.add_named(digest, content)


class FilesToRead:
    """``name``: what the tree is called in progress reports; ``began_ns``: when the scan began."""

    def __init__(self, tree: KnownTree, root: Path, name: str, descent: Descent, batch: Batch, began_ns: int) -> None:
        self._tree, self._root, self._name, self._descent, self._batch = tree, root, name, descent, batch
        self._began_ns = began_ns
        self._unknown = _UnknownContent(batch)
        self.wanted: list[FileToRead] = []

    def read(self) -> None:
        with meter_of(Work.SAVING, self._name, self._totals) as meter:
            if len(self.wanted) < PARALLEL_FROM_FILES:
                sink = counted_sink(self._unknown, meter)
                for wanted in meter.each(self.wanted):
                    self._read_one(wanted, sink)
            else:
                self._read_in_parallel(meter)

    def _totals(self) -> tuple[int, int]:
        return len(self.wanted), sum(wanted.size for wanted in self.wanted)

    def _read_in_parallel(self, meter: Metering) -> None:
        nodes = {(wanted.directory, wanted.name): wanted for wanted in self.wanted}
        batch = counted_batch(self._batch, meter)
        for found in read_in_parallel(self._root, list(nodes), batch):
            wanted = nodes.pop((found.directory, found.name))
            if found.entry is None:
                self._read_one(wanted, batch)
            else:
                stamp = (found.inode, found.ctime_ns, found.mtime_ns, found.size)
                self._note_file(wanted, found.entry, stamp, found.device, found.names)
            meter.advance(1)
        if nodes:
            raise SandboxError(f"{len(nodes)} files in {self._root} were not read.", hint="Run the command again.")

    def _read_one(self, wanted: FileToRead, sink: Sink) -> None:
        stop_if_asked()
        node, directory, name = wanted.node, wanted.directory, wanted.name
        known = node.entries.get(name)
        self._unknown.known = known.content if known is not None and known.kind == FILE else b""
        try:
            entry, status = read_entry(open_directory(self._descent, directory), name, sink, is_file=wanted.is_file)
        except FileNotFoundError:
            self._tree.forget_entry(directory, node, name)
        except PermissionError:
            self._tree.forget_entry(directory, node, name)
            self._tree.unheld.note(join(directory, name), "not readable for this user")
        else:
            stamp = (status.st_ino, status.st_ctime_ns, status.st_mtime_ns, status.st_size)
            self._note_file(wanted, entry, stamp, status.st_dev, status.st_nlink)

    def _note_file(self, wanted: FileToRead, entry: Entry, stamp: Stamp, device: int, names: int) -> None:
        node = wanted.node
        node.put(entry)
        inode, ctime, mtime, size = stamp
        if not is_settled(ctime, self._began_ns):
            stamp = (inode, UNTRUSTED, mtime, size)
        node.note_stamp(wanted.name, stamp)
        self._tree.links.note(join(wanted.directory, wanted.name), (device, inode), names)
