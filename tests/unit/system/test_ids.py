from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from holdfast.names import display_ids
from holdfast.system import ids
from holdfast.system.ids import new_id


def test_ids_made_by_one_process_sort_in_the_order_they_were_made() -> None:
    made = [new_id() for _ in range(5000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_of_the_same_moment_are_told_apart_by_a_short_beginning() -> None:
    made = [new_id() for _ in range(20)]
    assert max(map(len, display_ids(made).values())) <= len("cp_") + 18


def test_an_id_begins_with_its_millisecond() -> None:
    before = time.time_ns() // 1_000_000
    made = new_id()
    after = time.time_ns() // 1_000_000
    assert len(made) == 26
    # Crockford's digits are those of base 32 but for I, L, O and U.
    digits = str.maketrans("ABCDEFGHJKMNPQRSTVWXYZ", "ABCDEFGHIJKLMNOPQRSTUV")
    assert before <= int(made[:10].translate(digits), 32) <= after


def test_ids_sort_also_while_the_clock_stands_still_or_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_ids", ids._Ids())  # not to leave the one of all other tests in the future
    made = [new_id()]
    at = time.time_ns() + 1_000_000_000
    for moment in (at, at, at - 3_600_000_000_000, at, at + 1_000_000):
        monkeypatch.setattr(time, "time_ns", lambda moment=moment: moment)
        made += [new_id() for _ in range(100)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_a_fork_makes_other_ids() -> None:
    forked = (
        "import os; from holdfast.system.ids import new_id; new_id(); os.fork(); os.write(1, new_id().encode() + b' ')"
    )
    printed = subprocess.run([sys.executable, "-c", forked], capture_output=True, text=True, check=True).stdout.split()
    assert len(set(printed)) == 2


def test_more_ids_than_one_millisecond_has_room_for_go_on_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    at = time.time_ns()
    monkeypatch.setattr(ids, "_ids", ids._Ids())
    monkeypatch.setattr(time, "time_ns", lambda: at)
    monkeypatch.setattr(os, "urandom", lambda size: b"\xff" * size)
    made = [new_id() for _ in range(300)]
    monkeypatch.setattr(time, "time_ns", lambda: at + 1_000_000)
    monkeypatch.setattr(os, "urandom", lambda size: b"\0" * size)
    made += [new_id() for _ in range(300)]
    assert len({each[:10] for each in made}) > 2
    assert made == sorted(made)
    assert len(set(made)) == len(made)
