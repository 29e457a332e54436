"""What a checkpoint is made of is checked where it is made, not only where it is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast import Checkpoint, CheckpointRetentionPolicy, SandboxCheckpoint
from holdfast.model import CheckpointMetadata, Moment, Phase, Trigger, Unheld
from holdfast.snapshot.taken import TakenSnapshot
from holdfast.system.ids import new_id

SEVEN = {
    "checkpoint_id": new_id(),
    "sandbox_id": f"{new_id()}/app",
    "plan_id": new_id(),
    "phase": "execute",
    "created_at": datetime(2026, 1, 2, tzinfo=UTC),
    "metadata": {"reason": "before the first step"},
    "snapshot_path": "/somewhere",
}
RECORDED = {
    "checkpoint_id": new_id(),
    "plan_id": new_id(),
    "group_id": new_id(),
    "sequence": 1,
    "sandbox_ref": "plan/app",
    "resource_id": "app",
    "checkpoint_type": "pre_execute",
    "filesystem_path": "/somewhere",
    "size_bytes": 0,
    "metadata": CheckpointMetadata(
        reason="", source="", phase=Phase.EXECUTE, step_index=None, step=None, state_hash="", label=None, triggers=()
    ),
    "created_at": datetime(2026, 1, 2, tzinfo=UTC),
}
WRONG_IDS = ["", "plan", "01J8AAAA1", "Z" * 26, "01J8AAAA1U0000000000000000", 7, None]
WRONG_TIMES = [
    datetime(2026, 1, 2),  # noqa: DTZ001 - that it has no zone is the point
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2))),
    "yesterday",
    None,
]


def test_seven_fields_are_enough_for_a_snapshot_of_a_sandbox() -> None:
    made = SandboxCheckpoint(**SEVEN)

    assert made.phase is Phase.EXECUTE
    assert {name: getattr(made, name) for name in SEVEN} == SEVEN


@pytest.mark.parametrize("at", [datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)])
def test_a_snapshot_is_read_from_the_catalogue_as_it_was_taken(at: datetime) -> None:
    unheld = (Unheld(path="so\udcffcket", reason="a socket"),)
    taken = TakenSnapshot(
        **{**SEVEN, "phase": Phase.EXECUTE, "created_at": at, "snapshot_path": "/some\udcffwhere"},
        state_hash="0" * 64, size_bytes=7, unheld=unheld,
    )  # fmt: skip
    found = SandboxCheckpoint.from_json(taken.to_json())
    assert found.model_dump() == taken.model_dump()
    assert found.unheld == unheld


def test_a_snapshot_of_a_sandbox_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        SandboxCheckpoint(**SEVEN).phase = Phase.APPLY  # type: ignore[misc]


@pytest.mark.parametrize("wrong", WRONG_IDS)
@pytest.mark.parametrize("name", ["checkpoint_id", "plan_id"])
def test_a_snapshot_of_a_sandbox_has_ulids_for_ids(name: str, wrong: object) -> None:
    with pytest.raises(ValueError, match=name):
        SandboxCheckpoint(**SEVEN | {name: wrong})


@pytest.mark.parametrize("wrong", WRONG_TIMES)
def test_a_snapshot_of_a_sandbox_was_taken_at_a_time_in_utc(wrong: object) -> None:
    with pytest.raises(ValueError, match="created_at"):
        SandboxCheckpoint(**SEVEN | {"created_at": wrong})


@pytest.mark.parametrize(
    "wrong",
    [{"phase": "sleep"}, {"size_bytes": -1}, {"state_hash": "abc"}, {"snapshot_path": ""}, {"sandbox_id": ""},
     {"metadata": "text"}, {"extra": 1}],
)  # fmt: skip
def test_a_snapshot_of_a_sandbox_refuses_what_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SandboxCheckpoint(**SEVEN | wrong)


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_one_checkpoint_is_the_least_that_can_be_kept(limit: int) -> None:
    assert CheckpointRetentionPolicy(max_checkpoints=limit).max_checkpoints == limit


@pytest.mark.parametrize("wrong", [0, -1, "5", 1.5, True, None])
def test_a_limit_below_one_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="max_checkpoints"):
        CheckpointRetentionPolicy(max_checkpoints=wrong)


@pytest.mark.parametrize("wrong", WRONG_IDS)
@pytest.mark.parametrize("name", ["checkpoint_id", "plan_id", "group_id"])
def test_a_record_has_ulids_for_ids(name: str, wrong: object) -> None:
    with pytest.raises(ValueError, match=name):
        Checkpoint(**RECORDED | {name: wrong})


def test_a_record_may_be_without_a_decision_but_not_with_a_wrong_one() -> None:
    assert Checkpoint(**RECORDED).decision_id is None
    with pytest.raises(ValueError, match="decision_id"):
        Checkpoint(**RECORDED | {"decision_id": "the first"})


@pytest.mark.parametrize("wrong", WRONG_TIMES)
def test_a_record_was_made_at_a_time_in_utc(wrong: object) -> None:
    with pytest.raises(ValueError, match="created_at"):
        Checkpoint(**RECORDED | {"created_at": wrong})


@pytest.mark.parametrize("known", [*Trigger, *Moment])
def test_a_record_is_of_a_type_that_is_known(known: str) -> None:
    assert Checkpoint(**RECORDED | {"checkpoint_type": known}).checkpoint_type == known
    with pytest.raises(ValueError, match="checkpoint_type"):
        Checkpoint(**RECORDED | {"checkpoint_type": f"{known}_"})


def test_a_record_has_no_negative_size() -> None:
    with pytest.raises(ValueError, match="size_bytes"):
        Checkpoint(**RECORDED | {"size_bytes": -1})
