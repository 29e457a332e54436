"""Sinks that count the content they pass on, if progress is reported."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.content.batch import Batch
from holdfast.snapshot.scan.entries import Sink
from holdfast.system.progress import UNWATCHED, Metering


class CountedSink:
    def __init__(self, sink: Sink, meter: Metering) -> None:
        self._sink, self._meter = sink, meter

    def add_named(self, digest: bytes, content: bytes) -> None:
        self._meter.advance(size_bytes=len(content))
        self._sink.add_named(digest, content)


class CountedBatch(CountedSink):
    def __init__(self, batch: Batch, meter: Metering) -> None:
        super().__init__(batch, meter)
        self._batch = batch

    def add_packed(self, objects: Sequence[tuple[bytes, int, bytes]]) -> None:
        self._meter.advance(size_bytes=sum(size for _, size, _ in objects))
        self._batch.add_packed(objects)


def counted_sink(sink: Sink, meter: Metering) -> Sink:
    return sink if meter is UNWATCHED else CountedSink(sink, meter)


def counted_batch(batch: Batch, meter: Metering) -> Batch | CountedBatch:
    return batch if meter is UNWATCHED else CountedBatch(batch, meter)
