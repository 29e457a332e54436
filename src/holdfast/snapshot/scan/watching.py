"""What changed in a tree since we last asked, as the kernel tells it (inotify).

An accelerator, never the truth: on overflow, on a new directory, on a rename and on any doubt the answer is "look at
all of this yourself", and without inotify it always is.

What is written through a second name of a file is told of that name only. A name that is still there shows that there
are others; one that came and went again may have been the second name of any file, and so may have been one in a new
directory, before it was watched. What is written through a descriptor whose name is gone is told of that name, too. In
all these cases all trees that are watched together are to be looked at.
"""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import os
import select
import stat
import termios
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from holdfast.system.calls import events_in
from holdfast.system.directories import join

_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF = 0x400, 0x800
_OVERFLOW, _IGNORED, _IS_DIRECTORY = 0x4000, 0x8000, 0x40000000
_ONLY_DIRECTORY, _DONT_FOLLOW = 0x1000000, 0x2000000
_WATCHED = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
_OF_WATCH = _OVERFLOW | _IGNORED | _DELETE_SELF | _MOVE_SELF
_NAME_COMES, _NAME_GOES = _MOVED_TO | _CREATE, _MOVED_FROM | _DELETE
_NAME_COMES_OR_GOES = _NAME_COMES | _NAME_GOES
_SAYS_MORE = _OF_WATCH | _IS_DIRECTORY | _NAME_COMES_OR_GOES
_DIRECTORY_DATED = _ATTRIB | _IS_DIRECTORY
_WATCH, _DIRECTORY, _COMING, _GOING, _WRITING = range(5)
_UNTOLD: set[bytes] = set()
"""Of a directory of which nothing was told."""

_READ_BYTES = 1 << 20
_LOOK_SECONDS = 0.02
"""So often the kernel's queue is looked at, so that a burst does not overflow it."""
_READ_FROM_BYTES = 32 << 10
"""A fraction of what the queue holds; what is less waits there until nothing more comes, or until somebody asks."""
_RESTLESS_LOOKS = 100
"""After so many looks without anything new the kernel has to wake us."""
_MOST_GONE = 10_000

Changes = dict[bytes, "set[bytes] | None"]
Names = Mapping[bytes, set[bytes]]
"""Directories, and names in them."""
_Event = tuple[int, int, bytes]
"""The watch of a directory, what happened, and to which name in it."""
_Name = tuple[int, bytes]
"""The watch of a directory, and a name in it."""


@cache
def _kind(mask: int) -> int:
    """What an event is about."""
    if mask & _OF_WATCH:
        return _WATCH
    if mask & _IS_DIRECTORY:
        return _DIRECTORY
    if mask & _NAME_COMES_OR_GOES:
        return _COMING if mask & _NAME_COMES else _GOING
    return _WRITING


class Told(NamedTuple):
    """What the kernel told of."""

    changes: Changes
    """Directories and the changed names in them (None: all of it)."""
    is_all: bool
    """Whether nothing else changed. If not, everything is to be looked at, and these are to be read again whatever
    their time stamps say: what is written through a memory mapping does not always move them."""
    is_written: bool = True
    """Whether a file was, or may have been, written to or got other attributes; moving one is neither."""
    went: Names = MappingProxyType({})
    """Of the changed names those that were seen to go, and of which nothing was told while they were not there. If one
    that is not there is not among them, something happened to a file that was open without it."""
    lost: Names = MappingProxyType({})
    """Those that a file may have lost, without getting another, by being removed or by another taking its place: what
    is told of one from then on may be of that file, if somebody has it open."""


NOTHING_TOLD = Told({}, is_all=False)


def add_changes(changes: Changes, more: Changes) -> None:
    for directory, names in more.items():
        known = changes.setdefault(directory, set())
        changes[directory] = None if names is None or known is None else known | names


class Company:
    """The trackers of trees in which a file may have names at the same time."""

    def __init__(self) -> None:
        self.trackers: list[ChangeTracker] = []
        self._mutex = threading.Lock()
        self._doubts = 0
        """How often there may have been a second name of some file that is gone now."""

    def doubt(self) -> None:
        with self._mutex:
            self._doubts += 1

    def hear(self) -> int:
        """Listen to all of them; how many doubts there were until now."""
        for tracker in self.trackers:
            tracker.listen()
        return self._doubts


class ChangeTracker:
    """Watches every directory of a tree; ``take`` gives what changed since the last ``take``."""

    def __init__(self, root: Path, company: Company | None = None) -> None:
        self._root = os.fsencode(root)
        self._root_is: tuple[int, int] | None = None
        """The directory that is watched, by device and inode."""
        self._company = company or Company()
        self._doubts_seen = 0
        self._arrived: set[_Name] = set()
        """Names under which files are, or were, new since the last ``take``."""
        self._named: set[_Name] = set()
        """Names of which the first thing told since the last ``take`` was that they came or went."""
        self._haunted: set[_Name] | None = set()
        """Names that new files had, which may have got others meanwhile and be open by these. None if they are too many
        to remember: then all that went."""
        self._touched: dict[_Name, bool] = {}
        """Names of files that were told of and should be there; whether they came to be."""
        self._gone: set[_Name] | None = set()
        """Names that a file may have lost at some time: what is still told of them may be of that one, if it is open.
        None if they are too many to remember."""
        self._moving: dict[int, bool] = {}
        """Of files on their way from one name to another, by cookie: whether the first was new."""
        self._unsettled: set[bytes] = set()
        """Directories that came, went or moved, as far as the events that are being noted tell."""
        self._moved = False
        self._mutex = threading.Lock()
        self._paths: dict[int, bytes] = {}
        self._watches: dict[bytes, int] = {}
        self._closed: set[bytes] = set()
        """Directories that this user may not watch now."""
        self._changes: Changes = {}
        self._went: dict[bytes, set[bytes]] = {}
        self._lost: dict[bytes, set[bytes]] = {}
        self._heard_bytes = 0
        self._is_written = True
        self._in_doubt = True
        self._is_blind = False
        self.shape = 0
        """Another number whenever a directory came, went or moved; up to date after ``take``."""
        self._descriptor = -1
        self._stop_reading, self._stop_writing = -1, -1
        self._thread: threading.Thread | None = None
        self._chores: deque[Callable[[], None]] = deque()

    def start(self) -> bool:
        """Begin to watch; False where the kernel cannot, and then ``take`` always answers "look yourself"."""
        descriptor = _inotify_init()
        if descriptor < 0:
            return False
        self._descriptor = descriptor
        self._stop_reading, self._stop_writing = os.pipe()
        self._root_is = self._root_now()
        with self._mutex:
            if not self._watch_tree(b""):
                self._close()
                return False
        self._company.trackers.append(self)
        self._thread = threading.Thread(target=self._gather, name="holdfast-changes", daemon=True)
        self._thread.start()
        return True

    def stop(self) -> None:
        if self._thread is not None:
            os.write(self._stop_writing, b"x")
            self._thread.join()
            self._thread = None
            self._company.trackers.remove(self)
            self._close()

    def _close(self) -> None:
        for descriptor in (self._descriptor, self._stop_reading, self._stop_writing):
            os.close(descriptor)
        self._descriptor = -1

    def take(self, exchanged: Iterable[bytes] = (), dated: Iterable[bytes] = ()) -> Told:
        """What was told since, but for what the caller did itself if nobody did anything else.

        ``exchanged``: files that it had change places with files outside of the tree; ``dated``: directories whose time
        it set after that; both in the order in which it did so.
        """
        if exchanged or dated:
            with self._mutex:
                if self._descriptor >= 0:
                    self._drain(self._events_of(exchanged, dated))
        doubts = self._company.hear()
        with self._mutex:
            if self._descriptor < 0:
                return NOTHING_TOLD
            self._follow_root()
            in_doubt = self._in_doubt or self._is_blind or doubts != self._doubts_seen
            told = Told(self._changes, not in_doubt, self._is_written, self._went, self._lost)
            self._changes, self._went, self._lost, self._is_written = {}, {}, {}, False
            self._in_doubt, self._doubts_seen = False, doubts
            self._arrived.clear()
            self._named.clear()
            self._moving.clear()
        return told

    def _events_of(self, exchanged: Iterable[bytes], dated: Iterable[bytes]) -> list[_Event]:
        events: list[_Event] = []
        watches = self._watches
        for path in exchanged:
            directory, _, name = path.rpartition(b"/")
            watch = watches.get(directory, -1)
            events += (watch, _MOVED_TO, name), (watch, _MOVED_FROM, name)
        for path in dated:
            directory, _, name = path.rpartition(b"/")
            if path:  # nobody is told of the root by its name
                events.append((watches.get(directory, -1), _DIRECTORY_DATED, name))
            events.append((watches.get(path, -1), _DIRECTORY_DATED, b""))
        return events

    def _follow_root(self) -> None:
        """Watch what is there now if another directory is in the place of the tree, or of one above it."""
        now = self._root_now()
        if now is None or now != self._root_is or b"" not in self._watches:
            for watch in self._paths:
                _inotify_rm_watch(self._descriptor, watch)
            self._paths.clear()
            self._root_is, self._in_doubt = now, True
            self._watch_anew()

    def _watch_anew(self) -> None:
        """All there is, because there may be directories that nobody watches."""
        self._changes, self._is_written = {b"": None}, True
        self.shape += 1
        self._watches.clear()
        self._watch_tree(b"")

    def _root_now(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._root)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def hear(self) -> None:
        with self._mutex:
            if self._descriptor >= 0:
                self._drain()

    def listen(self) -> None:
        """Hear all there is, and see what it says of files that have other names."""
        with self._mutex:
            if self._descriptor >= 0:
                self._drain()
                if self._closed:
                    self._watch_what_was_closed()
                if self._touched:
                    self._look_for_other_names()

    def heard(self) -> int:
        """A number that grows with everything told; what was told is still there to be taken."""
        self.hear()
        return self._heard_bytes

    def put_back(self, told: Told) -> None:
        """What was taken and not looked at is told again."""
        with self._mutex:
            add_changes(self._changes, told.changes)
            for noted, again in ((self._went, told.went), (self._lost, told.lost)):
                for directory, gone in again.items():
                    noted.setdefault(directory, set()).update(gone)
            self._in_doubt = self._in_doubt or not told.is_all
            self._is_written = self._is_written or told.is_written

    def soon(self, chore: Callable[[], None]) -> None:
        """Have something done by the thread that watches; waking one of its own would disturb whoever is in a hurry."""
        self._chores.append(chore)

    def _gather(self) -> None:
        """Looks now and then, instead of being woken by every event: that would slow down whoever causes them."""
        restless, seen_bytes = _RESTLESS_LOOKS, 0
        while not self._is_told_to_stop(_LOOK_SECONDS):
            waiting_bytes = self._waiting_bytes()
            is_quiet = waiting_bytes == seen_bytes
            restless = restless - 1 if is_quiet else _RESTLESS_LOOKS
            seen_bytes = waiting_bytes
            if waiting_bytes and (is_quiet or waiting_bytes >= _READ_FROM_BYTES):
                with self._mutex:
                    self._drain()
                seen_bytes = 0
            while self._chores:
                self._chores.popleft()()
            if not restless:
                select.select([self._descriptor, self._stop_reading], [], [])
                restless = _RESTLESS_LOOKS

    def _is_told_to_stop(self, within_seconds: float) -> bool:
        return bool(select.select([self._stop_reading], [], [], within_seconds)[0])

    def _waiting_bytes(self) -> int:
        waiting = array.array("i", [0])
        fcntl.ioctl(self._descriptor, termios.FIONREAD, waiting)
        return waiting[0]

    def _drain(self, own: Sequence[_Event] = ()) -> None:
        """Take note of all events that are there now; of those that come meanwhile there may be no end.

        ``own``: what the caller knows of already. It is left out if nothing else was told since the last ``take``: what
        somebody did to the same names before may mean more together with it.
        """
        waiting_bytes = self._waiting_bytes()
        is_own = bool(own) and not self._changes and waiting_bytes <= _READ_BYTES
        while waiting_bytes > 0:
            # Asking for much more than there is would make Python allocate it all first.
            data = os.read(self._descriptor, min(waiting_bytes, _READ_BYTES))
            waiting_bytes -= len(data)
            self._heard_bytes += len(data)
            if not is_own or events_in(data, _SAYS_MORE, list(own)):
                self._note(events_in(data, _SAYS_MORE, []))
        if self._unsettled:
            self._settle()
        if self._gone is not None and len(self._gone) > _MOST_GONE:
            self._gone = None
        if self._haunted is not None and len(self._haunted) > _MOST_GONE:
            self._haunted = None

    def _note(self, events: Iterable[tuple[int, int, int, bytes]]) -> None:
        for watch, mask, cookie, name in events:
            kind = _kind(mask)
            if kind == _WATCH and not self._goes_on(watch, mask):
                continue
            directory = self._paths.get(watch)
            if directory is None:
                continue
            names = self._changes.get(directory, _UNTOLD)
            if names is _UNTOLD:
                names = self._changes[directory] = set()
            if not name:
                continue
            is_first = names is not None and name not in names
            if names is not None:
                names.add(name)
            if kind == _COMING:
                self._note_coming(directory, (watch, name), mask, cookie, is_first)
            elif kind == _GOING:
                self._note_going(directory, (watch, name), mask, cookie, is_first)
            elif kind == _DIRECTORY:
                self._note_directory(directory + b"/" + name if directory else name, mask)
            else:
                self._note_written((watch, name))

    def _goes_on(self, watch: int, mask: int) -> bool:
        """Note what became of a watch itself; whether it is still there to tell of its directory."""
        if mask & _OVERFLOW:
            # What was lost may include new directories.
            self._company.doubt()
            self._touched.clear()
            self._watch_anew()
            return False
        if watch not in self._paths:
            return False
        if mask & _IGNORED:
            self._forget(watch, self._paths[watch])
            return False
        self.shape += 1
        return True

    def _note_directory(self, path: bytes, mask: int) -> None:
        if mask & _NAME_COMES_OR_GOES:
            self.shape += 1
            # Files may have got second names in it, and lost them, before we watched it or after it was gone.
            self._company.doubt()
        if mask & (_MOVED_FROM | _MOVED_TO):
            self._moved = True
        if mask & (_CREATE | _MOVED_FROM | _MOVED_TO) or path not in self._watches:
            self._unsettled.add(path)

    def _note_written(self, name: _Name) -> None:
        """Of a file: its content or attributes were changed."""
        self._is_written = True
        # What a name in one tree was of may have another in the next, and there nobody knows of it.
        is_alone = len(self._company.trackers) == 1
        haunted = self._haunted if is_alone and self._haunted is not None else self._gone
        if haunted is None or name in haunted:
            self._company.doubt()
        self._touched.setdefault(name, False)

    def _note_coming(self, directory: bytes, name: _Name, mask: int, cookie: int, is_first: bool) -> None:
        """A file got that name; ``is_first``: nothing was told of that name before."""
        if is_first:
            self._named.add(name)
        if mask & _CREATE:
            if name in self._touched:
                self._company.doubt()  # so it was not there when it was told of: that was a file open without a name
            self._arrived.add(name)
        else:
            self._note_loss(directory, name)
            if self._moving.pop(cookie, True):
                self._arrived.add(name)
        self._touched[name] = True

    def _note_going(self, directory: bytes, name: _Name, mask: int, cookie: int, is_first: bool) -> None:
        """A file lost that name."""
        if is_first or name in self._named:
            self._named.add(name)
            self._went.setdefault(directory, set()).add(name[1])
        self._touched.pop(name, None)
        if mask & _DELETE:
            self._note_loss(directory, name)
        else:
            if self._gone is not None:
                self._gone.add(name)
            # It stays among the new ones: if two names were exchanged, there is something under it, and which of the
            # two is the new one is not told.
            self._moving[cookie] = name in self._arrived

    def _note_loss(self, directory: bytes, name: _Name) -> None:
        """A file may be without that name now: it was removed, or another was moved over it."""
        self._lost.setdefault(directory, set()).add(name[1])
        if self._gone is not None:
            self._gone.add(name)
        if name in self._arrived:
            self._company.doubt()  # it may have been the second name of a file that stays
            self._arrived.discard(name)
            if self._haunted is not None:
                self._haunted.add(name)

    def _look_for_other_names(self) -> None:
        """Of files that were told of: whether what happened to them may have happened to others, too."""
        touched, self._touched = self._touched, {}
        gone, is_alone = self._gone, len(self._company.trackers) == 1
        for name, is_new in touched.items():
            # In one tree the names of a file are known together, and one that came, or never went, is there.
            if is_alone and (is_new or (gone is not None and name not in gone)):
                continue
            directory = self._paths.get(name[0])
            if directory is not None and self._may_have_other_names(directory, name[1], is_new):
                self._company.doubt()
                return

    def _may_have_other_names(self, directory: bytes, name: bytes, is_new: bool) -> bool:
        try:
            found = os.lstat(join(self._root, join(directory, name)))
        except OSError:
            return True  # it was told of without being there, so it was reached through a descriptor
        return is_new and found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode)

    def _watch_what_was_closed(self) -> None:
        """What happens where we are not let in, nobody tells us, and it may be open meanwhile."""
        self._company.doubt()
        closed, self._closed = self._closed, set()
        for path in closed:
            self._watch_tree(path)

    def _settle(self) -> None:
        """Watch what is there now of the directories that came, went or moved.

        Only when all events are noted: each is of the past, and the directory it names may be another by now. Those
        that were moved keep their watches, which get the names that they have now.
        """
        loose: set[int] = set()
        if self._moved:
            for path in [path for path in self._watches if self._is_below_unsettled(path)]:
                watch = self._watches[path]
                self._forget(watch, path)
                loose.add(watch)
        unsettled, self._unsettled, self._moved = sorted(self._unsettled), set(), False
        for path in unsettled:
            # What happened in it before we watched it, nobody told us.
            self._changes[path] = None
            self._watch_tree(path)
        for watch in loose - self._paths.keys():
            _inotify_rm_watch(self._descriptor, watch)

    def _is_below_unsettled(self, path: bytes) -> bool:
        while path:
            if path in self._unsettled:
                return True
            path = path.rpartition(b"/")[0]
        return False

    def _forget(self, watch: int, path: bytes) -> None:
        """Unless that watch has another path by now, or that path another watch."""
        if self._paths.get(watch) == path:
            del self._paths[watch]
        if self._watches.get(path) == watch:
            del self._watches[path]

    def _watch_tree(self, top: bytes) -> bool:
        """Watch a directory and all below it; what vanishes meanwhile is no trouble.

        If the kernel refuses, there is something we are not told of: False, and from then on always in doubt.
        """
        pending = [top]
        while pending:
            path = pending.pop()
            absolute = join(self._root, path) if path else self._root
            watch = _inotify_add_watch(self._descriptor, absolute, _WATCHED | _ONLY_DIRECTORY | _DONT_FOLLOW)
            if watch < 0:
                if ctypes.get_errno() == errno.EACCES:
                    self._closed.add(path)
                    continue
                if ctypes.get_errno() in _GONE:
                    continue
                self._is_blind = True
                return False
            if self._watches.get(path) == watch and self._paths.get(watch) == path:
                continue  # watched already, and so told of everything that came to be in it since
            self._paths[watch] = path
            self._watches[path] = watch
            try:
                with os.scandir(absolute) as entries:
                    pending.extend(join(path, entry.name) for entry in entries if entry.is_dir(follow_symlinks=False))
            except PermissionError:
                self._closed.add(path)
                self._forget(watch, path)  # so that it is gone through once it is open
            except OSError:
                continue
        return True


_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def _library() -> ctypes.CDLL | None:
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "inotify_init1") else None


_libc = _library()


def _inotify_init() -> int:
    return int(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)) if _libc else -1


def _inotify_add_watch(descriptor: int, path: bytes, mask: int) -> int:
    assert _libc is not None
    return int(_libc.inotify_add_watch(descriptor, path, ctypes.c_uint32(mask)))


def _inotify_rm_watch(descriptor: int, watch: int) -> None:
    assert _libc is not None
    _libc.inotify_rm_watch(descriptor, watch)
