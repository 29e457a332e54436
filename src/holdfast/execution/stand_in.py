"""Stand-ins: a folder that a program sees in place of the real one, so that it can replace a single file in it.

A program that may write a file also locks and replaces it, by a folder or a file beside it. Landlock has no right for
that: what allows it for one name allows it for all names, and in all folders below. So the program sees another folder
in place of the real one. All that is in the real folder is mounted in it, read-only except where the program may write;
only the file and its siblings are copies. What the program changes in the file is brought back into the real one.

    .beside/<number>/about.json    which folder, which files, and what is mounted
    .beside/<number>/seen/         what the program sees
    .beside/<number>/base/         each file as it was when it was last copied or brought back

Dies: before a file is brought back, the change is in ``seen`` and not in ``base``, and the next run of the plan or its
deletion brings it back. Bringing back replaces the real file at once, so it may be done again.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.process.mount import Mount
from holdfast.system.trees import remove_tree, sync_directory

_MOST_ENTRIES = 400
"""Each is a mount, and an open file while they are made."""
_MISSING = object()
_ABOUT = "about.json"


class _About(msgspec.Struct):
    folder: str
    files: list[str]
    mounted: list[str] = []
    links: list[str] = []
    """Symlinks of the real folder, made again."""


class StandIn(NamedTuple):
    place: Path
    """Its folder in the folder of the plan."""
    real: Path
    """The folder that it stands in for."""
    files: tuple[str, ...]
    """The names of the files in it that may be written and replaced."""

    @property
    def seen(self) -> Path:
        return self.place / "seen"

    def may_change(self, name: str) -> bool:
        """Whether it is one of the files, or a sibling: its lock, a temporary file, a backup."""
        return any(name == file or name.startswith(f"{file}.") for file in self.files)


def stand_ins(files: Iterable[Path], place: Path, closed: Sequence[Path]) -> list[StandIn]:
    """One for each folder of these files, except in folders that are ``closed``, and in those that hold too much."""
    by_folder: dict[Path, list[str]] = {}
    for file in files:
        real = Path(os.path.realpath(file))
        by_folder.setdefault(real.parent, []).append(real.name)
    fitting = {
        folder: names
        for folder, names in by_folder.items()
        if folder.parent != folder and not any(folder.is_relative_to(each) for each in closed) and _fits(folder)
    }
    # One inside of another would be covered by it.
    outermost = [one for one in fitting if not any(one != other and one.is_relative_to(other) for other in fitting)]
    return [StandIn(place / str(number), one, tuple(fitting[one])) for number, one in enumerate(sorted(outermost))]


def _fits(folder: Path) -> bool:
    if not os.access(folder, os.W_OK):
        return False
    with suppress(OSError), os.scandir(folder) as entries:
        return sum(1 for _ in entries) <= _MOST_ENTRIES
    return False


def prepare(stand_in: StandIn, writable: Sequence[Path]) -> list[Mount]:
    """Make it as the real folder is now; the mounts with which a program sees it."""
    finish(stand_in.place)
    for folder in (stand_in.seen, stand_in.place / "base"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _clear(stand_in)
    about = _like_real(stand_in)
    # First: a place for a mount that is not named there would count as made by the program.
    _replace(stand_in.place / _ABOUT, msgspec.json.encode(about), 0o600)
    _make(stand_in, about)
    files = {stand_in.real / name for name in stand_in.files}
    inside = sorted(each for each in writable if each.is_relative_to(stand_in.real) and each not in files)
    return [
        Mount(stand_in.seen, stand_in.real),
        *(Mount(stand_in.real / name, stand_in.real / name, read_only=True) for name in about.mounted),
        *(Mount(each, each) for each in inside),
    ]


def _clear(stand_in: StandIn) -> None:
    """Remove what was made for the last run, and the locks of a program that was killed; its own files stay."""
    about = _read_about(stand_in.place)
    for each in list(stand_in.seen.iterdir()):
        if stand_in.may_change(each.name) and each.is_dir() and not each.is_symlink():
            remove_tree(each)
        elif about is not None and each.name in (*about.mounted, *about.links):
            with suppress(OSError):  # it is not empty: the program put something else there
                _remove_place(each)


def _remove_place(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        place.rmdir()
    elif place.is_symlink() or place.stat().st_size == 0:
        place.unlink()


def _like_real(stand_in: StandIn) -> _About:
    """What is to be made of the entries of the real folder. What the program made itself at such a place stays."""
    about = _About(str(stand_in.real), list(stand_in.files))
    with os.scandir(stand_in.real) as entries:
        for entry in entries:
            if stand_in.may_change(entry.name) or os.path.lexists(stand_in.seen / entry.name):
                continue
            if entry.is_symlink():
                about.links.append(entry.name)
            else:
                about.mounted.append(entry.name)
    return about


def _make(stand_in: StandIn, about: _About) -> None:
    """Give each entry of the real folder a place to be mounted at, and copy the files."""
    for name in about.links:
        (stand_in.seen / name).symlink_to(os.readlink(stand_in.real / name))
    for name in about.mounted:
        place = stand_in.seen / name
        place.mkdir(mode=0o700) if (stand_in.real / name).is_dir() else place.touch(mode=0o600)
    for path in list(stand_in.real.iterdir()):
        if stand_in.may_change(path.name) and path.is_file() and not path.is_symlink():
            content, mode = _content(path)
            # In this order: a base that is newer than what the program saw would bring back what is older.
            for folder in (stand_in.seen, stand_in.place / "base"):
                _replace(folder / path.name, content or b"", mode)
    shutil.copystat(stand_in.real, stand_in.seen)


def _read_about(place: Path) -> _About | None:
    try:
        return msgspec.json.decode((place / _ABOUT).read_bytes(), type=_About)
    except FileNotFoundError:
        return None


def finish_all(place: Path) -> list[Path]:
    """Bring back what the programs of a plan changed in their files; where the content is that could not be merged."""
    try:
        found = sorted(place.iterdir())
    except FileNotFoundError:
        return []
    return [kept for each in found for kept in finish(each)]


def finish(place: Path) -> list[Path]:
    """The same for one stand-in, which may not have been made."""
    about = _read_about(place)
    if about is None:
        return []
    stand_in = StandIn(place, Path(about.folder), tuple(about.files))
    return [kept for name in stand_in.files if (kept := _bring_back(stand_in, name)) is not None]


def left_beside(stand_in: StandIn) -> list[Path]:
    """What a program wrote into the folder besides its files: nobody else sees it."""
    about = _read_about(stand_in.place)
    made = set() if about is None else {*about.mounted, *about.links}
    return [
        stand_in.real / each.name
        for each in sorted(stand_in.seen.iterdir())
        if each.name not in made and not stand_in.may_change(each.name)
    ]


def _bring_back(stand_in: StandIn, name: str) -> Path | None:
    """Bring back one file; where its content is instead, if the real one was changed meanwhile and is no JSON."""
    real, seen, base = stand_in.real / name, stand_in.seen / name, stand_in.place / "base" / name
    before, _ = _content(base)
    now, mode = _content(seen)
    if now is None or now == before:
        return None
    theirs, their_mode = _content(real)
    kept = None
    if theirs in (before, None):
        _replace(real, now, mode if theirs is None else their_mode)
    elif theirs == now:
        pass  # brought back before, by a process that died then
    elif (merged := _merged(before, now, theirs)) is not None:
        _replace(real, merged, their_mode)
    else:
        kept = real.with_name(f"{name}.holdfast-{stand_in.place.parents[1].name}")
        _replace(kept, now, their_mode)
    sync_directory(stand_in.real)
    _replace(base, now, mode)
    return kept


def _content(path: Path) -> tuple[bytes | None, int]:
    """Content and mode of a file; no content if there is none. A program may have put a symlink there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None, 0o600
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        return file.read() if stat.S_ISREG(found.st_mode) else None, stat.S_IMODE(found.st_mode)


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Replace a file by a whole new one, which is on the disk before it gets the name; its owner stays."""
    temporary = path.with_name(f".{path.name}.holdfast")
    with suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        with suppress(FileNotFoundError, PermissionError):
            owner = path.lstat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        os.fchmod(descriptor, mode)
        file.flush()
        os.fsync(descriptor)
    os.replace(temporary, path)


def _merged(before: bytes | None, now: bytes, theirs: bytes | None) -> bytes | None:
    """What changed from ``before`` to ``now``, in ``theirs``; None unless all are objects of JSON."""
    try:
        texts = [json.loads(each) for each in (before or b"{}", now, theirs or b"{}")]
    except ValueError:
        return None
    if not all(isinstance(each, dict) for each in texts):
        return None
    return json.dumps(_changed(*texts), indent=2, ensure_ascii=False).encode(errors="surrogatepass")


def _changed(before: Any, now: Any, theirs: Any) -> Any:
    """Key by key; of one value that both changed, the one of the program."""
    if not all(isinstance(each, dict) for each in (before, now, theirs)):
        return now
    result = {key: value for key, value in theirs.items() if key in now or key not in before}
    for key, value in now.items():
        if value != before.get(key, _MISSING):
            result[key] = _changed(before.get(key), value, theirs.get(key))
    return result
