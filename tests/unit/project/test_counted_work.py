from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from asv.config import Config
from benchmarks.counted import RELEASE, is_worse

ROOT = Path(__file__).resolve().parents[3]
RECORDED = {"track_statements": {"checkpoint": 20.0, "status": 0.0}}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "benchmarks.json").write_text('{"version": 2}')
    made = Config()
    made.results_dir = str(tmp_path)
    return made


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ({"checkpoint": 20.0, "status": 0.0}, False),
        ({"checkpoint": 12.0, "status": 0.0}, False),
        ({"checkpoint": 21.0, "status": 0.0}, False),
        ({"checkpoint": 22.0, "status": 0.0}, True),
        ({"checkpoint": None, "status": 0.0}, True),
        ({"checkpoint": 20.0}, True),
        ({"checkpoint": 20.0, "status": 1.0}, True),
    ],
    ids=["the same", "less", "within a twentieth", "more", "failed", "left out", "something for nothing"],
)
def test_more_work_than_in_the_release_is_a_failure(
    config: Config, now: dict[str, float | None], expected: bool
) -> None:
    assert is_worse(RECORDED, {"track_statements": now}, "1.0", config) is expected


def test_the_counts_of_the_release_are_of_all_works() -> None:
    works = subprocess.check_output(
        [sys.executable, "-c", "import json, benchmarks.counting as it; print(json.dumps(list(it.WORKS)))"],
        cwd=ROOT, text=True,
    )  # fmt: skip
    recorded = json.loads(RELEASE.read_text())["counts"]

    assert {name.strip("'") for values in recorded.values() for name in values} == set(json.loads(works))


def test_work_is_counted_and_the_same_work_gives_the_same_counts(tmp_path: Path) -> None:
    counted = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        command = [sys.executable, "-m", "benchmarks.counting", "checkpoint, ten files changed", str(folder)]
        counted.append(json.loads(subprocess.check_output(command, cwd=ROOT)))

    assert counted[0] == counted[1]
    assert counted[0]["system_calls"] > 10
    assert counted[0]["statements"] > 3
    assert counted[0]["stored_bytes"] > 0
