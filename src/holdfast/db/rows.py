"""Turns a record into a row and back, with a checksum that reveals what the disk changed in between."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from blake3 import blake3

from holdfast.db.engine import Stored
from holdfast.db.tables import Kind, Table
from holdfast.errors import SEE_DOCTOR, DamagedRecordError
from holdfast.model import Record

_CHECKSUM_BYTES = 16
_ESCAPE = "\x1a"
# No database stores half a surrogate pair (Python's form of a file name that is not UTF-8), and PostgreSQL no NUL.
_UNSTORABLE = re.compile(f"[\x00{_ESCAPE}\ud800-\udfff]")
_ESCAPED = re.compile(f"{_ESCAPE}([0-9a-f]{{4}})")


def stored_text(text: str) -> str:
    return _UNSTORABLE.sub(lambda found: f"{_ESCAPE}{ord(found[0]):04x}", str(text))


def _loaded_text(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text) if _ESCAPE in text else text


def _stored_json(value: Any) -> str:
    return json.dumps(value, default=_jsonable, separators=(",", ":"))


def _jsonable(value: Any) -> Any:
    if not isinstance(value, Record):
        return msgspec.to_builtins(value)
    fields = msgspec.structs.asdict(value)
    if msgspec.UNSET not in fields.values():
        return fields
    # A field that was added later is stored only if it is set: other records stay as they were, byte for byte.
    return {name: each for name, each in fields.items() if each is not msgspec.UNSET}


def loaded_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)  # several times as fast
    except msgspec.DecodeError:
        return json.loads(text)  # it also reads halves of surrogate pairs, NaN and infinity


def stored_time(value: datetime) -> str:
    """The time in UTC, always with the same width, so that it sorts as text."""
    return value.astimezone(UTC).isoformat(timespec="microseconds")


def _stored_real(value: float) -> float:
    # SQLite has no negative zero.
    return value + 0.0


_STORED: dict[Kind, Callable[[Any], Stored]] = {
    Kind.TEXT: stored_text,
    Kind.INTEGER: int,
    Kind.BOOLEAN: int,
    Kind.REAL: _stored_real,
    Kind.TIME: stored_time,
    Kind.JSON: _stored_json,
}
_LOADED: dict[Kind, Callable[[Any], Any]] = {
    Kind.TEXT: _loaded_text,
    Kind.INTEGER: int,
    Kind.BOOLEAN: bool,
    Kind.REAL: float,
    Kind.TIME: datetime.fromisoformat,
    Kind.JSON: loaded_json,
}


def row_of(table: Table, record: Record) -> list[Stored]:
    """The record's values in the order of ``table.names``, the checksum last."""
    row = [_converted(_STORED, column.kind, getattr(record, column.field or column.name)) for column in table.columns]
    return [*row, _checksum(table, row)]


def fields_of(table: Table, row: Sequence[Any]) -> dict[str, Any]:
    """The fields of the record, if the row is as it was written."""
    if row[-1] != _checksum(table, row[:-1]):
        raise _damaged(table, row, "its checksum does not match")
    try:
        return {
            column.field or column.name: _converted(_LOADED, column.kind, value)
            for column, value in zip(table.columns, row[:-1], strict=True)
        }
    except (ValueError, TypeError) as error:
        raise _damaged(table, row, str(error)) from error


def _damaged(table: Table, row: Sequence[Any], why: str) -> DamagedRecordError:
    return DamagedRecordError(
        f"The record {key_text(table, row)} in table {table.name} is damaged: {why}.",
        hint=SEE_DOCTOR,
    )


def record_of(table: Table, fields: Mapping[str, Any]) -> Record:
    try:
        return table.model.model_validate(fields)
    except msgspec.ValidationError as error:
        key = " ".join(str(fields[name]) for name in table.key)
        raise DamagedRecordError(
            f"This version cannot read the record {key} in table {table.name}: {error}",
            hint="It was written by another version of Holdfast; use that one, or a newer one.",
        ) from error


def key_text(table: Table, row: Sequence[Any]) -> str:
    return " ".join(str(value) for name, value in zip(table.names, row, strict=True) if name in table.key)


def _converted(conversions: Mapping[Kind, Callable[[Any], Any]], kind: Kind, value: Any) -> Any:
    return None if value is None else conversions[kind](value)


def _checksum(table: Table, row: Sequence[Any]) -> str:
    # Without nulls, so that a later version can add a column and the checksums of old rows stay right.
    values = {name: value for name, value in zip(table.names, row, strict=False) if value is not None}
    # A damaged value can have any type; its repr does not match.
    text = json.dumps(values, default=repr, sort_keys=True, separators=(",", ":"))
    return blake3(text.encode()).hexdigest(length=_CHECKSUM_BYTES)
