"""Copies the small files of many directories in threads, and shows their contents to a sink.

Nearly all of the time goes into system calls. The compiled ``copy_files`` makes them without the interpreter's lock.
"""

from __future__ import annotations

import array
import os
import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import NamedTuple, Protocol

from holdfast.system.calls import ARE_COMPILED, copy_files
from holdfast.system.directories import IS_ROOT, OWN_GROUPS
from holdfast.system.plain_calls import Status
from holdfast.system.stopping import stop_if_asked

_ROOM_BYTES, _MOST_BYTES = 4 << 20, 2 << 20
"""The room for contents in each thread, and the largest file that is copied with others."""
_FILES_AT_ONCE = 500
_ALONE_BELOW_FILES = 1000
"""So many files are copied before starting threads is worth it."""
_MOST_THREADS = 4 if ARE_COMPILED else 1
_MOST_WAITING = 4
"""Two directories stay open for each of them, also while many sandboxes are copied at once."""
_LOOK_SECONDS = 0.05
_GROUPS = None if IS_ROOT else array.array("I", OWN_GROUPS).tobytes()


class CopiedFile(NamedTuple):
    directory: bytes
    name: bytes
    content: memoryview
    """Exactly what is in the copy."""
    original: Status
    copy: Status
    is_steady: bool
    """Whether the original stayed as it was while it was read."""


class CopySink(Protocol):
    """Learns what is in a copy while it is made."""

    def note_directory(self, path: bytes, inode: int) -> None:
        """A directory was made; those around it come first, ``b""`` is the root."""
        ...

    def note_files(self, files: Sequence[CopiedFile]) -> None:
        """Files were copied; called by several threads, and the contents are gone afterwards."""
        ...

    def note_entry(self, path: bytes) -> None:
        """An entry was copied on its own and byte for byte."""
        ...


class _Names(NamedTuple):
    """Names in a directory that are to be copied; both descriptors are closed after that."""

    directory: bytes
    source: int
    target: int
    names: tuple[bytes, ...]

    def close(self) -> None:
        os.close(self.source)
        os.close(self.target)


class Done(NamedTuple):
    """What came out of copying some names of a directory."""

    files: int
    size_bytes: int
    directory: bytes
    rest: list[bytes]
    """Names that have to be copied one by one."""


class BulkCopy:
    """Copies what is added, soon."""

    def __init__(self, sink: CopySink | None) -> None:
        self._sink = sink
        self._here = _Copier(sink)
        self._files = 0
        self._waiting: queue.Queue[_Names | None] = queue.Queue(_MOST_WAITING)
        self._done: queue.SimpleQueue[Done | BaseException] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def add(self, directory: bytes, source: int, target: int, names: Sequence[bytes]) -> None:
        self._files += len(names)
        if self._files > _ALONE_BELOW_FILES and not self._threads:
            self._start()
        source = os.dup(source)
        wanted = _Names(directory, source, os.dup(target), tuple(names))
        if self._threads:
            self._waiting.put(wanted)
            return
        try:
            for done in self._here.copy(wanted):
                self._done.put(done)
        finally:
            wanted.close()

    def _start(self) -> None:
        with suppress(RuntimeError):  # no more threads are allowed
            for _ in range(min(os.cpu_count() or 1, _MOST_THREADS)):
                # Each in a copy of our context: a request to stop this thread is meant for all.
                thread = threading.Thread(target=copy_context().run, args=(self._work,), daemon=True)
                thread.start()
                self._threads.append(thread)

    def _work(self) -> None:
        """Copy until there is no more; after a failure what waits is only taken away, so that adding never blocks."""
        copier, is_failed = _Copier(self._sink), False
        while (wanted := self._waiting.get()) is not None:
            try:
                if not is_failed:
                    for done in copier.copy(wanted):
                        self._done.put(done)
            except BaseException as error:  # noqa: BLE001 - raised again by ``results``
                self._done.put(error)
                is_failed = True
            finally:
                wanted.close()
        try:
            copier.show()
        except BaseException as error:  # noqa: BLE001 - the same
            self._done.put(error)

    def results(self) -> Iterator[Done]:
        """What came out of the copying since the last call; raises what went wrong."""
        with suppress(queue.Empty):
            while True:
                yield self._sound(self._done.get_nowait())

    def last_results(self) -> Iterator[Done]:
        """The same until all that was added is copied and shown."""
        for _ in self._threads:
            self._waiting.put(None)
        while any(thread.is_alive() for thread in self._threads):
            with suppress(queue.Empty):
                yield self._sound(self._done.get(timeout=_LOOK_SECONDS))
        self._threads.clear()
        self._here.show()
        yield from self.results()

    def _sound(self, done: Done | BaseException) -> Done:
        if isinstance(done, BaseException):
            raise done
        return done

    def close(self) -> None:
        """End the threads; what still waits is not copied."""
        with suppress(queue.Empty):
            while self._threads:
                wanted = self._waiting.get_nowait()
                if wanted is not None:
                    wanted.close()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()


class _Copier:
    """Copies one directory after the other; contents are shown when there are many."""

    def __init__(self, sink: CopySink | None) -> None:
        self._sink = sink
        self._room = memoryview(bytearray(_ROOM_BYTES))
        self._used = 0
        self._files: list[CopiedFile] = []

    def copy(self, wanted: _Names) -> Iterator[Done]:
        names = wanted.names
        while names:
            stop_if_asked()
            rest, files, size_bytes = list[bytes](), 0, 0
            names, asked = names[_FILES_AT_ONCE:], names[:_FILES_AT_ONCE]
            room = self._room[self._used :]
            copied = copy_files(wanted.source, wanted.target, asked, room, _MOST_BYTES, _GROUPS)
            for name, found in zip(asked, copied, strict=False):
                if found is None:
                    rest.append(name)
                    continue
                is_steady, original, copy = found
                end = self._used + original[4]
                content = self._room[self._used : end]
                self._files.append(CopiedFile(wanted.directory, name, content, original, copy, is_steady))
                files, size_bytes, self._used = files + 1, size_bytes + original[4], end
            names = asked[len(copied) :] + names
            if len(copied) < len(asked) or len(self._files) >= _FILES_AT_ONCE:
                self.show()
            yield Done(files, size_bytes, wanted.directory, rest)

    def show(self) -> None:
        """Show what was copied; then its room is free again."""
        files, self._files, self._used = self._files, [], 0
        if files and self._sink is not None:
            self._sink.note_files(files)
