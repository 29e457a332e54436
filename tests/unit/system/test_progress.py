from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise

import pytest

from holdfast.system.progress import FEWEST_BYTES, FEWEST_FILES, UNWATCHED, Meter, Work, Working, meter_of, watched_by


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def meter(told: list[Working], clock: Clock, files: int = 10_000, size_bytes: int | None = 1_000_000_000) -> Meter:
    return Meter(Work.COPYING, "app", files, size_bytes, told.append, clock)


def work_for(clock: Clock, seconds: float, step: Callable[[], None]) -> None:
    """A hundred small pieces of work a second."""
    for _ in range(round(seconds * 100)):
        clock.now += 0.01
        step()


def test_the_beginning_and_the_end_are_told_also_of_what_takes_no_time() -> None:
    told: list[Working] = []
    with meter(told, Clock(), files=2, size_bytes=30) as counting:
        counting.advance(1, 10)
        counting.advance(1, 20)
    first, last = told
    assert (first.work, first.what, first.files_done, first.bytes_done, first.is_over) == (
        "copying",
        "app",
        0,
        0,
        False,
    )
    assert (last.files_done, last.files_total, last.bytes_done, last.bytes_total, last.is_over) == (2, 2, 30, 30, True)
    assert (first.fraction, last.fraction) == (0.0, 1.0)


def test_it_is_told_ten_times_a_second_and_not_more() -> None:
    told: list[Working] = []
    clock = Clock()
    with meter(told, clock) as counting:
        work_for(clock, 5, lambda: counting.advance(1))
    assert 45 <= len(told) <= 52
    moments = [each.seconds for each in told[:-1]]
    assert all(later - earlier >= 0.0999 for earlier, later in pairwise(moments))


def test_the_end_is_told_also_when_the_work_fails() -> None:
    told: list[Working] = []
    with pytest.raises(OSError, match="disk full"), meter(told, Clock()):
        raise OSError("disk full")
    assert told[-1].is_over


def test_files_that_are_gone_through_are_counted_when_they_are_done() -> None:
    told: list[Working] = []
    clock = Clock()
    done = []
    with meter(told, clock, files=3, size_bytes=None) as counting:
        for each in counting.each("abc"):
            clock.now += 1
            done.append(each)
    assert done == ["a", "b", "c"]
    assert [each.files_done for each in told] == [0, 1, 2, 3, 3]
    assert told[-1].bytes_total is None


def test_more_than_was_counted_at_first_is_not_more_than_all() -> None:
    told: list[Working] = []
    with meter(told, Clock(), files=1, size_bytes=10) as counting:
        counting.advance(2, 20)
    assert (told[-1].files_done, told[-1].bytes_done, told[-1].fraction) == (1, 10, 1.0)


def test_the_time_left_is_not_guessed_in_the_first_second_and_then_fits_the_rate() -> None:
    told: list[Working] = []
    clock = Clock()
    with meter(told, clock) as counting:
        work_for(clock, 20, lambda: counting.advance(1, 100_000))
    assert all(each.seconds_left is None for each in told if each.seconds < 1)
    later = [each for each in told if each.seconds > 3]
    assert later
    for each in later:
        assert each.seconds_left == pytest.approx(100 - each.seconds, rel=0.02)


def test_the_time_left_follows_a_change_of_the_rate_within_seconds_and_not_at_once() -> None:
    told: list[Working] = []
    clock = Clock()
    with meter(told, clock) as counting:
        work_for(clock, 10, lambda: counting.advance(4, 400_000))
        fast = told[-1].seconds_left
        work_for(clock, 0.2, lambda: counting.advance(1, 100_000))
        shortly_after = told[-1].seconds_left
        work_for(clock, 15, lambda: counting.advance(1, 100_000))
    assert fast == pytest.approx(15, rel=0.05)
    assert shortly_after == pytest.approx(15.7, rel=0.1)
    assert told[-2].seconds_left == pytest.approx(60 - 15.2, rel=0.05)


def test_work_that_stands_still_from_its_start_has_no_time_left() -> None:
    told: list[Working] = []
    clock = Clock()
    with meter(told, clock) as counting:
        work_for(clock, 5, lambda: counting.advance(0, 0))
    assert {each.seconds_left for each in told} == {None}


def test_a_watcher_that_fails_does_not_stop_the_work_and_is_left_alone() -> None:
    calls = []

    def fail(working: Working) -> None:
        calls.append(working)
        raise RuntimeError("the screen is gone")

    with Meter(Work.SAVING, "app", 5000, None, fail) as counting:
        assert list(counting.each("abc")) == ["a", "b", "c"]
    assert len(calls) == 1


def test_little_work_is_not_metered_and_much_of_either_is() -> None:
    told: list[Working] = []
    with watched_by(told.append):
        assert meter_of(Work.SAVING, "app", lambda: (FEWEST_FILES - 1, FEWEST_BYTES - 1)) is UNWATCHED
        assert meter_of(Work.SAVING, "app", lambda: (FEWEST_FILES - 1, None)) is UNWATCHED
        for totals in ((FEWEST_FILES, 0), (1, FEWEST_BYTES)):
            with meter_of(Work.SAVING, "app", lambda totals=totals: totals):  # type: ignore[misc]
                pass
    assert [(each.files_total, each.bytes_total) for each in told if each.is_over] == [(1000, 0), (1, 64_000_000)]


def test_where_nobody_watches_nothing_is_even_counted() -> None:
    def count() -> tuple[int, int]:
        raise AssertionError("nobody wants to know")

    with meter_of(Work.SAVING, "app", count) as counting:
        counting.advance(1, 1)
        assert list(counting.each("ab")) == ["a", "b"]


def test_another_thread_is_watched_by_somebody_else_or_nobody() -> None:
    told: list[Working] = []
    found = []

    def elsewhere() -> None:
        found.append(meter_of(Work.SAVING, "app", lambda: (5000, None)))

    with watched_by(told.append):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        with watched_by(None):
            assert meter_of(Work.SAVING, "app", lambda: (5000, None)) is not UNWATCHED
    assert found == [UNWATCHED]
    assert meter_of(Work.SAVING, "app", lambda: (5000, None)) is UNWATCHED
