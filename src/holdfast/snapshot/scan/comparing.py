"""Finds the directories of a known tree in which anything changed."""

from __future__ import annotations

from holdfast.snapshot.scan.known_tree import KnownTree
from holdfast.system.comparing import numbers_of_changed, portions


def changed_directories(tree: KnownTree, root: int) -> set[bytes]:
    """The directories in which a name or a file changed since it was noted; only these must be scanned.

    The ctime of a directory shows whether a name came or went. ``root`` is a descriptor.
    """
    changed: set[bytes] = set()
    for packed in tree.packed:
        shares = [packed.stamps(*portion) for portion in portions(packed.count)]
        if changed:  # what was packed later counts
            changed.difference_update(packed.paths())
        changed.update(map(packed.path_at, numbers_of_changed(root, shares)))
    loaded = dict(tree.loaded())
    named = [path for path, node in loaded.items() if node.is_named]
    stamps = [loaded[path].packed_stamps(path) for path in named]
    shares = [memoryview(b"".join(stamps[slice(*portion)])) for portion in portions(len(named))]
    changed.difference_update(named)
    changed.update(path for path, node in loaded.items() if not node.is_named)
    changed.update(map(named.__getitem__, numbers_of_changed(root, shares)))
    return changed
