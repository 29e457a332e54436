"""Runs a command and notes the CPU time at the start of each step: ``python -m benchmarks.step_costs FILE WORD...``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from holdfast.cli.main import run
from holdfast.execution.step_runner import StepRunner


def main() -> None:
    began: list[float] = []
    run_step = StepRunner.run

    def noted(runner: StepRunner, *args: Any) -> Any:
        began.append(time.process_time())
        return run_step(runner, *args)

    StepRunner.run = noted  # type: ignore[method-assign]  # the program itself has no use for such a note
    code = run(sys.argv[2:])
    Path(sys.argv[1]).write_text(json.dumps(began))
    sys.exit(code)


if __name__ == "__main__":
    main()
