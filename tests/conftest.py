"""What the commands do that these tests start is measured only where nothing else runs those lines.

Measuring a process makes it take half as long again, and there are thousands of them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_VARIABLE = "COVERAGE_PROCESS_CONFIG"
_SETTING = os.environ.get(_VARIABLE)
_HERE = Path(__file__).parent
_MEASURED = tuple(
    _HERE / place
    for place in (
        "unit",
        "integration/process",
        "integration/cli/test_after_a_crash.py",
        "integration/cli/test_apply.py",
        "integration/cli/test_completion_and_pager.py",
        "integration/cli/test_demo.py",
        "integration/cli/test_doctor.py",
        "integration/cli/test_formats.py",
        "integration/cli/test_full_disk.py",
        "integration/cli/test_plan_life.py",
        "integration/cli/test_progress_bar.py",
        "integration/cli/test_run.py",
        "integration/cli/test_screens.py",
    )
)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if _SETTING is None:
        return
    if any(item.path.is_relative_to(place) for place in _MEASURED):
        os.environ[_VARIABLE] = _SETTING
    else:
        os.environ.pop(_VARIABLE, None)
