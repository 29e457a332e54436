"""The lock of the content store: content that is added stays until the records name it.

A process that adds content holds the store until the record that names the content is committed. Garbage collection
waits until no process holds the store, so it never removes what an unfinished checkpoint needs.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.content.damage import Damage

_GENERATION_BYTES = 8


class Holding:
    """Holds the store for this process, and knows what the process may rely on meanwhile.

    The lock file contains a random number, the generation, which changes whenever content may have been collected or
    was found damaged.
    """

    def __init__(self, path: Path, damage: Damage) -> None:
        self._path, self._damage = path, damage
        self._mutex = threading.Lock()
        self._lock = -1
        self._holders = 0
        self.generation: bytes | None = None
        """What was there when the store was last held stays there until this changes."""
        self.present: set[bytes] = set()
        """States found in the store, or added to it, in this generation."""

    def hold(self) -> None:
        """Keep all content until ``release`` has been called as often as this."""
        with self._mutex:
            if not self._holders:
                self._lock_shared()
            self._holders += 1

    def release(self) -> None:
        with self._mutex:
            self._holders -= 1
            if not self._holders:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _lock_shared(self) -> None:
        if self._damage.found:
            self.note_damage()
        if self._lock < 0:
            self._lock = self._open()
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        try:
            self._read_generation()
        except BaseException:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            raise

    def _read_generation(self) -> None:
        generation = os.pread(self._lock, _GENERATION_BYTES, 0)
        if generation != self.generation:
            self.present.clear()
            self._damage.load()
            self.generation = generation

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """While this lasts no process holds the store; each one that holds it later sees a new generation."""
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            _begin_generation(descriptor)
            yield
        finally:
            os.close(descriptor)

    def note_damage(self) -> None:
        """Note the damage found, so that any process which meets the content stores it again."""
        if self._damage.note():
            with suppress(OSError):
                descriptor = self._open()
                try:
                    _begin_generation(descriptor)
                finally:
                    os.close(descriptor)

    def note_damage_now(self) -> None:
        """The same, with effect at once for this process too, even if it holds the store."""
        self.note_damage()
        with self._mutex:
            if self._holders:
                self._read_generation()

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _begin_generation(lock: int) -> None:
    os.pwrite(lock, os.urandom(_GENERATION_BYTES), 0)
