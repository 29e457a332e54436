"""One pass over a tree or a part of it: finds what changed, reads what is new, and hashes the directories again."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Set
from functools import partial
from pathlib import Path

import msgspec

from holdfast.content.batch import Batch
from holdfast.content.directory_cache import RecentDirectories
from holdfast.content.format import digest_of
from holdfast.errors import SandboxError
from holdfast.snapshot.scan.changes import ChangeReport, Changes, Names
from holdfast.snapshot.scan.comparing import changed_directories
from holdfast.snapshot.scan.entries import Moved, directory_entry
from holdfast.snapshot.scan.exclusion import EXCLUDED, NOTHING_EXCLUDED, Exclusion
from holdfast.snapshot.scan.files import FilesToRead, FileToRead, open_directory
from holdfast.snapshot.scan.known_tree import KnownTree
from holdfast.snapshot.scan.nodes import Node
from holdfast.system.directories import Descent, ancestors, depth, join, split
from holdfast.system.stamps import UNTRUSTED, is_settled
from holdfast.system.stopping import stop_if_asked

_MOST_SEARCHES = 16
"""How often the whole known tree is searched for other names of a file."""
_ENCODING, _ENCODING_ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_KIND_NAMES = {stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a block device", stat.S_IFCHR: "a character device"}


class Scan:
    """Brings ``tree`` up to date with the disk at ``root``; new content goes into the batch."""

    def __init__(
        self,
        tree: KnownTree,
        root: Path,
        name: str,
        descent: Descent,
        batch: Batch,
        recent: RecentDirectories,
        exclusion: Exclusion = NOTHING_EXCLUDED,
    ) -> None:
        self._exclusion = exclusion if exclusion.name else None
        self._tree, self._root, self._descent, self._batch, self._recent = tree, root, descent, batch, recent
        self._open = partial(open_directory, descent)
        self._began_ns = time.time_ns()
        self._files = FilesToRead(tree, root, name, descent, batch, self._began_ns)
        self._to_encode: dict[bytes, Node] = {}
        self._listed: list[tuple[Node, tuple[int, int]]] = []
        self._scanned: set[Node] = set()
        self._is_partial = False
        self._searches = 0
        self._without_name: dict[int, bytes] = {}
        """Files that lost a name, by inode: if one has another name, a program may have it open by the lost one."""

    def run(self, report: ChangeReport) -> None:
        """Scan what was reported, or everything if the report may be incomplete."""
        report = self._without_excluded(report)
        self._without_name = self._inodes_at(report.lost)
        if report.is_complete:
            self.scan_changes(report)
        else:
            self._tree.distrust(report.changes)
            self.scan_everything()
        for directory in list(self._to_encode):
            self._encode_ancestors(directory)
        self._files.read()
        self._encode_directories()
        # Only at the end: a pass that is given up has not read all it listed.
        for node, stamp in self._listed:
            node.stamp = stamp

    def _without_excluded(self, report: ChangeReport) -> ChangeReport:
        """What happens in an excluded folder is nobody's business; it is watched like all others."""
        if self._exclusion is None:
            return report
        changes = {path: names for path, names in report.changes.items() if not self._is_in_excluded(path)}
        return report._replace(changes=changes)

    def _is_in_excluded(self, path: bytes) -> bool:
        return any(self._tree.unheld.get(each) == EXCLUDED for each in (path, *ancestors(path)))

    def _inodes_at(self, names: Names) -> dict[int, bytes]:
        found = {}
        for directory, inside in names.items():
            node = self._tree.node_at(directory)
            stamps = {} if node is None else node.stamps
            found.update({stamps[name][0]: join(directory, name) for name in inside & stamps.keys()})
        return found

    def scan_everything(self) -> None:
        changed = changed_directories(self._tree, self._open(b""))
        # A path that could not be held may be readable now, although its directory did not change.
        for directory in sorted(changed | self._tree.unheld.directories):
            node = self._tree.node_at(directory)
            if node is not None and node not in self._scanned:
                self._scan_subtree(directory, node)

    def _scan_subtree(self, path: bytes, node: Node) -> None:
        pending = [(path, node)]
        while pending:
            stop_if_asked()
            directory, node = pending.pop()
            try:
                pending.extend(self._scan_directory(directory, node))
            except PermissionError:
                self._leave_out(directory)

    def _scan_directory(self, directory: bytes, node: Node) -> list[tuple[bytes, Node]]:
        """Scan every entry of one directory; returns the directories in it that are to be scanned next."""
        self._scanned.add(node)
        descriptor = self._open(directory)
        stamps, links = node.stamps, self._tree.links
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
                        links.note(join(directory, name), (found.st_dev, found.st_ino), found.st_nlink)
                elif child := self._note_entry(directory, node, name, found):
                    below.append((join(directory, name), child))
        for name in (stamps.keys() | node.children.keys()) - seen:
            self._tree.forget_entry(directory, node, name)
        for path in self._tree.unheld.inside(directory) if self._tree.unheld else ():
            if split(path)[1] not in seen:
                self._tree.unheld.forget(path)
        self._note_head(directory, node, descriptor, is_listed=True)
        # In a full scan a known directory was compared, and is scanned on its own if it changed.
        return [(path, child) for path, child in below if self._is_partial or child.head is None]

    def _leave_out(self, directory: bytes) -> None:
        if not directory:
            raise SandboxError(
                f"{self._root} is not readable for this user.", hint="Give yourself the permission to read it."
            )
        parent_path, name = split(directory)
        parent = self._tree.node_at(parent_path)
        assert parent is not None
        self._tree.forget_entry(parent_path, parent, name)
        self._to_encode[parent_path] = parent
        self._tree.unheld.note(directory, "not readable for this user")

    def _note_head(self, directory: bytes, node: Node, descriptor: int, *, is_listed: bool = False) -> None:
        """Note the attributes of a directory; ``is_listed``: all names in it were seen, so its ctime shows new ones."""
        found = os.fstat(descriptor)
        stamp = (found.st_ino, found.st_ctime_ns)
        if node.head is None or node.stamp != stamp:
            head = directory_entry(
                split(directory)[1],
                descriptor,
                found=found,
                mode=self._descent.mode_of(directory, found),
                content=node.head.content if node.head is not None else b"",
            )
            if head != node.head:
                node.head, node.is_placed = head, False
            node.stamp = (found.st_ino, UNTRUSTED)
            if is_listed and is_settled(found.st_ctime_ns, self._began_ns):
                self._listed.append((node, stamp))
        self._to_encode[directory] = node

    def _note_entry(self, directory: bytes, node: Node, name: bytes, found: os.stat_result) -> Node | None:
        """Note one entry; returns its node if it is a directory."""
        kind = stat.S_IFMT(found.st_mode)
        exclusion = self._exclusion
        if exclusion is not None and exclusion.has(join(directory, name), is_folder=kind == stat.S_IFDIR):
            self._tree.forget_entry(directory, node, name)
            self._tree.unheld.note(join(directory, name), EXCLUDED)
            return None
        if kind == stat.S_IFDIR:
            child = self._tree.child(directory, node, name)
            if child is None or (child.stamp[0] != found.st_ino):
                self._tree.forget_entry(directory, node, name)
                child = node.children[name] = Node()
            return child
        if name in node.children:
            self._tree.forget_entry(directory, node, name)
        # The file that had this name before may have others, and may have been written to through this one.
        path = join(directory, name)
        self._tree.links.replace(path, (found.st_dev, found.st_ino))
        if (before := self._without_name.get(found.st_ino)) is not None and before != path:
            self._tree.links.left.add(before)
        if path in self._tree.unheld:
            self._tree.unheld.forget(path)
        if kind in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO):
            if found.st_nlink > 1 and self._is_partial:
                self._reread_other_names(path, found)
            self._files.wanted.append(FileToRead(node, directory, name, kind == stat.S_IFREG, found.st_size))
        else:
            self._tree.forget_entry(directory, node, name)
            self._tree.unheld.note(path, _KIND_NAMES.get(kind, "an unknown kind of file"))
        return None

    def scan_changes(self, report: ChangeReport) -> None:
        self._is_partial = True
        self._distrust_moved(report)
        nameless = self._nameless(report)
        # A directory comes before those in it: they are no longer known if it was removed or moved.
        for directory in sorted(report.changes):
            node = self._tree.node_at(directory)
            if node is None or node in self._scanned:
                continue  # a new directory, found through its parent
            names = report.changes[directory]
            try:
                if names is None:
                    self._scan_subtree(directory, node)
                else:
                    self._scan_names(directory, node, names, report.removed.get(directory, frozenset()))
            except PermissionError as error:
                raise Moved from error  # a full scan finds what is no longer readable
        if any(self._tree.node_at(directory) is None for directory in nameless):
            raise Moved  # the event was about an open file in a directory that was removed
        for path in self._tree.links.with_names_outside():
            self._scan_linked(path)

    def _distrust_moved(self, report: ChangeReport) -> None:
        moved: Changes = {directory: None for directory, names in report.changes.items() if names is None}
        if moved and self._tree.links.left:
            raise Moved  # an event in it may have been about an open file that lost its name there
        self._tree.distrust(moved)

    def _nameless(self, report: ChangeReport) -> list[bytes]:
        """The directories with an event that may have been about an open file without a name there."""
        return [
            directory
            for directory, names in report.changes.items()
            if names and not self._are_known(directory, names - report.removed.get(directory, set()))
        ]

    def _are_known(self, directory: bytes, names: Set[bytes]) -> bool:
        node = self._tree.node_at(directory)
        known = () if node is None else node.stamps.keys() | node.children.keys()
        left = self._tree.links.left
        return all(name in known and join(directory, name) not in left for name in names)

    def _scan_linked(self, path: bytes) -> None:
        directory, name = split(path)
        node = self._tree.node_at(directory)
        assert node is not None
        try:
            found = os.stat(name, dir_fd=self._open(directory), follow_symlinks=False)
        except FileNotFoundError as error:
            raise Moved from error
        if node.stamps.get(name) != (found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size):
            self._scan_names(directory, node, {name})

    def _scan_names(self, directory: bytes, node: Node, names: Set[bytes], removed: Set[bytes] = frozenset()) -> None:
        descriptor, left = self._open(directory), self._tree.links.left
        for name in names:
            if left and join(directory, name) in left:
                raise Moved
            try:
                found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError as error:
                if name not in removed and name not in node.stamps and name not in node.children:
                    # The event may have been about an open file that had no name all the time.
                    raise Moved from error
                self._tree.forget_entry(directory, node, name)
                continue
            child = self._note_entry(directory, node, name, found)
            if child is not None and child.head is None:
                self._scan_subtree(join(directory, name), child)
                descriptor = self._open(directory)
            elif child is not None:
                self._note_head(join(directory, name), child, self._open(join(directory, name)))
                descriptor = self._open(directory)
        self._note_head(directory, node, descriptor)

    def _reread_other_names(self, path: bytes, found: os.stat_result) -> None:
        """Read the other names of a file too: what happens through one name is not reported for the others."""
        others = self._tree.links.other_names(found)
        if len(others) < found.st_nlink:
            self._searches += 1
            if self._searches > _MOST_SEARCHES:
                raise Moved  # a full scan is quicker
            others = self._tree.paths_with_inode(found.st_ino)
        for other in others:
            directory, name = split(other)
            node = self._tree.node_at(directory)
            if other != path and node is not None and name in node.entries:
                self._files.wanted.append(FileToRead(node, directory, name))
                self._to_encode[directory] = node

    def _encode_ancestors(self, directory: bytes) -> None:
        while directory:
            directory = split(directory)[0]
            if directory in self._to_encode:
                return
            node = self._tree.node_at(directory)
            assert node is not None
            self._to_encode[directory] = node

    def _encode_directories(self) -> None:
        for directory in sorted(self._to_encode, key=depth, reverse=True):
            node = self._to_encode[directory]
            head = node.head
            assert head is not None
            if node.digest is None:
                content = node.encoded()
                node.digest = digest_of(content)
                if head.content != node.digest:
                    self._batch.add_named(node.digest, content)
                    self._recent.keep(node.digest, content)
            if head.content != node.digest:
                head = node.head = msgspec.structs.replace(head, content=node.digest)
                node.is_placed = False
            if not node.is_placed:
                if directory:  # the root is in no other directory
                    self._to_encode[split(directory)[0]].put(head)
                node.is_placed = True
