"""Which moments of a session are kept: the newest, those of prompts for longer, and none that is too old."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoints.session_retention import LONGEST, MOST_PROMPTS, MomentFacts, going_moments

_NOW = datetime(2026, 11, 1, tzinfo=UTC)


def _moments(count: int, *, days_ago: float = 1.0, labels: dict[int, str] | None = None) -> list[MomentFacts]:
    begin = _NOW - timedelta(days=days_ago)
    return [
        MomentFacts(f"g{number}", number, (labels or {}).get(number), begin + timedelta(seconds=number))
        for number in range(count)
    ]


def test_the_newest_moments_and_the_first_are_kept() -> None:
    assert going_moments(_moments(12), [], newest=5, at=_NOW) == [f"g{number}" for number in range(1, 7)]


def test_the_moment_at_which_a_prompt_began_outlives_the_calls_around_it() -> None:
    moments = _moments(12)
    asked = moments[3].created_at + timedelta(milliseconds=500)
    assert "g3" not in going_moments(moments, [asked], newest=5, at=_NOW)
    assert {"g2", "g4"} <= set(going_moments(moments, [asked], newest=5, at=_NOW))


def test_of_very_many_prompts_the_newest_are_kept() -> None:
    moments = _moments(MOST_PROMPTS + 20)
    asked = [each.created_at + timedelta(milliseconds=500) for each in moments]
    gone = going_moments(moments, asked, newest=5, at=_NOW)
    assert gone == [f"g{number}" for number in range(1, 15)]


def test_what_is_older_than_a_month_goes_even_if_it_is_among_the_newest() -> None:
    moments = _moments(4, days_ago=LONGEST.days + 1)
    assert going_moments(moments, [], newest=200, at=_NOW) == ["g1", "g2"]


def test_labelled_and_needed_moments_stay_whatever_their_age() -> None:
    moments = _moments(6, days_ago=LONGEST.days + 1, labels={2: "good"})
    assert going_moments(moments, [], newest=1, at=_NOW, needed={"g3"}) == ["g1", "g4"]


@given(st.integers(0, 40), st.integers(1, 20), st.lists(st.integers(0, 60), max_size=20))
def test_as_many_as_asked_for_stay_and_pruning_again_changes_nothing(count: int, newest: int, at: list[int]) -> None:
    moments = _moments(count)
    asked = [_NOW - timedelta(days=1) + timedelta(seconds=second, milliseconds=300) for second in at]
    gone = set(going_moments(moments, asked, newest=newest, at=_NOW))
    left = [each for each in moments if each.group_id not in gone]
    assert left[-newest:] == moments[-newest:]
    assert going_moments(left, asked, newest=newest, at=_NOW) == []
