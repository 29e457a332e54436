"""Opens the records for Alembic's own command, and helps its migrations to change rows and to lose nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import op
from alembic.util import CommandError
from blake3 import blake3
from sqlalchemy import Connection, text

from holdfast.db.engine import SqliteDialect
from holdfast.db.schema import migrating
from holdfast.db.store import FILE, postgres
from holdfast.errors import HoldfastError
from holdfast.system.sqlite import is_empty, is_read_only


@contextmanager
def records_to_migrate(url: str | None, home: Path) -> Iterator[Connection]:
    """The connection of ``migrating``; our errors become Alembic's."""
    with our_errors_as_alembics(), migrating(_in_home(home) if url is None else postgres(url)) as connection:
        yield connection


@contextmanager
def our_errors_as_alembics() -> Iterator[None]:
    """Turn our errors into Alembic's: its command prints those, and a traceback for all others."""
    try:
        yield
    except HoldfastError as error:
        raise CommandError(f"{error.message} {error.hint}".strip()) from error


def _in_home(home: Path) -> SqliteDialect:
    path = home / FILE
    if is_empty(path):
        raise CommandError(f"There are no records in {home}. Set HOLDFAST_HOME; the first plan creates them.")
    if is_read_only(path):
        raise CommandError(f"The records {path} are read-only.")
    return SqliteDialect(path)


# For migrations


def refuse_while_in_use() -> None:
    """Refuse while a process works on a plan: it needs the columns it knows."""
    in_use = _rows("SELECT plan_id, host, pid FROM lease WHERE owner IS NOT NULL")
    if in_use:
        plan_id, host, pid = in_use[0]
        raise CommandError(
            f"Nothing was changed: plan {plan_id} is in use by process {pid} on {host}, or that process died while it "
            f"used the plan. Wait for it, or recover the plan with `holdfast plan resume {plan_id}`."
        )


def drop_columns(table: str, *columns: str) -> None:
    """Drop columns; refuses if they hold anything, which would be lost and is part of the rows' checksums."""
    for column in columns:
        found = _rows(f"SELECT count(*) FROM {table} WHERE {column} IS NOT NULL")[0][0]
        if found:
            raise would_lose(f"{column} of {found} records in {table}")
    for column in columns:
        op.execute(f"ALTER TABLE {table} DROP COLUMN {column}")


def forget(table: str, key: str, columns: Sequence[str], where: str) -> None:
    """Empty these columns in rows that lose nothing by it; a damaged row stays, and is refused later."""
    fill(table, key, dict.fromkeys(columns), where)


def fill(table: str, key: str, new: Mapping[str, int | None], where: str) -> None:
    """Write these values into rows, with the checksum that belongs to them; a damaged row stays as it is."""
    result = op.get_bind().execute(text(f"SELECT * FROM {table} WHERE {where}"))
    for row in result.mappings().all():
        values = {name: value for name, value in row.items() if name != "checksum"}
        if row["checksum"] != _checksum(values):
            continue
        assigned = ", ".join(f"{name} = :{name}" for name in new)
        op.get_bind().execute(
            text(f"UPDATE {table} SET {assigned}, checksum = :checksum WHERE {key} = :key"),
            {**new, "checksum": _checksum({**values, **new}), "key": row[key]},
        )


def refuse_with_any(table: str, what: str) -> None:
    if _rows(f"SELECT count(*) FROM {table}")[0][0]:
        raise would_lose(what)


def would_lose(what: str) -> CommandError:
    return CommandError(f"Nothing was changed: downgrading to the previous revision would lose {what}.")


def _rows(sql: str) -> Sequence[Any]:
    return op.get_bind().execute(text(sql)).all()


def _checksum(values: dict[str, Any]) -> str:
    """The checksum as docs/format.md describes it; the one in ``rows`` knows only the present columns."""
    counted = {name: value for name, value in values.items() if value is not None}
    return blake3(json.dumps(counted, default=repr, sort_keys=True, separators=(",", ":")).encode()).hexdigest(
        length=16
    )
