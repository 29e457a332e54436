"""Files of agents that we write into: changed at once or not at all, and brought back as they were.

A record in Holdfast's home holds each file as it was before our first change, and what it was made into. If the file
is still that, taking our entries out gives back every byte; otherwise only our entries are taken out. The record is
written first. Dies: before the file is replaced, the record says something that is not so, which the next command sees
by the checksum; after it, all is done.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast.agents.installation.json_text import BrokenText
from holdfast.errors import ConfigError, described
from holdfast.names import name_text
from holdfast.system.small_files import replace_text, sole_writer

T = TypeVar("T")
_FOLDER = "installation"
_RECORD, _COPY = "record.json", "before"


class Action(StrEnum):
    ADDED = "added"
    UPDATED = "updated"
    REMOVED = "removed"
    UNCHANGED = "unchanged"


class FileChange(msgspec.Struct, frozen=True):
    path: Path
    action: Action
    copy: Path | None = None
    """Where the file as it was is kept, if it was there."""
    is_exact: bool = True
    """For a removal: the file is again, byte for byte, what it was."""


class _Record(msgspec.Struct, frozen=True):
    path: str
    was_there: bool
    after: str
    """The checksum of what the file was made into."""
    made_folders: tuple[str, ...] = ()


class ConfigFile:
    """One file of an agent, and how our entries get into its text and out again."""

    def __init__(
        self,
        path: Path,
        home: Path,
        *,
        added: Callable[[str], str],
        cleared: Callable[[str, str | None], str],
        is_private: bool = False,
        purpose: str = "",
    ) -> None:
        """``purpose`` tells entries apart that are put into the same file independently of each other."""
        # A user may keep the file elsewhere and link to it.
        self.path = Path(os.path.realpath(path))
        self._folder = home / _FOLDER / _checksum(f"{self.path}\0{purpose}")[:16]
        self._home, self._added, self._cleared, self._is_private = home, added, cleared, is_private

    def text(self) -> str | None:
        """The file's text; None if there is no such file."""
        try:
            return self.path.read_bytes().decode()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"{described(error)}.", hint="Make it readable for you.") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{self._name} is not UTF-8 text.", hint="Save it as UTF-8.") from error

    def read(self, look: Callable[[str], T]) -> T:
        """What is found in the text, which is empty if there is no file."""
        text = self.text() or ""
        return self._edit(lambda: look(text))

    @property
    def _name(self) -> str:
        return name_text(str(self.path))

    def install(self, *, dry_run: bool = False) -> FileChange:
        present = self.text()
        before = self._before(present)
        wanted = self._edit(lambda: self._added(before or ""))
        if wanted == present:
            return FileChange(self.path, Action.UNCHANGED, self._kept_copy())
        has_ours = present is not None and before != present
        action = Action.UPDATED if has_ours else Action.ADDED
        if not dry_run:
            self._write(wanted, before, present)
        return FileChange(self.path, action, self._folder / _COPY if before is not None else None)

    def uninstall(self, *, dry_run: bool = False) -> FileChange:
        present = self.text()
        before = self._before(present)
        if present is None or before == present:
            if not dry_run:
                self._forget()
            return FileChange(self.path, Action.UNCHANGED)
        is_exact = self._is_as_written(present)
        if not dry_run:
            self._put_back(before, present)
        return FileChange(self.path, Action.REMOVED, is_exact=is_exact)

    def _before(self, present: str | None) -> str | None:
        """The file without our entries: as it was if nothing else has changed since; None if there would be none."""
        if present is None:
            return None
        record = self._record()
        was = self._copied() if record is not None else None
        if self._is_as_written(present):
            return was
        cleared = self._edit(lambda: self._cleared(present, was))
        was_made_by_us = record is not None and not record.was_there
        return None if was_made_by_us and cleared.strip() in ("", "{}") and cleared != present else cleared

    def _is_as_written(self, present: str) -> bool:
        record = self._record()
        return record is not None and record.after == _checksum(present)

    def _record(self) -> _Record | None:
        try:
            record = msgspec.json.decode((self._folder / _RECORD).read_bytes(), type=_Record)
        except (OSError, msgspec.DecodeError):
            return None
        # Without the copy nothing is known of the file as it was.
        return record if record.was_there == (self._copied() is not None) else None

    def _copied(self) -> str | None:
        try:
            return (self._folder / _COPY).read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            return None

    def _kept_copy(self) -> Path | None:
        return self._folder / _COPY if (self._folder / _COPY).exists() else None

    def _edit(self, change: Callable[[], T]) -> T:
        try:
            return change()
        except BrokenText as error:
            raise ConfigError(
                f"{self._name}:{error.line} cannot be edited: {error.reason}. Nothing was changed.",
                hint="Correct that line; the agent ignores the whole file as it is.",
            ) from error

    def _write(self, wanted: str, before: str | None, present: str | None) -> None:
        missing = [each for each in (self.path.parent, *self.path.parent.parents) if not each.exists()]
        earlier = self._record()
        made = earlier.made_folders if earlier is not None else ()
        record = _Record(
            str(self.path), before is not None, _checksum(wanted), made or tuple(str(each) for each in missing)
        )
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if before is not None:
                replace_text(self._folder / _COPY, before, new_file_mode=0o600)
            replace_text(self._folder / _RECORD, msgspec.json.encode(record).decode(), new_file_mode=0o600)
            self.path.parent.mkdir(mode=0o700 if self._is_private else 0o777, parents=True, exist_ok=True)
            self._replace(wanted, present)
        except OSError as error:
            raise ConfigError(f"{described(error)}.", hint="Make the file and its folder writable for you.") from error

    def _put_back(self, before: str | None, present: str) -> None:
        try:
            if before is not None:
                self._replace(before, present)
            else:
                with sole_writer(self.path.parent):
                    self._refuse_changed(present)
                    self.path.unlink(missing_ok=True)
                record = self._record()
                for folder in record.made_folders if record is not None else ():
                    with suppress(OSError):  # something else is in it
                        Path(folder).rmdir()
        except OSError as error:
            raise ConfigError(f"{described(error)}.", hint="Make the file and its folder writable for you.") from error
        self._forget()

    def _replace(self, text: str, present: str | None) -> None:
        """Replace what is ``present``, and nothing else: the agent may write the file as well."""
        with sole_writer(self.path.parent):
            self._refuse_changed(present)
            mode = self.path.stat().st_mode & 0o7777 if self.path.exists() else None
            replace_text(self.path, text, mode=mode, new_file_mode=0o600 if self._is_private else 0o666)

    def _refuse_changed(self, present: str | None) -> None:
        if self.text() != present:
            raise ConfigError(f"{self._name} was changed meanwhile.", hint="Run the command again.")

    def _forget(self) -> None:
        for name in (_RECORD, _COPY):
            (self._folder / name).unlink(missing_ok=True)
        for folder in (self._folder, self._folder.parent):
            with suppress(OSError):
                folder.rmdir()


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
