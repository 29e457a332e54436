from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.db.rows import _checksum, fields_of, loaded_json, record_of, row_of, stored_text
from holdfast.db.tables import TABLE_OF, Column
from holdfast.errors import DamagedRecordError, DatabaseError
from holdfast.model import Checkpoint, CheckpointMetadata, Operation, OperationKind, Phase, Project
from holdfast.system.ids import new_id

PROJECTS = TABLE_OF[Project]
OPERATIONS = TABLE_OF[Operation]


def project(root: str = "/src", created_at: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> Project:
    return Project(project_id="01A", root=root, created_at=created_at)


@given(st.text(st.characters(exclude_categories=[])))
def test_any_text_is_stored_in_a_form_both_databases_take_and_comes_back(root: str) -> None:
    row = row_of(PROJECTS, project(root))
    assert b"\x00" not in str(row[1]).encode("utf-8")
    assert record_of(PROJECTS, fields_of(PROJECTS, row)) == project(root)


@pytest.mark.unmeasured
@given(st.text(), st.text())
def test_different_texts_are_stored_differently(one: str, other: str) -> None:
    assert (stored_text(one) == stored_text(other)) == (one == other)


def test_ordinary_text_is_stored_as_it_is() -> None:
    assert stored_text("/home/müller/☃") == "/home/müller/☃"


@pytest.mark.unmeasured
@given(st.lists(st.datetimes(timezones=st.timezones()), min_size=2, max_size=2))
def test_stored_times_are_utc_and_sort_as_the_times_do(times: list[datetime]) -> None:
    inside = all(1 < time.year < 9999 for time in times)
    one, other = (time if inside else datetime(2026, 1, 1, tzinfo=UTC) for time in times)
    stored = [str(row_of(PROJECTS, project(created_at=time))[2]) for time in (one, other)]
    assert (stored[0] < stored[1]) == (one.astimezone(UTC) < other.astimezone(UTC))
    assert len(stored[0]) == len(stored[1])


def test_a_time_of_another_zone_is_the_same_moment_when_it_comes_back() -> None:
    there = datetime(2026, 1, 1, 3, tzinfo=timezone(timedelta(hours=3)))
    loaded = record_of(PROJECTS, fields_of(PROJECTS, row_of(PROJECTS, project(created_at=there))))
    assert loaded == project(created_at=datetime(2026, 1, 1, tzinfo=UTC))


def test_the_checksum_of_an_old_row_holds_when_a_column_that_may_be_null_is_added() -> None:
    row = row_of(PROJECTS, project())
    later = msgspec.structs.replace(PROJECTS, columns=(*PROJECTS.columns, Column("note", optional=True)))
    assert fields_of(later, [*row[:-1], None, row[-1]])["root"] == "/src"


def test_a_value_of_a_type_that_was_never_written_is_damage() -> None:
    row = row_of(PROJECTS, project())
    with pytest.raises(DatabaseError, match="01A in table project is damaged"):
        fields_of(PROJECTS, [row[0], b"/src", *row[2:]])


def test_what_json_does_not_know_is_stored_in_its_nearest_form() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    operation = Operation(
        operation_id="01A", plan_id="01B", kind=OperationKind.APPLY, data={"at": at, "paths": {"a"}}, created_at=at
    )
    assert fields_of(OPERATIONS, row_of(OPERATIONS, operation))["data"] == {
        "at": "2026-01-01T00:00:00Z",
        "paths": ["a"],
    }


def test_the_order_in_a_mapping_is_kept() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    operation = Operation(
        operation_id="01A", plan_id="01B", kind=OperationKind.APPLY, data={"z": 1, "a": 2}, created_at=at
    )
    assert list(fields_of(OPERATIONS, row_of(OPERATIONS, operation))["data"]) == ["z", "a"]


CHECKPOINTS = TABLE_OF[Checkpoint]


def checkpoint_row(metadata: str) -> list[object]:
    """A row that was written so."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    plain = CheckpointMetadata(
        reason="r", source="s", phase=Phase.EXECUTE, step_index=None, step=None, state_hash="h", label=None, triggers=()
    )
    record = Checkpoint(
        checkpoint_id=new_id(), plan_id=new_id(), group_id=new_id(), sequence=1, sandbox_ref="x", resource_id="x",
        checkpoint_type="manual", filesystem_path="/x", size_bytes=0, metadata=plain, created_at=at,
    )  # fmt: skip
    row = row_of(CHECKPOINTS, record)
    row[CHECKPOINTS.names.index("metadata_json")] = metadata
    return [*row[:-1], _checksum(CHECKPOINTS, row[:-1])]


def test_a_field_that_a_later_version_stored_is_left_out() -> None:
    known = '"reason":"r","source":"s","phase":"execute","step_index":null,"step":null,"state_hash":"h"'
    row = checkpoint_row(f'{{{known},"label":null,"triggers":["manual"],"mood":"good"}}')
    record = record_of(CHECKPOINTS, fields_of(CHECKPOINTS, row))
    assert isinstance(record, Checkpoint)
    assert record.metadata.triggers == ("manual",)


@pytest.mark.parametrize("metadata", ["", "not JSON", "[]", "{}", '{"reason": 7}'])
def test_metadata_that_says_something_else_is_damage_even_if_it_was_written_so(metadata: str) -> None:
    with pytest.raises(DamagedRecordError, match="in table checkpoint_metadata"):
        record_of(CHECKPOINTS, fields_of(CHECKPOINTS, checkpoint_row(metadata)))


_TEXTS = st.text(st.characters(exclude_categories=[]))
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXTS,
    lambda values: st.lists(values) | st.dictionaries(_TEXTS, values),
)


@given(_VALUES)
def test_a_stored_value_is_read_as_the_standard_library_reads_it(value: object) -> None:
    text = json.dumps(value)
    assert repr(loaded_json(text)) == repr(json.loads(text))


@pytest.mark.parametrize("text", ["", "[1,2,]", "{", "x"])
def test_what_is_not_json_is_a_wrong_value(text: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        loaded_json(text)
