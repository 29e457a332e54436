"""Opens the records of Holdfast; ``Store`` reads and writes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

from holdfast.db.access import Access
from holdfast.db.collecting import CollectionRecords
from holdfast.db.damaged import DamagedRecords
from holdfast.db.engine import Engine, PostgresDialect, SqliteDialect
from holdfast.db.leases import LeaseRecords
from holdfast.db.moment_queries import CheckpointRecords, GroupRecords
from holdfast.db.queries import DecisionRecords, OperationRecords, PlanRecords, RunRecords
from holdfast.db.schema import ensure_schema
from holdfast.errors import ConfigError, DatabaseError
from holdfast.model import CheckpointGroup, Operation, Plan
from holdfast.system.sqlite import is_empty

FILE = "holdfast.db"
"""The name of the records' file in a home."""


def open_store(url: str | None, home: Path, kept: Mapping[str, Collection[str]] = MappingProxyType({})) -> Store:
    """Open the records in ``home``, or in PostgreSQL if there is a ``url``; they are created or migrated if needed.

    ``kept``: by place, the ids of the records that the home keeps content for; other records there are refused.
    """
    # Not even opened: SQLite would remove the write-ahead log of an empty file.
    if url is None and kept.get(FILE) and is_empty(home / FILE):
        raise _lost(FILE, home)
    engine = Engine(SqliteDialect(home / FILE) if url is None else postgres(url))
    try:
        place = engine.place

        def refuse_new() -> None:
            if kept.get(place):
                raise _lost(place, home)

        ensure_schema(engine, refuse_new)
        store = Store(engine, home)
        is_known = any(store.records_id in ids for ids in kept.values())
        if kept.get(place) and not is_known:
            raise _lost(place, home)
    except BaseException:
        engine.close()
        raise
    return store


def _lost(place: str, home: Path) -> DatabaseError:
    start = (
        f"move the folder {home} away, or set HOLDFAST_HOME to another one"
        if place == FILE
        else "use another database, or none; then `holdfast checkpoint release` gives up what is kept for the old one"
    )
    return DatabaseError(
        f"{home / 'objects.db'} keeps content for records in {place}, but these records are missing or empty, or they "
        "are other records.",
        hint=f"Put the records back from a backup; their content is still there. To start again without them, {start}.",
    )


def postgres(url: str) -> PostgresDialect:
    scheme, separator, _ = url.partition("://")
    if scheme != "postgresql" or not separator:
        # Not the whole URL: it may hold a password.
        raise ConfigError(
            f"The database URL begins with {scheme!r}, and Holdfast does not support that database."
            if separator
            else "The database URL has no scheme.",
            hint="Use postgresql://..., or no URL at all for SQLite in HOLDFAST_HOME.",
        )
    return PostgresDialect(url)


class Store(Access):
    """All records: read and written one by one by ``Access``, and queried by concept."""

    def __init__(self, engine: Engine, home: Path) -> None:
        super().__init__(engine, home)
        self.plans = PlanRecords(self)
        self.decisions = DecisionRecords(self)
        self.runs = RunRecords(self)
        self.groups = GroupRecords(self)
        self.checkpoints = CheckpointRecords(self)
        self.operations = OperationRecords(self)
        self.damaged = DamagedRecords(self)
        self.leases = LeaseRecords(self)
        self.collections = CollectionRecords(self)

    def referenced_states(self, store_id: str) -> set[str]:
        """Every state that a group, an unfinished operation or a merged subplan in that content store needs.

        Refuses if any record that could name a state is damaged, whatever plan it names: that name may be damaged too.
        """
        return {state for _, _, states in self._naming(store_id) for state in states}

    def renew_names(self, store_id: str) -> set[str]:
        """The same, after the tables that tell which records name a state were compared, and written again if wrong."""
        with self.transaction():
            naming = self._naming(store_id)
            self.collections.renew_names(naming, store_id)
        return {state for _, _, states in naming for state in states}

    def _naming(self, store_id: str) -> list[tuple[str, str, Collection[str]]]:
        """Every record that names states in that content store: its id, its plan, and the states."""
        # Only a collection needs it, and every command opens the store.
        from holdfast.db.journal import states_needed_by

        plans = [fields for fields in self.all_fields(Plan) if fields["store_id"] == store_id]
        kept = {fields["plan_id"] for fields in plans}
        groups = [fields for fields in self.all_fields(CheckpointGroup) if fields["plan_id"] in kept]
        operations = [fields for fields in self.all_fields(Operation) if fields["plan_id"] in kept]
        return [
            *((each["group_id"], each["plan_id"], each["states"].values()) for each in groups),
            *((each["operation_id"], each["plan_id"], states_needed_by(each).values()) for each in operations),
            *((each["plan_id"], each["plan_id"], (each["merged_states"] or {}).values()) for each in plans),
        ]
