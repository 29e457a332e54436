"""What the tools return: values for programs, each with the text for a model that reads only text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

_MOST_LISTED = 60
_MOST_PATCH_CHARACTERS = 40_000
"""Clients cut longer results, or refuse them."""


class Moment(msgspec.Struct, frozen=True):
    """One point in time to which the folder can be taken back."""

    id: Annotated[str, Meta(description="What the other tools take as id, from and to.")]
    at: Annotated[str, Meta(description="When it was taken, in UTC.")]
    title: str
    label: str = ""
    agent: Annotated[str, Meta(description="Empty if a person or a program of theirs worked.")] = ""
    prompt: Annotated[str, Meta(description="What the agent was asked to do.")] = ""
    call: Annotated[str, Meta(description="The tool call that it belongs to.")] = ""
    is_failed: bool = False
    is_undone: bool = False

    def text(self) -> str:
        notes = [f"label {self.label}"] if self.label else []
        notes += [word for word, is_so in (("failed", self.is_failed), ("undone", self.is_undone)) if is_so]
        return f"{self.id}  {self.at}  {self.title}{f' ({", ".join(notes)})' if notes else ''}"


class Timeline(msgspec.Struct, frozen=True):
    folder: str
    moments: Annotated[tuple[Moment, ...], Meta(description="Newest first.")]

    def text(self) -> str:
        if not self.moments:
            return f"{self.folder} has no checkpoints yet."
        return "\n".join([f"Checkpoints of {self.folder}, newest first:", *(each.text() for each in self.moments)])


class File(msgspec.Struct, frozen=True):
    path: str
    change: Annotated[str, Meta(description="added, changed or removed.")]
    added_lines: int = 0
    removed_lines: int = 0
    note: str = ""
    patch: Annotated[str, Meta(description="A unified diff; empty for a file that is no text.")] = ""

    def text(self) -> str:
        lines = f"  +{self.added_lines} -{self.removed_lines}" if self.added_lines or self.removed_lines else ""
        return f"{self.change}  {self.path}{lines}{f'  ({self.note})' if self.note else ''}"


class Shown(msgspec.Struct, frozen=True):
    moment: Moment
    files: Annotated[tuple[File, ...], Meta(description="What changed since the moment before it.")]

    def text(self) -> str:
        about = [f"{name}: {value}" for name, value in (("prompt", self.moment.prompt), ("call", self.moment.call)) if value]
        return "\n".join([self.moment.text(), *about, *_listed(self.files, "No file changed since the moment before.")])


class Difference(msgspec.Struct, frozen=True):
    files: tuple[File, ...]
    is_cut: Annotated[bool, Meta(description="Not all patches fit; ask for single paths.")] = False

    def text(self) -> str:
        lines = _listed(self.files, "Nothing differs.")
        lines += [each.patch for each in self.files if each.patch]
        return "\n".join([*lines, *(["Not all patches are shown: ask for single paths."] if self.is_cut else [])])


class Change(msgspec.Struct, frozen=True):
    path: str
    action: Annotated[str, Meta(description="restored or removed.")]

    def text(self) -> str:
        return f"{self.action}  {self.path}"


class Conflict(msgspec.Struct, frozen=True):
    path: str
    reason: str

    def text(self) -> str:
        return f"{self.path}: {self.reason}"


class Taken(msgspec.Struct, frozen=True):
    moment: Moment

    def text(self) -> str:
        return f"Checkpoint {self.moment.id} is taken."


class Changed(msgspec.Struct, frozen=True):
    """What was done to the folder, or would be."""

    is_done: Annotated[bool, Meta(description="False: nothing was changed.")]
    changes: tuple[Change, ...] = ()
    conflicts: Annotated[
        tuple[Conflict, ...],
        Meta(description="Files that were changed since and cannot be merged; nothing is done while there are any."),
    ] = ()
    kept_checkpoint: Annotated[str, Meta(description="The checkpoint of the files as they were before.")] = ""
    confirmation_token: Annotated[
        str, Meta(description="For rewind with dry_run=false: allows exactly this change, once.")
    ] = ""
    note: str = ""

    def text(self) -> str:
        head = "Done." if self.is_done else "Nothing was changed."
        lines = [head, *_listed(self.changes, "No file differs." if not self.conflicts else "")]
        lines += ["These cannot be merged:", *_listed(self.conflicts, "")] if self.conflicts else []
        lines += [f"The files as they were before are kept in {self.kept_checkpoint}."] if self.kept_checkpoint else []
        lines += [f"confirmation_token: {self.confirmation_token}"] if self.confirmation_token else []
        return "\n".join([line for line in lines if line] + ([self.note] if self.note else []))


Result = Timeline | Shown | Difference | Taken | Changed


def without_long_patches(files: Sequence[File]) -> Difference:
    """The files with as many patches as a client takes."""
    room, kept = _MOST_PATCH_CHARACTERS, []
    for each in files:
        fits = len(each.patch) <= room
        room -= len(each.patch) if fits else 0
        kept.append(each if fits else msgspec.structs.replace(each, patch=""))
    return Difference(tuple(kept), is_cut=any(a.patch != b.patch for a, b in zip(files, kept, strict=True)))


def _listed(items: Sequence[File | Change | Conflict], otherwise: str) -> list[str]:
    lines = [each.text() for each in items[:_MOST_LISTED]]
    more = len(items) - _MOST_LISTED
    return [*lines, f"and {more} more"] if more > 0 else lines or [otherwise]


def schema_of(kind: type[Any]) -> dict[str, Any]:
    """The JSON Schema of a struct, in one piece: some clients do not follow references."""
    ((_, ), parts) = msgspec.json.schema_components([kind], ref_template="{name}")
    return _in_one_piece(parts[kind.__name__], parts)


def _in_one_piece(schema: Any, parts: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_in_one_piece(each, parts) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {**_in_one_piece(parts[schema["$ref"]], parts), **{k: v for k, v in schema.items() if k != "$ref"}}
    return {key: _in_one_piece(each, parts) for key, each in schema.items()}
