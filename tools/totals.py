"""Adds up what all suites found: ``python -m tools.totals [FOLDER]``, the last line of ``make test``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree  # nosec B405 # of files that our own suites wrote

RESULTS = Path(__file__).resolve().parents[1] / "build" / "results"
REPORTS = ("measured.json", "beside.json")
"""What nox says of its sessions (``nox --report``), which run in two lanes."""


@dataclass(frozen=True)
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)


def tests_found(folder: Path) -> dict[str, Count]:
    """By suite, from the JUnit files that it wrote: `unit_tests-1.xml` is a part of `unit_tests`."""
    found: dict[str, Count] = {}
    for file in sorted(folder.rglob("*.xml")):
        suite = file.relative_to(folder).parts[0].removesuffix(".xml").rstrip("-0123456789")
        found[suite] = sum(_counts(file), found.get(suite, Count()))
    return found


def _counts(file: Path) -> Iterator[Count]:
    try:
        root = ElementTree.parse(file).getroot()  # nosec B314
    except (OSError, ElementTree.ParseError):
        yield Count(failed=1)  # the suite died while it wrote
        return
    for suite in [root] if root.tag == "testsuite" else root.iter("testsuite"):
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        yield Count(int(suite.get("tests", 0)) - failed - skipped, failed, skipped)


def sessions_found(folder: Path) -> dict[str, Count]:
    """By session of nox, each counted as one check; without a report one that failed, as nox came to no end."""
    found: dict[str, Count] = {}
    counts = {"success": Count(passed=1), "skipped": Count(skipped=1)}
    for report in REPORTS:
        try:
            sessions = json.loads((folder / report).read_text())["sessions"]
        except (OSError, ValueError):
            found[f"nox ({report})"] = Count(failed=1)
        else:
            found |= {each["name"]: counts.get(each["result"], Count(failed=1)) for each in sessions}
    return found


def report(folder: Path) -> tuple[str, bool]:
    """The table and, as its last line, the total; and whether all passed."""
    tests, sessions = tests_found(folder), sessions_found(folder)
    rows = {**tests, **{f"session {name}": count for name, count in sessions.items() if count.failed}}
    checks = sum(sessions.values(), Count())
    total = sum(tests.values(), checks)
    lines = [f"{name:<30}{_text(count)}, {count.skipped} skipped" for name, count in rows.items()]
    lines.append(f"{'sessions':<30}{_text(checks)}")
    return "\n".join((*lines, f"total: {_text(total)}")), total.failed == 0 and total.passed > 0


def _text(count: Count) -> str:
    return f"{count.passed} passed, {count.failed} failed"


def main(folder: Path) -> int:
    text, has_passed = report(folder)
    sys.stdout.write(text + "\n")
    return 0 if has_passed else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else RESULTS))
