"""Reads many files with all cores: worker processes read, hash and compress them.

Python's threads do not help here, because a small file costs mostly interpreter time. A worker is this module run as a
program: it gets lists of names on its standard input and answers on its standard output, in frames of bounded size.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol

import msgspec

from holdfast.content.format import Entry
from holdfast.content.packing import new_compressor, pack
from holdfast.errors import SandboxError
from holdfast.snapshot.scan.entries import Moved, read_entry
from holdfast.system.directories import Descent
from holdfast.system.stopping import stop_if_asked

PARALLEL_FROM_FILES = 3000
"""Below that, starting the workers costs more than they save."""
_FILES_AT_ONCE = 200
_FRAME_BYTES = 4 << 20
_FRAMES_WAITING = 8
_LENGTH_BYTES = 4
_POLL_SECONDS = 0.05

Place = tuple[bytes, bytes]
"""A directory and a name in it."""


class Found(msgspec.Struct, array_like=True, frozen=True):
    """A file that was read; the entry is None if that failed, and the caller has to find out why."""

    directory: bytes
    name: bytes
    entry: Entry | None
    device: int = 0
    inode: int = 0
    names: int = 1
    ctime_ns: int = 0
    mtime_ns: int = 0
    size: int = 0


class _Frame(msgspec.Struct, array_like=True):
    objects: list[tuple[bytes, int, bytes]]
    found: list[Found]
    is_last: bool


_Chunks = queue.SimpleQueue[list[Place] | None]
_Frames = queue.Queue[_Frame | BaseException | None]

_encode = msgspec.msgpack.Encoder().encode
_decode_frame = msgspec.msgpack.Decoder(_Frame).decode
_decode_places = msgspec.msgpack.Decoder(list[Place]).decode


class PackedSink(Protocol):
    """Takes content that another process has hashed and packed."""

    def add_packed(self, objects: Sequence[tuple[bytes, int, bytes]]) -> None: ...


def read_in_parallel(root: Path, places: Iterable[Place], batch: PackedSink) -> Iterator[Found]:
    """Yield every place once, in any order, after its content was added to the batch."""
    wanted = list(places)
    chunks: _Chunks = queue.SimpleQueue()
    for start in range(0, len(wanted), _FILES_AT_ONCE):
        chunks.put(wanted[start : start + _FILES_AT_ONCE])
    frames: _Frames = queue.Queue(_FRAMES_WAITING)
    workers: list[subprocess.Popen[bytes]] = []
    threads = [
        threading.Thread(target=_serve, args=(root, chunks, frames, workers), daemon=True)
        for _ in range(os.cpu_count() or 1)
    ]
    for thread in threads:
        chunks.put(None)
        thread.start()
    try:
        yield from _gathered(root, frames, len(threads), batch)
    finally:
        # If the caller stops early, the workers must not wait for ever for a free place in the queue.
        _end(threads, chunks, frames, workers)


def _gathered(root: Path, frames: _Frames, running: int, batch: PackedSink) -> Iterator[Found]:
    while running:
        stop_if_asked()
        try:
            frame = frames.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            continue
        if frame is None:
            running -= 1
        elif isinstance(frame, BaseException):
            raise SandboxError(
                f"Reading {root} with several processes failed: {frame}.", hint="Run the command again."
            ) from frame
        else:
            batch.add_packed(frame.objects)
            yield from frame.found


def _end(
    threads: list[threading.Thread], chunks: _Chunks, frames: _Frames, workers: list[subprocess.Popen[bytes]]
) -> None:
    while not chunks.empty():
        chunks.get()
    for _ in threads:
        chunks.put(None)
    while any(thread.is_alive() for thread in threads):
        # What the workers still read is no longer needed. In every round, because one may have just been started.
        for worker in list(workers):
            worker.kill()
        with suppress(queue.Empty):
            frames.get(timeout=_POLL_SECONDS)


def _serve(root: Path, chunks: _Chunks, frames: _Frames, workers: list[subprocess.Popen[bytes]]) -> None:
    """Keep one worker busy until nothing is left to read."""
    try:
        with subprocess.Popen(
            # -P: the project in the current folder may have modules with the same names as those we import.
            [sys.executable, "-P", "-m", __name__, os.fspath(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C at a terminal is for us alone
        ) as worker:
            workers.append(worker)
            assert worker.stdin is not None
            assert worker.stdout is not None
            while (chunk := chunks.get()) is not None:
                _send(worker.stdin, _encode(chunk))
                while True:
                    frame = _decode_frame(_receive(worker.stdout))
                    frames.put(frame)
                    if frame.is_last:
                        break
            worker.stdin.close()
    except (OSError, EOFError, msgspec.DecodeError) as error:
        frames.put(error)
    frames.put(None)


def _send(stream: IO[bytes], message: bytes) -> None:
    stream.write(len(message).to_bytes(_LENGTH_BYTES))
    stream.write(message)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes:
    head = stream.read(_LENGTH_BYTES)
    if len(head) < _LENGTH_BYTES:
        raise EOFError("the reading process ended")
    return stream.read(int.from_bytes(head))


class _Answer:
    """Collects what was read into frames; a large file fills many of them, so memory stays flat."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._compressor = stream, new_compressor()
        self._objects: list[tuple[bytes, int, bytes]] = []
        self._bytes = 0
        self._found: list[Found] = []

    def add_named(self, digest: bytes, content: bytes) -> None:
        data = pack(content, self._compressor)
        self._objects.append((digest, len(content), data))
        self._bytes += len(data)
        if self._bytes >= _FRAME_BYTES:
            self.send(is_last=False)

    def note(self, found: Found) -> None:
        self._found.append(found)

    def send(self, *, is_last: bool) -> None:
        _send(self._stream, _encode(_Frame(self._objects, self._found, is_last)))
        self._objects, self._found, self._bytes = [], [], 0


def work(root: Path, asked: IO[bytes], answered: IO[bytes]) -> None:
    """Read files as a worker, until the standard input ends."""
    answer = _Answer(answered)
    with Descent(root, is_sandbox=True) as descent:
        while True:
            try:
                places = _decode_places(_receive(asked))
            except EOFError:
                return
            for directory, name in places:
                answer.note(_read(descent, directory, name, answer))
            answer.send(is_last=True)


def _read(descent: Descent, directory: bytes, name: bytes, answer: _Answer) -> Found:
    try:
        entry, status = read_entry(descent.open(directory), name, answer)
    except (OSError, Moved):
        return Found(directory, name, None)
    return Found(
        directory, name, entry, status.st_dev, status.st_ino, status.st_nlink, status.st_ctime_ns,
        status.st_mtime_ns, status.st_size,
    )  # fmt: skip


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
