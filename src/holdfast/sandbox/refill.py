"""Brings an earlier copy of a folder to its present state: copies what differs, removes what is gone.

What differs is told by comparing the stamps of both trees with those noted when the copy was made (``origin``). The
result is what a new copy would be. In any doubt it raises ``Doubtful``, and the half-changed copy must be thrown away.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.sandbox.attributes import attributes_of
from holdfast.sandbox.databases import database_of
from holdfast.sandbox.entries import EntryCopy, IsDatabase, Moved
from holdfast.sandbox.origin import Doubtful, Origin, Stamp, Walked, is_directory, origin_of, stamp_of, trusted, walked
from holdfast.system.directories import Descent, split
from holdfast.system.stopping import stop_if_asked

_MOST_COPIED = 5_000
"""More is copied faster by a new copy, which has several threads."""


class Changes(NamedTuple):
    """What makes the copy equal to the folder."""

    gone: Sequence[bytes]
    """Removed from the copy; what lies in a directory comes before it."""
    folders: Sequence[bytes]
    """Made, the outer ones first."""
    copied: Sequence[bytes]
    touched: Sequence[bytes]
    """Directories that get the attributes of the original, the inner ones first."""


def decide(origin: Origin, real: Walked, copy: Walked) -> Changes:
    now, there = real.stamps, copy.stamps
    kept = {path for path in now if origin.is_kept(path, now, there)}
    folders = {path for path, stamp in now.items() if is_directory(stamp)}
    stay = {path for path in folders if path in there and is_directory(there[path])}
    gone = sorted((path for path in there if path not in kept and path not in stay), reverse=True)
    made = sorted(folders - stay)
    copied = sorted(path for path in now if path not in kept and path not in folders)
    if len(copied) > _MOST_COPIED:
        raise Doubtful("too much is different")
    if not real.linked.isdisjoint(copied) or not copy.linked.isdisjoint(gone):
        raise Doubtful("a file with several names is different")
    around = {split(path)[0] for path in (*gone, *made, *copied)}
    touched = sorted(folders & {b"", *around, *(folders - kept)}, reverse=True)
    return Changes(gone, made, copied, touched)


def refill(copy: Path, source: Path, origin: Origin, skip: Collection[bytes]) -> Origin:
    """``skip``: paths of the source that are not copied. Returns what the copy was made from now."""
    real, there = walked(source, skip=skip, is_ours=False), walked(copy, is_ours=True)
    changes = decide(origin, real, there)
    try:
        with Descent(source, opens_up=False) as originals, Descent(copy) as copies:
            _remove(copies, changes.gone, there)
            copies.forget()
            for path in changes.folders:
                directory, name = split(path)
                os.mkdir(name, 0o700, dir_fd=copies.open(directory))
            _copy(originals, copies, changes.copied, real)
            for path in changes.touched:
                _give_attributes(originals.open(path), copies, path)
            new_from_ns = time.time_ns()
            new = {path: _stamp_at(copies, path) for path in (*changes.copied, *changes.touched)}
    except (OSError, IsDatabase, Moved) as error:
        raise Doubtful(str(error)) from error
    for path in changes.gone:
        del there.stamps[path]
    return origin_of(real.trusted(), {**there.trusted(), **trusted(new, new_from_ns)})


def _remove(copies: Descent, gone: Sequence[bytes], there: Walked) -> None:
    for path in gone:
        stop_if_asked()
        directory, name = split(path)
        if is_directory(there.stamps[path]):
            os.rmdir(name, dir_fd=copies.open(directory))
        else:
            os.unlink(name, dir_fd=copies.open(directory))


def _copy(originals: Descent, copies: Descent, paths: Sequence[bytes], real: Walked) -> None:
    entries = EntryCopy(is_ours=False)
    for path in paths:
        stop_if_asked()
        directory, name = split(path)
        source = originals.open(directory)
        found = os.stat(name, dir_fd=source, follow_symlinks=False)
        if stamp_of(found)[0] != real.stamps[path][0] or found.st_nlink > 1 or database_of(name) is not None:
            raise Doubtful("it was replaced, got another name, or belongs to a database")
        entries.copy(name, source, copies.open(directory), found, also_databases=False)


def _give_attributes(original: int, copies: Descent, path: bytes) -> None:
    copy = copies.open(path)
    attributes = attributes_of(original, os.fstat(original))
    for name in set(os.listxattr(copy)) - {name for name, _ in attributes.xattrs}:
        os.removexattr(copy, name)
    copies.leave_open(path)
    attributes.give_to(copy)


def _stamp_at(copies: Descent, path: bytes) -> Stamp:
    if not path:
        return stamp_of(os.fstat(copies.open(b"")))
    directory, name = split(path)
    return stamp_of(os.stat(name, dir_fd=copies.open(directory), follow_symlinks=False))
