"""The lock of the content store: content that is added stays until the records name it.

A process that adds content holds the store until the record that names the content is committed. Collecting garbage
waits until no process holds the store, so it never removes what a checkpoint in the making needs.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.content.damage import Damage

_NEWS_BYTES = 8


class Holding:
    """How this process holds the store, and what it may rely on meanwhile.

    The lock file contains a random number, the news: another one whenever something may have been collected, or was
    found damaged.
    """

    def __init__(self, path: Path, damage: Damage) -> None:
        self._path, self._damage = path, damage
        self._mutex = threading.Lock()
        self._lock = -1
        self._holders = 0
        self._news: bytes | None = None
        self.sure: set[bytes] = set()
        """States found in the store, or put into it, since the last news."""

    def hold(self) -> None:
        """Let nothing be collected until ``release`` is called as often."""
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
            self._read_news()
        except BaseException:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            raise

    def _read_news(self) -> None:
        news = os.pread(self._lock, _NEWS_BYTES, 0)
        if news != self._news:
            self.sure.clear()
            self._damage.load()
            self._news = news

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """While this lasts no process holds the store, and each one that does later reads the news."""
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            _write_news(descriptor)
            yield
        finally:
            os.close(descriptor)

    def note_damage(self) -> None:
        """Have what was found damaged stored anew, by any process that finds its content."""
        if self._damage.note():
            with suppress(OSError):
                descriptor = self._open()
                try:
                    _write_news(descriptor)
                finally:
                    os.close(descriptor)

    def note_damage_now(self) -> None:
        """The same, by this process too, which may hold the store."""
        self.note_damage()
        with self._mutex:
            if self._holders:
                self._read_news()

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _write_news(lock: int) -> None:
    os.pwrite(lock, secrets.token_bytes(_NEWS_BYTES), 0)
