"""A scratch project with a home of its own, and the real command run in it."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.app import Holdfast
from holdfast.cli.main import run
from tests.support.crashes import killed_at
from tests.support.repositories import git, make_repository
from tests.support.trees import write
from tests.support.warm import run_warm, run_warm_on_terminal

ENVELOPE = {"command", "status", "exit_code", "data", "timing", "messages"}


@dataclass(frozen=True)
class Ended:
    exit_code: int
    stdout: str
    stderr: str

    @property
    def envelope(self) -> dict[str, Any]:
        found = json.loads(self.stdout)
        assert isinstance(found, dict)
        return found

    @property
    def data(self) -> Any:
        assert self.envelope.keys() == ENVELOPE
        return self.envelope["data"]


def called(*words: str) -> Ended:
    """A command in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        exit_code = run(list(words))
    texts = []
    for stream in (out, err):
        stream.flush()
        stream.buffer.seek(0)
        texts.append(stream.buffer.read().decode())
    return Ended(exit_code, *texts)


class Project:
    """A git repository ``app`` and a folder ``data``, with plan files beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.app, self.data = folder / "app", folder / "data"
        write(self.data / "orders.csv", "1;2;3\n")
        contents = {"version.txt": "1\n", "src/main.py": "print('hello')\n"}
        make_repository(self.app, contents, environment=self.environment, has_user=True)

    @property
    def environment(self) -> dict[str, str]:
        """Built on the real one: the measuring of coverage in child processes needs it."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HOLDFAST_", "GIT_")) and name not in ("NO_COLOR", "COLUMNS", "LINES")
        }
        return {
            **kept,
            "HOLDFAST_HOME": str(self.home),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "TERM": "xterm-256color",
            "HOLDFAST_PAGER": "cat",
        }

    def git(self, *arguments: str) -> str:
        return git(self.app, *arguments, environment=self.environment)

    def plan(self, steps: str, *, header: str = "", name: str = "plan.yaml") -> Path:
        """A plan file over both resources; ``steps`` is the YAML of its steps."""
        file = self.folder / name
        resources = "resources: {app: {type: git, path: app}, data: {type: directory, path: data}}"
        file.write_text(f"name: a test plan\n{resources}\n{header}steps:\n{steps}")
        return file

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[Any]:
        """A process of its own, without input and with both outputs in pipes unless the options say otherwise."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        place = {"cwd": self.folder, "env": self.environment}
        return subprocess.Popen([sys.executable, "-m", "holdfast", *arguments], **{**pipes, **place, **options})

    def shell(self, script: str, cwd: Path | None = None) -> Ended:
        """A shell's script with redirections or pipes, in which ``holdfast`` is this one."""
        ended = subprocess.run(
            ["/bin/sh", "-c", f'holdfast() {{ {shlex.quote(sys.executable)} -m holdfast "$@"; }}; {script}'],
            cwd=cwd or self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def run(self, *arguments: str, variables: Mapping[str, str] = {}, cwd: Path | None = None) -> Ended:
        return Ended(*run_warm(arguments, cwd or self.folder, {**self.environment, **variables}))

    def call(self, *arguments: str) -> Ended:
        """Like ``run``, but in this process, which is ten times as fast."""
        return called("--home", str(self.home), "--project", str(self.folder), *arguments)

    def json(self, *arguments: str, exit_code: int = 0, in_process: bool = True) -> Any:
        """The data of a command, which must end so."""
        ended = (self.call if in_process else self.run)(*arguments, "--format", "json")
        assert ended.exit_code == exit_code, ended
        assert ended.envelope["exit_code"] == exit_code
        assert ended.envelope["status"] == ("ok" if exit_code == 0 else "error")
        assert ended.stderr == ""
        return ended.data

    def on_terminal(
        self,
        *arguments: str,
        columns: int = 80,
        answer: str = "",
        variables: Mapping[str, str] = {},
        first: str = "",
    ) -> Ended:
        """Run on a terminal of its own; ``stdout`` is all that the terminal was sent."""
        environment = {**self.environment, **variables}
        return Ended(
            *run_warm_on_terminal(arguments, self.folder, environment, columns=columns, answer=answer, first=first)
        )

    def opened(self) -> Holdfast:
        """The same project from Python."""
        return Holdfast.open(self.folder, home=self.home, environment=self.environment)

    def sandbox(self, resource: str = "app") -> Path:
        found = {each["name"]: each["sandbox_path"] for each in self.json("plan", "status")["resources"]}
        return Path(found[resource])

    def checkpoints(self, plan: str = "latest") -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.json("checkpoint", "list", plan)["checkpoints"]
        return listed

    def checkpoint_before(self, step_index: int, plan: str = "latest") -> str:
        return next(
            str(each["checkpoint_id"])
            for each in self.checkpoints(plan)
            if each["step_index"] == step_index and "on_tool_write" in each["triggers"]
        )

    def files(self) -> dict[str, bytes]:
        """All there is in the real resources and in the sandboxes."""
        roots = (self.app, self.data, self.home / "sandboxes")
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for root in roots
            for path in sorted(root.rglob("*"))
            if path.is_file() and ".git" not in path.parts
        }


def kill_in_apply(project: Project, plan_id: str) -> None:
    """Apply the plan in a process that is killed before it makes its second file in a real folder."""

    def apply() -> None:
        with project.opened() as holdfast:
            holdfast.apply(plan_id)

    assert killed_at(2, apply, touching=".holdfast-")


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)


def interrupt(process: subprocess.Popen[str], number: int = signal.SIGINT) -> None:
    process.send_signal(number)
