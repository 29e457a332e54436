"""Triggers, retention, display ids and what a checkpoint may be called by."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoints.references import resolve_checkpoint
from holdfast.checkpoints.retention import GroupFacts, Retained, retention
from holdfast.checkpoints.triggers import parse_triggers
from holdfast.errors import AmbiguousError, ConfigError, NotFoundError
from holdfast.model import Checkpoint, CheckpointMetadata, Phase, Trigger
from holdfast.names import did_you_mean, display_ids
from holdfast.process.environment import resource_variable
from holdfast.system.ids import id_text

# --- triggers


def test_triggers_keep_their_order_and_lose_their_repetitions() -> None:
    names = ["on_error", "before_tool_execute", "on_tool_write", "after_tool_execute", "on_error"]
    assert parse_triggers(names) == (Trigger.ON_ERROR, Trigger.ON_TOOL_WRITE, Trigger.ON_TOOL_WRITE_COMPLETE)


def test_no_triggers_are_no_triggers() -> None:
    assert parse_triggers([]) == ()


def test_every_trigger_is_known_by_its_name() -> None:
    assert parse_triggers([trigger.value for trigger in Trigger]) == tuple(Trigger)


@pytest.mark.parametrize("name", ["on_eror", "", "ON_ERROR", " on_error", "pre_execute"])
def test_an_unknown_trigger_is_refused_with_the_valid_ones(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_triggers(["on_error", name])
    assert f'unknown trigger "{name}"' in caught.value.message
    for valid in (*Trigger, "before_tool_execute", "after_tool_execute"):
        assert valid in caught.value.message


def test_a_near_miss_is_pointed_out() -> None:
    assert did_you_mean("on_eror", ["on_error", "keep"]) == '; did you mean "on_error"?'
    assert did_you_mean("zzz", ["on_error", "keep"]) == ""


def test_a_resource_has_its_own_variable() -> None:
    assert resource_variable("my-App_2") == "HOLDFAST_RESOURCE_MY_APP_2"


# --- retention


def groups(*checkpoints: int, labels: dict[int, str] | None = None) -> list[GroupFacts]:
    return [GroupFacts(f"g{i}", i, (labels or {}).get(i), count) for i, count in enumerate(checkpoints)]


def test_nothing_is_removed_within_the_limit() -> None:
    decision = retention(groups(1, 2, 1), 4, ())
    assert decision == Retained(
        ("g0", "g1", "g2"), (), {"g0": "the first", "g1": "within the limit of 4", "g2": "the most recent"}
    )


def test_the_oldest_go_first_but_never_the_very_first() -> None:
    decision = retention(groups(1, 1, 1, 1, 1), 3, ())
    assert decision.remove == ("g1", "g2")
    assert decision.reasons["g1"] == "the oldest beyond the limit of 3"


def test_a_group_is_removed_whole_even_if_less_would_do() -> None:
    assert retention(groups(1, 3, 1, 1), 5, ()).remove == ("g1",)


def test_labelled_and_needed_groups_stay_and_say_why() -> None:
    decision = retention(groups(1, 1, 1, 1, 1, labels={1: "good"}), 2, {"g2"})
    assert decision.remove == ("g3",)
    assert decision.reasons["g1"] == 'labelled "good"'
    assert decision.reasons["g2"] == "needed by a running operation"


def test_age_is_the_sequence_not_the_order_given() -> None:
    assert retention(list(reversed(groups(1, 1, 1, 1))), 3, ()).remove == ("g1",)


def test_no_groups_need_no_decision() -> None:
    assert retention([], 2, ()) == Retained((), (), {})


@st.composite
def histories(draw: st.DrawFn) -> list[GroupFacts]:
    counts = draw(st.lists(st.integers(1, 4), max_size=30))
    labels = draw(st.dictionaries(st.integers(0, 29), st.text(max_size=3), max_size=4))
    return draw(st.permutations(groups(*counts, labels=labels)))


@given(histories(), st.integers(2, 40), st.sets(st.integers(0, 29).map("g{}".format), max_size=4))
def test_retention_keeps_its_promises(history: list[GroupFacts], limit: int, needed: set[str]) -> None:
    decision = retention(history, limit, needed)
    ordered = sorted(history, key=lambda group: group.sequence)
    removed, kept = set(decision.remove), set(decision.keep)
    by_id = {group.group_id: group for group in ordered}

    assert removed | kept == set(by_id)
    assert not removed & kept
    assert set(decision.reasons) == set(by_id)
    assert all(decision.reasons.values())
    protected = {group.group_id for group in ordered if group.label is not None or group.group_id in needed}
    protected |= {group.group_id for group in (*ordered[:1], *ordered[-1:])}
    assert not removed & protected
    left = sum(by_id[each].checkpoints for each in kept)
    assert left <= limit or kept == protected
    # None too many: with the last removed one the limit would still be exceeded.
    assert not removed or left + by_id[decision.remove[-1]].checkpoints > limit
    # Oldest first: whatever could be removed and is kept is younger than all that was removed.
    assert all(by_id[keep].sequence > by_id[gone].sequence for keep in kept - protected for gone in removed)


@given(histories(), st.integers(2, 40))
def test_pruning_twice_removes_nothing_more(history: list[GroupFacts], limit: int) -> None:
    kept = set(retention(history, limit, ()).keep)
    assert retention([group for group in history if group.group_id in kept], limit, ()).remove == ()


# --- thinning


@given(histories(), st.integers(2, 40), st.sets(st.integers(0, 29).map("g{}".format), max_size=4))
def test_thinning_keeps_the_same_promises_but_for_the_order(
    history: list[GroupFacts], limit: int, needed: set[str]
) -> None:
    decision = retention(history, limit, needed, thins=True)
    ordered = sorted(history, key=lambda group: group.sequence)
    removed, kept = set(decision.remove), set(decision.keep)
    by_id = {group.group_id: group for group in ordered}

    assert (removed | kept, removed & kept) == (set(by_id), set())
    assert [by_id[each].sequence for each in decision.keep] == sorted(by_id[each].sequence for each in kept)
    assert set(decision.reasons) == set(by_id)
    protected = {group.group_id for group in ordered if group.label is not None or group.group_id in needed}
    protected |= {group.group_id for group in (*ordered[:1], *ordered[-1:])}
    assert not removed & protected
    left = sum(by_id[each].checkpoints for each in kept)
    assert left <= limit or kept == protected
    assert not removed or left + max(by_id[each].checkpoints for each in removed) > limit


@given(histories(), st.integers(2, 40))
def test_thinning_twice_removes_nothing_more(history: list[GroupFacts], limit: int) -> None:
    kept = set(retention(history, limit, (), thins=True).keep)
    left = [group for group in history if group.group_id in kept]
    assert retention(left, limit, (), thins=True).remove == ()


@given(histories(), st.integers(2, 40))
def test_the_newest_half_of_the_limit_stays_as_long_as_anything_else_can_go(
    history: list[GroupFacts], limit: int
) -> None:
    decision = retention(history, limit, (), thins=True)
    newest, room = set(), limit // 2
    for group in sorted(history, key=lambda group: group.sequence, reverse=True):
        room -= group.checkpoints
        if room < 0:
            break
        newest.add(group.group_id)
    labelled = {group.group_id for group in history if group.label is not None}
    ends = {*decision.keep[:1], *decision.keep[-1:]}

    assert not newest & set(decision.remove) or set(decision.keep) <= newest | labelled | ends


def thinned_one_by_one(count: int, limit: int, labels: dict[int, str] | None = None) -> list[int]:
    """The numbers that are left of so many groups, each followed by retention when it was taken."""
    left: list[GroupFacts] = []
    for number in range(1, count + 1):
        left.append(GroupFacts(f"g{number}", number, (labels or {}).get(number), 1))
        removed = retention(left, limit, {f"g{number}"}, thins=True).remove
        left = [group for group in left if group.group_id not in removed]
        assert len(left) == min(number, limit)
    return [group.sequence for group in left]


@pytest.mark.parametrize(("count", "limit"), [(60, 50), (200, 50), (2000, 50), (300, 20), (100, 10)])
def test_of_a_long_run_all_last_moments_are_left_and_fewer_further_back(count: int, limit: int) -> None:
    left = thinned_one_by_one(count, limit)
    gaps = [after - before for before, after in pairwise(left)]

    assert left[0] == 1
    assert left[-limit // 2 :] == list(range(count - limit // 2 + 1, count + 1))
    # Spread over the whole history: no gap is large compared with how far back it is.
    assert all(gap <= 2 + 20 / limit * (count - after) for gap, after in zip(gaps, left[1:], strict=True))
    # Further back, the gaps are larger, seen over some of them.
    quarter = len(gaps) // 4
    sums = [sum(gaps[place : place + quarter]) for place in range(0, 4 * quarter, quarter)]
    assert sums == sorted(sums, reverse=True)


def test_labelled_moments_stay_and_the_others_around_them_are_thinned() -> None:
    left = thinned_one_by_one(500, 20, labels={100: "good", 101: "better"})
    assert {1, 100, 101, 500} <= set(left)


def test_if_nothing_else_can_go_the_newest_go_too_but_never_the_last() -> None:
    history = groups(1, 1, 1, 1, 1, 1, labels={1: "a", 2: "b", 3: "c"})
    assert retention(history, 4, (), thins=True).remove == ("g4",)


def test_thinning_says_why() -> None:
    decision = retention(groups(1, 1, 1, 1, 1, labels={2: "good"}), 4, (), thins=True)
    assert decision.remove == ("g1",)
    assert decision.reasons == {
        "g0": "the first",
        "g1": "the least missed beyond the limit of 4",
        "g2": 'labelled "good"',
        "g3": "within the limit of 4",
        "g4": "the most recent",
    }


# --- ids


def test_a_display_id_is_eight_characters_if_that_is_enough() -> None:
    assert display_ids(["01J8AAAABBBBCCCCDDDDEEEEFF"]) == {"01J8AAAABBBBCCCCDDDDEEEEFF": "cp_01J8AAAA"}


def test_display_ids_of_one_second_are_as_long_as_they_need_to_be() -> None:
    ids = ["01J8AAAABBBBCCCCDDDDEEEEFF", "01J8AAAABBXXCCCCDDDDEEEEFF", "01J8ZZZZZZZZZZZZZZZZZZZZZZ"]
    assert list(display_ids(ids).values()) == ["cp_01J8AAAABBB", "cp_01J8AAAABBX", "cp_01J8ZZZZ"]


ulids = st.integers(0, (1 << 128) - 1).map(id_text)
ulids_close_together = st.text(st.sampled_from("01"), min_size=26, max_size=26)


@given(st.lists(ulids | ulids_close_together, max_size=20))
def test_display_ids_are_unique_prefixes_and_no_longer_than_needed(ids: list[str]) -> None:
    shown = display_ids(ids)
    assert set(shown) == set(ids)
    for each, display in shown.items():
        prefix = display.removeprefix("cp_")
        assert each.startswith(prefix)
        assert len(prefix) >= 8
        assert [other for other in shown if other.startswith(prefix)] == [each]
        assert len(prefix) == 8 or sum(other.startswith(prefix[:-1]) for other in shown) > 1


# --- references


def checkpoint(checkpoint_id: str, group_id: str, sequence: int, label: str | None = None) -> Checkpoint:
    return Checkpoint(
        checkpoint_id=checkpoint_id.ljust(26, "0"),
        plan_id="01J0P1AN".ljust(26, "0"),
        group_id=group_id.ljust(26, "0"),
        sequence=sequence,
        sandbox_ref="ref",
        resource_id="app",
        checkpoint_type="manual",
        filesystem_path="/",
        size_bytes=0,
        metadata=CheckpointMetadata(
            reason="",
            source="",
            phase=Phase.EXECUTE,
            step_index=None,
            step=None,
            state_hash="",
            label=label,
            triggers=(),
        ),
        created_at=datetime(2024, 1, 1, tzinfo=UTC),
    )


FIRST = checkpoint("01J8AAAA1", "01J7GRPA", 1)
SECOND = checkpoint("01J8AAAB1", "01J7GRPB", 2, label="good")
SECOND_TOO = checkpoint("01J8AAAB2", "01J7GRPB", 3, label="good")
THIRD = checkpoint("01J8AAAC1", "01J7GRQC", 4, label="01J8AAAA1")
FOURTH = checkpoint("01J9AAAD1", "01J7GRQD", 5, label="twice")
FIFTH = checkpoint("01J9AAAE1", "01J7GRQE", 6, label="twice")
SIXTH = checkpoint("01J9AAAF1", "01J7GRQF", 7, label="cp_like an id")
PLAN = (SIXTH, FIFTH, FOURTH, THIRD, SECOND_TOO, SECOND, FIRST)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (FIRST.checkpoint_id, FIRST),
        (FIRST.checkpoint_id.lower(), FIRST),
        (f" {FIRST.checkpoint_id} ", FIRST),
        ("cp_01J8AAAA", FIRST),
        ("CP_01j8aaaa", FIRST),
        # The third is labelled so, but a display id is an id.
        ("cp_01J8AAAA1", FIRST),
        ("01J8AAAB2", SECOND_TOO),
        ("01j9aaad", FOURTH),
        ("good", SECOND),
        ("cp_like an id", SIXTH),
        (SECOND.group_id, SECOND),
        (SECOND.group_id.lower(), SECOND),
        ("01J7GRPA", FIRST),
        ("01J7GRPB", SECOND),
    ],
)
def test_a_checkpoint_is_found_by_any_of_its_names(reference: str, expected: Checkpoint) -> None:
    assert resolve_checkpoint(reference, PLAN) is expected


@pytest.mark.parametrize(
    "reference", ["", " ", "cp_", "nothing", "GOOD", "01J8AAAA2", "cp_good", "01J8AAAA1" + "0" * 18]
)
def test_an_unknown_name_is_refused_with_the_newest_checkpoints(reference: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        resolve_checkpoint(reference, PLAN)
    assert not isinstance(caught.value, AmbiguousError)
    assert f'"{reference}"' in caught.value.message
    assert "cp_01J9AAAF" in caught.value.hint


def test_a_misspelled_label_is_pointed_out() -> None:
    with pytest.raises(NotFoundError, match='did you mean "good"'):
        resolve_checkpoint("goood", PLAN)


def test_a_plan_without_checkpoints_says_so() -> None:
    with pytest.raises(NotFoundError) as caught:
        resolve_checkpoint("good", ())
    assert caught.value.hint == "The plan has no checkpoints yet."


@pytest.mark.parametrize(
    ("reference", "candidates"),
    [
        ("01J8", ["cp_01J8AAAA", "cp_01J8AAAB1", "cp_01J8AAAB2", "cp_01J8AAAC"]),
        ("cp_01J8AAAB", ["cp_01J8AAAB1", "cp_01J8AAAB2"]),
        ("twice", ['cp_01J9AAAD ("twice")', 'cp_01J9AAAE ("twice")']),
        ("01J7GRP", ["cp_01J8AAAA", "cp_01J8AAAB1"]),
        # The beginning of one checkpoint's id and the label of another.
        ("01J8AAAA1", ["cp_01J8AAAA", 'cp_01J8AAAC ("01J8AAAA1")']),
    ],
)
def test_a_name_that_fits_several_is_refused_with_the_candidates(reference: str, candidates: list[str]) -> None:
    with pytest.raises(AmbiguousError) as caught:
        resolve_checkpoint(reference, PLAN)
    assert f"fits {len(candidates)} checkpoints" in caught.value.message
    for candidate in candidates:
        assert candidate in caught.value.hint


def test_only_some_of_very_many_candidates_are_listed() -> None:
    many = [checkpoint(f"01J8{index:04}", f"01G{index:04}", index) for index in range(25)]
    with pytest.raises(AmbiguousError) as caught:
        resolve_checkpoint("01J8", many)
    assert caught.value.hint.endswith("and 15 more.")


@given(st.lists(ulids | ulids_close_together, min_size=1, max_size=12, unique=True))
def test_every_display_id_leads_back_to_its_checkpoint(ids: list[str]) -> None:
    checkpoints = [checkpoint(each, ids[0], index) for index, each in enumerate(ids)]
    for each, display in display_ids(ids).items():
        assert resolve_checkpoint(display, checkpoints).checkpoint_id == each
        assert resolve_checkpoint(each, checkpoints).checkpoint_id == each
