"""CheckpointManager: takes snapshots of sandboxes and brings them back."""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.errors import NotFoundError, SandboxError
from holdfast.model import Phase, SandboxCheckpoint, Unheld, new_id, now
from holdfast.snapshot.changes import Changes, ChangeTracker
from holdfast.snapshot.descent import join
from holdfast.snapshot.difference import Difference, StateReader
from holdfast.snapshot.directories import RecentDirectories
from holdfast.snapshot.format import State
from holdfast.snapshot.index import TreeIndex
from holdfast.snapshot.objects import Batch, ObjectStore
from holdfast.snapshot.restore import (
    Restored,
    RestorePlan,
    Workshop,
    carry_out,
    check_content,
    plan_restore,
    unheld_name,
)


class CheckpointManager:
    """Knows sandboxes by their path; what it knows of each survives the process in ``caches``."""

    def __init__(self, objects: ObjectStore, caches: Path) -> None:
        self.objects = objects
        self._recent = RecentDirectories()
        self.reader = StateReader(objects, self._recent)
        self._caches = caches
        self._indexes: dict[Path, TreeIndex] = {}
        self._trackers: dict[Path, ChangeTracker] = {}
        self._cleaners: list[threading.Thread] = []
        self._swept: set[Path] = set()

    @contextmanager
    def watching(self, paths: Iterable[Path]) -> Iterator[None]:
        """While this lasts the kernel tells what changes in these sandboxes, and a checkpoint looks only at that."""
        started = []
        try:
            for path in paths:
                tracker = ChangeTracker(path)
                if tracker.start():
                    self._trackers[path] = tracker
                    started.append(path)
            yield
        finally:
            for path in started:
                self._trackers.pop(path).stop()

    @contextmanager
    def taking(self, limit_bytes: int | None = None) -> Iterator[Batch]:
        """A moment at which snapshots are taken together; their content stays until the records name it."""
        with self.objects.holding():
            yield self.objects.batch(limit_bytes)

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
        """Take a snapshot into the batch; durable once the batch is committed.

        ``thorough``: look at every file, whatever the kernel told.
        """
        index = self._index(path)
        before_bytes = batch.added_bytes()
        state = self._refreshed(index, batch, thorough=thorough)
        checkpoint = SandboxCheckpoint(
            checkpoint_id=new_id(),
            sandbox_id=sandbox_id,
            plan_id=plan_id,
            phase=phase,
            created_at=now(),
            metadata=metadata,
            snapshot_path=str(path),
            state_hash=state.hex(),
            size_bytes=batch.added_bytes() - before_bytes,
            unheld=_unheld(index),
        )
        if checkpoint.state_hash != previous_state:
            batch.catalogue(checkpoint.checkpoint_id, sandbox_id, state, checkpoint.model_dump_json())
        return checkpoint

    def rollback_to(
        self, path: Path, state_hash: str, *, aside: Path, unheld: Collection[str] = ()
    ) -> tuple[list[Difference], Restored]:
        """Turn the tree at ``path`` into that state, exactly, and say what was different.

        All content is found sound before anything is touched. ``unheld`` is what the snapshot lists as not held: it is
        set aside if it can be read now, and never deleted.
        """
        index = self._index(path)
        with self.taking() as batch:
            present = self._refreshed(index, batch)
            batch.commit()
            target = self.reader.state(state_hash)
            plan = plan_restore(self.reader, self.reader.state(present.hex()), target, list(index.unheld), unheld)
            contents = check_content(self.reader, plan)
            if present.hex() == state_hash and not plan.in_the_way:
                return [], Restored()
            with self._staging(path) as staging:
                try:
                    restored = carry_out(plan, self.reader, path, Workshop(aside, staging), contents)
                except OSError as error:
                    index.forget()
                    raise SandboxError(
                        f"Restoring {path} failed: {error.strerror or error}.",
                        hint="Free the cause and run the same command again; it goes on where it stopped.",
                    ) from error
                self._verify(index, batch, plan, restored, state_hash, target)
        return [difference for difference in plan.differences if difference.path], restored

    def _verify(
        self, index: TreeIndex, batch: Batch, plan: RestorePlan, restored: Restored, state_hash: str, target: State
    ) -> None:
        """Look at everything the restore touched; the tree must be that state and nothing else."""
        changes = self._with_own_changes(index.root, restored)
        if _are_only(changes, restored.touched) and index.adopt(
            plan.differences, restored.touched, target, bytes.fromhex(state_hash)
        ):
            return
        if index.refresh(batch, changes).hex() != state_hash:
            index.forget()
            raise SandboxError(
                f"{index.root} is not exactly the saved state after restoring it: something changed it meanwhile.",
                hint="Stop the program that works in the sandbox and roll back again.",
            )

    @contextmanager
    def _staging(self, path: Path) -> Iterator[Path]:
        """A directory beside the sandbox to make files in; what is left in it goes while we do other things."""
        if path not in self._swept:
            self._swept.add(path)
            for leftover in path.parent.glob(f".staging-{path.name}-*"):
                shutil.rmtree(leftover, ignore_errors=True)
        staging = path.parent / f".staging-{path.name}-{secrets.token_hex(4)}"
        staging.mkdir(mode=0o700)
        try:
            yield staging
        finally:
            cleaner = threading.Thread(target=shutil.rmtree, args=(staging,), kwargs={"ignore_errors": True})
            cleaner.start()
            self._cleaners.append(cleaner)

    def check(self, path: Path, state_hash: str) -> None:
        """Refuse if content that a restore to that state needs is missing or damaged; touches nothing."""
        index = self._index(path)
        with self.taking() as batch:
            present = self._refreshed(index, batch)
            batch.commit()
            target = self.reader.state(state_hash)
            plan = plan_restore(self.reader, self.reader.state(present.hex()), target, ())
            check_content(self.reader, plan)

    def state_of(self, path: Path) -> str:
        """The state hash of what is there now, every file looked at; its content is stored, but nothing names it."""
        with self.taking() as batch:
            state = self._refreshed(self._index(path), batch, thorough=True)
            batch.commit()
            return state.hex()

    def list_checkpoints(self, sandbox_id: str) -> tuple[SandboxCheckpoint, ...]:
        return tuple(SandboxCheckpoint.model_validate_json(text) for text in self.objects.snapshots_of(sandbox_id))

    def delete_checkpoint(self, *checkpoint_ids: str) -> None:
        """Forget these snapshots; their content goes when it is collected and nothing else needs it."""
        self.objects.delete_snapshots(checkpoint_ids)

    def get_checkpoint(self, checkpoint_id: str) -> SandboxCheckpoint:
        text = self.objects.find_snapshot(checkpoint_id)
        if text is None:
            hint = "List them with `holdfast checkpoint list`."
            raise NotFoundError(f"There is no snapshot {checkpoint_id}.", hint=hint)
        return SandboxCheckpoint.model_validate_json(text)

    def state(self, state_hash: str) -> State:
        return self.reader.state(state_hash)

    def collect(self, referenced: Callable[[], set[str]]) -> int:
        """Free the content that none of those states needs; the bytes freed."""
        return self.objects.collect(
            lambda: self.reader.reachable(referenced()),
            lambda: {bytes.fromhex(state) for state in referenced()},
        )

    def remember(self) -> None:
        """Keep what is known of the sandboxes for the next process."""
        for cleaner in self._cleaners:
            cleaner.join()
        self._cleaners.clear()
        for path, index in self._indexes.items():
            if path.is_dir():
                index.save(self._cache_file(path))

    def forget(self, path: Path) -> None:
        """The sandbox at this path is gone or is being made anew."""
        self._indexes.pop(path, None)
        self._cache_file(path).unlink(missing_ok=True)

    def _index(self, path: Path) -> TreeIndex:
        if not path.is_dir():
            raise SandboxError(
                f"The sandbox {path} is missing.",
                hint="Something removed it. Its checkpoints are safe: `holdfast plan execute` makes it anew.",
            )
        index = self._indexes.get(path)
        if index is None:
            index = self._indexes[path] = TreeIndex(path, self._recent)
            index.load(self._cache_file(path))
        return index

    def _with_own_changes(self, path: Path, restored: Restored) -> Changes | None:
        """What a restore touched, and what the kernel told of meanwhile, which is mostly the same."""
        changes: Changes = {directory: set(names) for directory, names in restored.touched.items()}
        tracker = self._trackers.get(path)
        told = tracker.take() if tracker else {}
        if told is None:
            return None
        for directory, names in told.items():
            known = changes.setdefault(directory, set())
            changes[directory] = None if names is None or known is None else known | names
        return changes

    def _refreshed(self, index: TreeIndex, batch: Batch, *, thorough: bool = False) -> bytes:
        tracker = self._trackers.get(index.root)
        changes = tracker.take() if tracker else None
        try:
            return index.refresh(batch, None if thorough else changes)
        except OSError as error:
            raise SandboxError(
                f"Reading {index.root} failed: {error.strerror or error}.", hint="Free the cause and try again."
            ) from error

    def _cache_file(self, path: Path) -> Path:
        return self._caches / f"{path.parent.name}-{path.name}.index"


def _are_only(changes: Changes | None, touched: Mapping[bytes, set[bytes]]) -> bool:
    """Whether nothing changed but what we touched; setting what a directory is shows in its parent too."""
    return changes is not None and all(
        names is not None
        and all(name in touched.get(directory, ()) or join(directory, name) in touched for name in names)
        for directory, names in changes.items()
    )


def _unheld(index: TreeIndex) -> tuple[Unheld, ...]:
    return tuple(Unheld(path=unheld_name(path), reason=reason) for path, reason in sorted(index.unheld.items()))
