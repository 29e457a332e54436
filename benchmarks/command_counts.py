"""Runs one command and counts what it does: ``python -m benchmarks.command_counts FILE WORD...``.

Scans of a whole sandbox, git processes and SQL statements are the same on every machine, whatever else it does.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.cli.main import run
from holdfast.git import run as git_runner
from holdfast.snapshot.scan.changes import ChangeReport
from holdfast.snapshot.scan.scan import Scan
from holdfast.system import sqlite

COUNTED = ("scans", "git", "statements")


class CommandCounts:
    """Counts in this process from ``start`` on."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))

    def start(self, replace: Callable[[Any, str, Any], None] = setattr) -> None:
        """``replace`` puts a function into the place of another; a test gives ``monkeypatch.setattr``."""
        replace(Scan, "run", self._counting_scans(Scan.run))
        replace(git_runner, "run_stoppable", self._counting("git", git_runner.run_stoppable))
        replace(sqlite, "_configure", self._counting_statements(sqlite._configure))

    def _counting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **named: Any) -> Any:
            self.counts[name] += 1
            return function(*args, **named)

        return counted

    def _counting_scans(self, function: Callable[[Scan, ChangeReport], None]) -> Callable[[Scan, ChangeReport], None]:
        def counted(scan: Scan, report: ChangeReport) -> None:
            self.counts["scans"] += not report.is_complete
            function(scan, report)

        return counted

    def _counting_statements(self, configure: Callable[..., None]) -> Callable[..., None]:
        def count(_: str) -> None:
            self.counts["statements"] += 1

        def counted(connection: sqlite3.Connection, *args: Any) -> None:
            configure(connection, *args)
            connection.set_trace_callback(count)

        return counted


def main() -> None:
    counts = CommandCounts()
    counts.start()
    code = run(sys.argv[2:])
    Path(sys.argv[1]).write_text(json.dumps(counts.counts))
    sys.exit(code)


if __name__ == "__main__":
    main()
