"""The inotify watches on the directories of a tree; they follow directories that are moved."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Set

from holdfast.snapshot.scan.inotify import Inotify
from holdfast.system.directories import join

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class Watches:
    def __init__(self, root: bytes, inotify: Inotify) -> None:
        self._root, self._inotify = root, inotify
        self.paths: dict[int, bytes] = {}
        self.by_path: dict[bytes, int] = {}
        self.closed: set[bytes] = set()
        """Directories that this user may not watch now."""
        self.are_incomplete = False
        """The kernel refused a watch, so not everything is reported."""
        self.moved: set[int] = set()
        """The watches of directories that were moved."""

    def watch_tree(self, top: bytes) -> bool:
        """Watch a directory and all below it, except those that vanish meanwhile; False if the kernel refuses."""
        pending = [top]
        while pending:
            path = pending.pop()
            absolute = join(self._root, path) if path else self._root
            watch = self._inotify.add_watch(absolute)
            if watch < 0:
                if ctypes.get_errno() == errno.EACCES:
                    self.closed.add(path)
                    continue
                if ctypes.get_errno() in _GONE:
                    self.by_path.pop(path, None)  # another directory may have been here for a moment
                    continue
                self.are_incomplete = True
                return False
            if self.by_path.get(path) == watch and self.paths.get(watch) == path:
                continue  # watched already, so everything created in it is reported
            self.paths[watch] = path
            self.by_path[path] = watch
            try:
                with os.scandir(absolute) as entries:
                    pending.extend(join(path, entry.name) for entry in entries if entry.is_dir(follow_symlinks=False))
            except PermissionError:
                self.closed.add(path)
                self.forget(watch, path)  # so that its directories are watched once it is readable
            except OSError:
                continue
        return True

    def watch_new(self, path: bytes) -> bool:
        """Watch a directory that was made this moment; whether it was empty, so that nothing was missed."""
        absolute = join(self._root, path)
        watch = self._inotify.add_watch(absolute) if path not in self.by_path else -1
        if watch < 0 or watch in self.paths:
            return False
        self.paths[watch], self.by_path[path] = path, watch
        try:
            return not os.listdir(absolute)
        except OSError:
            return False

    def watch_closed(self) -> None:
        """Try again to watch the directories that this user could not watch before."""
        closed, self.closed = self.closed, set()
        for path in closed:
            self.watch_tree(path)

    def remove_all(self) -> None:
        for watch in self.paths:
            self._inotify.remove_watch(watch)
        self.paths.clear()

    def forget(self, watch: int, path: bytes) -> None:
        """Forget a watch, unless it has another path by now, or the path another watch."""
        if self.paths.get(watch) == path:
            del self.paths[watch]
        if self.by_path.get(path) == watch:
            del self.by_path[path]

    def settle(self, unsettled: Set[bytes], *, has_moves: bool) -> bool:
        """Watch the directories that were created, removed or moved, as they are now; whether one was not watched.

        Called after all events are noted, because an event is about the past, and its path may lead to another
        directory by now. A directory that was moved keeps its watch, which gets the new path.
        """
        loose: set[int] = set()
        watched = set(self.paths)
        if has_moves:
            for path in [path for path in self.by_path if _is_below(path, unsettled)]:
                watch = self.by_path[path]
                self.forget(watch, path)
                loose.add(watch)
        for path in sorted(unsettled):
            self.watch_tree(path)
        self.moved |= loose
        for watch in loose - self.paths.keys():
            self._inotify.remove_watch(watch)
        return not self.paths.keys() <= watched


def _is_below(path: bytes, directories: Set[bytes]) -> bool:
    while path:
        if path in directories:
            return True
        path = path.rpartition(b"/")[0]
    return False
