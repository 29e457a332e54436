"""The whole campaign: ``python -m tests.faults.campaign``; goes on where it was stopped, and ends with a table.

Works on a copy of the source made at its start, so that nobody's edits come into the middle of it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.trees import fast_disk

if TYPE_CHECKING:
    from tests.faults.rows import Case
    from tests.faults.trial import Bench

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build" / "faults"
_SECONDS_BETWEEN_REPORTS = 30
FROZEN = "HOLDFAST_FAULTS_SOURCE"


def frozen_source() -> Path:
    """A copy of the source, in which this process then runs."""
    folder = RESULTS / "source"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "src", folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def fingerprint(source: Path) -> str:
    """Of what is tried and of the campaign itself: what was tried in another way counts for nothing."""
    digest = hashlib.sha256()
    for folder in (source, ROOT / "tests" / "faults", ROOT / "tests" / "support"):
        for path in sorted(folder.rglob("*.py")):
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
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 2, help="as many as there are cores, if not said"
    )
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
        _try(_todo(folder, arguments), folder, arguments.workers)
    order = [row.what for row in ROWS]
    results = sorted(_results(folder), key=lambda each: (order.index(each["what"]), _verb_order(each), each["number"]))
    skipped = {row.what: row.missing() for row in ROWS if row.missing()}
    report.show(results, skipped)
    if not (arguments.only or arguments.verbs or arguments.every > 1):
        report.write_down(results, skipped, ROOT / "docs" / "reliability.md")
    return 0 if results and all(each["held"] for each in results) else 1


def _verb_order(result: Mapping[str, Any]) -> int:
    from tests.faults.verbs import VERBS

    return next((number for number, verb in enumerate(VERBS) if verb.name == result["verb"]), -1)


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


def _todo(folder: Path, arguments: argparse.Namespace) -> list[tuple[str, Case]]:
    """Every case that is asked for and not done, mixed, so that the first half takes as long as the second."""
    from tests.faults.rows import ROWS

    done = {_key(each) for each in _results(folder) if each["held"] or not arguments.again}
    found: list[tuple[str, Case]] = []
    with _bench() as bench:
        for row in ROWS:
            if arguments.only not in row.what or row.missing():
                continue
            verbs: dict[str, list[Case]] = {}
            for case in row.cases(bench):
                verbs.setdefault(case.verb, []).append(case)
            wanted = arguments.verbs.split(",") if arguments.verbs else verbs
            found += [(row.what, case) for verb in wanted for case in verbs.get(verb, [])[:: arguments.every]]
    found = [(what, case) for what, case in found if (what, case.verb, case.number) not in done]
    random.Random("mixed").shuffle(found)
    return found


@contextmanager
def _bench() -> Iterator[Bench]:
    from tests.faults.gate import become_reaper
    from tests.faults.power import unmount_all
    from tests.faults.trial import Bench
    from tests.faults.world import World

    become_reaper()
    signal.signal(signal.SIGTERM, _stop)
    place = Path(tempfile.mkdtemp(prefix="holdfast-faults-", dir=fast_disk()))
    try:
        yield Bench(World(place / "world"))
    finally:
        unmount_all()
        shutil.rmtree(place, ignore_errors=True)


def _stop(*_: object) -> None:
    """What lies in memory and what is mounted goes with us; being told a second time must not stop that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)


@dataclass
class _Progress:
    """Shared by the workers: which case is the next, how many are done, how many of them did not hold."""

    next: Any
    done: Any
    not_held: Any
    started: float = field(default_factory=time.monotonic)

    def take(self) -> int:
        with self.next.get_lock():
            self.next.value += 1
            return int(self.next.value) - 1

    def count(self, held: bool) -> None:
        with self.done.get_lock():
            self.done.value += 1
            self.not_held.value += not held

    def say(self, total: int) -> None:
        passed, done = time.monotonic() - self.started, self.done.value
        left = f"{passed / done * (total - done) / 60:.0f} minutes left" if done else "beginning"
        print(f"{done} of {total} tried, {self.not_held.value} did not hold, {left}", flush=True)  # noqa: T201


def _try(todo: Sequence[tuple[str, Case]], folder: Path, count: int) -> None:
    context = multiprocessing.get_context("fork")
    progress = _Progress(*(context.Value("q", 0) for _ in range(3)))
    workers = [context.Process(target=_work, args=(todo, folder, n, progress), daemon=True) for n in range(count)]
    for worker in workers:
        worker.start()
    progress.say(len(todo))
    for worker in workers:
        while worker.is_alive():
            worker.join(_SECONDS_BETWEEN_REPORTS)
            progress.say(len(todo))


def _work(todo: Sequence[tuple[str, Case]], folder: Path, number: int, progress: _Progress) -> None:
    """One worker: the next case that nobody has taken, in a world of its own."""
    with _bench() as bench, open(folder / f"results-{number}-{os.getpid()}.jsonl", "a", buffering=1) as file:
        while (index := progress.take()) < len(todo):
            result = _result(*todo[index], bench)
            file.write(json.dumps(result) + "\n")
            progress.count(result["held"])


def _result(what: str, case: Case, bench: Bench) -> dict[str, Any]:
    from tests.faults.trial import Outcome

    started, core_seconds = time.monotonic(), _core_seconds()
    try:
        outcome = case.attempt(bench)
    except Exception as error:  # noqa: BLE001 - one trial that breaks is a finding, not the end of the campaign
        outcome = Outcome([f"the trial itself broke: {type(error).__name__}: {error}"])
    problems = outcome.problems
    if problems:
        where = f"{what} / {case.verb} / {case.number} ({case.about})"
        print(f"NOT HELD {where}: {'; '.join(problems)[:400]}", flush=True)  # noqa: T201
    return {
        "what": what, "verb": case.verb, "number": case.number, "about": case.about, "held": not problems,
        "problems": [each[:1000] for each in problems[:8]], "story": outcome.story if problems else [],
        "seconds": round(time.monotonic() - started, 3), "core_seconds": round(_core_seconds() - core_seconds, 2),
        "went_on": round(outcome.seconds_to_go_on, 3), "at": time.time(),
    }  # fmt: skip


def _core_seconds() -> float:
    """What this process and all that it waited for have used of a core."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    sys.exit(main())
