"""What events say about the names of files, and whether a file may have changed under a name of which nothing is said.

A write through a second name of a file is reported for that name only. A name that is still there shows that there are
others; one that came and went again may have been the second name of any file. A write through a descriptor whose name
is gone is reported for that name, too. Each such case is a doubt.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping

from holdfast.snapshot.scan.inotify import CREATE, DELETE
from holdfast.system.directories import join

_MOST_GONE = 10_000

Name = tuple[int, bytes]
"""The watch of a directory, and a name in it."""


class NameHistory:
    """``doubt`` is called if all trees that are watched together have to be scanned."""

    def __init__(self, doubt: Callable[[], None]) -> None:
        self._doubt = doubt
        self._arrived: set[Name] = set()
        """Names under which files are, or were, new since the last report."""
        self._named: set[Name] = set()
        """Names of which the first event since the last report was that they came or went."""
        self._haunted: set[Name] | None = set()
        """Names that new files had, which may have got others meanwhile and be open by these. None if they are too many
        to remember: then all that went."""
        self.touched: dict[Name, bool] = {}
        """Names of files of which there were events and that should be there; whether they came to be."""
        self._gone: set[Name] | None = set()
        """Names that a file may have lost at some time: a later event may be of that file, if it is open. None if they
        are too many to remember."""
        self._moving: dict[int, bool] = {}
        """Of files on their way from one name to another, by cookie: whether the first was new."""
        self.removed: dict[bytes, set[bytes]] = {}
        self.lost: dict[bytes, set[bytes]] = {}
        self.is_written = True

    def start_anew(self) -> None:
        """After a report."""
        self.removed, self.lost, self.is_written = {}, {}, False
        self._arrived.clear()
        self._named.clear()
        self._moving.clear()

    def limit(self) -> None:
        if self._gone is not None and len(self._gone) > _MOST_GONE:
            self._gone = None
        if self._haunted is not None and len(self._haunted) > _MOST_GONE:
            self._haunted = None

    def note_written(self, name: Name, *, is_alone: bool) -> None:
        """The content or the attributes of a file were changed; ``is_alone``: no other tree is watched."""
        self.is_written = True
        # A file with a name in one tree may have another in the next, where nothing is known of it.
        haunted = self._haunted if is_alone and self._haunted is not None else self._gone
        if haunted is None or name in haunted:
            self._doubt()
        self.touched.setdefault(name, False)

    def note_coming(self, directory: bytes, name: Name, mask: int, cookie: int, is_first: bool) -> None:
        """A file got that name; ``is_first``: there was no event of that name before."""
        if is_first:
            self._named.add(name)
        if mask & CREATE:
            if name in self.touched:
                self._doubt()  # so it was not there at the earlier event, which was of a file open without a name
            self._arrived.add(name)
        else:
            self._note_loss(directory, name)
            if self._moving.pop(cookie, True):
                self._arrived.add(name)
        self.touched[name] = True

    def note_going(self, directory: bytes, name: Name, mask: int, cookie: int, is_first: bool) -> None:
        """A file lost that name."""
        if is_first or name in self._named:
            self._named.add(name)
            self.removed.setdefault(directory, set()).add(name[1])
        self.touched.pop(name, None)
        if mask & DELETE:
            self._note_loss(directory, name)
        else:
            if self._gone is not None:
                self._gone.add(name)
            # It stays among the new ones: if two names were exchanged, there is something under it, and which of the
            # two is the new one is not reported.
            self._moving[cookie] = name in self._arrived

    def _note_loss(self, directory: bytes, name: Name) -> None:
        """A file may be without that name now: it was removed, or another was moved over it."""
        self.lost.setdefault(directory, set()).add(name[1])
        if self._gone is not None:
            self._gone.add(name)
        if name in self._arrived:
            self._doubt()  # it may have been the second name of a file that stays
            self._arrived.discard(name)
            if self._haunted is not None:
                self._haunted.add(name)

    def look_for_other_names(self, root: bytes, paths: Mapping[int, bytes], *, is_alone: bool) -> None:
        """Whether what happened to the touched files may have happened to others, too."""
        touched, self.touched = self.touched, {}
        gone = self._gone
        for name, is_new in touched.items():
            # In one tree the names of a file are known together, and one that came, or never went, is there.
            if is_alone and (is_new or (gone is not None and name not in gone)):
                continue
            directory = paths.get(name[0])
            if directory is not None and _may_have_other_names(join(root, join(directory, name[1])), is_new):
                self._doubt()
                return


def _may_have_other_names(path: bytes, is_new: bool) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return True  # there was an event without its being there, so it was reached through a descriptor
    return is_new and found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode)
