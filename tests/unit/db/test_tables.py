from __future__ import annotations

from types import NoneType
from typing import get_args

import msgspec
import pytest

from holdfast.db.tables import TABLES, Table
from holdfast.model import Plan

IDS = [table.name for table in TABLES]


@pytest.mark.parametrize("table", TABLES, ids=IDS)
def test_every_field_of_a_record_has_a_column(table: Table) -> None:
    fields = set(table.model.__struct_fields__)
    if table.model is Plan:
        fields.remove("steps")
    assert {column.field or column.name for column in table.columns} == fields


@pytest.mark.parametrize("table", TABLES, ids=IDS)
def test_a_column_may_be_null_where_its_field_may_be_none(table: Table) -> None:
    types = {field.name: field.type for field in msgspec.structs.fields(table.model)}
    for column in table.columns:
        annotation = types[column.field or column.name]
        assert column.optional == (NoneType in get_args(annotation)), column.name


def test_a_checkpoint_has_the_columns_that_were_promised() -> None:
    table = next(table for table in TABLES if table.name == "checkpoint_metadata")
    promised = ("checkpoint_id", "plan_id", "sandbox_ref", "created_at", "metadata_json", "decision_id")
    promised += ("checkpoint_type", "resource_id", "filesystem_path", "size_bytes")
    assert set(promised) <= set(table.names)
