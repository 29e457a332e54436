"""What git is shown of a plan's result: the files for a commit, with the attributes and rules that hold for them.

Git never looks into the sandbox for it. A person may edit there while they are asked whether to apply, and its
attributes and rules for ignored files are those of the day the plan began.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from holdfast.content.difference import Difference, StateReader
from holdfast.content.format import SYMLINK, UNKNOWN_OWNER, Entry, State
from holdfast.errors import SandboxError
from holdfast.git.work_tree import attributes_for
from holdfast.snapshot.selection import change
from holdfast.system.directories import split
from holdfast.system.trees import make_folders, temporary_folder, temporary_place

_MAY_RUN = 0o100


def git_can_hold(entry: Entry) -> bool:
    return entry.is_file or entry.kind == SYMLINK


class FilesForGit(msgspec.Struct, frozen=True):
    reader: StateReader
    entries: Mapping[bytes, Entry]
    texts: Mapping[bytes, bytes] = msgspec.field(default_factory=dict)
    """What is in no snapshot: some files hold it in place of what their entry says, others have no entry."""

    @contextmanager
    def as_work_tree(self) -> Iterator[Path]:
        """A folder with them, for a moment."""
        with temporary_folder() as work_tree:
            try:
                self._put(work_tree)
            except OSError as error:
                raise SandboxError(
                    f"The files for git cannot be put into a temporary folder: {error.strerror}. Nothing was changed.",
                    hint=f"Make room in {temporary_place()}, or name another folder in TMPDIR.",
                ) from error
            yield work_tree

    def _put(self, folder: Path) -> None:
        """Readable, and with no more of their attributes than git takes notice of."""
        make_folders(folder, (split(path)[0] for path in {*self.entries, *self.texts}))
        stored = (each for each in self.entries.items() if each[0] not in self.texts)
        made = [Difference(path, None, _as_git_sees_it(entry)) for path, entry in stored]
        change(folder, self.reader, made, is_real=False)
        for path, content in self.texts.items():
            file = folder / os.fsdecode(path)
            file.write_bytes(content)
            if path in self.entries:
                file.chmod(_mode_as_git_sees_it(self.entries[path]))


def _as_git_sees_it(entry: Entry) -> Entry:
    mode = _mode_as_git_sees_it(entry) if entry.is_file else entry.mode
    return msgspec.structs.replace(entry, mode=mode, uid=UNKNOWN_OWNER, gid=UNKNOWN_OWNER, xattrs=())


def _mode_as_git_sees_it(entry: Entry) -> int:
    return 0o700 if entry.mode & _MAY_RUN else 0o600


def files_of(reader: StateReader, state: State, paths: Collection[bytes]) -> FilesForGit:
    """These paths as they are in a state, with the attributes of that state."""
    found = ((path, reader.find(state, path)) for path in {*paths, *attributes_for(paths)})
    held = {path: entry for path, entry in found if entry is not None and git_can_hold(entry)}
    return FilesForGit(reader, held)
