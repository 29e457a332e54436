"""The progress of long work on files, reported to a watcher a few times a second; short work is not reported.

Work that may take long asks for a meter. The watcher is set for a thread, so it is not passed through every layer
between a verb and a file. Without a watcher, or with little to do, a meter costs almost nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar

FEWEST_FILES = 1_000
FEWEST_BYTES = 64_000_000
"""Work with fewer of both is over before a person could read about it."""
_TELL_EVERY_SECONDS = 0.1
_SMOOTHED_OVER_SECONDS = 3.0
_GUESS_AFTER_SECONDS = 1.0
_GUESS_FROM_FRACTION = 0.01
_FILE_COSTS_BYTES = 100_000
"""Creating or reading a file takes about as long as this many bytes, whatever its size."""

Item = TypeVar("Item")


class Work(StrEnum):
    COPYING = "copying"
    """A sandbox is being made."""
    SAVING = "saving"
    """A snapshot is being taken."""
    CHECKING = "checking"
    """Content that is needed, or files that were or will be changed, are being checked."""
    RESTORING = "restoring"
    """A sandbox is being restored to a snapshot."""
    WRITING = "writing"
    """The real files are being changed."""
    WAITING = "waiting"
    """Another process has the real files locked; there is nothing to count."""


class Working(NamedTuple):
    """The progress of some work. The first one says that the work begins, the last one that it is over."""

    work: Work
    what: str
    """The name of the resource, or of its folder."""
    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int | None
    """None if they were not counted."""
    seconds: float
    """Since the work began."""
    seconds_left: float | None
    """None as long as there is too little to estimate it from."""
    is_over: bool = False

    @property
    def fraction(self) -> float:
        """How much of the work is done, from 0 to 1."""
        total = _cost(self.files_total, self.bytes_total or 0)
        done = _cost(self.files_done, self.bytes_done if self.bytes_total is not None else 0)
        return min(1.0, done / total) if total else 1.0


Watcher = Callable[[Working], None]
Totals = Callable[[], tuple[int, int | None]]
"""Counts the files and bytes to do; called only if there is a watcher."""

_watcher: ContextVar[Watcher | None] = ContextVar("holdfast_watcher", default=None)


@contextmanager
def watched_by(watcher: Watcher | None) -> Iterator[None]:
    """Tell ``watcher`` about all long work of this thread; None changes nothing."""
    if watcher is None:
        yield
        return
    before = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(before)


@contextmanager
def told_of_waiting(clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[str], None]]:
    """Yields a function that tells the watcher what we wait for; leaving tells it that the waiting is over."""
    watcher, began_at = _watcher.get(), clock()
    last: Working | None = None

    def tell(what: str) -> None:
        nonlocal last
        if watcher is not None:
            last = Working(Work.WAITING, what, 0, 0, 0, None, clock() - began_at, None)
            watcher(last)

    try:
        yield tell
    finally:
        if watcher is not None and last is not None:
            watcher(last._replace(seconds=clock() - began_at, is_over=True))


class Metering(Protocol):
    """Counts work; leaving its context says that the work is over, whether it succeeded or not."""

    def __enter__(self) -> Metering: ...

    def __exit__(self, *_: object) -> None: ...

    def advance(self, files: int = 0, size_bytes: int = 0) -> None: ...

    def each(self, files: Iterable[Item]) -> Iterable[Item]:
        """Yield the files one by one, and count each when it is done."""
        ...


def meter_of(work: Work, what: str, totals: Totals) -> Metering:
    """A meter for that work; it does nothing without a watcher, or with little to do."""
    watcher = _watcher.get()
    if watcher is None:
        return UNWATCHED
    files, size_bytes = totals()
    if files < FEWEST_FILES and (size_bytes or 0) < FEWEST_BYTES:
        return UNWATCHED
    return Meter(work, what, files, size_bytes, watcher)


class _Unwatched:
    def __enter__(self) -> _Unwatched:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def advance(self, files: int = 0, size_bytes: int = 0) -> None:
        pass

    def each(self, files: Iterable[Item]) -> Iterable[Item]:
        return files


UNWATCHED = _Unwatched()


class Meter:
    """Counts, and tells ``watcher`` at most every tenth of a second. A watcher that fails is no longer called."""

    def __init__(
        self,
        work: Work,
        what: str,
        files_total: int,
        bytes_total: int | None,
        watcher: Watcher,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._work, self._what = work, what
        self._files_total, self._bytes_total = files_total, bytes_total
        self._watcher: Watcher | None = watcher
        self._clock = clock
        self._files, self._bytes = 0, 0
        self._began_at = self._told_at = clock()
        self._next_at = self._told_at + _TELL_EVERY_SECONDS
        self._told_fraction = 0.0
        self._rate = 0.0

    def __enter__(self) -> Meter:
        self._tell(self._began_at)
        return self

    def __exit__(self, *_: object) -> None:
        self._tell(self._clock(), is_over=True)

    def advance(self, files: int = 0, size_bytes: int = 0) -> None:
        self._files += files
        self._bytes += size_bytes
        at = self._clock()
        if at >= self._next_at:
            self._next_at = at + _TELL_EVERY_SECONDS
            self._tell(at)

    def each(self, files: Iterable[Item]) -> Iterable[Item]:
        for file in files:
            yield file
            self.advance(1)

    def _tell(self, at: float, *, is_over: bool = False) -> None:
        if self._watcher is None:
            return
        so_far = Working(
            work=self._work,
            what=self._what,
            files_done=min(self._files, self._files_total),
            files_total=self._files_total,
            bytes_done=self._bytes if self._bytes_total is None else min(self._bytes, self._bytes_total),
            bytes_total=self._bytes_total,
            seconds=at - self._began_at,
            seconds_left=None,
            is_over=is_over,
        )
        try:
            self._watcher(so_far._replace(seconds_left=self._guess(so_far, at)))
        except Exception:  # noqa: BLE001 - whatever fails in the watcher, the work goes on
            self._watcher = None

    def _guess(self, so_far: Working, at: float) -> float | None:
        """How long the rest will take at the rate of the last seconds."""
        fraction, passed = so_far.fraction, at - self._told_at
        if passed > 0:
            # In the beginning this is the mean of all that was measured.
            weight = max(passed / so_far.seconds, 1 - math.exp(-passed / _SMOOTHED_OVER_SECONDS))
            self._rate += weight * ((fraction - self._told_fraction) / passed - self._rate)
        self._told_at, self._told_fraction = at, fraction
        if so_far.seconds < _GUESS_AFTER_SECONDS or fraction < _GUESS_FROM_FRACTION or self._rate <= 0:
            return None
        return (1 - fraction) / self._rate


def _cost(files: int, size_bytes: int) -> int:
    return files * _FILE_COSTS_BYTES + size_bytes
