"""New content on its way into the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from holdfast.content.catalogue import Snapshot
from holdfast.content.format import digest_of
from holdfast.content.parcels import MOST_BYTES, MOST_OBJECTS, Parcel, Row
from holdfast.content.store import ObjectStore
from holdfast.errors import QuotaError

_FLUSH_BYTES = 32 << 20
"""New content is committed in portions of this size: the memory in use and the write-ahead log stay bounded."""
_WAITING_BYTES = 4 << 20
_MOST_WAITING = 500


class Batch:
    """Content that is durable after ``commit``.

    It waits uncompressed until there is enough of it to ask the store in one question which of it is new.
    """

    def __init__(self, store: ObjectStore, limit_bytes: int | None, sandbox: str | None = None) -> None:
        self._store = store
        self.finding = store.damage.finding
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
        self._added_bytes = 0
        self._sandbox = sandbox
        self._unnamed: defaultdict[str, int] = defaultdict(int)
        """Bytes by sandbox, to be noted with what is stored next."""

    def comes_from(self, sandbox: str) -> None:
        """What comes from now on was found there, and counts as unnamed until ``name`` is called."""
        self._pack()
        self._sandbox = sandbox

    def add(self, content: bytes) -> bytes:
        digest = digest_of(content)
        self.add_named(digest, content)
        return digest

    def add_named(self, digest: bytes, content: bytes) -> None:
        """For content whose digest is known."""
        if digest not in self._waiting and not self._is_queued(digest):
            self._waiting[digest] = content
            self._waiting_bytes += len(content)
            if self._waiting_bytes >= _WAITING_BYTES or len(self._waiting) >= _MOST_WAITING:
                self._pack()

    def _is_queued(self, digest: bytes) -> bool:
        return digest in self._rows or digest in self._parcelled

    def has(self, digest: bytes) -> bool:
        return digest in self._waiting or self._is_queued(digest) or self._store.surely_has(digest)

    def add_packed(self, objects: Sequence[Row]) -> None:
        """Objects that another process has read and packed."""
        known = self._store.known_among([digest for digest, _, _ in objects])
        for digest, size, data in objects:
            if digest not in known and not self._is_queued(digest) and digest not in self._waiting:
                self._queue(digest, size, data)

    def begin_parcel(self) -> None:
        """What comes from now on is meant for one."""
        self._pack()

    def end_parcel(self, state: bytes) -> None:
        """Write what came as one, if it is little, without asking which of it is known.

        For changes that the kernel reported, nearly all of which are new: what is known nevertheless is dropped when
        the parcel is unpacked. What is stored anew because it was damaged gets its row at once.
        """
        if state in self._store.holding.sure:
            self._waiting, self._waiting_bytes = {}, 0  # so all that the state needs is there
            return
        is_little = self._waiting_bytes <= MOST_BYTES and len(self._waiting) <= MOST_OBJECTS
        # Packed together content takes less than in rows of its own, and a limit counts those.
        is_limited = self._limit_bytes is not None
        if self._waiting and is_little and not is_limited and not self._store.damage.includes_any(self._waiting):
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
                f"Saved content would take more than the {self._limit_bytes} bytes it may "
                "(`sandbox.checkpoint.max-bytes`), and nothing more can be pruned.",
                hint="Raise the limit, delete plans that are done, or prune other plans' checkpoints. Then go on.",
            )

    def unnamed_bytes(self, sandbox: str) -> int:
        """How much that no checkpoint names yet was stored of that sandbox, now and by earlier scans."""
        self._pack()
        return self._unnamed[sandbox] + self._store.tally.unnamed_bytes(sandbox)

    def name(self, sandbox: str, size_bytes: int) -> None:
        """So much of it is named by a snapshot that is catalogued in this batch."""
        self._unnamed[sandbox] -= size_bytes

    def catalogue(self, checkpoint_id: str, sandbox_id: str, state: bytes, record: str) -> None:
        self._snapshots.append((checkpoint_id, sandbox_id, state, record))

    def when_stored(self, action: Callable[[], None]) -> None:
        """Do this once all that has come so far is in the store; never, if the batch is given up."""
        self._when_stored.append(action)

    def commit(self) -> None:
        if self._waiting:
            self._pack()
        if self._rows or self._parcels or self._snapshots:
            self._flush()
        actions, self._when_stored = self._when_stored, []
        for action in actions:
            action()

    def _flush(self) -> None:
        unnamed = {sandbox: size_bytes for sandbox, size_bytes in self._unnamed.items() if size_bytes}
        self._store.insert(list(self._rows.values()), self._parcels, self._snapshots, unnamed)
        self._rows, self._rows_bytes, self._parcels, self._snapshots = {}, 0, [], []
        self._unnamed.clear()
        self._parcelled = set()


class Storing:
    """Holds the store while content is added: what the batch stores stays until the records name it."""

    def __init__(self, store: ObjectStore, limit_bytes: int | None, sandbox: str | None = None) -> None:
        self._store, self._limit_bytes, self._sandbox = store, limit_bytes, sandbox

    def __enter__(self) -> Batch:
        self._store.holding.hold()
        try:
            return Batch(self._store, self._limit_bytes, self._sandbox)
        except BaseException:
            self._store.holding.release()
            raise

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._store.holding.release()
        if error is None and self._store.has_full_parcels:
            self._store.unpack_parcels()
