"""All that is known of a tree: its directories, its hard links, and the paths that no snapshot can hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.snapshot.scan.changes import Changes
from holdfast.snapshot.scan.hard_links import HardLinks
from holdfast.snapshot.scan.nodes import Node
from holdfast.snapshot.scan.packed_tree import PackedNode, PackedTree
from holdfast.snapshot.scan.unheld_paths import UnheldPaths
from holdfast.system.directories import join

_MOST_LOADED = 1000


class KnownTree:
    """Directories are loaded one by one from ``packed``, in which the last occurrence of a path counts.

    What is packed is never changed. A loaded directory may be, until it is packed again.
    """

    def __init__(
        self,
        packed: Sequence[PackedTree] = (),
        links: HardLinks | None = None,
        unheld: UnheldPaths | None = None,
    ) -> None:
        self.packed = list(packed)
        self.links = links or HardLinks()
        self.unheld = unheld or UnheldPaths()
        self.top = self._load(b"") if packed else Node()

    def _find(self, path: bytes) -> PackedNode | None:
        found = (packed.find(path) for packed in reversed(self.packed))
        return next((each for each in found if each is not None), None)

    def _load(self, path: bytes) -> Node:
        found = self._find(path)
        assert found is not None
        return Node.unpacked(*found)

    def child(self, directory: bytes, node: Node, name: bytes) -> Node | None:
        """The directory of that name in ``node``, which is at ``directory``."""
        child = node.children.get(name)
        if child is None and name in node.children:
            child = node.children[name] = self._load(join(directory, name))
        return child

    def node_at(self, path: bytes) -> Node | None:
        node = self.top
        for name in path.split(b"/") if path else ():
            child = node.children.get(name)
            if child is None:
                return self._load_down_to(path)
            node = child
        return node

    def _load_down_to(self, path: bytes) -> Node | None:
        node, directory = self.top, b""
        for name in path.split(b"/"):
            child = self.child(directory, node, name)
            if child is None:
                return None
            node, directory = child, join(directory, name)
        return node

    def nodes(self, top: bytes = b"", node: Node | None = None) -> Iterator[tuple[bytes, Node]]:
        """All known nodes, or only ``node``, which is at ``top``, and those below it; all are loaded."""
        pending = [(top, node or self.top)]
        while pending:
            path, node = pending.pop()
            yield path, node
            for name in node.children:
                child = self.child(path, node, name)
                assert child is not None
                pending.append((join(path, name), child))

    def loaded(self) -> Iterator[tuple[bytes, Node]]:
        """The nodes that are not only in packed form."""
        pending = [(b"", self.top)]
        while pending:
            path, node = pending.pop()
            yield path, node
            pending.extend((join(path, name), child) for name, child in node.children.items() if child is not None)

    def pack(self) -> None:
        """Pack what was loaded and differs from what is packed; every node must have its digest."""
        changed: dict[bytes, PackedNode] = {}
        for path, node in self.loaded():
            packed = node.packed_stamps(path), node.packed()
            if self._find(path) != packed:
                changed[path] = packed
        if changed:
            self.packed.append(PackedTree.of(changed))
        self.top = self._load(b"")

    def pack_if_large(self) -> None:
        """Pack what was loaded if that saves much memory."""
        if sum(1 for _ in self.loaded()) > _MOST_LOADED:
            self.pack()

    def pack_anew(self) -> None:
        """Pack everything together, without what is out of date."""
        for _ in self.nodes():
            pass  # loads them all
        self.packed.clear()
        self.pack()

    def paths_with_inode(self, inode: int) -> list[bytes]:
        directories = {path for path, _ in self.loaded()}.union(
            *(packed.paths_with_inode(inode) for packed in self.packed)
        )
        nodes = ((directory, self.node_at(directory)) for directory in directories)
        return [
            join(directory, name)
            for directory, node in nodes
            if node is not None
            for name, stamp in node.stamps.items()
            if stamp[0] == inode
        ]

    def forget_entry(self, directory: bytes, node: Node, name: bytes) -> None:
        path = join(directory, name)
        node.remove(name)
        node.stamps.pop(name, None)
        self.links.leave(path)
        if path in self.unheld:
            self.unheld.forget(path)
        if name in node.children:
            if self.links.by_path or self.unheld:
                self._forget_below(path, self.child(directory, node, name))
            del node.children[name]

    def _forget_below(self, path: bytes, node: Node | None) -> None:
        assert node is not None
        for directory, _ in self.nodes(path, node):
            self.links.leave_directory(directory)
            for inside in self.unheld.inside(directory):
                self.unheld.forget(inside)

    def distrust(self, changes: Changes) -> None:
        """Have these files read again: a write through a memory mapping may not show in their timestamps."""
        for directory, names in changes.items():
            node = self.node_at(directory)
            if node is None:
                continue
            if names is not None:
                node.distrust(names)
                continue
            for _, each in self.nodes(directory, node):
                each.distrust(each.stamps.keys())
