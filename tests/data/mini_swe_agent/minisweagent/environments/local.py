"""Runs commands as the package does."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from pydantic import BaseModel

from minisweagent.exceptions import Submitted


class LocalEnvironmentConfig(BaseModel):
    cwd: str = ""
    env: dict[str, str] = {}
    timeout: int = 30


class LocalEnvironment:
    def __init__(self, *, config_class: type[LocalEnvironmentConfig] = LocalEnvironmentConfig, **kwargs: Any) -> None:
        self.config = config_class(**kwargs)

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        done = subprocess.run(
            action.get("command", ""),
            shell=True,
            cwd=cwd or self.config.cwd or os.getcwd(),
            env={**os.environ, **self.config.env},
            timeout=timeout or self.config.timeout,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        lines = done.stdout.lstrip().splitlines(keepends=True)
        if lines and lines[0].strip() == "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" and not done.returncode:
            raise Submitted({"role": "exit", "content": "".join(lines[1:])})
        return {"output": done.stdout, "returncode": done.returncode, "exception_info": ""}
