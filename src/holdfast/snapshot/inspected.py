"""Tells a sandbox that was only inspected, for example with git, from one that was changed."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.content.difference import Difference, StateReader
from holdfast.content.format import DIRECTORY, Entry
from holdfast.git.index_content import mean_the_same
from holdfast.sandbox.protocol import Sandbox
from holdfast.system.directories import join

_INDEX = b"index"


def was_only_inspected(reader: StateReader, sandbox: Sandbox, before: str, after: str) -> bool:
    """Whether two states of a sandbox differ only in what git writes into its index when it reads a repository."""
    old, new = reader.state(before), reader.state(after)
    return old.links == new.links and all(_is_trace(reader, sandbox, each) for each in reader.differences(old, new))


def _is_trace(reader: StateReader, sandbox: Sandbox, difference: Difference) -> bool:
    path, old, new = difference
    if old is None or new is None:
        return False
    if old.kind == new.kind == DIRECTORY:
        # Git creates its lock beside the index even if it then has nothing to write.
        has_index = sandbox.keeps_index_at(join(path, _INDEX)) and _INDEX in reader.directory(new)
        return replace(new, content=old.content, mtime_ns=old.mtime_ns if has_index else new.mtime_ns) == old
    return sandbox.keeps_index_at(path) and _says_the_same(reader, old, new)


def _says_the_same(reader: StateReader, old: Entry, new: Entry) -> bool:
    """Whether two versions of an index mean the same; its mode depends on who ran git, so it does not count."""
    if not (old.is_file and new.is_file) or (old.uid, old.gid, old.xattrs) != (new.uid, new.gid, new.xattrs):
        return False
    return mean_the_same(b"".join(reader.content(old)), b"".join(reader.content(new)))
