"""Content on its way to whoever takes it, counted by a meter where somebody watches."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.content.batch import Batch
from holdfast.snapshot.scan.entries import Taker
from holdfast.system.progress import UNWATCHED, Metering


class CountedTaker:
    def __init__(self, taker: Taker, meter: Metering) -> None:
        self._taker, self._meter = taker, meter

    def add_named(self, digest: bytes, content: bytes) -> None:
        self._meter.advance(size_bytes=len(content))
        self._taker.add_named(digest, content)


class CountedBatch(CountedTaker):
    def __init__(self, batch: Batch, meter: Metering) -> None:
        super().__init__(batch, meter)
        self._batch = batch

    def add_packed(self, objects: Sequence[tuple[bytes, int, bytes]]) -> None:
        self._meter.advance(size_bytes=sum(size for _, size, _ in objects))
        self._batch.add_packed(objects)


def counted_taker(taker: Taker, meter: Metering) -> Taker:
    return taker if meter is UNWATCHED else CountedTaker(taker, meter)


def counted_batch(batch: Batch, meter: Metering) -> Batch | CountedBatch:
    return batch if meter is UNWATCHED else CountedBatch(batch, meter)
