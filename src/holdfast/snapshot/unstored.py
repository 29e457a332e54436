"""A tree that is compared with stored states, and restored to one, without storing its own content.

Used if the disk has no space for that content. It is read and hashed, and only the digests are kept, in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from holdfast.content.batch import Batch
from holdfast.content.difference import Difference, StateReader
from holdfast.content.directory_cache import RecentDirectories
from holdfast.content.format import DIRECTORY, State
from holdfast.content.store import ObjectStore
from holdfast.errors import SandboxError, described
from holdfast.snapshot.restore.decide import RestorePlan, plan_restore
from holdfast.snapshot.restore.restoration import Restoration, refreshed
from holdfast.snapshot.restore.write import Restored, RestoreOptions, carry_out
from holdfast.snapshot.scan.changes import NO_REPORT
from holdfast.snapshot.scan.index import TreeIndex
from holdfast.system.place import is_there


class UnstoredTree:
    """A sandbox as it is now; what is learned about it is lost with this object."""

    def __init__(self, path: Path, objects: ObjectStore) -> None:
        directories = RecentDirectories(most_bytes=None)  # the directories of this tree are stored nowhere else
        self._index = TreeIndex(path, directories)
        if not is_there(path):
            raise self._index.missing()
        self._batch = _Unstored(objects, None)
        self.reader = StateReader(objects, directories)

    def state(self) -> State:
        refreshed(self._index, self._batch, NO_REPORT)
        state = self._index.known_state()
        assert state is not None
        return state

    def in_the_way(self, state_hash: str, unheld: Collection[str]) -> tuple[bytes, ...]:
        """The paths that ``restore`` would set aside; the tree is not touched."""
        return self._plan(state_hash, unheld).in_the_way

    def _plan(self, state_hash: str, unheld: Collection[str]) -> RestorePlan:
        states = self.state(), self.reader.state(state_hash)
        return plan_restore(self.reader, *states, list(self._index.known.unheld), unheld)

    def check(self, state_hash: str) -> None:
        """Refuse if content that the state needs, and that the tree does not have, is missing or damaged."""
        self._restoration(state_hash).check()

    def restore(self, state_hash: str, aside: Path, unheld: Collection[str]) -> Restored:
        """Restore the tree to that state; what is not needed is deleted first, to make space."""
        # No staging folder: files that are moved there take space until the end.
        options = RestoreOptions(self._index.name, aside)
        self.check(state_hash)
        self._make_room(state_hash, options, unheld)
        return self._restoration(state_hash).restore(options, unheld)[1]

    def _restoration(self, state_hash: str) -> Restoration:
        return Restoration(self._index, self.reader, self._batch, None, state_hash)

    def _make_room(self, state_hash: str, options: RestoreOptions, unheld: Collection[str]) -> None:
        plan = self._plan(state_hash, unheld)
        removals = tuple(each for each in map(_removal, plan.differences) if each and each.path not in plan.in_the_way)
        try:
            with self._index.descend() as descent:
                carry_out(RestorePlan(removals, (), ()), self.reader, descent, options, {})
        except OSError as error:
            raise SandboxError(
                f"Removing files from {self._index.root} failed: {described(error)}.",
                hint="Check its permissions and its disk, then run the same command again.",
            ) from error


def _removal(difference: Difference) -> Difference | None:
    """The removal of a file whose content is not needed; one that only changes its attributes stays."""
    old, new = difference.old, difference.new
    if old is None or old.kind == DIRECTORY:
        return None
    is_needed = new is not None and (new.kind, new.content) == (old.kind, old.content)
    return None if is_needed else Difference(difference.path, old, None)


class _Unstored(Batch):
    """A batch that keeps no content."""

    def add_named(self, digest: bytes, content: bytes) -> None:
        pass

    def add_packed(self, objects: Sequence[tuple[bytes, int, bytes]]) -> None:
        pass

    def has(self, digest: bytes) -> bool:  # noqa: ARG002 - the index of the tree stays valid for as long as this lasts
        return True

    def begin_parcel(self) -> None:
        pass

    def end_parcel(self, state: bytes) -> None:
        pass

    def commit(self) -> None:
        pass
