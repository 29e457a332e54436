"""Garbage: notes content that is no longer needed, and frees it once enough has gathered."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from holdfast.checkpoints.claims import RecordClaims
from holdfast.checkpoints.releasing import NotReleased, Release
from holdfast.errors import ContentError, DamagedRecordError, DatabaseError, DatabaseFullError, HoldfastError
from holdfast.model import Checkpoint
from holdfast.sandbox.spares import Spares
from holdfast.snapshot.manager import CheckpointManager

_MUCH_BYTES, _MANY_OBJECTS = 4 << 20, 5_000
"""If so much was given up, or so many were added, a collection may take longer than a person wants to wait."""


class Garbage:
    """Frees content of the store for one service."""

    def __init__(self, manager: CheckpointManager, release: Release, spares: Spares | None) -> None:
        self._manager, self._release, self._spares = manager, release, spares
        self.unfreed: str | None = None
        """Why the last collection could not free anything, as a message for a person; None if it could."""

    def note_given_up(self, gone: Sequence[Checkpoint]) -> None:
        """Note deleted checkpoints before the deletion is committed.

        Dies in between: the next collection comes too early, which does no harm; noted later, it might never come.
        """
        if gone:
            size_bytes = sum(checkpoint.size_bytes for checkpoint in gone)
            with suppress(DatabaseFullError):  # on a full disk, freeing space must not fail because of a note
                self._manager.objects.tally.note_given_up(len(gone), size_bytes)

    def forget(self, pruned: Sequence[Checkpoint]) -> None:
        """Forget pruned snapshots, and free their content once enough has gathered.

        A collection that could free nothing may have read every directory that is kept, so it is not tried again.
        """
        if not pruned:
            return
        with suppress(DatabaseFullError):  # the catalogue then lists these snapshots until their states are collected
            self._manager.objects.catalogue.delete_soon(checkpoint.checkpoint_id for checkpoint in pruned)
        if self.unfreed is None and self._manager.objects.tally.is_worth_collecting():
            self.collect()

    def give_up_spares(self) -> None:
        """The next collection then frees what is kept for them."""
        if self._spares is not None:
            self._spares.give_up_all()

    def takes_long(self, given_up_bytes: int) -> bool:
        """Whether a collection may take long, after this much was given up. It also counts what others have added."""
        if given_up_bytes >= _MUCH_BYTES:
            return True
        try:
            return self._manager.objects.counts.added() > _MANY_OBJECTS
        except (ContentError, DatabaseError):
            return False  # the collection says what is wrong

    def frees_much(self) -> bool:
        """Whether a collection may free much. If not, what was given up goes with the next one that does."""
        try:
            return self._manager.objects.tally.given_up_bytes() >= _MUCH_BYTES
        except (ContentError, DatabaseError):
            return True  # the collection says what is wrong

    def collect(self, gone: Sequence[Checkpoint] = ()) -> int:
        """Forget the snapshots of deleted checkpoints and free the content that no record needs; the bytes freed.

        Nothing is freed while a kept state cannot be read in full, because it is then unknown what it needs, or while
        some records that content is kept for cannot be read. The caller goes on in these cases; ``unfreed`` says why.
        """
        self.unfreed = None
        try:
            if gone:
                self._manager.delete_checkpoint(*(checkpoint.checkpoint_id for checkpoint in gone))
            with self._release.records() as stores:
                spared = self._spares.states() if self._spares is not None else set()
                return self._manager.collect(RecordClaims(self._manager.objects, self._release, stores, spared))
        except (NotReleased, ContentError, DamagedRecordError, DatabaseFullError) as error:
            # Other processes would fail as well, perhaps after reading every directory that is kept.
            with suppress(HoldfastError):
                self._manager.objects.tally.postpone()
            self.unfreed = _why_nothing_was_freed(error)
            return 0


def _why_nothing_was_freed(error: HoldfastError) -> str:
    if isinstance(error, NotReleased):
        return f"{error.message} {error.hint}"
    if isinstance(error, ContentError):
        return (
            f"No saved content was freed, because something that is kept cannot be read in full: {error.message} "
            "`holdfast checkpoint verify` names the checkpoints; once they are deleted, content is freed again."
        )
    if isinstance(error, DamagedRecordError):
        return (
            "No saved content was freed, because a record that may need some of it is damaged: "
            f"{error.message} `holdfast doctor` says what can be done about it."
        )
    return (
        "The saved content that was given up still takes its space: the disk is too full to give it back. "
        "Delete a plan or something else on that disk; the next prune then gives it back."
    )
