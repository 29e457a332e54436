"""What the tools return: values for programs, each with the text for a model that reads only text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

MOST_LISTED = 200
"""How many files a result lists; it says how many there are."""
_MOST_SHOWN = 60
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
        notes = [word for word, is_so in (("failed", self.is_failed), ("undone", self.is_undone)) if is_so]
        return f"{self.id}  {self.at}  {self.title}" + (f" ({', '.join(notes)})" if notes else "")


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
        return f"{self.change}  {self.path}{lines}" + (f"  ({self.note})" if self.note else "")


class Shown(msgspec.Struct, frozen=True):
    moment: Moment
    files: Annotated[tuple[File, ...], Meta(description="What changed since the moment before it.")]
    total: Annotated[int, Meta(description="How many files; not all of many are listed.")]

    def text(self) -> str:
        moment = self.moment
        about = [f"{name}: {value}" for name, value in (("prompt", moment.prompt), ("call", moment.call)) if value]
        listed = _listed(self.files, self.total) or ["No file changed since the moment before."]
        return "\n".join([moment.text(), *about, *listed])


class Difference(msgspec.Struct, frozen=True):
    files: tuple[File, ...]
    total: Annotated[int, Meta(description="How many files; not all of many are listed.")]
    is_cut: Annotated[bool, Meta(description="Not all patches fit; ask for single paths.")] = False

    def text(self) -> str:
        lines = _listed(self.files, self.total) or ["Nothing differs."]
        lines += [each.patch for each in self.files if each.patch]
        return "\n".join([*lines, *(["Not all patches are shown: ask for single paths."] if self.is_cut else [])])


class Change(msgspec.Struct, frozen=True):
    path: str
    action: Annotated[str, Meta(description="restored or removed.")]

    def text(self) -> str:
        return f"{self.action}  {self.path}"


class Taken(msgspec.Struct, frozen=True):
    moment: Moment

    def text(self) -> str:
        return f"Checkpoint {self.moment.id} is taken."


class Changed(msgspec.Struct, frozen=True):
    """What was done to the folder, or would be."""

    is_done: Annotated[bool, Meta(description="false: nothing was changed.")]
    changes: tuple[Change, ...] = ()
    total: Annotated[int, Meta(description="How many files; not all of many are listed.")] = 0
    kept_checkpoint: Annotated[str, Meta(description="The checkpoint of the files as they were before.")] = ""
    confirmation_token: Annotated[
        str, Meta(description="For rewind with dry_run=false: allows exactly this change, once.")
    ] = ""
    note: str = ""

    def text(self) -> str:
        lines = [self._head(), self.listing(), self.note]
        lines += [f"The files as they were before are kept in {self.kept_checkpoint}."] if self.kept_checkpoint else []
        lines += [f"confirmation_token: {self.confirmation_token}"] if self.confirmation_token else []
        return "\n".join(filter(None, lines))

    def _head(self) -> str:
        if self.is_done:
            return "Done."
        return "Nothing is changed yet. This would be:" if self.changes else "Nothing was changed."

    def listing(self) -> str:
        return "\n".join(_listed(self.changes, self.total))


def without_long_patches(files: Sequence[File]) -> Difference:
    """The files with as many patches as a client takes."""
    room, kept, is_cut = _MOST_PATCH_CHARACTERS, [], len(files) > MOST_LISTED
    for each in files[:MOST_LISTED]:
        fits = len(each.patch) <= room
        room -= len(each.patch) if fits else 0
        is_cut = is_cut or not fits
        kept.append(each if fits else msgspec.structs.replace(each, patch=""))
    return Difference(tuple(kept), len(files), is_cut)


def _listed(items: Sequence[File | Change], total: int) -> list[str]:
    lines = [each.text() for each in items[:_MOST_SHOWN]]
    return [*lines, f"and {total - len(lines):,} more"] if total > len(lines) else lines


def schema_of(kind: type[Any]) -> dict[str, Any]:
    """The JSON Schema of a struct, in one piece: some clients do not follow references."""
    _, parts = msgspec.json.schema_components([kind], ref_template="{name}")
    whole: dict[str, Any] = _in_one_piece(parts[kind.__name__], parts)
    return whole


def _in_one_piece(schema: Any, parts: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_in_one_piece(each, parts) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {**_in_one_piece(parts[schema["$ref"]], parts), **{k: v for k, v in schema.items() if k != "$ref"}}
    return {key: _in_one_piece(each, parts) for key, each in schema.items()}
