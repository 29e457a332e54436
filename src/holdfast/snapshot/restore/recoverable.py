"""Checks whether the store could bring back what a restore is about to replace; only what differs is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.content.difference import StateReader
from holdfast.content.format import DIRECTORY, PIECE_BYTES, PIECES, Entry
from holdfast.content.store import ObjectStore
from holdfast.system.progress import Metering, Work, meter_of

_PORTION_BYTES = 16 << 20
_MOST_IN_A_PORTION = 500

_Pair = tuple[Entry, Entry | None]
"""The present entry, and the one that replaces it."""


def unrecoverable_objects(
    objects: ObjectStore, reader: StateReader, left: str, target: str | None, name: str
) -> set[bytes]:
    """The digests of missing or damaged objects that the state ``left`` needs and ``target``, if given, does not.

    What lies below a bad directory is unknown and left out. ``name``: what the tree is called in progress reports.
    """
    bad = objects.unsound_among([bytes.fromhex(left)])
    files: list[Entry] = []
    new = None if target is None else reader.state(target).root
    pairs = [] if bad else _differing([(reader.state(left).root, new)])
    while pairs:
        files += [old for old, _ in pairs if old.is_file]
        folders = [(old, new) for old, new in pairs if old.kind == DIRECTORY]
        bad |= _unsound(objects, ((old.content, old.size) for old, _ in folders))
        reader.read_ahead(folders)
        pairs = [
            pair for old, new in folders if old.content not in bad for pair in _differing(_inside(reader, old, new))
        ]
    with meter_of(Work.CHECKING, name, lambda: (len(files), sum(entry.size for entry in files))) as meter:
        lists = [entry for entry in files if entry.kind == PIECES]
        bad |= _unsound(objects, ((entry.content, 0) for entry in lists))
        return bad | _unsound(objects, _contents(reader, files, bad, meter))


def _differing(pairs: Iterable[_Pair]) -> list[_Pair]:
    """The pairs whose content goes; content that the target needs too is checked with the target."""
    return [
        (old, new)
        for old, new in pairs
        if old.content and (new is None or (old.kind, old.content) != (new.kind, new.content))
    ]


def _inside(reader: StateReader, old: Entry, new: Entry | None) -> Iterator[_Pair]:
    after = reader.directory(new)
    for name, entry in reader.directory(old).items():
        yield entry, after.get(name)


def _contents(
    reader: StateReader, files: Iterable[Entry], bad: set[bytes], meter: Metering
) -> Iterator[tuple[bytes, int]]:
    for entry in meter.each(files):
        if entry.kind != PIECES:
            yield entry.content, entry.size
        elif entry.content not in bad:
            yield from ((digest, PIECE_BYTES) for digest in reader.pieces(entry))
        meter.advance(size_bytes=entry.size)


def _unsound(objects: ObjectStore, named: Iterable[tuple[bytes, int]]) -> set[bytes]:
    """The missing or damaged ones of these objects, given with their sizes; a limited portion is in memory at once."""
    bad: set[bytes] = set()
    portion: list[bytes] = []
    portion_bytes = 0
    for digest, size in named:
        portion.append(digest)
        portion_bytes += size
        if len(portion) >= _MOST_IN_A_PORTION or portion_bytes >= _PORTION_BYTES:
            bad |= objects.unsound_among(portion)
            portion, portion_bytes = [], 0
    return bad | objects.unsound_among(portion)
