"""How the tests are measured, and what each of their processes begins with.

What the commands do that they start is measured only where nothing else runs those lines: measuring a process makes it
take twice as long, and there are thousands of them. A test that repeats for long what others do, too, is marked
``unmeasured``, because measured it would take twice as long; modules of such tests are listed here.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from coverage import Coverage

from tests.support.measuring import setting_of_processes

_VARIABLE = "COVERAGE_PROCESS_CONFIG"
_SETTING = os.environ.get(_VARIABLE) and setting_of_processes(os.environ[_VARIABLE])
if _SETTING:
    os.environ[_VARIABLE] = _SETTING  # for the workers of pytest, and what they fork
_HERE = Path(__file__).parent
_WITH_COMMANDS = tuple(
    _HERE / place
    for place in (
        "unit",
        "integration/process",
        "integration/cli",
        "integration/db/test_alembic_command.py",
        "integration/guard",
        "integration/mcp",
        "integration/sessions",
    )
)

_REPEATING = frozenset(
    _HERE / place
    for place in (
        "integration/apply/test_changes_of_kind.py",
        "integration/apply/test_dry_run.py",
        "integration/apply/test_groups.py",
        "integration/apply/test_sparse_checkout.py",
        "integration/apply/test_three_way.py",
        "integration/apply/test_what_git_is_asked.py",
        "integration/checkpoints/test_groups.py",
        "integration/checkpoints/test_long_histories.py",
        "integration/checkpoints/test_titles.py",
        "integration/cli/test_interrupts.py",
        "integration/cli/test_long_plans.py",
        "integration/cli/test_names_that_are_not_text.py",
        "integration/cli/test_numbers.py",
        "integration/cli/test_rollback.py",
        "integration/cli/test_starting.py",
        "integration/cli/test_what_a_failure_keeps.py",
        "integration/confinement/test_what_a_refusal_says.py",
        "integration/confinement/test_what_a_step_cannot_do.py",
        "integration/confinement/test_what_is_shown.py",
        "integration/confinement/test_without_privileges.py",
        "integration/db/test_moved_and_copied_homes.py",
        "integration/db/test_processes.py",
        "integration/db/test_schema.py",
        "integration/db/test_store.py",
        "integration/execution/test_crashes.py",
        "integration/execution/test_long_plans.py",
        "integration/execution/test_real_projects.py",
        "integration/execution/test_replaced_sandboxes.py",
        "integration/execution/test_stop.py",
        "integration/rollback/test_from_moment.py",
        "integration/rollback/test_rollback.py",
        "integration/test_container.py",
        "integration/test_home_of_version_before.py",
        "unit/checkpoints/test_changes_named.py",
        "unit/content/test_s6_s7_durable_and_collected.py",
        "unit/snapshot/test_comparing.py",
        "unit/snapshot/test_copied_tree.py",
    )
)


def pytest_configure() -> None:
    # A program that is started in the background of a script ignores Ctrl-C, and so would all that the tests start.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    # All test modules stay to the end: the garbage collector need not look at them again and again.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    measuring = Coverage.current()
    if _SETTING is None or measuring is None:
        return (yield)
    is_measured = item.path not in _REPEATING and item.get_closest_marker("unmeasured") is None
    if is_measured and any(item.path.is_relative_to(place) for place in _WITH_COMMANDS):
        os.environ[_VARIABLE] = _SETTING
    else:
        os.environ.pop(_VARIABLE, None)
    if is_measured:
        return (yield)
    of_threads = threading.gettrace()
    measuring.stop()
    try:
        return (yield)
    finally:
        measuring.start()
        threading.settrace(of_threads)


def _trace_one_thread_at_a_time() -> None:
    """Before Python 3.12 a thread dies at its start if another is about to be traced just then.

    An audit hook lets others run in the middle of that, and some of our tests listen through one.
    """
    begin_to_measure = threading.gettrace()
    if begin_to_measure is None or sys.version_info >= (3, 12):
        return
    one_at_a_time, set_trace = threading.RLock(), sys.settrace

    def set_trace_alone(function: Any) -> None:
        with one_at_a_time:
            set_trace(function)

    def begin_alone(frame: FrameType, event: str, arg: Any) -> Any:
        with one_at_a_time:
            return begin_to_measure(frame, event, arg)

    sys.settrace = set_trace_alone
    threading.settrace(begin_alone)
    _is_free_in_forks(one_at_a_time)


def _is_free_in_forks(lock: Any) -> None:
    """Nobody else holds the lock during a fork: in the child the thread that could release it would be missing."""
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


_trace_one_thread_at_a_time()


def _begin_anew() -> None:
    """In a fork: what was measured before is the parent's to write, and its file is no file of the fork's."""
    measuring = Coverage.current()
    if measuring is not None and measuring._collector is not None and measuring._data is not None:
        measuring._collector._clear_data()
        measuring._data._start_using()


if (_measuring := Coverage.current()) is not None and _measuring._collector is not None:
    _is_free_in_forks(_measuring._collector.data_lock)
    os.register_at_fork(after_in_child=_begin_anew)
