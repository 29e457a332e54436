"""CheckpointManager: makes snapshots of sandboxes and restores them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.content.batch import Batch, storing
from holdfast.content.difference import Difference, StateReader
from holdfast.content.directory_cache import RecentDirectories
from holdfast.content.garbage import Claims, collect
from holdfast.content.store import ObjectStore
from holdfast.errors import CheckpointNotFoundError, ContentError, HoldfastError, SandboxError
from holdfast.model import Phase, Resource, Unheld, now
from holdfast.sandbox.bulk import CopySink
from holdfast.snapshot.indexes import Indexes
from holdfast.snapshot.looks import Looks
from holdfast.snapshot.restore.decide import plan_restore, unheld_name
from holdfast.snapshot.restore.recoverable import unrecoverable_objects
from holdfast.snapshot.restore.restoration import Restoration, refreshed
from holdfast.snapshot.restore.staging import Stagings
from holdfast.snapshot.restore.write import Restored, RestoreOptions
from holdfast.snapshot.scan.changes import names_in
from holdfast.snapshot.scan.copied_tree import CopiedTree
from holdfast.snapshot.scan.exclusion import Exclusion
from holdfast.snapshot.scan.forked_tree import ForkedTree, Lent
from holdfast.snapshot.scan.index import TreeIndex
from holdfast.snapshot.taken import TakenSnapshot
from holdfast.snapshot.trackers import Trackers
from holdfast.snapshot.unstored import UnstoredTree
from holdfast.system.ids import new_id
from holdfast.system.place import in_home, is_ours, relative_to_home

if TYPE_CHECKING:
    from holdfast.snapshot.sandbox_checkpoint import SandboxCheckpoint


def aside_of(path: Path) -> Path:
    """A new place beside the sandbox for files that no snapshot could hold and that stand in the way."""
    return path.parent / ".set-aside" / f"{path.name}-{os.urandom(4).hex()}"


class Records(Protocol):
    """The recorded snapshots: one for each checkpoint, while the catalogue has one for each new state."""

    def of_sandbox(self, sandbox_id: str) -> Iterable[SandboxCheckpoint]: ...

    def find(self, checkpoint_id: str) -> SandboxCheckpoint | None: ...


class CheckpointManager:
    """Knows sandboxes by their paths.

    Its parts: ``indexes`` (what is known of each), ``trackers`` (what the kernel reports), ``looks``.
    """

    def __init__(
        self,
        objects: ObjectStore,
        index_folder: Path,
        lent: Mapping[Path, Lent] | None = None,
        *,
        excluded: Sequence[str] = (),
    ) -> None:
        """``lent``: what another manager knows of trees that are copied here.

        ``excluded``: patterns of what is left out of the snapshots of real folders.
        """
        self._excluded = excluded
        self.objects, self._lent = objects, lent or {}
        self.records: Records | None = None
        recent = RecentDirectories()
        self.reader = StateReader(objects, recent)
        self.indexes, self.trackers, self.looks = (
            Indexes(index_folder, recent, Exclusion(excluded)),
            Trackers(),
            Looks(),
        )
        self._stagings = Stagings()

    def place_of(self, resource: Resource) -> Path:
        """Where the sandbox of a resource is, or the folder itself if it is in place."""
        path = Path(resource.sandbox_path)
        if resource.is_in_place:
            self.indexes.real.add(path)
        return path

    def sibling(self, lent: Mapping[Path, Lent] | None = None) -> CheckpointManager:
        """Another manager on the same content, for another thread."""
        return CheckpointManager(ObjectStore(self.objects.path), self.indexes.folder, lent, excluded=self._excluded)

    def lend(self, paths: Iterable[Path], limit_bytes: int | None = None) -> dict[Path, Lent]:
        """What is known of these trees as they are now, for siblings that copy them.

        A tree that cannot be looked at, or whose content does not fit into the quota, is only copied: the first
        checkpoint of the copy has the means to make room, and says what is wrong.
        """
        lent = {}
        for path in paths:
            with suppress(HoldfastError, OSError):
                self.state_of(path, thorough=False, limit_bytes=limit_bytes)
                if (known := self.indexes.of(path).lend()) is not None:
                    lent[path] = known
        return lent

    @contextmanager
    def watching(self, paths: Iterable[Path]) -> Iterator[None]:
        """While this lasts, the kernel reports what changes in these sandboxes, and a checkpoint scans only that."""
        watched: list[Path] = []
        try:
            with self.trackers.watching(paths) as watched:
                yield
        finally:
            for path in watched:
                self._stagings.remove(path)
            if watched:
                self.objects.unpack_parcels()

    def refuse_changed(self, path: Path, state_hash: str) -> None:
        """Refuse if a file that a restore to that state would touch has changed since the sandbox was looked at."""
        index, target = self.indexes.of(path), self.reader.state(state_hash)
        seen, known = index.state, index.known_state()
        if self.trackers.find(path) is not None or not self.looks.is_looking or known is None:
            return  # a restore finds it out
        with self._storing_from(path) as batch:
            report = names_in(self.reader.differences(known, target))
            if refreshed(index, batch, report) != seen:
                raise SandboxError(
                    f"Something changed {path} since it was looked at; nothing was restored.",
                    hint="Stop the program that works in the sandbox, then run the command again.",
                )

    def storing(self, limit_bytes: int | None = None) -> AbstractContextManager[Batch]:
        """Content that is stored while this lasts stays until the records name it."""
        return storing(self.objects, limit_bytes)

    def _storing_from(self, path: Path, limit_bytes: int | None = None) -> AbstractContextManager[Batch]:
        """For content that no record names; it counts with the next checkpoint of that sandbox."""
        return storing(self.objects, limit_bytes, _sandbox_at(path))

    @contextmanager
    def learning(self, path: Path, limit_bytes: int | None = None, of: Path | None = None) -> Iterator[CopySink]:
        """Store what is copied into a new sandbox meanwhile, so that its first snapshot need not read it again.

        ``of``: the tree that is copied; what was lent of it is stored already.
        """
        self.indexes.forget(path)
        with storing(self.objects, limit_bytes, _sandbox_at(path)) as batch:
            copied = self._learner(path, of, batch)
            yield copied
            known = copied.learned()
            if known is not None:
                self.indexes.of(path).learn(known, batch)

    def _learner(self, path: Path, of: Path | None, batch: Batch) -> CopiedTree | ForkedTree:
        lent = None if of is None else self._lent.get(of)
        if lent is not None and lent.finding == batch.finding and batch.has_state(lent.state):
            return ForkedTree(lent, path)
        return CopiedTree(batch)

    def create_checkpoint(
        self,
        batch: Batch,
        *,
        sandbox_id: str,
        plan_id: str,
        phase: Phase,
        path: Path,
        metadata: dict[str, Any],
        previous_state: str | None = None,
        thorough: bool = False,
    ) -> SandboxCheckpoint:
        """Add a snapshot to the batch; it is durable once the batch is committed; see ``take``."""
        from holdfast.snapshot.sandbox_checkpoint import SandboxCheckpoint

        taken = self.take(
            batch,
            sandbox_id=sandbox_id,
            plan_id=plan_id,
            phase=phase,
            path=path,
            metadata=metadata,
            previous_state=previous_state,
            thorough=thorough,
        )
        return SandboxCheckpoint.model_validate(taken.model_dump())

    def take(
        self,
        batch: Batch,
        *,
        sandbox_id: str,
        plan_id: str,
        phase: Phase,
        path: Path,
        metadata: dict[str, Any],
        previous_state: str | None = None,
        thorough: bool = False,
    ) -> TakenSnapshot:
        """Add a snapshot to the batch; ``thorough``: scan everything, whatever the kernel reported."""
        index, sandbox = self.indexes.of(path), _sandbox_at(path)
        batch.count_for(sandbox)
        state = self._refreshed(index, batch, thorough=thorough)
        is_new = state.hex() != previous_state
        checkpoint = TakenSnapshot(
            checkpoint_id=new_id(),
            sandbox_id=sandbox_id,
            plan_id=plan_id,
            phase=phase,
            created_at=now(),
            metadata=metadata,
            snapshot_path=str(path),
            state_hash=state.hex(),
            size_bytes=batch.unnamed_bytes(sandbox) if is_new else 0,
            unheld=_unheld(index),
        )
        if is_new:
            batch.name(sandbox, checkpoint.size_bytes)
            in_catalogue = checkpoint.model_copy(
                update={"snapshot_path": relative_to_home(str(path), self.objects.path.parent)}
            )
            batch.catalogue(checkpoint.checkpoint_id, sandbox_id, state, in_catalogue.to_json())
        return checkpoint

    def rollback_to(
        self, checkpoint: SandboxCheckpoint, *, aside: Path | None = None
    ) -> tuple[list[Difference], Restored]:
        """Restore the sandbox to that checkpoint; see ``restore``."""
        path = Path(checkpoint.snapshot_path)
        known = checkpoint if checkpoint.state_hash else self.get_checkpoint(checkpoint.checkpoint_id)
        unheld = {each.path for each in known.unheld}
        return self.restore(path, known.state_hash, aside=aside or aside_of(path), unheld=unheld)

    def restore(
        self, path: Path, state_hash: str, *, aside: Path, unheld: Collection[str] = (), name: str | None = None
    ) -> tuple[list[Difference], Restored]:
        """Restore the tree at ``path`` to exactly that state, and return what was different.

        All content is checked before anything is touched. ``unheld``: paths that the snapshot could not hold; if one
        can be read now, it is set aside, never deleted. ``name``: what the tree is called in progress reports.
        """
        index = self.indexes.of(path)
        index.name = name or path.name
        options = RestoreOptions(index.name, aside, lambda: self._stagings.staging_for(path))
        with self._storing_from(path) as batch:
            restoration = self._restoration(index, batch, state_hash)
            try:
                plan, restored = restoration.restore(options, unheld)
                batch.commit()
            finally:
                self._clean_up(path)
        if not plan.changes_anything:
            return [], restored
        return [difference for difference in plan.differences if difference.path], restored

    def unstored(self, path: Path) -> UnstoredTree:
        """The tree at ``path``, to be compared and restored without storing its content."""
        return UnstoredTree(path, self.objects)

    def restore_unstored(self, path: Path, state_hash: str, *, aside: Path, unheld: Collection[str]) -> Restored:
        """Restore the tree without storing its present content, which is deleted first; see ``restore``."""
        self._stagings.remove(path)
        self._stagings.wait()  # the files in it take space
        self.indexes.forget(path)
        with self.storing():
            return self.unstored(path).restore(state_hash, aside, unheld)

    def _clean_up(self, path: Path) -> None:
        """Remove the staging directory, but keep it while the sandbox is watched: the next restore may come soon."""
        tracker = self.trackers.find(path)
        if tracker is None:
            self._stagings.remove(path)
        elif (cleaning := self._stagings.cleaning(path)) is not None:
            tracker.run_soon(cleaning)

    def check(self, path: Path, state_hash: str) -> None:
        """Refuse if content that a restore to that state needs is missing or damaged; the tree is not touched."""
        index = self.indexes.of(path)
        with self._storing_from(path) as batch:
            self._restoration(index, batch, state_hash).check()
            self.looks.note(path)

    def ensure_recoverable(
        self, path: Path, left: str, target: str | None, store_again: Callable[[], object] | None = None
    ) -> None:
        """Refuse if the tree could not be restored to its present state ``left`` after it has become ``target``.

        Damaged content is stored again from the tree, which still has it; ``store_again`` does that if the tree is not
        a sandbox.
        """
        stored_again: set[bytes] = set()
        with self.storing():  # otherwise content could be collected between storing it again and checking it
            while bad := unrecoverable_objects(self.objects, self.reader, left, target, path.name):
                if not bad.isdisjoint(stored_again):
                    what = f"Saved content {min(bad).hex()[:16]} in {self.objects.path.name}"
                    raise ContentError(
                        f"{what} is damaged and cannot be stored again: the present files in {path} would be lost.",
                        hint="Nothing was changed. Copy the files you need elsewhere; `holdfast doctor` shows what "
                        "else is affected.",
                    )
                stored_again |= bad
                self.objects.holding.note_damage_now()
                if store_again is None:
                    self.state_of(path)
                else:
                    store_again()

    def in_the_way(self, path: Path, state_hash: str, unheld: Collection[str] = ()) -> list[Path]:
        """The paths that ``restore`` would set aside; the tree is not touched."""
        index = self.indexes.of(path)
        with self._storing_from(path) as batch:
            present = self._refreshed(index, batch)
            batch.commit()
            states = self.reader.state(present.hex()), self.reader.state(state_hash)
            found = plan_restore(self.reader, *states, list(index.known.unheld), unheld).in_the_way
            return [path / os.fsdecode(each) for each in found]

    def state_of(self, path: Path, *, thorough: bool = True, limit_bytes: int | None = None) -> str:
        """The hash of the present state; its content is stored, but no record names it."""
        with self._storing_from(path, limit_bytes) as batch:
            index = self.indexes.of(path)
            state = self._refreshed(index, batch, thorough=thorough)
            batch.commit()
            return state.hex()

    def list_checkpoints(self, sandbox_id: str) -> tuple[SandboxCheckpoint, ...]:
        """All recorded snapshots, oldest first, then those that only the content store knows."""
        recorded = self.records.of_sandbox(sandbox_id) if self.records else ()
        found = {each.checkpoint_id: each for each in recorded}
        for each in map(self._listed, self.objects.catalogue.records_of(sandbox_id)):
            found.setdefault(each.checkpoint_id, each)
        return tuple(found.values())

    def delete_checkpoint(self, *checkpoint_ids: str) -> None:
        """Delete these snapshots; a collection removes their content if nothing else needs it."""
        self.objects.catalogue.delete(checkpoint_ids)

    def disown_unrecorded(self, sandbox_id: str, path: Path, is_recorded: Callable[[str], bool]) -> None:
        """Delete the last snapshot if its process died before it was recorded; its content counts with the next one."""
        last = self.objects.catalogue.latest(sandbox_id)
        if last is None or is_recorded(last[0]):
            return
        try:
            size_bytes = max(0, int(json.loads(last[1])["size_bytes"]))
        except (ValueError, TypeError, KeyError):
            size_bytes = 0  # the record is damaged; only a count is lost with it
        self.objects.catalogue.disown(last[0], _sandbox_at(path), size_bytes)

    def get_checkpoint(self, checkpoint_id: str) -> SandboxCheckpoint:
        recorded = self.records.find(checkpoint_id) if self.records else None
        if recorded is not None:
            return recorded
        text = self.objects.catalogue.find(checkpoint_id)
        if text is None:
            hint = "List them with `holdfast checkpoint list`."
            raise CheckpointNotFoundError(f"There is no checkpoint {checkpoint_id}.", hint=hint)
        return self._listed(text)

    def _listed(self, text: str) -> SandboxCheckpoint:
        """A snapshot from the catalogue, with the path that its sandbox has in this home."""
        from holdfast.snapshot.sandbox_checkpoint import SandboxCheckpoint

        found = SandboxCheckpoint.from_json(text)
        path = in_home(found.snapshot_path, self.objects.path.parent, found.plan_id)
        return found.model_copy(update={"snapshot_path": path})

    def collect(self, claims: Claims) -> int:
        """Free the content that the records do not need; returns the bytes freed.

        Refuses, and frees nothing, if what is needed has to be read and cannot be: what it needs is unknown then.
        """
        return collect(self.objects, self.reader, claims)

    def remember(self) -> None:
        """Keep what is known of the sandboxes for the next process."""
        self._stagings.wait()
        self.indexes.save()

    def _refreshed(self, index: TreeIndex, batch: Batch, *, thorough: bool = False) -> bytes:
        """The present state hash; ``thorough``: scan everything, whatever is known since the last scan."""
        tracker = self.trackers.find(index.root)
        report = tracker.report() if tracker else self.looks.report(index.root)
        state = refreshed(index, batch, report, thorough=thorough)
        self.looks.note(index.root)
        return state

    def _restoration(self, index: TreeIndex, batch: Batch, state_hash: str) -> Restoration:
        tracker, report = self.trackers.find(index.root), self.looks.report(index.root)
        return Restoration(index, self.reader, batch, tracker, state_hash, report)


@cache
def _sandbox_at(path: Path) -> str:
    """The name under which a sandbox's content is counted; moving the home does not change it."""
    return f"{path.parent.name}/{path.name}" if is_ours(path) else str(path)


def _unheld(index: TreeIndex) -> tuple[Unheld, ...]:
    return tuple(Unheld(path=unheld_name(path), reason=reason) for path, reason in sorted(index.known.unheld.items()))
