"""Reads, stores, compares and changes selected paths of a user's tree without touching anything else in it.

This is how the result of a plan reaches the real files, and how an apply is undone.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.content.batch import Batch
from holdfast.content.difference import Difference, StateReader
from holdfast.content.format import DIRECTORY, Entry, encode_directory, encode_state
from holdfast.errors import SandboxError
from holdfast.snapshot.restore.decide import RestorePlan, check_content
from holdfast.snapshot.restore.write import RestoreOptions, carry_out
from holdfast.snapshot.scan.entries import Moved, Sink, Xattrs, directory_entry, read_entry
from holdfast.system.directories import IS_ROOT, Descent, depth, join, split, with_ancestors
from holdfast.system.progress import Work, meter_of

Selection = Mapping[bytes, Entry]
"""Entries by path. A directory stands for itself alone: its entries are selected by their own paths."""

UNHELD = 255
"""The kind of a file that no snapshot can hold, such as a socket; it equals no entry of a plan."""
ACCESS_LIST = b"system.posix_acl_access"

_READ_TRIES = 3
_HELD = (stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO)


def select(root: Path, paths: Iterable[bytes], sink: Sink) -> dict[bytes, Entry]:
    """The present entries at these paths and of the directories above them; the sink, a batch, gets the content."""
    found: dict[bytes, Entry] = {}
    wanted = sorted(with_ancestors(paths))
    with Descent(root) as descent, meter_of(Work.CHECKING, root.name, lambda: (len(wanted), None)) as meter:
        for path in meter.each(wanted):
            entry = entry_at(descent, path, sink)
            if entry is not None:
                found[path] = entry
    return found


def entry_at(descent: Descent, path: bytes, sink: Sink) -> Entry | None:
    """The present entry at a path, or None; a directory stands for itself alone."""
    for _ in range(_READ_TRIES):
        with suppress(Moved):  # it was replaced while it was read
            return _entry_now(descent, path, sink)
    raise SandboxError(
        f"{os.fsdecode(path)!r} keeps changing while it is read.",
        hint="Stop the program that writes it, then run the command again.",
    )


def _entry_now(descent: Descent, path: bytes, sink: Sink) -> Entry | None:
    directory, name = split(path)
    try:
        parent = descent.open(directory)
        if not path:
            found = os.fstat(parent)
            return directory_entry(b"", parent, found=found, mode=descent.mode_of(b"", found))
        kind = stat.S_IFMT(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
        if kind == stat.S_IFDIR:
            descriptor = descent.open(path)
            found = os.fstat(descriptor)
            # Its own mode may forbid us to read it; then the descent has opened it for a while.
            return directory_entry(name, descriptor, found=found, mode=descent.mode_of(path, found))
        if kind in _HELD:
            return read_entry(parent, name, sink)[0]
        return Entry(name, UNHELD, 0, 0, 0, 0, 0, b"")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise


def links_among(root: Path, paths: Iterable[bytes]) -> tuple[tuple[bytes, ...], ...]:
    """All names of each file that has one of these paths and more than one name in the tree."""
    inodes: dict[tuple[int, int], int] = {}
    with Descent(root) as descent:
        for path in paths:
            directory, name = split(path)
            try:
                found = os.stat(name, dir_fd=descent.open(directory), follow_symlinks=False)
            except OSError:
                continue
            if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
                inodes[found.st_dev, found.st_ino] = found.st_nlink
    if not inodes:
        return ()
    names: dict[tuple[int, int], list[bytes]] = {inode: [] for inode in inodes}
    for folder, _, files in os.walk(os.fsencode(root)):
        for file in files:
            try:
                found = os.lstat(os.path.join(folder, file))
            except FileNotFoundError:
                continue
            if (found.st_dev, found.st_ino) in names:
                path = os.path.relpath(os.path.join(folder, file), os.fsencode(root))
                names[found.st_dev, found.st_ino].append(path)
    return tuple(sorted(tuple(sorted(group)) for group in names.values() if len(group) > 1))


def links_to_make(
    groups: Iterable[tuple[bytes, ...]], changed: Collection[bytes], untouchable: Collection[bytes] = ()
) -> tuple[tuple[bytes, ...], ...]:
    """The changed names of each group, after an unchanged one, if there is any: they become links to its file."""
    made = []
    for group in groups:
        names = [path for path in group if path in changed]
        if names:
            made.append((*[path for path in group if path not in changed and path not in untouchable][:1], *names))
    return tuple(group for group in sorted(made) if len(group) > 1)


def store_selection(selection: Selection, batch: Batch, links: tuple[tuple[bytes, ...], ...] = ()) -> str:
    """Store a selection; returns the hash of the state that holds exactly its entries."""
    listings: dict[bytes, dict[bytes, Entry]] = {b"": {}}
    for path, entry in selection.items():
        if entry.kind == DIRECTORY:
            listings.setdefault(path, {})
    for path in sorted(selection, key=depth, reverse=True):
        if not path:
            continue
        entry = selection[path]
        if entry.kind == DIRECTORY:
            entry = msgspec.structs.replace(entry, content=batch.add(encode_directory(listings[path])))
        directory, name = split(path)
        listings[directory][name] = entry
    root = msgspec.structs.replace(selection[b""], content=batch.add(encode_directory(listings[b""])))
    return batch.add_state(encode_state(root, links)).hex()


def load_selection(reader: StateReader, state_hash: str) -> dict[bytes, Entry]:
    return dict(reader.walk(reader.state(state_hash)))


def same(one: Entry | None, other: Entry | None) -> bool:
    """Whether a person would call them the same file; times, owners and the entries of a directory do not count."""
    return same_but_for_xattrs(one, other) and (one is None or other is None or one.xattrs == other.xattrs)


def same_but_for_xattrs(one: Entry | None, other: Entry | None) -> bool:
    """Whether git would call them the same file."""
    return same_content(one, other) and (one is None or other is None or one.mode == other.mode)


def same_content(one: Entry | None, other: Entry | None) -> bool:
    """Whether they differ at most in their attributes."""
    if one is None or other is None:
        return one is other
    if one.kind == other.kind == DIRECTORY:
        return True
    return one.is_same_kind(other) and (one.size, one.content) == (other.size, other.content)


def access_list(entry: Entry) -> bytes | None:
    return dict(entry.xattrs).get(ACCESS_LIST)


def merged_xattrs(old: Entry | None, present: Entry, new: Entry) -> Xattrs | None:
    """The present extended attributes with the changes from old to new; None if one of them was changed on both sides.

    An attribute that only the present entry has stays: the copy in the sandbox may have been unable to hold it.
    """
    before, after = dict(old.xattrs) if old is not None else {}, dict(new.xattrs)
    merged = dict(present.xattrs)
    for name in before.keys() | after.keys():
        wanted = after.get(name)
        if wanted == before.get(name):
            continue
        if merged.get(name) not in (before.get(name), wanted):
            return None
        if wanted is None:
            merged.pop(name, None)
        else:
            merged[name] = wanted
    return tuple(sorted(merged.items()))


def change(
    root: Path,
    reader: StateReader,
    differences: Iterable[Difference],
    links: tuple[tuple[bytes, ...], ...] = (),
    *,
    is_real: bool = True,
    owner: str = "",
) -> None:
    """Make exactly these changes; a directory that still holds something else stays.

    If a real file is not what its difference says, ``ChangedMeanwhile`` is raised in the middle. Then, and after a
    crash, temporary files are left, whose names contain ``owner``.
    """
    ordered = sorted(differences, key=lambda difference: difference.path)
    going = {difference.path for difference in ordered if difference.new is None}
    kept = directories_in_use(root, going)
    wanted = tuple(difference for difference in ordered if difference.path not in kept)
    plan = RestorePlan(wanted, (), links)
    contents = check_content(reader, plan, root.name)
    options = RestoreOptions(root.name, aside=root, is_real=is_real, owner=owner)
    with Descent(root) as descent:
        try:
            carry_out(plan, reader, descent, options, contents)
        except OSError as error:
            error.filename = os.path.join(os.fsencode(root), error.filename)
            raise


def closed_directories(root: Path, differences: Iterable[Difference]) -> set[bytes]:
    """Directories that would change and that this user may not write to."""
    with Descent(root) as descent:
        return {path for path in _directories_changed(differences) if _is_closed(descent, path)}


def read_only_directories(root: Path, differences: Sequence[Difference]) -> set[bytes]:
    """Directories that would change although their mode forbids even their owner to write: the user protects them.

    Root heeds that too. A directory that the change itself makes writable is left out.
    """
    opened = {path for path, _, new in differences if new is not None and new.mode & stat.S_IWUSR}
    with Descent(root) as descent:
        return {path for path in _directories_changed(differences) - opened if _is_read_only(descent, path)}


def _directories_changed(differences: Iterable[Difference]) -> set[bytes]:
    return {split(each.path)[0] for each in differences if _changes_its_directory(each)}


def _changes_its_directory(difference: Difference) -> bool:
    old, new = difference.old, difference.new
    if old is None or new is None or old.kind != new.kind:
        return True
    return old.kind != DIRECTORY and old.content != new.content


def _is_closed(descent: Descent, path: bytes) -> bool:
    try:
        descriptor = descent.open(path)
    except OSError:
        return False  # it does not exist yet, and will be ours
    may_write = os.access(b".", os.W_OK | os.X_OK, dir_fd=descriptor, effective_ids=True)
    return not may_write and (IS_ROOT or os.fstat(descriptor).st_uid != os.geteuid())


def _is_read_only(descent: Descent, path: bytes) -> bool:
    try:
        descriptor = descent.open(path)
    except OSError:
        return False  # it does not exist yet
    return not descent.mode_of(path, os.fstat(descriptor)) & stat.S_IWUSR


def directories_in_use(root: Path, going: Collection[bytes]) -> set[bytes]:
    """Directories to be removed that hold something which stays."""
    in_use: set[bytes] = set()
    with Descent(root) as descent:
        for path in sorted(going, key=depth, reverse=True):
            try:
                names = [os.fsencode(name) for name in os.listdir(descent.open(path))]
            except OSError:
                continue  # not a directory
            if any(join(path, name) not in going or join(path, name) in in_use for name in names):
                in_use.add(path)
    return in_use
