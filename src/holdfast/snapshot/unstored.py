"""A tree compared with stored states, and turned into one, without storing anything of it.

For a disk that has no room for what is in the tree. Its content is read and named; only the names of it are kept, in
memory and for as long as this lasts.
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
from holdfast.system.directories import Descent


class UnstoredTree:
    """A sandbox as it is now; nothing that is known of it here outlives this value."""

    def __init__(self, path: Path, objects: ObjectStore) -> None:
        directories = RecentDirectories(most_bytes=None)  # those of this tree can be read nowhere else
        self._index = TreeIndex(path, directories)
        self._batch = _Unstored(objects, None)
        self.reader = StateReader(objects, directories)

    def state(self) -> State:
        refreshed(self._index, self._batch, NO_REPORT)
        state = self._index.known_state()
        assert state is not None
        return state

    def in_the_way(self, state_hash: str, unheld: Collection[str]) -> tuple[bytes, ...]:
        """What ``restore`` would set aside; touches nothing."""
        states = self.state(), self.reader.state(state_hash)
        return plan_restore(self.reader, *states, list(self._index.known.unheld), unheld).in_the_way

    def check(self, state_hash: str) -> None:
        """Refuse if content that the state needs, and the tree does not have, is missing or damaged."""
        self._restoration(state_hash).check()

    def restore(self, state_hash: str, aside: Path, unheld: Collection[str]) -> Restored:
        """Turn it into that state. What has to go is deleted first, to make room for what comes."""
        # No staging folder: what is moved there takes its space until the end.
        options = RestoreOptions(self._index.name, aside)
        self.check(state_hash)
        self._make_room(state_hash, options, unheld)
        return self._restoration(state_hash).restore(options, unheld)[1]

    def _restoration(self, state_hash: str) -> Restoration:
        return Restoration(self._index, self.reader, self._batch, None, state_hash)

    def _make_room(self, state_hash: str, options: RestoreOptions, unheld: Collection[str]) -> None:
        states = self.state(), self.reader.state(state_hash)
        plan = plan_restore(self.reader, *states, list(self._index.known.unheld), unheld)
        removals = tuple(each for each in map(_removal, plan.differences) if each and each.path not in plan.in_the_way)
        try:
            with self._index.descend() as descent:
                self._remove(removals, descent, options)
        except OSError as error:
            raise SandboxError(
                f"Removing files from {self._index.root} failed: {described(error)}.",
                hint="Check its permissions and its disk, then run the same command again.",
            ) from error

    def _remove(self, removals: tuple[Difference, ...], descent: Descent, options: RestoreOptions) -> None:
        carry_out(RestorePlan(removals, (), ()), self.reader, descent, options, {})


def _removal(difference: Difference) -> Difference | None:
    """What takes space and will not be needed; what only changes its attributes keeps its content."""
    old, new = difference.old, difference.new
    if old is None or old.kind == DIRECTORY:
        return None
    is_needed = new is not None and (new.kind, new.content) == (old.kind, old.content)
    return None if is_needed else Difference(difference.path, old, None)


class _Unstored(Batch):
    """Takes content and keeps none of it."""

    def add_named(self, digest: bytes, content: bytes) -> None:
        pass

    def add_packed(self, objects: Sequence[tuple[bytes, int, bytes]]) -> None:
        pass

    def has(self, digest: bytes) -> bool:  # noqa: ARG002 - what is known of the tree stays known while this lasts
        return True

    def begin_parcel(self) -> None:
        pass

    def end_parcel(self, state: bytes) -> None:
        pass

    def commit(self) -> None:
        pass
