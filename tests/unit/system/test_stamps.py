"""Which times of a file tell whether it changed."""

from __future__ import annotations

import pytest

from holdfast.system.stamps import is_settled

SECOND_NS = 1_000_000_000
NOW_NS = 1_700_000_000 * SECOND_NS


@pytest.mark.parametrize(
    ("ctime_ns", "expected"),
    [
        (NOW_NS + 5, False),
        (NOW_NS - 19_000_000, False),
        (NOW_NS - 21_000_000, True),
        (NOW_NS - SECOND_NS, False),
        (NOW_NS - 2 * SECOND_NS, False),
        (NOW_NS - SECOND_NS - 1, True),
        (NOW_NS - 3 * SECOND_NS, True),
    ],
    ids=[
        "later", "in the same step of the clock", "before that", "a whole second", "the second before", "not whole",
        "whole and old",
    ],
)  # fmt: skip
def test_a_time_tells_of_changes_once_the_clock_has_moved_on_as_the_file_system_keeps_it(
    ctime_ns: int, expected: bool
) -> None:
    assert is_settled(ctime_ns, NOW_NS) is expected
