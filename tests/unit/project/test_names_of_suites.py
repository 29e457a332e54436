"""The files and sessions that the customer's documents name are found by those names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "name",
    [
        "features/sandbox_checkpoints.feature",
        "features/checkpoint_rollback.feature",
        "robot/sandbox_checkpoint_smoke.robot",
        "robot/checkpoint_rollback.robot",
        "benchmarks/sandbox_checkpoint_bench.py",
        "benchmarks/checkpoint_rollback_bench.py",
        "docs/reference/sandbox.md",
        "docs/reference/checkpointing.md",
    ],
)
def test_a_file_has_the_name_that_was_asked_for(name: str) -> None:
    assert (ROOT / name).is_file()


def test_nox_has_the_sessions_that_were_asked_for_and_runs_them_all() -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "nox", "--list"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    selected = {line.split()[1] for line in listed.splitlines() if line.startswith("* ")}

    assert selected == {
        "lint", "typecheck", "quality", "security", "build", "benchmark", "docs",
        "unit_tests", "integration_tests", "stories", "coverage_report",
    }  # fmt: skip
