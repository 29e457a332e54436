"""Checks what a restore made, and takes it over into the index without scanning anything else."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping, Sequence

from holdfast.content.difference import Difference
from holdfast.content.format import DIRECTORY, Entry
from holdfast.snapshot.scan.counting import counted_sink
from holdfast.snapshot.scan.entries import Hasher, Moved, is_directory_as_wanted, read_entry, user_owner
from holdfast.snapshot.scan.known_tree import KnownTree
from holdfast.snapshot.scan.nodes import Node
from holdfast.system.calls import status_of, status_through
from holdfast.system.directories import IS_ROOT, Descent, split
from holdfast.system.plain_calls import Status, status_from
from holdfast.system.progress import UNWATCHED, Metering, Work, meter_of
from holdfast.system.stamps import UNTRUSTED, is_settled


def adopt(
    tree: KnownTree,
    name: str,
    descent: Descent,
    differences: Sequence[Difference],
    touched: Mapping[bytes, set[bytes]],
    proven: Mapping[bytes, tuple[int, int]],
) -> bool:
    """Whether everything that a restore touched is as wanted; if not, the tree is known only in part.

    ``proven``: files, by device and inode, that were found right and not written to since; ``name``: what the tree is
    called in progress reports.
    """
    try:
        with meter_of(Work.CHECKING, name, lambda: _to_check(differences)) as meter:
            adoption = _Adoption(tree, descent, meter, proven, touched)
            done = all(map(adoption.accept, differences))
            adoption.finish()
    except (OSError, Moved):
        return False
    return done


def _to_check(differences: Sequence[Difference]) -> tuple[int, int]:
    return sum(each.is_of_file for each in differences), sum(new.size for _, _, new in differences if new is not None)


class _Adoption:
    """Compares the disk with the wanted entries, path by path, and notes them as known."""

    def __init__(
        self,
        tree: KnownTree,
        descent: Descent,
        meter: Metering,
        proven: Mapping[bytes, tuple[int, int]],
        touched: Mapping[bytes, set[bytes]],
    ) -> None:
        self._tree, self._descent, self._proven, self._touched = tree, descent, proven, touched
        self._began_ns = time.time_ns()
        self._meter, self._is_watched = meter, meter is not UNWATCHED
        self._hasher = counted_sink(Hasher(), meter)
        self._linked = tree.links.by_path
        self._nodes: dict[bytes, Node] = {}
        """The nodes of accepted directories."""

    def finish(self) -> None:
        """Set the digests of directories. At the end, because noting an entry clears its directory's digest."""
        for node in self._nodes.values():
            assert node.head is not None
            node.digest = node.head.content

    def accept(self, difference: Difference) -> bool:
        path, old, new = difference
        directory, _, name = path.rpartition(b"/")
        # Directories come before their entries.
        parent = self._nodes.get(directory) or self._tree.node_at(directory)
        if new is not None and new.kind == DIRECTORY:
            return parent is not None and self._accept_directory(path, name, parent, new)
        if self._is_watched and (new is not None or (old is not None and old.kind != DIRECTORY)):
            self._meter.advance(1)
        if parent is None:
            return new is None  # it was removed with its directory
        if new is None:
            self._tree.forget_entry(directory, parent, name)
            return not self._is_there(directory, name)
        if name in parent.children:
            self._tree.forget_entry(directory, parent, name)
        status = self._found(path, self._descent.open(directory), name, new)
        if status is None:
            return False
        _, _, _, mtime, size, device, inode, names, ctime, _ = status
        parent.put(new)
        parent.note_stamp(name, (inode, ctime if is_settled(ctime, self._began_ns) else UNTRUSTED, mtime, size))
        if names > 1 or path in self._linked:
            self._tree.links.note(path, (device, inode), names)
        return True

    def _found(self, path: bytes, parent: int, name: bytes, new: Entry) -> Status | None:
        """The status of a file that is as wanted; None if it is not."""
        if (proven := self._proven.get(path)) is not None:
            status = status_of(parent, name)
            mode, uid, gid, mtime, size, device, inode, names, _, _ = status
            if not IS_ROOT:
                uid, gid = user_owner(gid)
            wanted = stat.S_IFREG | new.mode, new.uid, new.gid, new.mtime_ns, new.size
            # A write through a name outside the tree would not have been reported.
            if (mode, uid, gid, mtime, size) == wanted and (device, inode) == proven and names == 1:
                return status
        entry, found = read_entry(parent, name, self._hasher, is_file=new.is_file)
        return status_from(found) if entry == new else None

    def _is_there(self, directory: bytes, name: bytes) -> bool:
        try:
            os.stat(name, dir_fd=self._descent.open(directory), follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _accept_directory(self, path: bytes, name: bytes, parent: Node, new: Entry) -> bool:
        is_touched = path in self._touched
        node = parent if not path else self._tree.child(split(path)[0], parent, name)
        if node is None:
            self._tree.forget_entry(split(path)[0], parent, name)
            node = parent.children[name] = Node()
            is_touched = True
        if path and not (node.is_placed and node.head is new):
            parent.put(new)
        node.head, node.is_placed = new, True
        self._nodes[path] = node
        if not is_touched:
            return True
        descriptor = self._descent.open(path)
        mode, uid, gid, mtime, _, _, inode, _, _, has_attributes = status_through(descriptor)
        node.stamp = (inode, UNTRUSTED)
        if not IS_ROOT:
            uid, gid = user_owner(gid)
        is_same = (mode, uid, gid, mtime) == (stat.S_IFDIR | new.mode, new.uid, new.gid, new.mtime_ns)
        if is_same and not has_attributes and not new.xattrs and path not in self._descent.closed_modes:
            return True
        found = os.fstat(descriptor)
        return is_directory_as_wanted(new, descriptor, found, self._descent.mode_of(path, found))
