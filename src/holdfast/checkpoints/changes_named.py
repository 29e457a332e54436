"""What changed between two moments, in a few words: ``-212 files docs/``, ``commit 1a2b3c4 fix the parser``.

Such words are the titles of the checkpoints of a program: they are read to find the moment at which something was lost
or done. So commits come first, then what was removed, and last what git ignores.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from holdfast.checkpoints.changes import Changes, States, Status, of_user, status_of
from holdfast.checkpoints.file_diffs import file_diff
from holdfast.checkpoints.ignored import ignored_of
from holdfast.content.difference import Difference, StateReader, visible
from holdfast.content.format import State
from holdfast.errors import SandboxError
from holdfast.git.commits import CommitText, ask_for_commit, count_commits, read_commit
from holdfast.git.head import ReadFile, head_in
from holdfast.git.repository import GitRepository
from holdfast.model import Plan, Resource, ResourceType
from holdfast.names import name_text
from holdfast.system.directories import shown

_ROOM = 48
"""So many characters are used for the names of files."""
_LONGEST_SUBJECT = 50
_SHORT_HASH = 7
_MOST_LISTED = 3
_LARGEST_COUNTED_BYTES = 100_000


class Changed(NamedTuple):
    """One file or folder that changed."""

    status: Status
    path: str
    is_folder: bool = False


def name_changes(plan: Plan, reader: StateReader, old: States, new: States) -> str:
    """What changed in the resources of the plan; empty if nothing did that a person would see."""
    everything = Changes(reader).everything(plan, old, new)
    names = [
        name_change(
            reader, plan.resource(name), visible(of_user(plan, plan.resource(name), found)), old[name], new[name]
        )
        for name, found in everything.items()
    ]
    several = len(plan.resources) > 1
    return "; ".join(
        f"{each}: {words}" if several else words for each, words in zip(everything, names, strict=True) if words
    )


def name_change(reader: StateReader, resource: Resource, found: Sequence[Difference], old: str, new: str) -> str:
    """What changed in one resource, of which these files differ between two states."""
    ignored = ignored_of(reader, resource, found, new) if len(found) > 1 else set()
    seen = [each for each in found if each.path not in ignored]
    parts = [name_commits(reader, resource, old, new) if resource.type is ResourceType.GIT else ""]
    if len(seen) == 1:
        parts.append(f"{name_files(map(_changed, seen))}{_lines(reader, resource, seen[0])}")
    else:
        parts.append(name_files(map(_changed, seen)))
    if ignored:
        kind = f"{len(ignored)} ignored {_files(len(ignored))}"
        parts.append(kind if seen else f"{kind}: {_listed([shown(each.path) for each in found])}")
    return ", ".join(filter(None, parts))


# Commits


def name_commits(reader: StateReader, resource: Resource, old: str, new: str) -> str:
    """What happened to HEAD; empty if nothing did."""
    read_old, read_new = (_git_files(reader, reader.state(each)) for each in (old, new))
    before, after = head_in(read_old), head_in(read_new)
    if before == after or after is None:
        return "" if before == after else "no repository"
    switched = "" if before is not None and before.branch == after.branch else f"branch {after.branch or 'none'}"
    known = None if before is None else before.commit
    if after.commit is None or after.commit == known:
        return switched or "no commit"
    count = count_commits(read_new, after.commit, known)
    commit = read_commit(read_new, after.commit) or _ask(resource, after.commit)
    subject = _cut(name_text(commit.subject), _LONGEST_SUBJECT) if commit is not None else ""
    text = f"{after.commit[:_SHORT_HASH]} {subject}".rstrip()
    made = f"HEAD at {text}" if count is None else f"commit {text}" if count == 1 else f"{count} commits to {text}"
    return f"{switched}, {made}" if switched else made


def _ask(resource: Resource, commit: str) -> CommitText | None:
    """A commit that git has packed."""
    with suppress(SandboxError):
        objects = Path(resource.sandbox_path) / ".git" / "objects"
        return ask_for_commit(GitRepository.at(Path(resource.path)), objects, commit)
    return None


def _git_files(reader: StateReader, state: State) -> ReadFile:
    def read(name: bytes) -> bytes | None:
        entry = reader.find(state, b".git/" + name)
        return b"".join(reader.content(entry)) if entry is not None and entry.is_file else None

    return read


# Files


def name_files(changes: Iterable[Changed]) -> str:
    """How many files were removed, changed and added, and which, as far as there is room."""
    ordered = sorted(changes, key=lambda each: (each.status == "added", each.path))
    removed = [each for each in ordered if each.status == "removed"]
    written = [each for each in ordered if each.status != "removed"]
    room = _ROOM // 2 if removed and written else _ROOM
    return ", ".join(_group(each, room) for each in (removed, written) if each)


def _group(changes: Sequence[Changed], room: int) -> str:
    signs = {"removed": "-", "added": "+", "changed": ""}
    statuses = {each.status for each in changes}
    sign = signs[changes[0].status] if len(statuses) == 1 else ""
    # Among changed files, those that are new are marked.
    names = [f"{'' if sign else signs[each.status]}{each.path}{'/' if each.is_folder else ''}" for each in changes]
    kind = "folder" if all(each.is_folder for each in changes) else "file"
    counted = f"{sign}{len(changes)} {kind}{'' if len(changes) == 1 else 's'}"
    top = _common_folder([each.path for each in changes])
    if top and len(changes) > _MOST_LISTED:
        return f"{counted} {name_text(top)}/"
    return f"{counted}: {_listed(names, room)}"


def _common_folder(paths: Sequence[str]) -> str:
    return os.path.commonpath([os.path.dirname(path) for path in paths])


def _listed(names: Sequence[str], room: int = _ROOM) -> str:
    first = _end_of(name_text(names[0]), room)
    used, listed = len(first), [first]
    for name in map(name_text, names[1:]):
        used += 2 + len(name)
        if used > room:
            break
        listed.append(name)
    return ", ".join(listed) + (", …" if len(listed) < len(names) else "")


def _files(count: int) -> str:
    return "file" if count == 1 else "files"


def _end_of(path: str, room: int) -> str:
    """The path, or its end: that is what tells it from others."""
    return path if len(path) <= room else "…" + path[1 - room :]


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"


def _changed(difference: Difference) -> Changed:
    return Changed(status_of(difference), shown(difference.path), is_folder=not difference.is_of_file)


def _lines(reader: StateReader, resource: Resource, difference: Difference) -> str:
    """How many lines changed: several moments may have changed only this file."""
    old, new = difference.old, difference.new
    if old is None or new is None or max(old.size, new.size) > _LARGEST_COUNTED_BYTES:
        return ""
    found = file_diff(reader, resource.name, difference)
    return f" +{found.added_lines} -{found.removed_lines}" if found.patch else ""
