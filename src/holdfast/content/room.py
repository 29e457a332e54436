"""Disk space of the content store: checked before content is written, returned after content is deleted."""

from __future__ import annotations

import os

from holdfast.content.database import ContentDatabase
from holdfast.system.reserve import free_bytes, is_nearly_full
from holdfast.system.sqlite import no_space

_PAGES_PER_MOVE = 4
"""Moving a page writes the page, the page that points to it, the pointer map and the list of free pages."""


class Room:
    """Content is written to the log first and copied into the file later, so for a while it takes space in both."""

    def __init__(self, database: ContentDatabase) -> None:
        self._database, self._path = database, database.path
        self._folder, self._log = os.fspath(self._path.parent), f"{self._path}-wal"

    def refuse_without(self, added_bytes: int) -> None:
        """Refuse content that fits into the log but not from there into the file: the log could never shrink again."""
        if self.is_enough_for(added_bytes):
            return
        self._copy_log_into_file()
        if not self.is_enough_for(added_bytes):
            raise no_space(self._path)

    def is_enough_for(self, added_bytes: int) -> bool:
        room_bytes = free_bytes(self._folder)
        # The file cannot grow by more than the size of its log, and that is cheaper to find out.
        if room_bytes >= 2 * added_bytes + self._log_bytes():
            return True
        return room_bytes >= added_bytes + self._growth_bytes(added_bytes)

    def give_back(self) -> None:
        """Return free pages to the disk, in portions small enough for the log."""
        database = self._database
        free_pages, page_bytes = database.pragma("freelist_count"), database.pragma("page_size")
        self._make_room_in_log()
        while free_pages:
            portion = max(1, free_bytes(self._folder) // page_bytes // _PAGES_PER_MOVE)
            try:
                database.rows(f"PRAGMA incremental_vacuum({portion})")
            finally:
                self._make_room_in_log()  # even after a failure: other processes have to write too
            before, free_pages = free_pages, database.pragma("freelist_count")
            if free_pages >= before:
                return

    def _make_room_in_log(self) -> None:
        if is_nearly_full(self._path.parent):
            self._copy_log_into_file()

    def _copy_log_into_file(self) -> None:
        """Copy the log if all of it fits: copying a part would take space and free none."""
        if self._growth_bytes() <= free_bytes(self._folder):
            self._database.rows("PRAGMA wal_checkpoint(TRUNCATE)")

    def _growth_bytes(self, added_bytes: int = 0) -> int:
        """By how much the file grows when its log and ``added_bytes`` are copied into it."""
        pages = self._database.pragma("page_count") * self._database.pragma("page_size")
        return max(0, pages + added_bytes - self._path.stat().st_size)

    def _log_bytes(self) -> int:
        try:
            return os.stat(self._log).st_size
        except FileNotFoundError:
            return 0
