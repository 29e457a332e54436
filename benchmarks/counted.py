"""Counts the work with asv and compares it with the last release: ``python -m benchmarks.counted [--record]``.

More work than in the release is a failure, whatever the times are. ``--record`` writes the counts down as those of the
version in pyproject.toml; that belongs to making a release, and to a change that costs more for a good reason.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asv.commands.compare import Compare
from asv.config import Config
from asv.results import iter_results_for_machine_and_hash

ROOT = Path(__file__).resolve().parents[1]
RELEASE = ROOT / "benchmarks" / "last_release.json"
FOLDER = ROOT / "build" / "asv"
FACTOR = 1.05
"""A twentieth: adding one SQL statement to ten is noticed, a function more in a hundred is not."""
_MACHINE = "any"
_BENCHMARKS = "counted_work_bench"

Counts = dict[str, dict[str, float | None]]
"""By benchmark and parameters; None is a benchmark that failed."""


def count_now() -> Counts:
    """What asv finds in the sources as they are."""
    shutil.rmtree(Path(_config().results_dir, _MACHINE), ignore_errors=True)
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    _asv("machine", "--machine", _MACHINE, "--os", "", "--arch", "", "--cpu", "", "--num_cpu", "", "--ram", "", "--yes")
    _asv("run", "--python=same", "--set-commit-hash", commit, "--machine", _MACHINE, "--bench", _BENCHMARKS)
    [results] = iter_results_for_machine_and_hash(_config().results_dir, _MACHINE, commit)
    found: Counts = {}
    for key in results.get_all_result_keys():
        [names] = results.get_result_params(key)
        values = results.get_result_value(key, [names])
        found[key] = dict(zip(names, values, strict=True))
    return found


def is_worse(release: Counts, now: Counts, version: str, config: Config) -> bool:
    """Show asv's table of the two; whether anything costs more, or is no longer counted."""
    worse, _ = Compare.print_table(
        config, version, "now", FACTOR, split=True, resultset_1=_rows(release), resultset_2=_rows(now)
    )
    # asv does not compare with nothing, so what costs something for the first time would pass.
    new = [
        f"{key}({name})"
        for key, values in release.items()
        for name, value in values.items()
        if value == 0 and now.get(key, {}).get(name)
    ]
    missing = [
        f"{key}({name})" for key, values in release.items() for name in values if now.get(key, {}).get(name) is None
    ]
    for text, names in (("was nothing", new), ("is no longer counted", missing)):
        for name in names:
            sys.stdout.write(f"{name} {text}.\n")
    return bool(worse or new or missing)


def _rows(counts: Counts) -> Iterator[tuple[Any, ...]]:
    for key, values in counts.items():
        # Without a version: a benchmark that was edited is compared all the same.
        yield key, [list(values)], list(values.values()), None, None, None, _MACHINE, "counted"


def _asv(*words: str) -> None:
    # asv keeps a file in the home directory, and that of the user is none of its business.
    FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "asv", *words], cwd=ROOT, check=True, env={**os.environ, "HOME": str(FOLDER)})


def _config() -> Config:
    return Config.load(str(ROOT / "asv.conf.json"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.counted", description=__doc__)
    parser.add_argument("--record", action="store_true", help=f"write the counts to {RELEASE.name}")
    options = parser.parse_args()
    os.chdir(ROOT)
    counts = count_now()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if options.record:
        RELEASE.write_text(json.dumps({"version": version, "counts": counts}, indent=2) + "\n")
        return 0
    recorded = json.loads(RELEASE.read_text())
    if is_worse(recorded["counts"], counts, recorded["version"], _config()):
        sys.stdout.write(f"More work than in {recorded['version']}. If that is right: nox -s benchmark -- --record\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
