from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools.totals import main, report

PYTEST = '<testsuites><testsuite name="pytest" errors="1" failures="1" skipped="2" tests="10"/></testsuites>'
BEHAVE = '<testsuite name="log.The log" tests="3" errors="0" failures="0" skipped="1"/>'
ROBOT = '<testsuite name="Robot" tests="4" errors="0" failures="0" skipped="0"/>'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "behave").mkdir()
    (tmp_path / "behave" / "TESTS-log.xml").write_text(BEHAVE)
    (tmp_path / "behave" / "TESTS-run.xml").write_text(BEHAVE)
    (tmp_path / "robot.xml").write_text(ROBOT)
    say_of_sessions(tmp_path, "measured", unit_tests="success")
    say_of_sessions(tmp_path, "beside", lint="success")
    return tmp_path


def say_of_sessions(folder: Path, lane: str, **results: str) -> None:
    sessions = [{"name": name, "result": result} for name, result in results.items()]
    (folder / f"{lane}.json").write_text(json.dumps({"sessions": sessions}))


def last_line(folder: Path) -> str:
    return report(folder)[0].splitlines()[-1]


def test_the_last_line_counts_all_suites_and_sessions(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(folder) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "total: 10 passed, 0 failed"
    assert "behave                        4 passed, 0 failed, 2 skipped" in report(folder)[0]


def test_one_failed_test_makes_all_fail_and_is_counted(folder: Path) -> None:
    (folder / "unit_tests-1.xml").write_text(PYTEST)

    assert main(folder) == 1
    assert last_line(folder) == "total: 16 passed, 2 failed"


def test_a_session_that_failed_without_a_failed_test_is_a_failure(folder: Path) -> None:
    say_of_sessions(folder, "measured", unit_tests="aborted")
    say_of_sessions(folder, "beside", lint="failed", docs="skipped")

    assert main(folder) == 1
    assert last_line(folder) == "total: 8 passed, 2 failed"
    assert "session lint" in report(folder)[0]


@pytest.mark.parametrize("left", ["", "<testsuites><testsuite"])
def test_what_a_suite_that_died_left_is_a_failure(folder: Path, left: str) -> None:
    (folder / "unit_tests.xml").write_text(left)

    assert main(folder) == 1


@pytest.mark.parametrize("lane", ["measured", "beside"])
def test_without_the_report_of_the_sessions_nothing_has_passed_as_a_whole(folder: Path, lane: str) -> None:
    (folder / f"{lane}.json").unlink()

    assert main(folder) == 1
    assert re.fullmatch(r"total: \d+ passed, 1 failed", last_line(folder))


def test_no_results_at_all_are_a_failure(tmp_path: Path) -> None:
    assert main(tmp_path) == 1
