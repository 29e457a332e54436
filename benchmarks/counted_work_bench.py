"""How much work checkpoints, rollbacks and commands do, counted: the same on every machine, so it can be compared."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.counting import WORKS

Counts = dict[str, dict[str, int]]


class CountedWork:
    params = tuple(WORKS)
    param_names = ("work",)
    timeout = 300.0

    def setup_cache(self) -> Counts:
        return {work: self._counted(work) for work in WORKS}

    def _counted(self, work: str) -> dict[str, int]:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            command = [sys.executable, "-m", "benchmarks.counting", work, folder]
            root = Path(__file__).resolve().parents[1]
            counts: dict[str, int] = json.loads(subprocess.check_output(command, cwd=root))
            return counts

    def track_system_calls(self, counted: Counts, work: str) -> int:
        return counted[work]["system_calls"]

    def track_statements(self, counted: Counts, work: str) -> int:
        """Of SQL, in both databases."""
        return counted[work]["statements"]

    def track_calls(self, counted: Counts, work: str) -> int:
        """Of functions of Holdfast."""
        return counted[work]["calls"]

    def track_modules(self, counted: Counts, work: str) -> int:
        """Imported meanwhile, but for the standard library's."""
        return counted[work]["modules"]

    def track_stored_bytes(self, counted: Counts, work: str) -> int:
        """Of content, packed."""
        return counted[work]["stored_bytes"]
