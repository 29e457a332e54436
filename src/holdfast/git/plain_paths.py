"""Paths about which nothing is special: what git would say of them is certain without reading its whole index.

Whatever is not certain is left to git: a form of the index that is not understood, conflicts, files that git was told
not to look at, files and folders that replace each other, content that a filter changes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from holdfast.git.index_file import DIGESTS, FileEntry, IndexFile, entry_of
from holdfast.git.index_stats import MODE, MTIME, SIZE, is_told_the_same
from holdfast.git.repository import GitRepository
from holdfast.git.run import run_git
from holdfast.git.trees import CommittedFolders, TreeEntry
from holdfast.system.calls import index_stats
from holdfast.system.directories import join, split, with_ancestors
from holdfast.system.plain_calls import INDEX_STATS

_MISSING = bytes(INDEX_STATS.size)
_MAY_RUN = 0o100
_READ_BYTES = 1 << 20
_TO_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ATTRIBUTES = b".gitattributes"
_ASKED = ("text", "ident", "filter", "working-tree-encoding")
_END_OF_LINE, _IDENT = _MARKS = b"\r\n", b"$Id"
_LONGEST_MARK = max(map(len, _MARKS))
Changes = Mapping[bytes, tuple[TreeEntry | None, TreeEntry | None]]
"""What a path is before and after; None if it is not there."""


def are_as_committed(repository: GitRepository, committed: CommittedFolders, paths: Collection[bytes]) -> bool:
    """Whether it is certain that files and index hold exactly what is committed at these paths, and nothing above or
    below them. ``committed`` has all folders on the way to them."""
    index = IndexFile.read(repository.index_path, committed.digest_bytes)
    if index is None or index.has_beside(paths):
        return False
    folders = with_ancestors(split(path)[0] for path in paths) - {b""}
    with _files_of(repository) as files:
        found = files.stats([*folders, *paths])
        if any(_is_in_the_way(found[folder], committed.find(folder)) for folder in folders):
            return False
        wanted = {path: committed.find(path) for path in paths}
        if not all(_is_listed(index, path, expected, found[path]) for path, expected in wanted.items()):
            return False
        to_read = {
            path: expected
            for path, expected in wanted.items()
            if expected is not None and not _is_untouched(index.at(path)[0], found[path], index.written_at)
        }
        return _are_in_files(repository, index, files, to_read, found)


def _is_in_the_way(found: bytes, committed: TreeEntry | None) -> bool:
    is_other = committed is not None and not committed.is_tree
    return is_other or (found != _MISSING and not stat.S_ISDIR(_mode(found)))


def _is_listed(index: IndexFile, path: bytes, committed: TreeEntry | None, found: bytes) -> bool:
    """Whether the index has it as committed; of what is not committed, no file may be there either."""
    return _is_plainly(index.at(path), committed) and (committed is not None or found == _MISSING)


def _is_plainly(entries: Collection[FileEntry], expected: TreeEntry | None) -> bool:
    """Whether the index lists exactly that, without conflict or mark."""
    return [(each.mode, each.digest, each.flags) for each in entries] == (
        [] if expected is None else [(expected.mode, expected.digest, 0)]
    )


def _is_untouched(entry: FileEntry, found: bytes, written_at: int) -> bool:
    """Whether git would take the file for unchanged without reading it."""
    is_older = int.from_bytes(found[MTIME]) < written_at
    is_marked = not any(entry.stats[SIZE]) and entry.digest != _digest_of_nothing(len(entry.digest))
    return is_older and not is_marked and is_told_the_same(entry.stats, found) and _is_of_mode(found, entry.mode)


def _digest_of_nothing(size: int) -> bytes:
    """That of an empty file: with any other, git notes the size 0 for a file that it must read again."""
    return DIGESTS[size](b"blob 0\0", usedforsecurity=False).digest()


def _is_of_mode(found: bytes, mode: int) -> bool:
    present = _mode(found)
    if stat.S_IFMT(present) != stat.S_IFMT(mode):
        return False
    return stat.S_ISLNK(mode) or (stat.S_ISREG(mode) and present & _MAY_RUN == mode & _MAY_RUN)


def _mode(stats: bytes) -> int:
    return int.from_bytes(stats[MODE])


def is_nothing_staged(repository: GitRepository, changes: Changes) -> bool:
    """Whether it is certain that the index has these paths as they are before, and nothing above or below them."""
    index = _index_of(repository, changes)
    if index is None or index.has_beside(changes):
        return False
    return all(_is_plainly(index.at(path), before) for path, (before, _) in changes.items())


def index_after(repository: GitRepository, changes: Changes, *, are_from_files: bool = False) -> bytes | None:
    """The index with these paths as they are after; None if git must make it.

    Each file that comes must be in the work tree already: the index gets its stat data. ``are_from_files``: git has
    just made the new ones of these very files. What it made byte for byte the same, it left as it was.
    """
    index = _index_of(repository, changes)
    if index is None or index.has_beside(changes) or any(each.flags for path in changes for each in index.at(path)):
        return None
    coming = {path: after for path, (_, after) in changes.items() if after is not None}
    with _files_of(repository) as files:
        found = files.stats(coming)  # before they are read: what is written to one later is seen by its stat data
        if are_from_files:
            are_there = all(files.holds(path, entry, found[path], _ALL_OFF) for path, entry in coming.items())
        else:
            are_there = _are_in_files(repository, index, files, coming, found)
        if not are_there:
            return None
    entries = {path: entry_of(path, after.mode, after.digest, found[path]) for path, after in coming.items()}
    return index.changed({path: entries.get(path) for path in changes})


def _index_of(repository: GitRepository, changes: Changes) -> IndexFile | None:
    digest = next((each.digest for pair in changes.values() for each in pair if each is not None), None)
    return None if digest is None else IndexFile.read(repository.index_path, len(digest))


# The content of files


def _are_in_files(
    repository: GitRepository,
    index: IndexFile,
    files: _Files,
    expected: Mapping[bytes, TreeEntry],
    found: Mapping[bytes, bytes],
) -> bool:
    """Whether the files are exactly these, and it is certain that git would commit them byte for byte."""
    attributes = _attributes_of(repository, index, files, expected)
    return attributes is not None and all(
        files.holds(path, entry, found[path], attributes[path]) for path, entry in expected.items()
    )


class _Attributes(NamedTuple):
    """Those of a path by which git changes what it commits."""

    is_text_off: bool
    is_ident_off: bool
    is_rest_off: bool
    """There is no filter and no other encoding."""

    def leave(self, marks: Collection[bytes]) -> bool:
        """Whether git commits a file with these of the ``_MARKS`` in it as it is."""
        # Without an attribute a setting decides on the ends of lines, but only if there are some to change.
        is_text_left = self.is_text_off or _END_OF_LINE not in marks
        return self.is_rest_off and is_text_left and (self.is_ident_off or _IDENT not in marks)


_ALL_OFF = _Attributes(is_text_off=True, is_ident_off=True, is_rest_off=True)


def _attributes_of(
    repository: GitRepository, index: IndexFile, files: _Files, paths: Collection[bytes]
) -> dict[bytes, _Attributes] | None:
    """None if git must be asked in another way: it would read attributes from the index that are in no file."""
    folders = with_ancestors(split(path)[0] for path in paths)
    sources = files.stats([join(folder, _ATTRIBUTES) for folder in folders])
    if any(not stat.S_ISREG(_mode(told)) and index.at(path) for path, told in sources.items()):
        return None
    if not paths:
        return {}
    asked, listed = ["check-attr", "-z", "--stdin", *_ASKED], b"".join(path + b"\0" for path in paths)
    answer = run_git(asked, cwd=repository.root, input=listed, env=repository.without_index, check=False)
    if answer.returncode != 0:
        return None
    words = answer.stdout.split(b"\0")[:-1]
    told = {(path, name.decode()): value for path, name, value in zip(*[iter(words)] * 3, strict=True)}
    return {path: _attributes_in({name: told[path, name] for name in _ASKED}) for path in paths}


def _attributes_in(values: Mapping[str, bytes]) -> _Attributes:
    is_off = {name: value in (b"unspecified", b"unset") for name, value in values.items()}
    is_rest_off = is_off["filter"] and is_off["working-tree-encoding"]
    return _Attributes(values["text"] == b"unset", is_off["ident"], is_rest_off)


class _Files:
    """The files of a work tree."""

    def __init__(self, root: int) -> None:
        self._root = root

    def stats(self, paths: Iterable[bytes]) -> dict[bytes, bytes]:
        """The stat data of each, as the index has them."""
        asked = list(paths)
        told = index_stats(self._root, b"".join(path + b"\0" for path in asked))
        size = INDEX_STATS.size
        return {path: told[number * size : (number + 1) * size] for number, path in enumerate(asked)}

    def holds(self, path: bytes, expected: TreeEntry, found: bytes, attributes: _Attributes) -> bool:
        """Whether the file is exactly that, byte for byte, for git too; ``found`` are its stat data, asked before."""
        if not _is_of_mode(found, expected.mode):
            return False
        try:
            if stat.S_ISLNK(expected.mode):
                target = os.readlink(path, dir_fd=self._root)
                return _Reading(expected, len(target)).add(target).digest == expected.digest
            reading = _Reading(expected, int.from_bytes(found[SIZE]))
            for piece in self._read(path):
                reading.add(piece)
        except OSError:
            return False
        return reading.digest == expected.digest and attributes.leave(reading.marks)

    def _read(self, path: bytes) -> Iterator[bytes]:
        descriptor = os.open(path, _TO_READ, dir_fd=self._root)
        try:
            while piece := os.read(descriptor, _READ_BYTES):
                yield piece
        finally:
            os.close(descriptor)


class _Reading:
    """The content of a file as git digests it, and what is in it that git may change."""

    def __init__(self, expected: TreeEntry, size: int) -> None:
        self._sum = DIGESTS[len(expected.digest)](b"blob %d\0" % size, usedforsecurity=False)
        self._end = b""
        self.marks: set[bytes] = set()

    def add(self, piece: bytes) -> _Reading:
        self._sum.update(piece)
        # A mark may lie across two pieces.
        self.marks.update(mark for mark in _MARKS if mark in piece or mark in self._end + piece[: len(mark)])
        self._end = (self._end + piece)[-_LONGEST_MARK:]
        return self

    @property
    def digest(self) -> bytes:
        return self._sum.digest()


@contextmanager
def _files_of(repository: GitRepository) -> Iterator[_Files]:
    root = os.open(repository.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield _Files(root)
    finally:
        os.close(root)
