"""Decides what a restore has to do, without touching anything."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set

import msgspec

from holdfast.content.difference import Difference, StateReader
from holdfast.content.format import DIRECTORY, FILE, REGULAR, Entry, State
from holdfast.system.directories import split
from holdfast.system.progress import Work, meter_of

_KEPT_BYTES = 16 << 20


class RestorePlan(msgspec.Struct, frozen=True):
    """The changes that turn one state into another."""

    differences: tuple[Difference, ...]
    in_the_way: tuple[bytes, ...]
    """Paths that no snapshot holds and that must be moved aside."""
    links: tuple[tuple[bytes, ...], ...]
    """Groups of names that must become one file again."""
    shared: Set[bytes] = frozenset()
    """Paths of files that have other names too."""

    @property
    def changes_anything(self) -> bool:
        # The root is always listed, even if it does not differ.
        return bool(self.in_the_way) or len(self.differences) > 1 or any(old != new for _, old, new in self.differences)


def plan_restore(
    reader: StateReader,
    present: State,
    target: State,
    unheld: Iterable[bytes],
    unheld_then: Collection[str] = (),
    shared: Set[bytes] = frozenset(),
) -> RestorePlan:
    """Decide how to turn ``present`` into ``target``.

    ``unheld``: paths that no snapshot can hold now; ``unheld_then``: paths that the target's snapshot could not hold;
    ``shared``: paths of files that have other names.
    """
    differences = {difference.path: difference for difference in reader.differences(present, target)}
    links = links_to_recreate(reader, present, target, differences)
    in_the_way = [path for path in unheld if _stands_in_the_way(reader, target, path)]
    # The snapshot has no entry for a path that existed but could not be read; that is no reason to delete it.
    in_the_way += [
        path for path, found in differences.items() if found.new is None and unheld_name(path) in unheld_then
    ]
    return RestorePlan(tuple(differences.values()), tuple(in_the_way), links, shared & differences.keys())


def unheld_name(path: bytes) -> str:
    """The name in records of a path that a snapshot could not hold: records are text, a path need not be."""
    return path.decode(errors="backslashreplace")


def links_to_recreate(
    reader: StateReader, present: State, target: State, differences: dict[bytes, Difference]
) -> tuple[tuple[bytes, ...], ...]:
    """The hard links to create. All files of groups that change are added to ``differences``, to be written again."""
    if not present.links and not target.links:
        return ()
    old, new = set(present.links), set(target.links)
    for path in {path for group in old ^ new for path in group}:
        if reader.find(target, path) is not None:
            # Writing the file again changes the time of its directory, which must then be set too.
            for place in (split(path)[0], path):
                found = Difference(place, reader.find(present, place), reader.find(target, place))
                differences.setdefault(place, found)
    changed = {path for path in differences if path}
    return tuple(group for group in target.links if group not in old or changed.intersection(group))


def _stands_in_the_way(reader: StateReader, target: State, path: bytes) -> bool:
    if reader.find(target, path) is not None:
        return True
    directory = reader.find(target, split(path)[0])
    return directory is None or directory.kind != DIRECTORY


def check_content(reader: StateReader, plan: RestorePlan, name: str) -> dict[bytes, bytes]:
    """Read all content that the restore needs, so that damage is found before a file is touched.

    Returns a limited amount of it by digest, so that it need not be read again.
    """
    needed = [new for _, _, new in plan.differences if new is not None and new.kind in REGULAR]
    kept: list[Entry] = []
    room = _KEPT_BYTES
    with meter_of(Work.CHECKING, name, lambda: (len(needed), sum(entry.size for entry in needed))) as meter:
        for entry in meter.each(needed):
            if entry.kind == FILE and entry.size <= room:
                kept.append(entry)
                room -= entry.size
            else:
                for piece in reader.content(entry):
                    meter.advance(size_bytes=len(piece))
    return reader.small_contents(kept)
