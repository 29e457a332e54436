"""Whether a sandbox was only inspected, with git for example, or changed."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.content.difference import Difference, StateReader
from holdfast.content.format import DIRECTORY, Entry
from holdfast.git.index_content import mean_the_same
from holdfast.sandbox.protocol import Sandbox
from holdfast.system.directories import join

_INDEX = b"index"


def was_only_inspected(reader: StateReader, sandbox: Sandbox, before: str, after: str) -> bool:
    """Whether nothing differs between two states of a sandbox but what git notes in its index when it is asked."""
    old, new = reader.state(before), reader.state(after)
    return old.links == new.links and all(_is_trace(reader, sandbox, each) for each in reader.differences(old, new))


def _is_trace(reader: StateReader, sandbox: Sandbox, difference: Difference) -> bool:
    path, old, new = difference
    if old is None or new is None:
        return False
    if old.kind == new.kind == DIRECTORY:
        # Git makes its lock beside the index, also if it then finds nothing to note.
        has_index = sandbox.keeps_index_at(join(path, _INDEX)) and _INDEX in reader.directory(new)
        return replace(new, content=old.content, mtime_ns=old.mtime_ns if has_index else new.mtime_ns) == old
    return sandbox.keeps_index_at(path) and _says_the_same(reader, old, new)


def _says_the_same(reader: StateReader, old: Entry, new: Entry) -> bool:
    """Of an index that git writes anew, the mode is that of the user who ran it."""
    if not (old.is_file and new.is_file) or (old.uid, old.gid, old.xattrs) != (new.uid, new.gid, new.xattrs):
        return False
    return mean_the_same(b"".join(reader.content(old)), b"".join(reader.content(new)))
