"""Follows the names of files through events, to find out whether a file may have changed under an unreported name.

A write through a second name of a file is reported for that name only. If the second name still exists, the link count
of its file shows that there are others. If it was created and removed again, it may have been a second name of any
file. A write through a descriptor whose name was removed is also reported for the removed name. Each such case is a
doubt.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping

from holdfast.snapshot.scan.inotify import CREATE, DELETE
from holdfast.system.directories import join

_MOST_NAMES = 10_000

Name = tuple[int, bytes]
"""The watch of a directory, and a name in it."""


class NameHistory:
    """``doubt`` is called if all trees that are watched together must be scanned."""

    def __init__(self, doubt: Callable[[], None]) -> None:
        self._doubt = doubt
        self._new: set[Name] = set()
        """Names that files got since the last report."""
        self._begun: set[Name] = set()
        """Names whose first event since the last report was that they were created or removed."""
        self._lost_by_new: set[Name] | None = set()
        """Names that new files have lost: such a file may have another name now, and be open by the lost one. None if
        they are too many to remember; then ``_ever_lost`` is used."""
        self.touched: dict[Name, bool] = {}
        """Names of files that had events and should exist; the value tells whether the file got the name just now."""
        self._ever_lost: set[Name] | None = set()
        """Names that a file may have lost at any time: a later event may be about that file, if it is open. None if
        they are too many to remember."""
        self._moving: dict[int, bool] = {}
        """Files that are being renamed, by cookie: whether the old name was new."""
        self.removed: dict[bytes, set[bytes]] = {}
        self.lost: dict[bytes, set[bytes]] = {}
        self.is_written = True

    def reset(self) -> None:
        """Begin again after a report."""
        self.removed, self.lost, self.is_written = {}, {}, False
        self._new.clear()
        self._begun.clear()
        self._moving.clear()

    def limit(self) -> None:
        if self._ever_lost is not None and len(self._ever_lost) > _MOST_NAMES:
            self._ever_lost = None
        if self._lost_by_new is not None and len(self._lost_by_new) > _MOST_NAMES:
            self._lost_by_new = None

    def note_written(self, name: Name, *, is_alone: bool) -> None:
        """The content or the attributes of a file were changed.

        ``is_alone``: no other tree is watched, and the directory was never moved.
        """
        self.is_written = True
        # A file of this tree may have a second name in another one, where nothing would be known about the write.
        lost = self._lost_by_new if is_alone and self._lost_by_new is not None else self._ever_lost
        if lost is None or name in lost:
            self._doubt()
        self.touched.setdefault(name, False)

    def note_coming(self, directory: bytes, name: Name, mask: int, cookie: int, is_first: bool) -> None:
        """A file got that name; ``is_first``: the name had no event before."""
        if is_first:
            self._begun.add(name)
        if mask & CREATE:
            if name in self.touched:
                self._doubt()  # the name did not exist at the earlier event, which was about an open file without it
            self._new.add(name)
        else:
            self._note_loss(directory, name)
            if self._moving.pop(cookie, True):
                self._new.add(name)
        self.touched[name] = True

    def note_going(self, directory: bytes, name: Name, mask: int, cookie: int, is_first: bool) -> None:
        """A file lost that name."""
        if is_first or name in self._begun:
            self._begun.add(name)
            self.removed.setdefault(directory, set()).add(name[1])
        self.touched.pop(name, None)
        if mask & DELETE:
            self._note_loss(directory, name)
        else:
            if self._ever_lost is not None:
                self._ever_lost.add(name)
            # It stays in ``_new``: if two names were exchanged, a file has it, and events do not tell which of the two
            # files is new.
            self._moving[cookie] = name in self._new

    def _note_loss(self, directory: bytes, name: Name) -> None:
        """A file may have lost that name: it was removed, or another file was moved over it."""
        self.lost.setdefault(directory, set()).add(name[1])
        if self._ever_lost is not None:
            self._ever_lost.add(name)
        if name in self._new:
            self._doubt()  # it may have been the second name of a file that stays
            self._new.discard(name)
            if self._lost_by_new is not None:
                self._lost_by_new.add(name)

    def look_for_other_names(self, root: bytes, paths: Mapping[int, bytes], *, is_alone: bool) -> None:
        """Doubt if a touched file may have changed under another name too."""
        touched, self.touched = self.touched, {}
        lost = self._ever_lost
        for name, is_new in touched.items():
            # In a single tree all names of a file are known, and a name that is new or was never lost exists.
            if is_alone and (is_new or (lost is not None and name not in lost)):
                continue
            directory = paths.get(name[0])
            if directory is not None and _may_have_other_names(join(root, join(directory, name[1])), is_new):
                self._doubt()
                return


def _may_have_other_names(path: bytes, is_new: bool) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return True  # it had an event but does not exist, so it was reached through a descriptor
    return is_new and found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode)
