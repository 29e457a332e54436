"""What is in the sandboxes now, compared with recorded states and stored nowhere: for a home that cannot be written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.checkpoints.file_diffs import FileDiff, file_diff
from holdfast.content.difference import Difference, StateReader, visible
from holdfast.content.format import FILE, PIECE_BYTES, PIECES, Entry, digest_of, encode_pieces
from holdfast.errors import SandboxError, described
from holdfast.model import Plan, ResourceType
from holdfast.names import name_text
from holdfast.sandbox import sandbox_for
from holdfast.snapshot.manager import CheckpointManager


def diff_to_present(plan: Plan, manager: CheckpointManager, states: dict[str, str]) -> list[FileDiff]:
    """What a person would call changed between these states and now."""
    found = []
    for resource in plan.resources:
        tree = manager.unstored(Path(resource.sandbox_path))
        present, hides = tree.state(), sandbox_for(plan, resource).hides
        # The folder of a work tree itself is no part of a repository.
        has_root = resource.type is ResourceType.DIRECTORY
        differences = visible(
            each
            for each in tree.reader.differences(tree.reader.state(states[resource.name]), present)
            if (each.path or has_root) and not hides(each.path)
        )
        contents = _Contents(tree.reader, Path(resource.sandbox_path), differences)
        found += [file_diff(contents, resource.name, each) for each in differences]
    return found


class _Contents:
    """The content of files, from the store, or from the sandbox if only that has it."""

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
                f"{name_text(os.fsdecode(path))} was changed while it was looked at.", hint="Run the command again."
            )
        yield content


def _name_of(content: bytes, kind: int) -> bytes:
    if kind == FILE:
        return digest_of(content)
    pieces = (content[start : start + PIECE_BYTES] for start in range(0, len(content), PIECE_BYTES))
    return digest_of(encode_pieces([digest_of(piece) for piece in pieces]))
