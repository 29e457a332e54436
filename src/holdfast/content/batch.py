"""Collects new content and writes it to the store in portions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from holdfast.content.catalogue import Snapshot
from holdfast.content.format import digest_of
from holdfast.content.parcels import MOST_BYTES, MOST_OBJECTS, Parcel, Row
from holdfast.content.store import ObjectStore
from holdfast.errors import QuotaError

_FLUSH_BYTES = 32 << 20
"""New content is committed in portions of this size, so that memory use and the write-ahead log stay bounded."""
_WAITING_BYTES = 4 << 20
_MOST_WAITING = 500


class Batch:
    """Content that is durable after ``commit``.

    It waits uncompressed until one query can ask the store about many objects which of them are new.
    """

    def __init__(self, store: ObjectStore, limit_bytes: int | None, sandbox: str | None = None) -> None:
        self._store = store
        self.finding = store.damage.finding
        self.generation = store.holding.generation
        self._when_stored: list[Callable[[], None]] = []
        self._limit_bytes = limit_bytes
        self._room_bytes = 0 if limit_bytes is None else limit_bytes - store.content_bytes()
        self._waiting: dict[bytes, bytes] = {}
        self._waiting_bytes = 0
        self._rows: dict[bytes, Row] = {}
        self._rows_bytes = 0
        self._parcels: list[Parcel] = []
        self._parcelled: set[bytes] = set()
        self._snapshots: list[Snapshot] = []
        self._states: set[bytes] = set()
        """States that records may be about to name."""
        self._added_bytes = 0
        self._sandbox = sandbox
        self._unnamed: defaultdict[str, int] = defaultdict(int)
        """Bytes by sandbox, written with the next portion."""

    def count_for(self, sandbox: str) -> None:
        """Count the content that follows for this sandbox, as unnamed until ``name`` is called."""
        self._pack()
        self._sandbox = sandbox

    def add(self, content: bytes) -> bytes:
        digest = digest_of(content)
        self.add_named(digest, content)
        return digest

    def add_state(self, content: bytes) -> bytes:
        """Add a state that records may be about to name."""
        digest = self.add(content)
        self._states.add(digest)
        return digest

    def add_named(self, digest: bytes, content: bytes) -> None:
        """Add content whose digest is known."""
        if digest not in self._waiting and not self._is_queued(digest):
            self._waiting[digest] = content
            self._waiting_bytes += len(content)
            if self._waiting_bytes >= _WAITING_BYTES or len(self._waiting) >= _MOST_WAITING:
                self._pack()

    def _is_queued(self, digest: bytes) -> bool:
        return digest in self._rows or digest in self._parcelled

    def has_state(self, state: bytes) -> bool:
        is_added = state in self._states and (state in self._waiting or self._is_queued(state))
        return is_added or self._store.has_state_while_held(state)

    def add_packed(self, objects: Sequence[Row]) -> None:
        """Add objects that another process has read and packed."""
        new = self.new_among([digest for digest, _, _ in objects])
        self.add_new([each for each in objects if each[0] in new])

    def new_among(self, digests: Iterable[bytes]) -> set[bytes]:
        """Those that are not stored yet: only their content has to be packed and added. Any thread may ask."""
        asked = {digest for digest in digests if digest not in self._waiting and not self._is_queued(digest)}
        return asked - self._store.known_among(list(asked))

    def add_new(self, objects: Iterable[Row]) -> None:
        """Add packed objects that were among the new ones."""
        for digest, size, data in objects:
            if digest not in self._waiting and not self._is_queued(digest):
                self._queue(digest, size, data)

    def begin_parcel(self) -> None:
        """Empty the queue, so that only the content that follows goes into the parcel."""
        self._pack()

    def end_parcel(self, state: bytes) -> None:
        """Make one parcel of the content since ``begin_parcel``, if it is small, without asking which of it is known.

        Used for changes that the kernel reported. Nearly all of their content is new; the rest is dropped when the
        parcel is unpacked. Content that replaces damaged content gets its row at once.
        """
        if state in self._store.holding.present:
            self._waiting, self._waiting_bytes = {}, 0  # all that the state needs is stored
            return
        is_small = self._waiting_bytes <= MOST_BYTES and len(self._waiting) <= MOST_OBJECTS
        # Content takes less space in a parcel than in rows, and the limit counts rows.
        is_limited = self._limit_bytes is not None
        if self._waiting and is_small and not is_limited and not self._store.damage.includes_any(self._waiting):
            parcel = self._store.parcels.pack(self._waiting)
            self._parcels.append(parcel)
            self._parcelled.update(self._waiting)
            self._waiting, self._waiting_bytes = {}, 0
            self._count(len(parcel[1]))

    def _pack(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        known = self._store.known_among(list(waiting))
        for digest, content in waiting.items():
            if digest not in known:
                self._queue(digest, len(content), self._store.packed(content))

    def _queue(self, digest: bytes, size: int, data: bytes) -> None:
        self._rows[digest] = (digest, size, data)
        self._rows_bytes += len(data)
        self._count(len(data))
        if self._rows_bytes >= _FLUSH_BYTES:
            self._flush()

    def _count(self, size_bytes: int) -> None:
        self._added_bytes += size_bytes
        if self._sandbox is not None:
            self._unnamed[self._sandbox] += size_bytes
        if self._limit_bytes is not None and self._added_bytes > self._room_bytes:
            raise QuotaError(
                f"Saved content would exceed its limit of {self._limit_bytes} bytes "
                "(`sandbox.checkpoint.max-bytes`), and nothing more can be pruned.",
                hint="Raise the limit, delete plans that are done, or prune other plans' checkpoints. Then go on.",
            )

    def unnamed_bytes(self, sandbox: str) -> int:
        """How much content of that sandbox, from this and from earlier scans, no checkpoint names yet."""
        self._pack()
        return self._unnamed[sandbox] + self._store.tally.unnamed_bytes(sandbox)

    def name(self, sandbox: str, size_bytes: int) -> None:
        """Note that a snapshot catalogued in this batch names this many bytes of the sandbox."""
        self._unnamed[sandbox] -= size_bytes

    def catalogue(self, checkpoint_id: str, sandbox_id: str, state: bytes, record: str) -> None:
        self._snapshots.append((checkpoint_id, sandbox_id, state, record))
        self._states.add(state)

    def when_stored(self, action: Callable[[], None]) -> None:
        """Call ``action`` once all content added so far is stored; never, if the batch is given up."""
        self._when_stored.append(action)

    def commit(self) -> None:
        self._pack()
        self._states = {state for state in self._states if not self._is_listed(state)}
        if self._rows or self._parcels or self._snapshots or self._states:
            self._flush()
        actions, self._when_stored = self._when_stored, []
        for action in actions:
            action()

    def _is_listed(self, state: bytes) -> bool:
        """Whether the store knows it as a state; new content is not known yet."""
        return not self._is_queued(state) and self._store.counts.has_state(state)

    def _flush(self) -> None:
        unnamed = {sandbox: size_bytes for sandbox, size_bytes in self._unnamed.items() if size_bytes}
        self._store.insert(list(self._rows.values()), self._parcels, self._snapshots, unnamed, self._states)
        self._rows, self._rows_bytes, self._parcels, self._snapshots = {}, 0, [], []
        self._states = set()
        self._unnamed.clear()
        self._parcelled = set()


@contextmanager
def storing(store: ObjectStore, limit_bytes: int | None, sandbox: str | None = None) -> Iterator[Batch]:
    """Hold the store while content is added: what the batch stores stays until the records name it."""
    store.holding.hold()
    try:
        yield Batch(store, limit_bytes, sandbox)
    finally:
        store.holding.release()
    if store.has_full_parcels:
        store.unpack_parcels()
