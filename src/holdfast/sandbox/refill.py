"""Brings an earlier copy of a folder to its present state: copies what differs, removes what is gone.

What differs is told by comparing the stamps of both trees with those noted when the copy was made (``origin``). The
result is what a new copy would be. In any doubt it raises ``Doubtful``, and the half-changed copy must be thrown away.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.sandbox.attributes import attributes_of
from holdfast.sandbox.databases import database_of
from holdfast.sandbox.entries import EntryCopy, IsDatabase, Moved
from holdfast.sandbox.listing import ListedTree
from holdfast.sandbox.origin import (
    Directories,
    Doubtful,
    LookedAgain,
    Origin,
    differing_in,
    listed_again,
    looked_again,
    origin_of,
)
from holdfast.system import folder_mark
from holdfast.system.both import both
from holdfast.system.directories import Descent, join, split
from holdfast.system.stamps import Stamp, own_stamp, unpack_stamps
from holdfast.system.stopping import stop_if_asked

_MOST_COPIED = 5_000
"""More is copied faster by a new copy, which has several threads."""


class Changes(NamedTuple):
    """What makes the copy equal to the folder."""

    looked_at: Collection[bytes]
    """The directories in which anything differs, in the folder or in the copy."""
    gone: Sequence[bytes]
    """Removed from the copy; what lies in a directory comes before it."""
    folders: Sequence[bytes]
    """Made, the outer ones first."""
    copied: Mapping[bytes, Stamp]
    """What the folder has of them."""
    touched: Sequence[bytes]
    """Directories that get the attributes of the original, the inner ones first."""


def decide(origin: Origin, of_real: Directories, of_copy: Directories) -> Changes:
    """From the present stamps of both."""
    folders, there = of_real.keys(), of_copy.keys()
    differing = _differing(origin.real, of_real) | _differing(origin.copy, of_copy)
    now, copies = _stamps_in(differing, of_real), _stamps_in(differing, of_copy)
    was, copies_were = _stamps_in(differing, origin.real), _stamps_in(differing, origin.copy)
    kept = {
        path
        for path, stamp in now.items()
        if path in copies and (was.get(path), copies_were.get(path)) == (stamp, copies[path])
    }
    gone = sorted([*(copies.keys() - kept), *(there - folders)], reverse=True)
    made = sorted(folders - there)
    copied = {path: now[path] for path in sorted(now.keys() - kept)}
    if len(copied) > _MOST_COPIED:
        raise Doubtful("too much is different")
    around = {split(path)[0] for path in (*gone, *made, *copied)}
    changed = {path for path in differing & folders if not _is_same_folder(path, origin, of_real, of_copy)}
    return Changes(differing, gone, made, copied, sorted(folders & {b"", *around, *changed}, reverse=True))


def _differing(were: Directories, now: Directories) -> set[bytes]:
    """The directories that came or went, or in which a name, a file or an attribute changed."""
    return {path for path in were.keys() | now.keys() if were.get(path) != now.get(path)}


def _stamps_in(directories: Iterable[bytes], packed: Mapping[bytes, bytes]) -> dict[bytes, Stamp]:
    return {
        join(directory, name): stamp
        for directory in directories
        if directory in packed
        for name, stamp in unpack_stamps(packed[directory]).items()
    }


def _is_same_folder(path: bytes, origin: Origin, real: Directories, copy: Directories) -> bool:
    """Whether the directory itself is as it was, whatever happened to files in it."""
    return all(
        path in were and path in now and own_stamp(were[path]) == own_stamp(now[path])
        for were, now in ((origin.real, real), (origin.copy, copy))
    )


class Refilled(NamedTuple):
    origin: Origin
    """What the copy was made from now."""
    differing: frozenset[bytes]
    """The paths that were copied or removed."""


Skip = Callable[[], Collection[bytes]]
"""Tells, which may take long, the paths of a folder that are not copied."""


def refill(copy: Path, source: Path, origin: Origin, skip: Skip) -> Refilled:
    skipped, real, there = _looked_at(copy, source, origin, skip)
    of_real, of_copy = real.stamps(), there.stamps()
    changes = decide(origin, of_real, of_copy)
    try:
        with Descent(source, opens_up=False) as originals, Descent(copy) as copies:
            _refuse_half_changed(originals, changes.looked_at & of_real.keys())
            _remove(copies, changes.gone, of_copy.keys())
            copies.forget()
            for path in changes.folders:
                directory, name = split(path)
                os.mkdir(name, 0o700, dir_fd=copies.open(directory))
            _copy(originals, copies, changes.copied)
            for path in changes.touched:
                _give_attributes(originals.open(path), copies, path)
    except (OSError, IsDatabase, Moved) as error:
        raise Doubtful(str(error)) from error
    now = origin_of(real.trusted(), _now_in(copy, there.trusted(), changes), skipped)
    return Refilled(now, frozenset((*changes.gone, *changes.copied)))


def _looked_at(
    copy: Path, source: Path, origin: Origin, skip: Skip
) -> tuple[Collection[bytes], LookedAgain, LookedAgain]:
    """What is skipped, and both trees, at the same time: of nearly all of the folder it does not matter what is."""
    (of_real, of_copy), skipped = both(
        lambda: both(lambda: differing_in(source, origin.real), lambda: differing_in(copy, origin.copy)), skip
    )
    divided = {split(path)[0] for path in origin.skip.symmetric_difference(skipped)}
    of_real = of_real._replace(paths=of_real.paths | divided)
    real = looked_again(ListedTree(source), origin.real, of_real, skipped)
    return skipped, real, looked_again(ListedTree(copy, opens_up=True), origin.copy, of_copy)


def _now_in(copy: Path, before: Directories, changes: Changes) -> Directories:
    """The stamps of the copy after the changes; only the directories that were changed are listed again."""
    changed = {*changes.touched, *(split(path)[0] for path in (*changes.gone, *changes.copied))}
    gone = set(changes.gone)
    kept = {path: stamps for path, stamps in before.items() if path not in changed and path not in gone}
    return {**kept, **listed_again(ListedTree(copy, opens_up=True), changed - gone).trusted()}


def _refuse_half_changed(originals: Descent, directories: Iterable[bytes]) -> None:
    """A mark on a directory changes its ctime, so that those in which nothing differs have none."""
    for path in directories:
        if folder_mark.find_on(originals.open(path)) is not None:
            raise Doubtful("a change of the folder was cut short")


def _remove(copies: Descent, gone: Sequence[bytes], folders: Collection[bytes]) -> None:
    for path in gone:
        stop_if_asked()
        directory, name = split(path)
        descriptor = copies.open(directory)
        if path in folders:
            os.rmdir(name, dir_fd=descriptor)
            continue
        if os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_nlink > 1:
            raise Doubtful("a file with several names is different")
        os.unlink(name, dir_fd=descriptor)


def _copy(originals: Descent, copies: Descent, files: Mapping[bytes, Stamp]) -> None:
    entries = EntryCopy(is_ours=False)
    for path, stamp in files.items():
        stop_if_asked()
        directory, name = split(path)
        source = originals.open(directory)
        found = os.stat(name, dir_fd=source, follow_symlinks=False)
        if found.st_ino != stamp[0] or found.st_nlink > 1 or database_of(name) is not None:
            raise Doubtful("it was replaced, got another name, or belongs to a database")
        entries.copy(name, source, copies.open(directory), found, also_databases=False)


def _give_attributes(original: int, copies: Descent, path: bytes) -> None:
    copy = copies.open(path)
    attributes = attributes_of(original, os.fstat(original))
    for name in set(os.listxattr(copy)) - {name for name, _ in attributes.xattrs}:
        os.removexattr(copy, name)
    copies.leave_open(path)
    attributes.give_to(copy)
