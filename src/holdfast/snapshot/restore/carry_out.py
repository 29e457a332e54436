"""Going back to a state: planned, carried out and verified, with what the kernel told where that is enough."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set

from holdfast.content.batch import Batch
from holdfast.content.difference import StateReader
from holdfast.errors import SandboxError, described
from holdfast.snapshot.restore.from_events import plan_from_changes
from holdfast.snapshot.restore.restore import Restored, RestorePlan, Workshop, carry_out, check_content, plan_restore
from holdfast.snapshot.scan.index import TreeIndex
from holdfast.snapshot.scan.watching import NOTHING_TOLD, Changes, ChangeTracker, Told, add_changes
from holdfast.system.directories import Descent, join

_NO_NAMES: frozenset[bytes] = frozenset()


def refreshed(index: TreeIndex, batch: Batch, told: Told, *, thorough: bool = False) -> bytes:
    """``thorough``: look at every file, whatever the kernel told."""
    try:
        return index.refresh(batch, told._replace(is_all=False) if thorough else told)
    except OSError as error:
        raise SandboxError(
            f"Reading {index.root} failed: {error.strerror or error}.",
            hint="Check its permissions and its disk, then try again.",
        ) from error


class Disturbed(SandboxError):
    """All was restored, and something changed it before it could be looked at."""


class GoingBack:
    """One way back of one tree; ``tracker`` is what the kernel tells through, if it does."""

    def __init__(
        self, index: TreeIndex, reader: StateReader, batch: Batch, tracker: ChangeTracker | None, state_hash: str
    ) -> None:
        self._index, self._reader, self._batch, self._tracker = index, reader, batch, tracker
        self._state_hash = state_hash
        self._unknown: Told | None = None
        """What the kernel told of and nobody has looked at yet."""
        # What is known of the tree is the state it was last found in, and that is often where the way back leads.
        known = index.known_state() if index.state == bytes.fromhex(state_hash) else None
        self._target = known or reader.state(state_hash)

    def check(self) -> None:
        """Refuse if content that is needed is missing or damaged; touches nothing."""
        with self._index.descend() as descent:
            try:
                check_content(self._reader, self._plan(descent, ()), self._index.name)
            finally:
                self._put_back()

    def restore(self, workshop: Workshop, unheld: Collection[str]) -> tuple[RestorePlan, Restored]:
        with self._index.descend() as descent:
            try:
                plan = self._plan(descent, unheld)
                contents = check_content(self._reader, plan, self._index.name)
                restored = self._carry_out(descent, plan, workshop, contents) if plan.changes_anything else Restored()
            except BaseException:
                self._put_back()
                raise
        return plan, restored

    def _plan(self, descent: Descent, unheld: Collection[str]) -> RestorePlan:
        """What has to be done. If that is not done after all, what the kernel told is to be put back."""
        told = self._tracker.take() if self._tracker else NOTHING_TOLD
        self._unknown = told
        if told.is_all and not unheld:
            plan = plan_from_changes(self._index, self._reader, descent, told, self._target)
            if plan is not None:
                return plan
        descent.forget()  # directories that were opened up for us are closed again, as they are to be found
        refreshed(self._index, self._batch, told)
        self._batch.commit()
        self._unknown = None
        known = self._index.known_state()
        assert known is not None
        shared = self._index.links.by_path.keys()
        return plan_restore(self._reader, known, self._target, list(self._index.unheld), unheld, shared)

    def _put_back(self) -> None:
        if self._tracker is not None and self._unknown is not None:
            self._tracker.put_back(self._unknown)

    def _carry_out(
        self, descent: Descent, plan: RestorePlan, workshop: Workshop, contents: Mapping[bytes, bytes]
    ) -> Restored:
        shape = self._tracker.shape if self._tracker else None
        try:
            restored = carry_out(plan, self._reader, descent, workshop, contents)
            self._verify(descent, plan, restored, shape)
        except BaseException as error:
            self._index.forget()  # it is neither what it was nor what it should be
            if not isinstance(error, OSError):
                raise
            raise SandboxError(
                f"Restoring {self._index.root} failed: {described(error)}.",
                hint="Check its permissions and its disk, then run the same command again.",
            ) from error
        return restored

    def _verify(self, descent: Descent, plan: RestorePlan, restored: Restored, shape: int | None) -> None:
        """Look at everything the restore touched; the tree must be that state and nothing else."""
        told = self._tracker.take(restored.exchanged, restored.dated) if self._tracker else Told({}, is_all=True)
        if told.is_written:
            restored.proven.clear()
        if _are_only(told, restored.touched) and self._adopted(descent, plan, restored, shape):
            return
        descent.forget()  # directories that it opened up for us are closed again, as they are to be found
        if refreshed(self._index, self._batch, _with_own_changes(told, restored)).hex() != self._state_hash:
            raise Disturbed(
                f"{self._index.root} is not exactly the saved state after restoring it: "
                "something changed it meanwhile.",
                hint="Stop the program that works in the sandbox and roll back again.",
            )

    def _adopted(self, descent: Descent, plan: RestorePlan, restored: Restored, shape: int | None) -> bool:
        state = bytes.fromhex(self._state_hash)
        if self._tracker is not None and self._tracker.shape == shape:
            # No directory was moved meanwhile: what is open is still what its path leads to.
            return self._adopted_through(descent, plan, restored, state)
        with self._index.descend() as anew:
            return self._adopted_through(anew, plan, restored, state)

    def _adopted_through(self, descent: Descent, plan: RestorePlan, restored: Restored, state: bytes) -> bool:
        return self._index.adopt(descent, plan.differences, restored.touched, restored.proven, self._target, state)


def _with_own_changes(told: Told, restored: Restored) -> Told:
    """What the kernel told of, and what a restore touched, which is mostly the same."""
    changes: Changes = {directory: set(names) for directory, names in restored.touched.items()}
    add_changes(changes, told.changes)
    return told._replace(changes=changes)


def _are_only(told: Told, touched: Mapping[bytes, Set[bytes]]) -> bool:
    """Whether nothing changed but what we touched; setting what a directory is shows in its parent too."""
    if not told.is_all:
        return False
    for directory, names in told.changes.items():
        if names is None:
            return False
        for name in names - touched.get(directory, _NO_NAMES):
            if join(directory, name) not in touched:
                return False
    return True
