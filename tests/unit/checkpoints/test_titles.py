from __future__ import annotations

import pytest

from holdfast.checkpoints.titles import back_at, left_for, shortened, title_of, title_with_changes
from holdfast.model import CheckpointGroup, CheckpointMetadata, Phase, now


def group(*triggers: str, **fields: object) -> CheckpointGroup:
    made: dict[str, object] = {
        "group_id": "", "plan_id": "", "sequence": 1, "phase": Phase.EXECUTE, "attempt": 1, "revision": 1,
        "last_completed_step": -1, "active_decisions": (), "states": {}, "created_at": now(),
    }  # fmt: skip
    return CheckpointGroup(**made | {"triggers": triggers} | fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("triggers", "fields", "title"),
    [
        (("pre_execute",), {}, "before the first step"),
        (("post_execute",), {}, "after the last step"),
        (("pre_apply",), {}, "before apply"),
        (("on_tool_write", "on_decision"), {"step_index": 1, "step": "tidy up"}, "before step 2: tidy up"),
        (("before_step",), {"step_index": 0, "step": "a\nb"}, "before step 1: a"),
        (("on_tool_write_complete",), {"step_index": 1, "step": "tidy up"}, "after step 2: tidy up"),
        (("on_error",), {"step_index": 1, "step": "tidy up"}, "failed: step 2: tidy up"),
        (("rollback",), {}, "back at the start"),
        (("rollback",), {"last_completed_step": 3}, "back at the end"),
        (("on_decision",), {"reason": "decided: zip"}, "decided: zip"),
        (("on_tool_write",), {"step_index": 0, "step": "x", "attempt": 2}, "before step 1: x, attempt 2"),
    ],
)
def test_a_title_says_which_moment_it_is(triggers: tuple[str, ...], fields: dict[str, object], title: str) -> None:
    assert title_of(group(*triggers, **fields)) == title


def test_another_try_has_another_title() -> None:
    before = group("on_tool_write", step_index=0, step="x")
    assert title_of(before, try_number=2) == "before step 1: x, try 2"


def test_what_a_rollback_leaves_is_called_after_where_it_goes() -> None:
    assert left_for(group("on_tool_write", step_index=0, step="x")) == "left by a rollback to before step 1: x"


def test_a_moment_of_a_program_is_called_after_its_own_name() -> None:
    target = group("settled", step_index=0, step="x")
    assert left_for(target, "-1 file: a") == "left by a rollback to -1 file: a"
    assert back_at(target, "-1 file: a") == "back at: -1 file: a"
    assert back_at(target, "back at: -1 file: a") == "back at: -1 file: a"
    assert back_at(group("rollback")) == "back at the start"


@pytest.mark.parametrize(
    ("trigger", "words", "title"),
    [
        ("settled", "-1 file: a", "-1 file: a"),
        ("settled", "", "during it: no file changed"),
        ("on_tool_write_complete", "-1 file: a", "after step 2: -1 file: a"),
        ("on_tool_write_complete", "", "during it"),
        ("on_error", "-1 file: a", "failed: step 2: -1 file: a"),
    ],
)
def test_what_changed_is_the_title_of_a_moment_of_a_program(trigger: str, words: str, title: str) -> None:
    assert title_with_changes("during it", [trigger], 1, words) == title


def test_a_title_is_one_line_that_no_terminal_obeys() -> None:
    assert title_of(group("on_decision", reason="decided:\n\x1b[2Jzip")) == "decided:\\n\\x1b[2Jzip"
    assert title_of(group("before_step", step_index=0, step="\x1b[2J")) == "before step 1: \\x1b[2J"


def test_a_long_name_is_shortened_to_one_line() -> None:
    assert shortened("x" * 100) == "x" * 59 + "…"
    assert shortened("first\nsecond") == "first"


def test_metadata_of_earlier_versions_have_no_title_and_no_head() -> None:
    stored = {
        "reason": "before the first step", "source": "", "phase": "execute", "step_index": None, "step": None,
        "state_hash": "", "label": None, "triggers": ["pre_execute"],
    }  # fmt: skip
    read = CheckpointMetadata.model_validate(stored)
    assert read.title == ""
    assert read.git is None
