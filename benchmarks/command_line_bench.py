"""What it costs to start a command, beside what Python and click cost before we do anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from holdfast.app import Holdfast

_PLAN = """\
name: benchmark
resources:
  work: {type: directory, path: work}
steps:
  - {name: look, run: ls}
"""


class Starting:
    number = 1
    repeat = (5, 20, 10.0)
    timeout = 60.0

    def setup_cache(self) -> Path:
        """A project with one plan, in a home of its own."""
        folder = Path.cwd()
        (folder / "project" / "work").mkdir(parents=True)
        file = folder / "project" / "plan.yaml"
        file.write_text(_PLAN)
        with Holdfast.open(folder / "project", home=folder / "home", environment={}) as holdfast:
            holdfast.create_plan(file)
        return folder

    def setup(self, folder: Path) -> None:
        self._project = folder / "project"
        self._environment = {**os.environ, "HOLDFAST_HOME": str(folder / "home")}

    def time_bare_interpreter(self, folder: Path) -> None:
        self._run("-c", "pass")

    def time_interpreter_with_click(self, folder: Path) -> None:
        self._run("-c", "import click")

    def time_help(self, folder: Path) -> None:
        self._run("-m", "holdfast", "--help")

    def time_plan_status(self, folder: Path) -> None:
        self._run("-m", "holdfast", "plan", "status", "latest")

    def time_plan_list(self, folder: Path) -> None:
        self._run("-m", "holdfast", "plan", "list")

    def _run(self, *arguments: str) -> None:
        command = [sys.executable, *arguments]
        subprocess.run(command, cwd=self._project, env=self._environment, check=True, stdout=subprocess.DEVNULL)
