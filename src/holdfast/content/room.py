"""Room on the disk for the content store: asked for before content is written, given back after it is deleted."""

from __future__ import annotations

import os

from holdfast.content.database import ContentDatabase
from holdfast.system.reserve import free_bytes, is_nearly_full
from holdfast.system.sqlite import no_space

_ROOM_FOR_A_PAGE = 4
"""In pages: moving one writes it, what leads to it, and what lists the places and the free pages."""


class Room:
    """Content is written to the log first and copied into the file later, so for a while it takes room in both."""

    def __init__(self, database: ContentDatabase) -> None:
        self._database, self._path = database, database.path
        self._folder, self._log = os.fspath(self._path.parent), f"{self._path}-wal"

    def refuse_without(self, added_bytes: int) -> None:
        """What fits into the log but not from there into the file would hold the space of both, for good."""
        if self.is_enough_for(added_bytes):
            return
        self._copy_log_into_file()
        if not self.is_enough_for(added_bytes):
            raise no_space(self._path)

    def is_enough_for(self, added_bytes: int) -> bool:
        room_bytes = free_bytes(self._folder)
        # The file cannot grow by more than the size of its log, which is cheaper to find out.
        if room_bytes >= 2 * added_bytes + self._log_bytes():
            return True
        return room_bytes >= added_bytes + self._growth_bytes(added_bytes)

    def give_back(self) -> None:
        """Return free pages to the disk, in portions for whose way through the log it has room."""
        database = self._database
        free_pages, page_bytes = database.pragma("freelist_count"), database.pragma("page_size")
        self._make_room_in_log()
        while free_pages:
            portion = max(1, free_bytes(self._folder) // page_bytes // _ROOM_FOR_A_PAGE)
            try:
                database.rows(f"PRAGMA incremental_vacuum({portion})")
            finally:
                self._make_room_in_log()  # also if there was too little: others have to write as well
            before, free_pages = free_pages, database.pragma("freelist_count")
            if free_pages >= before:
                return

    def _make_room_in_log(self) -> None:
        if is_nearly_full(self._path.parent):
            self._copy_log_into_file()

    def _copy_log_into_file(self) -> None:
        """Only if all of it fits: a part of it would take up space and free none."""
        if self._growth_bytes() <= free_bytes(self._folder):
            self._database.rows("PRAGMA wal_checkpoint(TRUNCATE)")

    def _growth_bytes(self, added_bytes: int = 0) -> int:
        """By how much the file grows when all that is in its log, and so much more, is copied into it."""
        pages = self._database.pragma("page_count") * self._database.pragma("page_size")
        return max(0, pages + added_bytes - self._path.stat().st_size)

    def _log_bytes(self) -> int:
        try:
            return os.stat(self._log).st_size
        except FileNotFoundError:
            return 0
