from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import RunSettings, Step, extended, is_within, less, numbers_of


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


def test_a_record_is_made_by_many_threads_at_once_from_the_first_time_on() -> None:
    """In a new interpreter: what msgspec finds out of a type when it meets it first, it finds out once."""
    code = """
import sys, threading
sys.setswitchinterval(1e-6)
from holdfast.model import Project, now
fields = {"project_id": "01M7R4WB6BETHW8TP4AXXB48XM", "root": "/a", "created_at": now()}
at_once, made = threading.Barrier(8), []
def make():
    at_once.wait()
    made.append(Project.model_validate(fields))
threads = [threading.Thread(target=make) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
print(len(made), len(set(made)))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "8 1\n"


def test_a_step_of_an_earlier_version_says_nothing_of_what_its_program_is_given() -> None:
    stored = {"name": "sh", "tool": "program", "args": {"argv": ["sh"], "folder": "."}, "resource": "app"}
    step = Step.model_validate(stored)
    assert (step.is_program, step.run_settings, step.is_interactive) == (True, None, False)


def test_a_step_that_is_no_program_is_stored_as_before_there_were_settings() -> None:
    step = Step(name="one", tool="shell", args={"command": "true"}, resource="app")
    assert "settings" not in step.model_dump(mode="json")
    program = step.model_copy(update={"settings": RunSettings(pass_env=("KEY",))})
    assert Step.model_validate(program.model_dump(mode="json")) == program
