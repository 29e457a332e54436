"""What was measured, as Markdown: a table for each tree, the targets beside it, the memory and the machine.

The README shows a few rows and columns of one of these tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.measuring import BORG, DISK_CHECKPOINTS, GIT, GIT_SYNCED, RESTIC, SNAPSHOT, WHOLE, Measured, Work
from benchmarks.memory import Peak

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
MEMORY_PROMISE_BYTES = 250_000_000
_COLUMNS = (GIT, GIT_SYNCED, RESTIC, BORG, SNAPSHOT, WHOLE)
_SUMMED_UP_FILES = 10_000
_SUMMED_UP = (Work.NOTHING, Work.TEN, Work.ROLLBACK, Work.APPEND)
_SUMMARY_COLUMNS = (GIT, SNAPSHOT, WHOLE)
_NONE = "-"
_DISK = f"disk for {DISK_CHECKPOINTS} checkpoints of 10 changed files"

TARGETS: dict[int, dict[str, int]] = {
    10_000: {
        Work.FIRST: 3,
        Work.NOTHING: 100,
        Work.TEN: 20,
        Work.ROLLBACK: 40,
        Work.APPEND: 40,
        Work.NEW_PROCESS: 1,
        _DISK: 4,
    },
    100_000: {
        Work.FIRST: 3,
        Work.NOTHING: 300,
        Work.TEN: 100,
        Work.ROLLBACK: 200,
        Work.APPEND: 40,
        Work.NEW_PROCESS: 1,
        _DISK: 4,
    },
}
"""How many times less than the git way the snapshot is to cost, by the number of files."""


def report(
    measured: Sequence[Measured],
    peaks: Sequence[Peak],
    facts: Iterable[tuple[str, str]],
    command: str,
    date: str,
) -> str:
    parts = [f"Measured on {date} with `{command}`.", _bullets(facts)]
    for each in measured:
        parts += [f"### {each.files:,} files", _table(each), *_notes(each)]
    if peaks:
        parts += ["### Memory", _memory_table(peaks)]
    return "\n\n".join(parts)


def summary(measured: Iterable[Measured]) -> str | None:
    """The part of it that the README shows; None if the tree that it is about was not measured."""
    for each in measured:
        if each.files == _SUMMED_UP_FILES:
            rows = [[work.value, *(_cell(each, work, peer) for peer in _SUMMARY_COLUMNS)] for work in _SUMMED_UP]
            return _markdown(["median ms", *_SUMMARY_COLUMNS], rows)
    return None


def _bullets(facts: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in facts)


def _table(measured: Measured) -> str:
    targets = TARGETS.get(measured.files, {})
    header = ["median ms", *_COLUMNS, "git way / snapshot", "fsynced / snapshot", "git way / whole", "target"]
    rows = [
        [
            work.value,
            *(_cell(measured, work, peer) for peer in _COLUMNS),
            *_verdict({peer: measured.median(work, peer) for peer in _COLUMNS}, targets.get(work)),
        ]
        for work in Work
    ]
    disk = [_kilobytes(measured.disk_bytes.get(peer)) for peer in _COLUMNS]
    rows.append([f"{_DISK}, kB", *disk, *_verdict(measured.disk_bytes, targets.get(_DISK))])
    return _markdown(header, rows)


def _cell(measured: Measured, work: Work, peer: str) -> str:
    times = measured.times(work, peer)
    if not times:
        return _NONE
    fewer = f" ({len(times)})" if len(times) < measured.rounds else ""
    return milliseconds(measured.median(work, peer) or 0.0) + fewer


def _verdict(costs: Mapping[str, float | None], target: int | None) -> list[str]:
    """The ratios, and whether the snapshot's reaches the target; at least beside a git that is as durable."""
    ratios = [_ratio(costs, *pair) for pair in ((GIT, SNAPSHOT), (GIT_SYNCED, SNAPSHOT), (GIT, WHOLE))]
    shown = [_NONE if ratio is None else f"{ratio:,.1f}" if ratio < 10 else f"{ratio:,.0f}" for ratio in ratios]
    plain, synced, _ = (ratio or 0.0 for ratio in ratios)
    if target is None or not plain:
        return [*shown, _NONE]
    word = "reached" if plain >= target else "reached by the fsynced" if synced >= target else "missed"
    return [*shown, f"{target} {word}"]


def _ratio(costs: Mapping[str, float | None], git: str, ours: str) -> float | None:
    theirs, own = costs.get(git), costs.get(ours)
    return theirs / own if theirs and own else None


def _notes(measured: Measured) -> list[str]:
    whole = milliseconds(measured.whole_process_seconds)
    notes = [f"The new process takes {whole} ms in all, with the start of the interpreter and the imports."]
    everything = [times for peers in measured.seconds.values() for times in peers.values()]
    if any(len(times) < measured.rounds for times in everything):
        notes.append(f"In parentheses: how often it was measured, where that was less than {measured.rounds} times.")
    return notes


def _memory_table(peaks: Iterable[Peak]) -> str:
    header = ["peak MB", "the process", "with the processes that read for it", "promise"]
    rows = [[peak.what, *map(_megabytes, (peak.process_bytes, peak.together_bytes)), _promise(peak)] for peak in peaks]
    return _markdown(header, rows)


def _promise(peak: Peak) -> str:
    return f"{_megabytes(MEMORY_PROMISE_BYTES)} {'kept' if peak.process_bytes <= MEMORY_PROMISE_BYTES else 'broken'}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f}"


def milliseconds(seconds: float) -> str:
    value = seconds * 1000
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f}"


def _kilobytes(size: int | None) -> str:
    return _NONE if size is None else f"{size / 1000:,.0f}"


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    ruler = [":--", *("--:" for _ in header[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, ruler, *rows))


def write_between_markers(page: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    """Replace what an earlier run measured; the prose around it stays."""
    before, found, rest = page.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise SystemExit(f"{page.name} has no place for the measurements: {begin} and {end} are missing.")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")
