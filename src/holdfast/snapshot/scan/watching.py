"""Watches trees with inotify, and reports what changed in one since the last report.

This only saves time: on overflow, for a new directory and on any doubt the report says "scan all of this", and without
inotify it always does.

A file that is written through a second name, or through a descriptor whose name was removed, can be in another tree
than its event. So a doubt concerns all trees that are watched together. Events about a name can cause one
(``name_history``), and so does a directory that was not watched for a moment, because it is new or was moved out of the
tree: any file may have got a second name in it, been written through that name and lost it again, without an event. A
directory that is moved within the tree or removed was watched all the time, so only its files are scanned.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from holdfast.snapshot.scan.changes import NO_REPORT, ChangeReport, Changes, add_changes
from holdfast.snapshot.scan.inotify import (
    ATTRIB,
    COMING,
    CREATE,
    DIRECTORY,
    GOING,
    IGNORED,
    IS_DIRECTORY,
    MOVED_FROM,
    MOVED_TO,
    NAME_COMES_OR_GOES,
    OVERFLOW,
    SAYS_MORE,
    WATCH,
    Inotify,
    kind_of,
)
from holdfast.snapshot.scan.name_history import NameHistory
from holdfast.snapshot.scan.watches import Watches
from holdfast.system.calls import events_in

_DIRECTORY_DATED = ATTRIB | IS_DIRECTORY
_NO_EVENTS: set[bytes] = set()
"""Stands for the names in a directory that had no events."""

_READ_BYTES = 1 << 20
_POLL_SECONDS = 0.02
"""How often the size of the kernel's queue is checked, so that a burst of events does not overflow it."""
_READ_FROM_BYTES = 32 << 10
"""A fraction of what the queue can hold; fewer bytes wait there until no more come, or until a report."""
_CHECKS_BEFORE_SLEEP = 100
"""After so many checks without a new event, the thread sleeps until there is one."""

_Event = tuple[int, int, bytes]
"""The watch of a directory, what happened, and to which name in it."""


class TrackerGroup:
    """The trackers of trees that may share files."""

    def __init__(self) -> None:
        self.trackers: list[ChangeTracker] = []
        self._mutex = threading.Lock()
        self._doubts = 0
        """How often a file may have been changed through a name that is not reported."""

    def doubt(self) -> None:
        with self._mutex:
            self._doubts += 1

    def read_events(self) -> int:
        """Read the events of all trees; returns the number of doubts so far."""
        for tracker in self.trackers:
            tracker.read_events()
        return self._doubts


class ChangeTracker:
    """Watches every directory of a tree; ``report`` tells what changed since the last report."""

    def __init__(self, root: Path, group: TrackerGroup | None = None) -> None:
        self._root = os.fsencode(root)
        self._watched_root: tuple[int, int] | None = None
        """Device and inode of the root that is watched."""
        self._group = group or TrackerGroup()
        self._doubts_seen = 0
        self._inotify = Inotify()
        self._watches = Watches(self._root, self._inotify)
        self._names = NameHistory(self._group.doubt)
        self._unsettled: set[bytes] = set()
        """Directories that were created, removed or moved, according to the events that are being noted."""
        self._moved = False
        self._leaving: set[int] = set()
        """Directories that are being moved, by cookie, and did not arrive yet."""
        self._removed: set[bytes] = set()
        """Directories that were watched until they were removed, according to the events that are being noted."""
        self._made: set[bytes] = set()
        """Directories that were watched from the beginning, and whose creation is not noted yet."""
        self._mutex = threading.Lock()
        self._changes: Changes = {}
        self._event_bytes = 0
        self._in_doubt = True
        self.shape = 0
        """A number that changes whenever a directory is created, removed or moved; up to date after ``report``."""
        self._stop_reading, self._stop_writing = -1, -1
        self._thread: threading.Thread | None = None
        self._tasks: deque[Callable[[], None]] = deque()

    def start(self) -> bool:
        """Begin to watch; False if the kernel cannot: then every report says "scan everything"."""
        if not self._inotify.open():
            return False
        self._stop_reading, self._stop_writing = os.pipe()
        self._watched_root = self._present_root()
        with self._mutex:
            if not self._watches.watch_tree(b""):
                self._close()
                return False
        self._group.trackers.append(self)
        self._thread = threading.Thread(target=self._gather, name="holdfast-changes", daemon=True)
        self._thread.start()
        return True

    def stop(self) -> None:
        if self._thread is not None:
            os.write(self._stop_writing, b"x")
            self._thread.join()
            self._thread = None
            self._group.trackers.remove(self)
            self._close()

    def _close(self) -> None:
        self._inotify.close()
        os.close(self._stop_reading)
        os.close(self._stop_writing)

    def report(self, exchanged: Iterable[bytes] = (), dated: Iterable[bytes] = ()) -> ChangeReport:
        """What changed since the last report; the caller's own changes are left out if nothing else happened.

        ``exchanged``: files that the caller exchanged with files outside the tree; ``dated``: directories whose time it
        set after that; both in the order in which it did so.
        """
        if exchanged or dated:
            with self._mutex:
                if self._inotify.descriptor >= 0:
                    self._drain(self._events_of(exchanged, dated))
        doubts = self._group.read_events()
        with self._mutex:
            if self._inotify.descriptor < 0:
                return NO_REPORT
            self._follow_root()
            names = self._names
            in_doubt = self._in_doubt or self._watches.are_incomplete or doubts != self._doubts_seen
            report = ChangeReport(self._changes, not in_doubt, names.is_written, names.removed, names.lost)
            self._changes, self._in_doubt, self._doubts_seen = {}, False, doubts
            names.reset()
            self._made.clear()
        return report

    def report_again(self, report: ChangeReport) -> None:
        """Repeat in the next report what was reported but not scanned."""
        names = self._names
        with self._mutex:
            add_changes(self._changes, report.changes)
            for noted, again in ((names.removed, report.removed), (names.lost, report.lost)):
                for directory, gone in again.items():
                    noted.setdefault(directory, set()).update(gone)
            self._in_doubt = self._in_doubt or not report.is_complete
            names.is_written = names.is_written or report.is_written

    def _events_of(self, exchanged: Iterable[bytes], dated: Iterable[bytes]) -> list[_Event]:
        events: list[_Event] = []
        watches = self._watches.by_path
        for path in exchanged:
            directory, _, name = path.rpartition(b"/")
            watch = watches.get(directory, -1)
            events += (watch, MOVED_TO, name), (watch, MOVED_FROM, name)
        for path in dated:
            directory, _, name = path.rpartition(b"/")
            if path:  # the directory above the root is not watched
                events.append((watches.get(directory, -1), _DIRECTORY_DATED, name))
            events.append((watches.get(path, -1), _DIRECTORY_DATED, b""))
        return events

    def _follow_root(self) -> None:
        """Watch the present root if another directory took the place of the old one, or of one above it."""
        present = self._present_root()
        if present is None or present != self._watched_root or b"" not in self._watches.by_path:
            self._watches.remove_all()
            self._watched_root, self._in_doubt = present, True
            self._watch_everything()

    def _watch_everything(self) -> None:
        """Watch the whole tree again, because some directories may not be watched."""
        self._changes, self._names.is_written = {b"": None}, True
        self.shape += 1
        self._watches.by_path.clear()
        self._watches.watch_tree(b"")

    def _present_root(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._root)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def read_events(self) -> None:
        """Note all events, and find out what they mean for files that have other names."""
        with self._mutex:
            if self._inotify.descriptor >= 0:
                self._drain()
                if self._leaving:
                    # Files may be written in it where it is now, through names that they had in it.
                    self._group.doubt()
                    self._leaving.clear()
                if self._watches.closed:
                    # Changes in a directory that we may not watch are not reported.
                    self._group.doubt()
                    self._watches.watch_closed()
                if self._names.touched:
                    is_alone = len(self._group.trackers) == 1
                    self._names.look_for_other_names(self._root, self._watches.paths, is_alone=is_alone)

    def event_bytes(self) -> int:
        """A number that grows with every event; the events themselves are still reported."""
        with self._mutex:
            if self._inotify.descriptor >= 0:
                self._drain()
        return self._event_bytes

    def watch_new(self, path: bytes) -> None:
        """Watch a directory that our own process has made this moment, before any file can get a name in it."""
        with self._mutex:
            if self._inotify.descriptor >= 0 and self._watches.watch_new(path):
                self._made.add(path)

    def run_soon(self, task: Callable[[], None]) -> None:
        """Have the watching thread run a task; waking another thread would slow down the work in the foreground."""
        self._tasks.append(task)

    def _gather(self) -> None:
        """Check at intervals: waking up for every event would slow down the program that causes them."""
        checks_left, seen_bytes = _CHECKS_BEFORE_SLEEP, 0
        # Not ``select``, which fails if many files are open.
        stopping, any_event = select.poll(), select.poll()
        stopping.register(self._stop_reading, select.POLLIN)
        any_event.register(self._stop_reading, select.POLLIN)
        any_event.register(self._inotify.descriptor, select.POLLIN)
        while not stopping.poll(_POLL_SECONDS * 1000):
            waiting_bytes = self._inotify.waiting_bytes()
            is_quiet = waiting_bytes == seen_bytes
            checks_left = checks_left - 1 if is_quiet else _CHECKS_BEFORE_SLEEP
            seen_bytes = waiting_bytes
            if waiting_bytes and (is_quiet or waiting_bytes >= _READ_FROM_BYTES):
                with self._mutex:
                    self._drain()
                seen_bytes = 0
            while self._tasks:
                self._tasks.popleft()()
            if not checks_left:
                any_event.poll()
                checks_left = _CHECKS_BEFORE_SLEEP

    def _drain(self, own: Sequence[_Event] = ()) -> None:
        """Note all events that are in the queue now; reading until it is empty might never end.

        ``own``: events that the caller expects. They are left out if there were no others since the last report:
        earlier events about the same names may mean more together with them.
        """
        waiting_bytes = self._inotify.waiting_bytes()
        has_events = waiting_bytes > 0
        is_own = bool(own) and not self._changes and waiting_bytes <= _READ_BYTES
        while waiting_bytes > 0:
            # Asking for much more than is in the queue would make Python allocate all of that first.
            data = os.read(self._inotify.descriptor, min(waiting_bytes, _READ_BYTES))
            waiting_bytes -= len(data)
            self._event_bytes += len(data)
            if not is_own or events_in(data, SAYS_MORE, list(own)):
                self._note(events_in(data, SAYS_MORE, []))
        self._removed.clear()
        if self._unsettled:
            self._settle()
        if has_events:
            self._names.limit()

    def _note(self, events: Iterable[tuple[int, int, int, bytes]]) -> None:
        history, paths = self._names, self._watches.paths
        for watch, mask, cookie, name in events:
            kind = kind_of(mask)
            if kind == WATCH and not self._note_watch(watch, mask):
                continue
            directory = paths.get(watch)
            if directory is None:
                continue
            names = self._changes.get(directory, _NO_EVENTS)
            if names is _NO_EVENTS:
                names = self._changes[directory] = set()
            if not name:
                continue
            is_first = names is not None and name not in names
            if names is not None:
                names.add(name)
            if kind == COMING:
                history.note_coming(directory, (watch, name), mask, cookie, is_first)
            elif kind == GOING:
                history.note_going(directory, (watch, name), mask, cookie, is_first)
            elif kind == DIRECTORY:
                self._note_directory(directory + b"/" + name if directory else name, mask, cookie)
            else:
                # What the scan knows of lost names, it knows by path.
                is_alone = len(self._group.trackers) == 1 and watch not in self._watches.moved
                history.note_written((watch, name), is_alone=is_alone)

    def _note_watch(self, watch: int, mask: int) -> bool:
        """Note an event about a watch itself; returns whether the watch is still in use."""
        if mask & OVERFLOW:
            # The lost events may have been about new directories.
            self._group.doubt()
            self._names.touched.clear()
            self._watch_everything()
            return False
        if watch not in self._watches.paths:
            return False
        if mask & IGNORED:
            self._removed.add(self._watches.paths[watch])
            self._watches.forget(watch, self._watches.paths[watch])
            return False
        self.shape += 1
        return True

    def _note_directory(self, path: bytes, mask: int, cookie: int) -> None:
        if mask & NAME_COMES_OR_GOES:
            self.shape += 1
            if not self._is_watched_all_the_time(path, mask, cookie):
                self._group.doubt()
        if mask & (CREATE | MOVED_FROM | MOVED_TO) or path not in self._watches.by_path:
            self._unsettled.add(path)

    def _is_watched_all_the_time(self, path: bytes, mask: int, cookie: int) -> bool:
        """Whether a directory that comes or goes was watched until now, and still is if it exists."""
        if mask & MOVED_TO:
            self._moved = True
            if cookie not in self._leaving:
                return False
            self._leaving.remove(cookie)
            return True
        if mask & MOVED_FROM:
            self._moved = True
            self._leaving.add(cookie)
        if mask & CREATE:
            is_watched = path in self._made
            self._made.discard(path)
            return is_watched
        return path in self._watches.by_path or path in self._removed

    def _settle(self) -> None:
        """Watch the directories that were created, removed or moved; earlier changes in them were not reported."""
        unsettled, self._unsettled = self._unsettled, set()
        has_moves, self._moved = self._moved, False
        self._changes.update(dict.fromkeys(sorted(unsettled)))
        if self._watches.settle(unsettled, has_moves=has_moves):
            self._group.doubt()
