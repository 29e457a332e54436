"""The whole campaign: ``python -m tests.faults.campaign``; goes on where it was stopped, and ends with a table.

Works on a copy of the source made at its start, so that nobody's edits come into the middle of it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tests.support.trees import fast_disk

if TYPE_CHECKING:
    from tests.faults.rows import Case, Row
    from tests.faults.trial import Bench

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build" / "faults"
FROZEN = "HOLDFAST_FAULTS_SOURCE"


def frozen_source() -> Path:
    """A copy of the source, in which this process then runs."""
    folder = RESULTS / "source"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "src", folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def main() -> int:
    arguments = _parser().parse_args()
    if FROZEN not in os.environ:
        RESULTS.mkdir(parents=True, exist_ok=True)
        source = frozen_source()
        path = os.pathsep.join((str(source), str(ROOT)))
        environment = {**os.environ, FROZEN: str(source), "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": ""}
        os.execve(sys.executable, [sys.executable, "-m", "tests.faults.campaign", *sys.argv[1:]], environment)
    return _run(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--verbs", default="", help="these verbs only, with commas")
    parser.add_argument("--every", type=int, default=1, help="only every so many trials of a row")
    parser.add_argument("--again", action="store_true", help="try what did not hold once more")
    parser.add_argument("--report", action="store_true", help="only print the table of what is there and write it down")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    from tests.faults import report
    from tests.faults.rows import ROWS

    folder = RESULTS / fingerprint(Path(os.environ[FROZEN]))
    folder.mkdir(parents=True, exist_ok=True)
    if not arguments.report:
        context = multiprocessing.get_context("fork")
        workers = [context.Process(target=_work, args=(folder, n, arguments)) for n in range(arguments.workers)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    results, skipped = list(_results(folder)), {row.what: row.missing() for row in ROWS if row.missing()}
    report.show(results, skipped)
    report.write_down(results, skipped, ROOT / "docs" / "reliability.md")
    return 0 if results and all(each["held"] for each in results) else 1


def _results(folder: Path) -> Iterator[dict[str, Any]]:
    """The latest of each trial."""
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    for file in sorted(folder.glob("results-*.jsonl")):
        for line in file.read_text().splitlines():
            try:
                each = json.loads(line)
            except ValueError:
                continue  # the last line of a campaign that was stopped
            if _key(each) not in found or each["at"] > found[_key(each)]["at"]:
                found[_key(each)] = each
    yield from found.values()


def _key(result: Mapping[str, Any]) -> tuple[str, str, int]:
    return result["what"], result["verb"], result["number"]


def _work(folder: Path, number: int, arguments: argparse.Namespace) -> None:
    """One worker: its part of every row, in a world of its own."""
    from tests.faults.gate import become_reaper
    from tests.faults.power import unmount_all
    from tests.faults.rows import ROWS
    from tests.faults.trial import Bench
    from tests.faults.world import World

    become_reaper()
    done = {_key(each) for each in _results(folder) if each["held"] or not arguments.again}
    place = Path(tempfile.mkdtemp(prefix=f"holdfast-faults-{number}-", dir=fast_disk()))
    try:
        bench = Bench(World(place / "world"))
        with open(folder / f"results-{number}-{os.getpid()}.jsonl", "a", buffering=1) as file:
            for row in ROWS:
                if arguments.only not in row.what or row.missing():
                    continue
                wanted = [each for each in row.cases(bench) if each.verb in (arguments.verbs or each.verb).split(",")]
                mine = wanted[number * arguments.every :: arguments.workers * arguments.every]
                _try_all(row, bench, [each for each in mine if (row.what, each.verb, each.number) not in done], file)
    finally:
        unmount_all()
        shutil.rmtree(place, ignore_errors=True)


def _try_all(row: Row, bench: Bench, cases: Sequence[Case], file: TextIO) -> None:
    from tests.faults.trial import Outcome

    for case in cases:
        started = time.monotonic()
        try:
            outcome = case.attempt(bench)
        except Exception as error:  # noqa: BLE001 - one trial that breaks is a finding, not the end of the campaign
            outcome = Outcome([f"the trial itself broke: {type(error).__name__}: {error}"])
        problems = outcome.problems
        result = {
            "what": row.what, "verb": case.verb, "number": case.number, "about": case.about, "held": not problems,
            "problems": [each[:1000] for each in problems[:8]], "story": outcome.story if problems else [],
            "seconds": round(time.monotonic() - started, 3), "went_on": round(outcome.seconds_to_go_on, 3),
            "at": time.time(),
        }  # fmt: skip
        file.write(json.dumps(result) + "\n")
        if problems:
            where = f"{row.what} / {case.verb} / {case.number} ({case.about})"
            print(f"NOT HELD {where}: {'; '.join(problems)[:400]}", flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
