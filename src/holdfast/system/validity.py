"""Checks of ids, times and limits when a value is made of them; a ``ValueError`` names the field."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.system.ids import is_id


def refuse_unless_id(name: str, value: object) -> None:
    if not (isinstance(value, str) and is_id(value)):
        raise ValueError(f"{name} is not a ULID: {value!r}")


def refuse_unless_utc(name: str, value: object) -> None:
    if not (isinstance(value, datetime) and value.utcoffset() == timedelta(0)):
        raise ValueError(f"{name} is not a time in UTC: {value!r}")


def refuse_unless_at_least(least: int, name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is not a whole number of {least} or more: {value!r}")
