from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import extended, is_within, less, numbers_of


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 5)), max_size=8))
def test_ranges_hold_exactly_the_numbers_they_were_extended_by(steps: list[tuple[int, int]]) -> None:
    ranges: tuple[tuple[int, int], ...] = ()
    wanted: set[int] = set()
    at = 0
    for gap, length in steps:
        first = at + gap
        at = first + length - 1
        ranges = extended(ranges, first, at)
        wanted |= set(range(first, at + 1))
        at = max(at, first - 1)
    assert {number for number in range(at + 10) if is_within(number, ranges)} == wanted


def test_numbers_that_follow_each_other_make_one_range() -> None:
    assert extended(extended((), 1, 2), 3, 5) == ((1, 5),)
    assert extended(extended((), 1, 2), 4, 5) == ((1, 2), (4, 5))


@given(st.sets(st.integers(1, 30)), st.sets(st.integers(1, 30)))
def test_ranges_hold_all_but_the_numbers_that_were_taken_out(numbers: set[int], taken_out: set[int]) -> None:
    ranges: tuple[tuple[int, int], ...] = ()
    for number in sorted(numbers):
        ranges = extended(ranges, number, number)
    assert list(numbers_of(less(ranges, taken_out))) == sorted(numbers - taken_out)
