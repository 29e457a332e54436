"""``@``, ``@-2``, ``@{10 minutes ago}`` and ``start``: how they are read, and that no label may look like them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast.checkpoints.references import (
    FirstMoment,
    MomentAt,
    MomentReference,
    MomentsBack,
    moment_reference,
    refuse_label,
)
from holdfast.errors import UsageError

PRESENT = datetime(2026, 11, 19, 12, 30, 40, 500_000, tzinfo=timezone(timedelta(hours=2)))
"""Of a user two hours east of Greenwich."""


def at(hour: int, minute: int = 0, second: int = 0, *, day: int = 19) -> MomentAt:
    """All of that second counts, because lists show no fractions."""
    return MomentAt(datetime(2026, 11, day, hour, minute, second, 999_999, tzinfo=PRESENT.tzinfo))


def ago(**span: int) -> MomentAt:
    return MomentAt(PRESENT - timedelta(**span))


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("@", MomentsBack(0)),
        (" @ ", MomentsBack(0)),
        ("@-0", MomentsBack(0)),
        ("@-2", MomentsBack(2)),
        ("@-120", MomentsBack(120)),
        ("start", FirstMoment()),
        ("START", FirstMoment()),
        ("@{10 minutes ago}", ago(minutes=10)),
        ("@{10 minutes}", ago(minutes=10)),
        ("@{1 Minute AGO}", ago(minutes=1)),
        ("@{90s}", ago(seconds=90)),
        ("@{2h}", ago(hours=2)),
        ("@{ 3 d }", ago(days=3)),
        ("@{1h30m}", ago(hours=1, minutes=30)),
        ("@{1 hour, 2 minutes and 3 seconds ago}", ago(hours=1, minutes=2, seconds=3)),
        ("@{12:30}", at(12, 30)),
        ("@{9:05}", at(9, 5)),
        ("@{12:30:40}", at(12, 30, 40)),
        ("@{12:31}", at(12, 31, day=18)),  # not yet today, so yesterday
        ("@{2026-11-18 08:00}", at(8, day=18)),
        ("@{2026-11-18T08:00:00+02:00}", at(8, day=18)),
        ("@{2026-11-18}", at(0, day=18)),
    ],
)
def test_a_moment_is_named_by_its_place_or_its_time(reference: str, expected: MomentReference) -> None:
    assert moment_reference(reference, PRESENT) == expected


@pytest.mark.parametrize(
    "reference",
    [
        "", "@2", "@+1", "@-", "@-x", "@@", "@{}", "@{ago}", "@{10}", "@{10 parsecs}", "@{minutes}", "@{25:00}",
        "@{12:61}", "@{10 minutes", "@{yesterday evening}", "@{-5m}", "@{999999999d}", "@-9999999999",
        "lunch", "starter", "cp_01J8AAAA",
    ],
)  # fmt: skip
def test_what_does_not_look_like_a_moment_is_left_to_ids_and_labels(reference: str) -> None:
    assert moment_reference(reference, PRESENT) is None


def test_a_time_in_another_zone_is_the_same_moment() -> None:
    found = moment_reference("@{2026-11-19T10:00:00+00:00}", PRESENT)
    assert isinstance(found, MomentAt)
    assert found.at.astimezone(UTC).hour == 10


@pytest.mark.parametrize("label", ["@", "@-2", "@{lunch}", "@home", " @x", "start", "Start", " START "])
def test_a_label_that_looks_like_a_moment_is_refused(label: str) -> None:
    with pytest.raises(UsageError, match="looks like a moment"):
        refuse_label(label)


@pytest.mark.parametrize("label", ["lunch", "a@b", "the start", "starting"])
def test_other_labels_are_not(label: str) -> None:
    refuse_label(label)
