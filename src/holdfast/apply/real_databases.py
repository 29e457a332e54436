"""Databases among the real files: refused while some program works on them, before anything is changed."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from holdfast.apply.real_change import RealChange
from holdfast.content.difference import Difference, StateReader
from holdfast.errors import ConflictError
from holdfast.names import name_text
from holdfast.sandbox.databases import database_of
from holdfast.snapshot.database_changes import databases_in_use, unknown_logs
from holdfast.snapshot.restore.guarded import InUse


def refuse_databases_at_risk(changes: Iterable[RealChange], reader: StateReader) -> None:
    """Refuse to replace a database that some program has open, or that has a log beside it that would stay."""
    logs = []
    in_use = []
    for each in changes:
        root = each.root
        in_use += [_named(root, *found) for found in databases_in_use(root, reader, each.differences)]
        logs += [name_text(str(root / os.fsdecode(path))) for path in unknown_logs(root, reader, each.differences)]
    if in_use:
        raise _open_elsewhere("nothing was changed", in_use)
    if logs:
        listed = "\n  ".join(logs)
        raise ConflictError(
            "These logs hold changes that are not in their databases yet, and the databases are to be replaced; "
            f"nothing was changed:\n  {listed}",
            hint="Open each database with its own program, or with `sqlite3`, and close it again: that takes the log "
            "into it. Then run the command again.",
            paths=tuple(logs),
        )


def database_in_use(root: Path, found: InUse) -> ConflictError:
    """The message if a program opened it at the last moment."""
    return _open_elsewhere("nothing was changed", [_named(root, found.path, found.programs)])


def refuse_to_restore(root: Path, in_use: Sequence[tuple[bytes, str]]) -> None:
    if in_use:
        outcome = "the real files cannot be restored yet, and the next command on this plan does it"
        raise _open_elsewhere(outcome, [_named(root, *found) for found in in_use])


def databases_with_work_in_logs(
    root: Path, reader: StateReader, differences: Sequence[Difference], known: Collection[bytes]
) -> set[bytes]:
    """Those that are to be restored, and whose logs were written to; ``known`` are paths of our own change."""
    logs = set(unknown_logs(root, reader, differences)).difference(known)
    return {path for path in map(database_of, logs) if path is not None}


def _named(root: Path, path: bytes, programs: str) -> str:
    return f"{name_text(str(root / os.fsdecode(path)))}: {programs}"


def _open_elsewhere(outcome: str, in_use: Sequence[str]) -> ConflictError:
    listed = "\n  ".join(in_use)
    return ConflictError(
        f"These databases are open in other programs; {outcome}:\n  {listed}",
        hint="Close those programs, then run the command again.",
        paths=tuple(in_use),
    )
