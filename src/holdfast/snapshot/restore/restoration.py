"""Restores a tree: decides, writes and verifies, using only the changes that the kernel reported if they are enough."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from contextlib import nullcontext

from holdfast.content.batch import Batch
from holdfast.content.difference import StateReader
from holdfast.errors import SandboxError, described
from holdfast.snapshot.restore.decide import RestorePlan, check_content, plan_restore
from holdfast.snapshot.restore.from_events import plan_from_changes
from holdfast.snapshot.restore.write import Restored, RestoreOptions, carry_out
from holdfast.snapshot.scan.changes import NO_REPORT, NOTHING_CHANGED, ChangeReport, Changes, add_changes
from holdfast.snapshot.scan.index import TreeIndex
from holdfast.snapshot.scan.watching import ChangeTracker
from holdfast.system.directories import Descent, join

_NO_NAMES: frozenset[bytes] = frozenset()


def refreshed(index: TreeIndex, batch: Batch, report: ChangeReport, *, thorough: bool = False) -> bytes:
    """The present state hash; ``thorough``: scan everything, whatever the kernel reported."""
    try:
        return index.refresh(batch, report._replace(is_complete=False) if thorough else report)
    except OSError as error:
        raise SandboxError(
            f"Reading {index.root} failed: {error.strerror or error}.",
            hint="Check its permissions and its disk, then try again.",
        ) from error


class Disturbed(SandboxError):
    """Everything was restored, but something changed it before it could be verified."""


class Restoration:
    """Restores one tree to one state; ``tracker`` is given if the tree is watched, otherwise ``report`` counts."""

    def __init__(
        self,
        index: TreeIndex,
        reader: StateReader,
        batch: Batch,
        tracker: ChangeTracker | None,
        state_hash: str,
        report: ChangeReport = NO_REPORT,
    ) -> None:
        self._index, self._reader, self._batch, self._tracker = index, reader, batch, tracker
        self._state_hash, self._report = state_hash, report
        self._unscanned: ChangeReport | None = None
        """The kernel's report, until what it names has been scanned."""
        # The last known state of the tree is often the one to be restored.
        known = index.known_state() if index.state == bytes.fromhex(state_hash) else None
        self._target = known or reader.state(state_hash)

    def check(self) -> None:
        """Refuse if content that is needed is missing or damaged; the tree is not touched."""
        with self._index.descend() as descent:
            try:
                check_content(self._reader, self._plan(descent, ()), self._index.name)
            finally:
                self._report_again()

    def restore(self, options: RestoreOptions, unheld: Collection[str]) -> tuple[RestorePlan, Restored]:
        with self._index.descend() as descent:
            try:
                plan = self._plan(descent, unheld)
                contents = check_content(self._reader, plan, self._index.name)
                restored = self._carry_out(descent, plan, options, contents) if plan.changes_anything else Restored()
            except BaseException:
                self._report_again()
                raise
        return plan, restored

    def _plan(self, descent: Descent, unheld: Collection[str]) -> RestorePlan:
        """Decide what to do. If that is not done after all, the kernel's report is needed again."""
        report = self._tracker.report() if self._tracker else self._report
        self._unscanned = report
        if report.is_complete and not unheld:
            plan = plan_from_changes(self._index, self._reader, descent, report, self._target)
            if plan is not None:
                return plan
        descent.forget()  # gives directories that it made readable their own modes back, for the scan to find
        refreshed(self._index, self._batch, report)
        self._batch.commit()
        self._unscanned = None
        known = self._index.known_state()
        assert known is not None
        shared = self._index.known.links.by_path.keys()
        return plan_restore(self._reader, known, self._target, list(self._index.known.unheld), unheld, shared)

    def _report_again(self) -> None:
        if self._tracker is not None and self._unscanned is not None:
            self._tracker.report_again(self._unscanned)

    def _carry_out(
        self, descent: Descent, plan: RestorePlan, options: RestoreOptions, contents: Mapping[bytes, bytes]
    ) -> Restored:
        shape = self._tracker.shape if self._tracker else None
        try:
            restored = carry_out(plan, self._reader, descent, options, contents)
            self._verify(descent, plan, restored, shape)
        except BaseException as error:
            self._index.forget()  # the tree is in neither the old nor the new state
            if not isinstance(error, OSError):
                raise
            raise SandboxError(
                f"Restoring {self._index.root} failed: {described(error)}.",
                hint="Check its permissions and its disk, then run the same command again.",
            ) from error
        return restored

    def _verify(self, descent: Descent, plan: RestorePlan, restored: Restored, shape: int | None) -> None:
        """Check everything that the restore touched; the tree must be in exactly that state."""
        report = self._tracker.report(restored.exchanged, restored.dated) if self._tracker else NOTHING_CHANGED
        if report.is_written:
            restored.proven.clear()
        if _are_only(report, restored.touched) and self._adopted(descent, plan, restored, shape):
            return
        descent.forget()  # as above
        if refreshed(self._index, self._batch, _with_own_changes(report, restored)).hex() != self._state_hash:
            raise Disturbed(
                f"{self._index.root} is not exactly the saved state after restoring it: "
                "something changed it meanwhile.",
                hint="Stop the program that works in the sandbox and roll back again.",
            )

    def _adopted(self, descent: Descent, plan: RestorePlan, restored: Restored, shape: int | None) -> bool:
        # If no directory was moved meanwhile, the open directories are still the ones at their paths.
        is_current = self._tracker is not None and self._tracker.shape == shape
        with nullcontext(descent) if is_current else self._index.descend() as current:
            state = bytes.fromhex(self._state_hash)
            return self._index.adopt(current, plan.differences, restored.touched, restored.proven, self._target, state)


def _with_own_changes(report: ChangeReport, restored: Restored) -> ChangeReport:
    """The kernel's report, with the names that the restore touched added."""
    changes: Changes = {directory: set(names) for directory, names in restored.touched.items()}
    add_changes(changes, report.changes)
    return report._replace(changes=changes)


def _are_only(report: ChangeReport, touched: Mapping[bytes, Set[bytes]]) -> bool:
    """Whether only what we touched changed; changed attributes of a directory are reported for its parent too."""
    if not report.is_complete:
        return False
    for directory, names in report.changes.items():
        if names is None:
            return False
        for name in names - touched.get(directory, _NO_NAMES):
            if join(directory, name) not in touched:
                return False
    return True
