"""What the hooks of an agent cost: `python -m benchmarks.hooks`, with the real clients and the real guard of a folder.

A session of tool calls, each with a hook before and after it, and one changed file. Beside it what tools do that keep a
shadow git repository: a private index and git directory, `git add -A` and `git write-tree` in each hook. The first
prompt is measured from the hook that starts the guard, in a folder that Holdfast has never seen.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import holdfast.guard
from benchmarks.machine import machine_facts
from benchmarks.progress import say
from benchmarks.report import write_between_markers
from benchmarks.trees import change, chosen_files, make_tree

BEGIN, END = "<!-- hooks: begin -->", "<!-- hooks: end -->"
_CALLS = 20
_CLIENTS = Path(holdfast.guard.__file__).parent
_COMPILED, _PLAIN = "compiled client", "plain client"


class Measured(NamedTuple):
    files: int
    client: str
    hook_ms: float
    """The median of a hook, as the agent waits for it."""
    session_ms: float
    """What all hooks of a session add to it."""
    first_prompt_ms: float
    git_hook_ms: float
    git_session_ms: float


def measured(files: int, client: str, scratch: Path) -> Measured:
    project, home = scratch / "project", scratch / "home"
    make_tree(project, files)
    environment = {**os.environ, "HOLDFAST_HOME": str(home)}
    session = _Hooks(project, client, environment)
    try:
        first = _took(lambda: session.say("SessionStart", source="startup"))
        first += _took(lambda: session.say("UserPromptSubmit", prompt="do the work"))
        session.call(project, files, 0)  # waits for the first checkpoint
        times = [each for turn in range(1, _CALLS + 1) for each in session.call(project, files, turn)]
    finally:
        subprocess.run(
            [sys.executable, "-m", "holdfast", "guard", "stop"], cwd=project, env=environment, check=False,
            capture_output=True,
        )  # fmt: skip
    shadow = _ShadowGit(project, scratch / "shadow")
    shadow.keep()
    git_times = []
    for turn in range(1, _CALLS + 1):
        git_times.append(_took(shadow.keep))
        change(chosen_files(project, files, 1, turn + _CALLS))
        git_times.append(_took(shadow.keep))
    return Measured(
        files, client, statistics.median(times), sum(times), first, statistics.median(git_times), sum(git_times)
    )


class _Hooks:
    """An agent, as far as its hooks are concerned."""

    def __init__(self, project: Path, client: str, environment: dict[str, str]) -> None:
        program = [str(_CLIENTS / "hook-client")]
        if client == _PLAIN:
            program = [sys.executable, "-I", "-S", str(_CLIENTS / "client.py")]
        self._command = [*program, "--agent", "claude-code", "--python", sys.executable]
        self._project, self._environment = project, environment

    def say(self, event: str, **fields: object) -> None:
        said = {"session_id": "s", "cwd": str(self._project), "hook_event_name": event, **fields}
        subprocess.run(
            self._command, cwd=self._project, env=self._environment, input=json.dumps(said).encode(), check=True
        )

    def call(self, project: Path, files: int, turn: int) -> list[float]:
        tool = {"tool_name": "Bash", "tool_input": {"command": f"change {turn}"}, "tool_use_id": f"t{turn}"}
        before = _took(lambda: self.say("PreToolUse", **tool))
        change(chosen_files(project, files, 1, turn))
        return [before, _took(lambda: self.say("PostToolUse", tool_response={}, **tool))]


class _ShadowGit:
    def __init__(self, project: Path, folder: Path) -> None:
        self._project = project
        self._environment = {**os.environ, "GIT_DIR": str(folder), "GIT_WORK_TREE": str(project)}
        subprocess.run(["git", "init", "-q"], env=self._environment, check=True, cwd=project)

    def keep(self) -> None:
        for args in (["add", "-A"], ["write-tree"]):
            subprocess.run(["git", *args], env=self._environment, cwd=self._project, check=True, capture_output=True)


def _took(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return (time.perf_counter() - began) * 1000


def table(found: Sequence[Measured]) -> str:
    header = [
        "files", "hook client", "a hook, ms", f"{2 * _CALLS} hooks, ms", "first prompt, ms", "shadow git: a hook, ms",
        f"{2 * _CALLS} hooks, ms", "shadow git / Holdfast",
    ]  # fmt: skip
    rows = [
        [
            f"{each.files:,}", each.client, f"{each.hook_ms:.1f}", f"{each.session_ms:,.0f}",
            f"{each.first_prompt_ms:,.0f}", f"{each.git_hook_ms:.1f}", f"{each.git_session_ms:,.0f}",
            f"{each.git_hook_ms / each.hook_ms:.1f}",
        ]
        for each in found
    ]  # fmt: skip
    lines = [header, [":--", ":--", *("--:" for _ in header[2:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="the folder of the documentation, to write the page")
    options = parser.parse_args()
    found = [_median_of(files, client, options.rounds) for files in options.files for client in (_COMPILED, _PLAIN)]
    facts = "\n".join(f"- {name}: {value}" for name, value in machine_facts(Path.cwd()))
    command = " ".join(["python -m benchmarks.hooks", *sys.argv[1:]])
    text = f"Measured on {datetime.now(UTC):%Y-%m-%d} with `{command}`.\n\n{facts}\n\n{table(found)}"
    sys.stdout.write(f"{text}\n")
    if options.output is not None:
        write_between_markers(options.output / "performance.md", text, BEGIN, END)


def _median_of(files: int, client: str, rounds: int) -> Measured:
    turns = []
    for number in range(rounds):
        say(f"{files:,} files, {client}, round {number + 1}")
        scratch = Path(tempfile.mkdtemp(prefix="holdfast-hooks-"))
        try:
            turns.append(measured(files, client, scratch))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return Measured(files, client, *(statistics.median(each) for each in list(zip(*turns, strict=True))[2:]))


if __name__ == "__main__":
    main()
