"""Measures Holdfast beside the ways others take checkpoints, on the same trees in the same run, and reports it."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.machine import machine_facts
from benchmarks.measuring import BORG, GIT, RESTIC, SNAPSHOT, WHOLE, Measured, Measuring, Work
from benchmarks.memory import peaks
from benchmarks.plot import Line, line_chart
from benchmarks.progress import say
from benchmarks.report import report, summary, write_between_markers

_PLOTS = {
    Work.TEN: ("checkpoint-cost.svg", "A checkpoint after 10 files changed"),
    Work.ROLLBACK: ("rollback-cost.svg", "Rolling back 10 changed files"),
}


def main() -> None:
    options = _options()
    # Ended from outside, it still stops its processes and removes its folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=options.workdir) as name:
        folder = Path(name)
        measured = [_measure(folder, files, options) for files in options.files]
        memory = peaks(folder, max(options.files))
        facts = machine_facts(folder)
        say("removing the trees and stores")
    text = report(measured, memory, facts, _command(options), datetime.now(UTC).date().isoformat())
    sys.stdout.write(text + "\n")
    if options.output is not None:
        write(options.output, text, measured)
    say("done")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[1000, 10_000, 100_000], help="sizes of the trees")
    parser.add_argument("--rounds", type=int, default=5, help="how often everything is measured")
    parser.add_argument(
        "--patience", type=float, default=30, help="seconds after which a slow one is not measured another time"
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="folder of performance.md, which then gets the result, and so does README.md beside the folder",
    )
    parser.add_argument("--workdir", type=Path, help="where to put the trees and stores, on the disk to measure")
    return parser.parse_args()


def _command(options: argparse.Namespace) -> str:
    sizes = " ".join(map(str, options.files))
    return f"python -m benchmarks.compare --files {sizes} --rounds {options.rounds} --patience {options.patience:g}"


def _measure(folder: Path, files: int, options: argparse.Namespace) -> Measured:
    own = folder / str(files)
    own.mkdir()
    return Measuring(own, files, options.rounds, options.patience).run()


def write(output: Path, text: str, measured: Sequence[Measured]) -> None:
    write_between_markers(output / "performance.md", text)
    summed_up = summary(measured)
    if summed_up is not None:
        write_between_markers(output.resolve().parent / "README.md", summed_up)
    (output / "img").mkdir(exist_ok=True)
    for work, (name, title) in _PLOTS.items():
        chart = line_chart(
            title, "files in the tree", "median milliseconds; both axes are logarithmic", _lines(measured, work)
        )
        (output / "img" / name).write_text(chart)


def _lines(measured: Sequence[Measured], work: Work) -> list[Line]:
    lines = []
    for color, peer in enumerate((GIT, RESTIC, BORG, SNAPSHOT, WHOLE)):
        found = [(each.files, each.median(work, peer)) for each in measured]
        points = tuple((float(files), seconds * 1000) for files, seconds in found if seconds is not None)
        if points:
            lines.append(Line(peer, color, points))
    return lines


if __name__ == "__main__":
    main()
