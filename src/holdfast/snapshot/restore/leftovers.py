"""Removes the temporary files of an interrupted change of real files, unless they are the user's work."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from holdfast.content.format import DIRECTORY, Entry
from holdfast.snapshot.restore.exchange import exchange, rename_to_free
from holdfast.snapshot.restore.staging import mark_of, prefix_of
from holdfast.snapshot.scan.entries import Hasher
from holdfast.snapshot.selection import Selection, entry_at, same_content
from holdfast.system.directories import Descent, join, split

_REST = rb"[0-9a-f]{16}(?:-([0-9a-f]{16}))?\Z"
"""What follows the prefix of a temporary name. A file with the mark of a name was to get that name, or had it; one
without a mark is incomplete."""
_LONGEST_NAME_KEPT = 240


def remove_leftovers(
    root: Path, old: Selection, new: Selection, always: Collection[bytes] = (), *, owner: str = ""
) -> list[bytes]:
    """Remove the temporary files that a change from old to new left; those for paths in ``always`` unconditionally.

    Temporary files of another owner are left alone. A file that the user saved while it was being replaced gets its
    name back. If another file of the user has that name, it is kept beside that one. Returns the paths of those.
    """
    directories: dict[bytes, dict[bytes, bytes]] = {}
    for path in sorted({*old, *new, *always} - {b""}):
        directory, name = split(path)
        directories.setdefault(directory, {})[mark_of(name)] = path
    kept = []
    temporary = re.compile(re.escape(prefix_of(owner)) + _REST)
    with Descent(root) as descent:
        for directory, marked in directories.items():
            for name, mark in _temporaries(descent, directory, temporary):
                leftover, target = join(directory, name), marked.get(mark)
                if not mark or target in always:
                    _unlink(descent, leftover)
                elif target is not None:
                    kept += _settle(descent, leftover, target, (old.get(target), new.get(target)))
    return kept


def _temporaries(descent: Descent, directory: bytes, temporary: re.Pattern[bytes]) -> list[tuple[bytes, bytes]]:
    """The temporary names in a directory, and their marks."""
    try:
        names = list(map(os.fsencode, os.listdir(descent.open(directory))))
    except OSError:
        return []
    return [(name, found[1] or b"") for name in names if (found := temporary.match(name))]


def _settle(descent: Descent, leftover: bytes, path: bytes, known: Collection[Entry | None]) -> list[bytes]:
    (directory, temporary), name = split(leftover), split(path)[1]
    while True:
        found = entry_at(descent, leftover, Hasher())
        if found is None or _holds_one_of(found, known):
            _unlink(descent, leftover)
            return []
        present = entry_at(descent, path, Hasher())
        parent = descent.open(directory)
        # Its name may belong to the file that we made, or, if an undo was interrupted, to the one before it.
        if present is not None and _holds_one_of(present, known) and exchange(temporary, parent, name, parent):
            continue
        place = name
        if present is not None:
            place = name[:_LONGEST_NAME_KEPT] + b".kept-" + os.urandom(4).hex().encode()
        with suppress(FileExistsError):
            rename_to_free(temporary, place, parent)
            return [] if place == name else [join(directory, place)]


def _holds_one_of(found: Entry, known: Collection[Entry | None]) -> bool:
    """Whether it is a file whose content we know; a directory is never ours."""
    return found.kind != DIRECTORY and any(each is not None and same_content(found, each) for each in known)


def _unlink(descent: Descent, path: bytes) -> None:
    directory, name = split(path)
    with suppress(FileNotFoundError, IsADirectoryError):  # we make no directories: that one is the user's
        os.unlink(name, dir_fd=descent.open(directory))
