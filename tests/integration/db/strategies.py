"""Any record at all, for properties that every record has."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from holdfast.model import CHECKPOINT_TYPES, Checkpoint, Record, Subplan
from holdfast.system.ids import id_text

M = TypeVar("M", bound=Record)

# File names that are not UTF-8 reach us with such halves of surrogate pairs in them.
_TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\udc80\udcff\x00\x1a"), max_size=12)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)
_BASIC: dict[Any, st.SearchStrategy[Any]] = {
    str: _TEXT,
    int: st.integers(-(1 << 63), (1 << 63) - 1),
    # No database keeps a negative zero, and none of our numbers means anything by it.
    float: st.floats(allow_nan=False).map(lambda number: number + 0.0),
    bool: st.booleans(),
    datetime: st.datetimes(timezones=st.just(UTC)),
    type(None): st.none(),
    msgspec.UnsetType: st.just(msgspec.UNSET),
    Any: _JSON,
}
_LIMITED: dict[str, st.SearchStrategy[Any]] = {
    "confidence": st.none() | st.floats(0, 1).map(lambda number: number + 0.0),
    "retries": st.integers(0, 9),
    "max_checkpoints": st.integers(2, 99),
    "parallel": st.integers(1, 9),
    # Steps hold subplans, which hold steps.
    "subplans": st.deferred(lambda: st.lists(any_of(Subplan), max_size=1).map(tuple)),
}

_ID = st.integers(0, (1 << 128) - 1).map(id_text)
_CHECKED: dict[str, st.SearchStrategy[Any]] = {
    "checkpoint_id": _ID,
    "plan_id": _ID,
    "group_id": _ID,
    "decision_id": st.none() | _ID,
    "checkpoint_type": st.sampled_from(sorted(CHECKPOINT_TYPES)),
    "size_bytes": st.integers(0, (1 << 63) - 1),
}
"""What a checkpoint checks when it is made."""


def any_of(model: type[M]) -> st.SearchStrategy[M]:
    """Any value of the model, valid in itself."""
    limited = _LIMITED | _CHECKED if model is Checkpoint else _LIMITED
    fields = {
        field.name: limited[field.name] if field.name in limited else _values(field.type)
        for field in msgspec.structs.fields(model)
    }
    return st.builds(model, **fields)


def _values(annotation: Any) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return st.one_of(*map(_values, arguments))
    if origin is tuple and arguments[-1] is ...:
        return st.lists(_values(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(_values, arguments))
    if origin is dict:
        return st.dictionaries(_TEXT, _values(arguments[1]), max_size=3)
    if annotation in _BASIC:
        return _BASIC[annotation]
    return st.sampled_from(annotation) if issubclass(annotation, Enum) else any_of(annotation)
