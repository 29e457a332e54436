"""The entries of operations: the JSON on disk is the same in every version."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.db.journal import (
    ApplyEntry,
    BranchEntry,
    Entry,
    RealFilesEntry,
    RestorePathsEntry,
    RollbackEntry,
    SandboxEntry,
    UnapplyEntry,
    states_needed_by,
)
from holdfast.db.rows import row_of
from holdfast.db.tables import TABLE_OF
from holdfast.errors import DamagedRecordError
from holdfast.model import Correction, DecisionSpec, DecisionType, Operation, OperationKind, OperationState, Step, now

OPERATIONS = TABLE_OF[Operation]
PLAN_ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

ROLLBACK = (
    '{"target_group_id":"T","left_group_id":"L","reason":"asked for","states":{"app":"aa","data":"dd"},'
    '"correction":null,"recovery":null,"is_unkept":false}'
)
CORRECTION = (
    '{"target_group_id":"T","left_group_id":null,"reason":"a name \\udcff","states":{"app":"aa"},'
    '"correction":{"question":"Which one?","guidance":"the other","alternatives":["this"],"parent_decision_id":"P",'
    '"steps":[{"name":"make","tool":"shell","args":{"command":"make","n":[1,2.5,null]},"resource":"app",'
    '"writes":null,"checkpointable":null,"side_effects":null,"idempotent":null,"timeout_seconds":null,"retries":0,'
    '"decision":null,"compensate":null,"subplans":[],"parallel":1,"merge":"three_way"}],"undone":[3,4]},'
    '"recovery":{"type":"error_recovery","question":"What now?","chosen":"back","alternatives":[],"rationale":"",'
    '"confidence":0.5},"is_unkept":true}'
)
RESTORE_PATHS = '{"target_group_id":"T","left_group_id":"L","reason":"one file","states":{"app":"bb"}}'
APPLY = (
    '{"token":"c0ffee","states":{"app/old":"o","app/new":"n","app/index":"i"},'
    '"branches":{"app":{"ref":"refs/heads/main","old":null,"new":"c1","is_checked_out":true}},"indexes":{"app":"x"}}'
)
UNAPPLY = '{"token":"c0ffee","states":{"data/old":"o","data/new":"n"},"branches":{},"indexes":{}}'

PART = (
    '{"token":"c0ffee","states":{"data/old":"o","data/new":"n","data/rest":"r"},"branches":{},"indexes":{},'
    '"is_partial":true,"only":["one.csv","data:deep"]}'
)
UNAPPLY_OF_PART = '{"token":"c0ffee","states":{},"branches":{},"indexes":{},"is_partial":true}'

STEP = Step(name="make", tool="shell", args={"command": "make", "n": [1, 2.5, None]}, resource="app")
ENTRIES: list[tuple[Entry, OperationKind, str]] = [
    (
        RollbackEntry(
            target_group_id="T",
            left_group_id="L",
            reason="asked for",
            states={"app": "aa", "data": "dd"},
            correction=None,
        ),
        OperationKind.ROLLBACK,
        ROLLBACK,
    ),
    (
        RollbackEntry(
            target_group_id="T",
            left_group_id=None,
            reason="a name \udcff",
            states={"app": "aa"},
            correction=Correction(
                question="Which one?",
                guidance="the other",
                alternatives=("this",),
                parent_decision_id="P",
                steps=(STEP,),
                undone=(3, 4),
            ),
            recovery=DecisionSpec(
                type=DecisionType.ERROR_RECOVERY, question="What now?", chosen="back", confidence=0.5
            ),
            is_unkept=True,
        ),
        OperationKind.ROLLBACK,
        CORRECTION,
    ),
    (
        RestorePathsEntry(target_group_id="T", left_group_id="L", reason="one file", states={"app": "bb"}),
        OperationKind.RESTORE_PATHS,
        RESTORE_PATHS,
    ),
    (
        ApplyEntry(
            token="c0ffee",
            states={"app/old": "o", "app/new": "n", "app/index": "i"},
            branches={"app": BranchEntry(ref="refs/heads/main", old=None, new="c1", is_checked_out=True)},
            indexes={"app": "x"},
        ),
        OperationKind.APPLY,
        APPLY,
    ),
    (
        UnapplyEntry(token="c0ffee", states={"data/old": "o", "data/new": "n"}, branches={}, indexes={}),
        OperationKind.UNAPPLY,
        UNAPPLY,
    ),
    (
        ApplyEntry(
            token="c0ffee",
            states={"data/old": "o", "data/new": "n", "data/rest": "r"},
            branches={},
            indexes={},
            is_partial=True,
            only=("one.csv", "data:deep"),
        ),
        OperationKind.APPLY,
        PART,
    ),
    (
        UnapplyEntry(token="c0ffee", states={}, branches={}, indexes={}, is_partial=True),
        OperationKind.UNAPPLY,
        UNAPPLY_OF_PART,
    ),
]


def stored(kind: OperationKind, text: str) -> Operation:
    return Operation(operation_id="01A", plan_id=PLAN_ID, kind=kind, data=json.loads(text), created_at=now())


def stored_text(operation: Operation) -> Any:
    return row_of(OPERATIONS, operation)[OPERATIONS.names.index("data")]


@pytest.mark.parametrize(("entry", "kind", "text"), ENTRIES)
def test_an_entry_is_stored_as_the_same_bytes_as_ever(entry: Entry, kind: OperationKind, text: str) -> None:
    operation = entry.begun(PLAN_ID)
    assert (operation.kind, operation.state, operation.plan_id) == (kind, OperationState.BEGUN, PLAN_ID)
    assert stored_text(operation) == text


@pytest.mark.parametrize(("entry", "kind", "text"), ENTRIES)
def test_an_entry_is_read_as_it_was_written(entry: Entry, kind: OperationKind, text: str) -> None:
    operation = stored(kind, text)
    assert Entry.of(operation) == entry
    assert type(Entry.of(operation)) is type(entry)
    assert stored_text(Entry.of(operation).put_into(operation)) == text


def test_entries_of_the_first_versions_are_read() -> None:
    rollback = '{"target_group_id":"T","left_group_id":"L","reason":"r","states":{},"correction":null}'
    found = RollbackEntry.of(stored(OperationKind.ROLLBACK, rollback))
    assert (found.correction, found.recovery, found.is_unkept) == (None, None, False)
    apply = RealFilesEntry.of(stored(OperationKind.APPLY, '{"states":{},"branches":{},"indexes":{}}'))
    assert apply.token == ""


def test_what_only_a_later_version_knows_is_left_out_and_stays_stored() -> None:
    operation = stored(OperationKind.RESTORE_PATHS, RESTORE_PATHS.replace("}}", '},"later":1}'))
    assert RestorePathsEntry.of(operation) == ENTRIES[2][0]
    assert '"later":1' in stored_text(operation.model_copy(update={"state": OperationState.DONE}))


def test_an_entry_that_is_not_understood_is_refused() -> None:
    with pytest.raises(DamagedRecordError, match=r"journal entry of operation 01A.*`branches`"):
        Entry.of(stored(OperationKind.APPLY, '{"states":{},"indexes":{}}'))


def test_an_entry_of_another_kind_is_not_taken_for_this_one() -> None:
    operation = stored(OperationKind.RESTORE_PATHS, RESTORE_PATHS)
    assert SandboxEntry.of(operation).left_group_id == "L"
    with pytest.raises(TypeError, match="a restore_paths has no RollbackEntry"):
        RollbackEntry.of(operation)


def test_a_return_needs_the_groups_it_leaves_and_goes_to() -> None:
    needed = [Entry.of(stored(kind, text)).groups - {""} for _, kind, text in ENTRIES]
    assert needed == [{"T", "L"}, {"T"}, {"T", "L"}, set(), set(), set(), set()]


@pytest.mark.parametrize(
    ("kind", "state", "is_needed"),
    [
        ("rollback", "begun", True),
        ("rollback", "done", False),
        ("apply", "done", True),
        ("apply", "undone", False),
        ("unapply", "done", False),
        ("of a later version", "begun", True),
    ],
)
def test_states_are_needed_until_nothing_can_go_back_to_them(kind: str, state: str, is_needed: bool) -> None:
    fields = {"kind": kind, "state": state, "data": {"states": {"app": "aa"}}}
    assert states_needed_by(fields) == ({"app": "aa"} if is_needed else {})
    assert states_needed_by({**fields, "data": {}}) == {}
