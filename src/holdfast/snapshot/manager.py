"""CheckpointManager: takes snapshots of sandboxes and brings them back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.errors import NotFoundError, SandboxError
from holdfast.model import Phase, SandboxCheckpoint, Unheld, new_id, now
from holdfast.snapshot.difference import Difference, StateReader
from holdfast.snapshot.format import State
from holdfast.snapshot.index import TreeIndex
from holdfast.snapshot.objects import Batch, ObjectStore
from holdfast.snapshot.restore import Restored, carry_out, check_content, plan_restore


class CheckpointManager:
    """Knows sandboxes by their path; what it knows of each survives the process in ``caches``."""

    def __init__(self, objects: ObjectStore, caches: Path) -> None:
        self.objects = objects
        self.reader = StateReader(objects)
        self._caches = caches
        self._indexes: dict[Path, TreeIndex] = {}

    @contextmanager
    def taking(self) -> Iterator[Batch]:
        """A moment at which snapshots are taken together; their content stays until the records name it."""
        with self.objects.holding():
            yield self.objects.batch()

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
    ) -> SandboxCheckpoint:
        """Take a snapshot into the batch; durable once the batch is committed."""
        index = self._index(path)
        before_bytes = batch.added_bytes
        state = self._refreshed(index, batch)
        checkpoint = SandboxCheckpoint(
            checkpoint_id=new_id(),
            sandbox_id=sandbox_id,
            plan_id=plan_id,
            phase=phase,
            created_at=now(),
            metadata=metadata,
            snapshot_path=str(path),
            state_hash=state.hex(),
            size_bytes=batch.added_bytes - before_bytes,
            unheld=_unheld(index),
        )
        if checkpoint.state_hash != previous_state:
            batch.catalogue(checkpoint.checkpoint_id, sandbox_id, state, checkpoint.model_dump_json())
        return checkpoint

    def rollback_to(
        self, path: Path, state_hash: str, *, aside: Path, before: Callable[[], None] | None = None
    ) -> tuple[list[Difference], Restored]:
        """Turn the tree at ``path`` into that state, exactly, and say what was different.

        ``before`` is called when all content was found sound and nothing has been touched yet.
        """
        index = self._index(path)
        with self.taking() as batch:
            present = self._refreshed(index, batch)
            batch.commit()
            target = self.reader.state(state_hash)
            plan = plan_restore(self.reader, self.reader.state(present.hex()), target, list(index.unheld))
            check_content(self.reader, plan)
            if before is not None:
                before()
            if present.hex() == state_hash and not plan.in_the_way:
                return [], Restored()
            try:
                restored = carry_out(plan, self.reader, path, aside)
            except OSError as error:
                index.forget()
                raise SandboxError(
                    f"Restoring {path} failed: {error.strerror or error}.",
                    hint="Free the cause and run the same command again; it goes on where it stopped.",
                ) from error
            found = index.refresh(batch, restored.touched)
            if found.hex() != state_hash:
                index.forget()
                raise SandboxError(
                    f"{path} is not exactly the saved state after restoring it: something changed it meanwhile.",
                    hint="Stop the program that works in the sandbox and roll back again.",
                )
        return [difference for difference in plan.differences if difference.path], restored

    def check(self, path: Path, state_hash: str) -> None:
        """Refuse if content that a restore to that state needs is missing or damaged; touches nothing."""
        index = self._index(path)
        with self.taking() as batch:
            present = self._refreshed(index, batch)
            batch.commit()
            target = self.reader.state(state_hash)
            check_content(self.reader, plan_restore(self.reader, self.reader.state(present.hex()), target, ()))

    def state_of(self, path: Path) -> str:
        """The state hash of what is there now; its content is stored, but nothing names it."""
        with self.taking() as batch:
            state = self._refreshed(self._index(path), batch)
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
            raise NotFoundError(f"There is no snapshot {checkpoint_id}.", hint="List them with `holdfast checkpoint list`.")
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
                hint="It was removed by something else. Its checkpoints are safe: `holdfast plan execute` makes it anew.",
            )
        index = self._indexes.get(path)
        if index is None:
            index = self._indexes[path] = TreeIndex(path)
            index.load(self._cache_file(path))
        return index

    def _refreshed(self, index: TreeIndex, batch: Batch) -> bytes:
        try:
            return index.refresh(batch)
        except OSError as error:
            raise SandboxError(
                f"Reading {index.root} failed: {error.strerror or error}.", hint="Free the cause and try again."
            ) from error

    def _cache_file(self, path: Path) -> Path:
        return self._caches / f"{path.parent.name}-{path.name}.index"


def _unheld(index: TreeIndex) -> tuple[Unheld, ...]:
    return tuple(Unheld(path=os.fsdecode(path), reason=reason) for path, reason in sorted(index.unheld.items()))
