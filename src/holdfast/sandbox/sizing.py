"""How much space a copy of a tree takes on the disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path

from holdfast.system.stopping import stop_if_asked

_BLOCK_BYTES = 512


def size_on_disk(root: Path, *, skip: Collection[bytes] = (), also: Collection[bytes] = ()) -> int:
    """The space of all files that are copied: all but the paths ``skip``, and of those the files ``also``.

    A file with several names counts once. A file that vanished, or that we may not read, is not copied and does not
    count.
    """
    top = os.fsencode(root)
    counted: set[tuple[int, int]] = set()
    total = 0
    for found in chain(_all_in(top, skip), _each_of(top, also)):
        identity = found.st_dev, found.st_ino
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            if identity in counted:
                continue
            counted.add(identity)
        total += found.st_blocks * _BLOCK_BYTES
    return total


def _all_in(top: bytes, skip: Collection[bytes]) -> Iterator[os.stat_result]:
    pending = [b""]
    while pending:
        stop_if_asked()
        directory = pending.pop()
        try:
            with os.scandir(os.path.join(top, directory)) as entries:
                for entry in entries:
                    path = os.path.join(directory, entry.name)
                    if path in skip:
                        continue
                    yield entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(path)
        except OSError:
            continue


def _each_of(top: bytes, paths: Collection[bytes]) -> Iterator[os.stat_result]:
    for path in paths:
        try:
            yield os.lstat(os.path.join(top, path))
        except OSError:
            continue
