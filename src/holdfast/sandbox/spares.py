"""Spares: sandboxes of deleted plans, kept so that the next plan on the same folder need not copy all of it.

    .spares/<folder>-<random>/tree      the sandbox, without its .git
    .spares/<folder>-<random>/origin    what it was copied from
    .spares/<folder>-<random>/index     what is known of its files, for the first checkpoint
    .spares/<folder>-<random>/state     the last state of which that is known
    .spares/<folder>-<random>/gitindex  git's index as it was carried over to it, if that was possible

A spare is made in the folder of its plan and gets its place by one rename, when it is whole. It is taken by a rename
into the folder of the new plan, so only one process gets it, and what a killed process leaves of it goes with the plan.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.model import Resource, ResourceType
from holdfast.sandbox.listing import ListedTree
from holdfast.sandbox.origin import Doubtful, Walked, load_origin, origin_of, save_origin, walked
from holdfast.system.place import is_there
from holdfast.system.reserve import is_short_of_space
from holdfast.system.stamps import RACY_NS
from holdfast.system.trash import Trash, trash_for

if TYPE_CHECKING:
    from holdfast.sandbox.refill import Skip

SPARES = ".spares"
_TREE, _ORIGIN, _INDEX, _STATE, _GIT_INDEX = "tree", "origin", "index", "state", "gitindex"
FEWEST_ENTRIES = 1_000
_KEPT_SECONDS = 30 * 24 * 3600


class Spares:
    """The spares of one folder of sandboxes.

    ``most``: how many are kept of each real folder. A folder with less than ``fewest_entries`` is copied as fast as it
    is compared, so no spare of it is kept.
    """

    def __init__(self, sandboxes: Path, most: int, *, fewest_entries: int | None = None) -> None:
        self._sandboxes, self._folder, self._most = sandboxes, sandboxes / SPARES, most
        self._fewest_entries = FEWEST_ENTRIES if fewest_entries is None else fewest_entries

    def keep(self, resource: Resource, index: Path, state: str) -> bool:
        """Make a spare of a sandbox that its plan no longer needs; whether that was possible.

        If the process dies meanwhile, the sandbox of the plan is missing, or the spare is whole.
        """
        sandbox = Path(resource.sandbox_path)
        origin = load_origin(origin_beside(sandbox))
        if not self._most or origin is None or not is_there(sandbox) or is_short_of_space(self._sandboxes):
            return False
        place, trash = _being_spared(sandbox), Trash(self._sandboxes)
        try:
            trash.put(place)  # a killed process may have left it
            place.mkdir(mode=0o700)
            sandbox.rename(place / _TREE)
            origin_beside(sandbox).rename(place / _ORIGIN)
            index.rename(place / _INDEX)
            (place / _STATE).write_text(state)
            if resource.type is ResourceType.GIT:
                with suppress(FileNotFoundError):
                    git_index_beside(sandbox).rename(place / _GIT_INDEX)
                trash.put(place / _TREE / ".git")
            self._folder.mkdir(mode=0o700, exist_ok=True)
            place.rename(self._folder / f"{_name_of(resource)}-{os.urandom(8).hex()}")
        except OSError:
            return False  # what is left of it is removed with the plan's folder
        self._give_up_others(resource)
        return True

    def _give_up_others(self, resource: Resource) -> None:
        newest_first = sorted(self.of(resource), key=_kept_at, reverse=True)
        for spare in newest_first[self._most :]:
            self._give_up(spare)

    def made(self, resource: Resource, source: Path, unfinished: Path, skip: Skip) -> frozenset[bytes] | None:
        """Make the sandbox at ``unfinished`` out of a spare; if that is not possible exactly, nothing is left there.

        Returns the paths in which the spare differed; None if there is no sandbox.
        """
        trash = Trash(self._sandboxes)
        while (place := self._taken(resource)) is not None:
            try:
                differing = self._refilled(resource, place, source, unfinished, skip)
                if differing is not None:
                    return differing
            except (Doubtful, OSError):
                trash.put(unfinished)
            trash.put(place)
        return None

    def _taken(self, resource: Resource) -> Path | None:
        """One spare in the folder of the new plan; None if there is none."""
        place = _being_spared(Path(resource.sandbox_path))
        for spare in self.of(resource):
            with suppress(OSError):  # another process has taken it
                spare.rename(place)
                self._remove_if_empty()
                return place
        return None

    def _remove_if_empty(self) -> None:
        with suppress(OSError):
            self._folder.rmdir()

    def _refilled(
        self, resource: Resource, place: Path, source: Path, unfinished: Path, skip: Skip
    ) -> frozenset[bytes] | None:
        from holdfast.sandbox.refill import refill  # few commands make or use a spare

        origin = load_origin(place / _ORIGIN)
        if origin is None or not _is_fresh(place):
            return None
        (place / _TREE).rename(unfinished)
        refilled = refill(unfinished, source, origin, skip)
        save_origin(refilled.origin, origin_beside(Path(resource.sandbox_path)))
        return refilled.differing

    def walked(self, tree: ListedTree, skip: Collection[bytes]) -> Walked | None:
        """The folder before it is copied, if its sandbox may become a spare."""
        try:
            found = walked(tree, skip) if self._most else None
        except (Doubtful, OSError):
            return None
        return found if found is not None and found.entries() >= self._fewest_entries else None

    def note_origin(self, sandbox: Path, unfinished: Path, real: Walked, skip: Collection[bytes]) -> None:
        """Note what the copy of a folder was made from, without the paths ``skip``."""
        time.sleep(RACY_NS / 1e9)  # otherwise the last files would be too new to be told by their times
        with suppress(Doubtful, OSError):
            copy = walked(ListedTree(unfinished, opens_up=True))
            save_origin(origin_of(real.trusted(), copy.trusted(), skip), origin_beside(sandbox))

    def states(self) -> set[str]:
        """The states whose content the first checkpoint after a refill needs, or it reads everything again."""
        found = set()
        for spare in self.all():
            with suppress(OSError):
                found.add((spare / _STATE).read_text())
        return found

    def all(self) -> list[Path]:
        try:
            return sorted(self._folder.iterdir())
        except OSError:
            return []

    def give_up_all(self) -> None:
        """For their space."""
        for spare in self.all():
            self._give_up(spare)
        self._remove_if_empty()

    def give_up_old(self) -> None:
        for spare in self.all():
            if not _is_fresh(spare):
                self._give_up(spare)
        self._remove_if_empty()

    def _give_up(self, spare: Path) -> None:
        with suppress(OSError):  # the next command that gives up spares tries it again
            Trash(self._sandboxes).put(spare)

    def of(self, resource: Resource) -> list[Path]:
        return [spare for spare in self.all() if spare.name.startswith(f"{_name_of(resource)}-")]


def origin_beside(sandbox: Path) -> Path:
    return sandbox.with_name(f".{sandbox.name}.origin")


def git_index_beside(sandbox: Path) -> Path:
    return sandbox.with_name(f".{sandbox.name}.gitindex")


class CarriedGitIndex(msgspec.Struct, array_like=True):
    """Git's index of a real folder and, with the stat data of the copies, of a sandbox."""

    digest: bytes
    """Of the one of the real folder."""
    carried: bytes


_decoder = msgspec.msgpack.Decoder(CarriedGitIndex)
"""Made once: msgspec must not find out a type in two threads at the same time."""


def note_git_index(sandbox: Path, original: bytes, carried: bytes) -> None:
    """Note an index that was carried over to a sandbox that may become a spare."""
    if origin_beside(sandbox).exists():
        with suppress(OSError):  # without it, it is carried over again, which only takes longer
            git_index_beside(sandbox).write_bytes(
                msgspec.msgpack.encode(CarriedGitIndex(_digest_of(original), carried))
            )


def git_index_of_spare(sandbox: Path, original: bytes) -> bytes | None:
    """The index that was carried over to the spare that a sandbox was made of, from this original."""
    try:
        found = _decoder.decode((_being_spared(sandbox) / _GIT_INDEX).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    return found.carried if found.digest == _digest_of(original) else None


def _digest_of(content: bytes) -> bytes:
    import hashlib

    return hashlib.sha256(content).digest()


def index_of_spare(sandbox: Path) -> Path:
    """Where the index of the spare is that a sandbox was made of."""
    return _being_spared(sandbox) / _INDEX


def forget_spare(sandbox: Path) -> None:
    """Remove what is left of the spare that a sandbox was made of."""
    trash_for(sandbox).put(_being_spared(sandbox))


def _being_spared(sandbox: Path) -> Path:
    return sandbox.with_name(f".{sandbox.name}.spare")


def _name_of(resource: Resource) -> str:
    """The same for all sandboxes of one kind of one folder."""
    import hashlib

    return hashlib.sha256(f"{resource.type}\0{resource.path}".encode(errors="surrogatepass")).hexdigest()[:32]


def _kept_at(spare: Path) -> float:
    try:
        return spare.stat().st_mtime
    except OSError:
        return 0.0


def _is_fresh(spare: Path) -> bool:
    return time.time() - _kept_at(spare) < _KEPT_SECONDS
