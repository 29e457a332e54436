"""Compares the sandboxes with recorded states without storing anything: for a home that cannot be written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.checkpoints.changes import of_user
from holdfast.checkpoints.file_diffs import Contents
from holdfast.content.difference import Difference, StateReader, visible
from holdfast.content.format import FILE, PIECE_BYTES, PIECES, Entry, digest_of, encode_pieces
from holdfast.errors import SandboxError, described
from holdfast.model import Plan, Resource
from holdfast.names import name_text
from holdfast.snapshot.manager import CheckpointManager


def differences_to_present(
    plan: Plan, manager: CheckpointManager, states: dict[str, str]
) -> Iterator[tuple[Resource, list[Difference], Contents]]:
    """For each resource the differences worth showing between these states and the present files."""
    for resource in plan.resources:
        tree = manager.unstored(Path(resource.sandbox_path))
        differing = tree.reader.differences(tree.reader.state(states[resource.name]), tree.state())
        differences = visible(of_user(plan, resource, differing))
        yield resource, differences, _Contents(tree.reader, Path(resource.sandbox_path), differences)


class _Contents:
    """Reads the content of files from the store, or from the sandbox if only that has it."""

    def __init__(self, reader: StateReader, root: Path, differences: Iterable[Difference]) -> None:
        self._reader, self._root = reader, root
        self._paths = {
            each.new.content: each.path for each in differences if each.new and each.new.kind in (FILE, PIECES)
        }

    def content(self, entry: Entry) -> Iterator[bytes]:
        if entry.size == 0 or entry.content not in self._paths:
            yield from self._reader.content(entry)
            return
        path = os.path.join(os.fsencode(self._root), self._paths[entry.content])
        try:
            content = Path(os.fsdecode(path)).read_bytes()
        except OSError as error:
            raise SandboxError(f"A file cannot be read: {described(error)}.", hint="Run the command again.") from error
        if _name_of(content, entry.kind) != entry.content:
            raise SandboxError(
                f"{name_text(os.fsdecode(path))} was changed while it was read.", hint="Run the command again."
            )
        yield content


def _name_of(content: bytes, kind: int) -> bytes:
    if kind == FILE:
        return digest_of(content)
    pieces = (content[start : start + PIECE_BYTES] for start in range(0, len(content), PIECE_BYTES))
    return digest_of(encode_pieces([digest_of(piece) for piece in pieces]))
