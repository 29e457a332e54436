"""``holdfast demo``: a plan that goes wrong and is corrected, with the real commands on a temporary project."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from holdfast.cli.invocation import PROGRAM, Invocation, command
from holdfast.cli.output import Reply, Screen, output_lines
from holdfast.errors import EXIT_STEP_FAILED, SandboxError

_FILES = {
    "shop/.gitignore": "__pycache__/\n",
    "shop/shop/__init__.py": "",
    "shop/shop/prices.py": "RATE = 0.19\n",
    "shop/shop/reprice.py": '''\
"""Bring a file of orders to the current rate; the old file is kept as .bak."""

import csv
import sys
from pathlib import Path

from shop.prices import RATE

file = Path(sys.argv[1])
orders = list(csv.DictReader(file.open()))
file.rename(file.with_name(file.name + ".bak"))
with file.open("w", newline="") as stream:
    writer = csv.DictWriter(stream, ["order", "net", "rate"], lineterminator="\\n")
    writer.writeheader()
    writer.writerows({**order, "rate": RATE} for order in orders)
print(f"{len(orders)} orders now have the rate {RATE}")
''',
    "shop/check.py": '''\
"""All orders must have the rate that the shop uses."""

import csv
import sys

from shop.prices import RATE

orders = list(csv.DictReader(open(sys.argv[1])))
assert orders and all(float(order["rate"]) == RATE for order in orders)
print(f"{len(orders)} orders checked")
''',
    "orders/orders.csv": "order,net,rate\n1001,250.00,0.19\n1002,75.50,0.19\n1003,120.00,0.19\n",
    "plan.yaml": """\
name: raise the rate to 21 %
resources:
  code:   {type: git, path: shop}
  orders: {type: directory, path: orders}
policy:
  on_failure: keep
steps:
  - name: set the new rate
    tool: edit_file
    args: {path: shop/prices.py, find: "0.19", replace: "0.21"}
  - name: reprice the orders
    run: python3 -m shop.reprice "$HOLDFAST_RESOURCE_ORDERS/orders.csv"
  - name: clean up caches and backups
    run: |
      find . -name '*.py*' -delete
      rm -f "$HOLDFAST_RESOURCE_ORDERS"/*.csv*
  - name: check
    run: python3 check.py "$HOLDFAST_RESOURCE_ORDERS/orders.csv"
    writes: false
  - name: note the change
    tool: write_file
    args: {path: CHANGES.md, content: "The rate is 21 % now.\\n"}
""",
    "fixed.yaml": """\
steps:
  - name: clean up caches and backups
    run: |
      find . -name '__pycache__' -prune -exec rm -r {} +
      rm -f "$HOLDFAST_RESOURCE_ORDERS"/*.csv.bak
  - name: check
    run: python3 -B check.py "$HOLDFAST_RESOURCE_ORDERS/orders.csv"
    writes: false
  - name: note the change
    tool: write_file
    args: {path: CHANGES.md, content: "The rate is 21 % now.\\n"}
""",
}
_CLEAN_UP = 2
"""The index of the step that goes wrong."""


@command(
    "demo",
    examples=(
        ("holdfast demo", "Watch it."),
        ("holdfast demo --keep", "Keep the folder to look around in it."),
    ),
)
@click.option("--keep", is_flag=True, help="Keep the temporary folder, and say where it is.")
def demo(invocation: Invocation, keep: bool) -> Reply:
    """See Holdfast at work: a plan breaks things, is rolled back, corrected and applied.

    Runs the real commands on a small project in a temporary folder, in well under a minute.
    """
    with _folder(keep) as folder:
        stage = Stage(folder, invocation.screen, is_quiet=invocation.is_for_programs)
        stage.build()
        _play(stage)
    data = {"folder": folder if keep else None, "commands": stage.transcript}
    return Reply(data, lambda screen: _say_where(screen, folder if keep else None))


@contextmanager
def _folder(keep: bool) -> Iterator[Path]:
    if keep:
        yield Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as name:
        yield Path(name)


def _say_where(screen: Screen, kept: Path | None) -> None:
    screen.line()
    if kept is None:
        screen.line("That was all; the folder of this demo has been removed.")
        return
    screen.line(f"Everything is in {kept}. To look around:")
    screen.line(f"  cd {kept}/shop; export HOLDFAST_HOME={kept}/home")


def _play(stage: Stage) -> None:
    stage.say("A shop in git, and a folder of orders. This plan changes both, and one of its steps is wrong.")
    stage.shell("cat ../plan.yaml")
    stage.say("Run it. Each step works in private sandboxes, with a checkpoint before and after each write.")
    stage.holdfast("plan", "execute", "../plan.yaml", expected=EXIT_STEP_FAILED)
    stage.say("The check failed: its own file is gone. But only in the sandbox; the real files are untouched:")
    stage.shell("git status --short; ls . ../orders; cat shop/prices.py")
    stage.insist_on_untouched_files()

    before, after = stage.checkpoints_around(_CLEAN_UP)
    stage.say("What is the state of the plan, and which checkpoints are there?")
    stage.holdfast("plan", "status")
    stage.holdfast("checkpoint", "list")
    stage.say("What did the clean-up really do? Compare the checkpoints before and after it.")
    stage.holdfast("plan", "diff", "latest", before, after)
    stage.say("Its patterns were too wide: sources and orders are gone. Roll back to before it.")
    stage.holdfast("plan", "rollback", "--yes", "latest", before)

    stage.say("Correct that step, and continue from there.")
    stage.shell("cat ../fixed.yaml")
    guidance = "delete only caches and backups"
    correction = ["--mode", "revert", "--guidance", guidance, "--with", "../fixed.yaml"]
    stage.holdfast("plan", "correct", "--yes", *correction, stage.decision_of(_CLEAN_UP))
    stage.say("This is what the plan changes in the code and the orders:")
    stage.holdfast("plan", "diff", "latest", "--patch")
    stage.insist_on_untouched_files()

    stage.say("Good. Only now does it reach the real files: all of it, or nothing.")
    stage.holdfast("plan", "apply", "--yes", "latest")
    stage.shell("git log --oneline; git status --short; ls . ../orders; cat ../orders/orders.csv")


@dataclass
class Stage:
    """A temporary project, and the commands that run in it in front of the reader."""

    folder: Path
    screen: Screen
    is_quiet: bool
    """Collect the output of the commands instead of showing it."""
    transcript: list[dict[str, Any]] = field(default_factory=list)

    @property
    def project(self) -> Path:
        return self.folder / "shop"

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment without the user's plans, and without their settings of Holdfast and git."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "GIT_"))}
        return {
            **inherited,
            "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)]),
            "HOLDFAST_HOME": str(self.folder / "home"),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_PAGER": "cat",
        }

    def build(self) -> None:
        for name, content in _FILES.items():
            file = self.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        for arguments in (
            ["init", "--quiet", "--initial-branch", "main"],
            ["config", "user.name", "Demo"],
            ["config", "user.email", "demo@example.com"],
            ["add", "."],
            ["commit", "--quiet", "--message", "the shop as it is"],
        ):
            self._run(["git", *arguments], 0)

    def insist_on_untouched_files(self) -> None:
        changed = [name for name, content in _FILES.items() if (self.folder / name).read_text() != content]
        if changed:
            raise SandboxError(f"The demo went wrong: the plan changed real files before apply: {', '.join(changed)}.")

    def say(self, text: str) -> None:
        if self.is_quiet:
            return
        self.screen.line()
        for line in textwrap.wrap(text, min(78, self.screen.width or 78)):
            self.screen.line((line, "strong"))

    def shell(self, command: str) -> None:
        self._announce(command)
        output = self._run(["/bin/sh", "-c", command], 0)
        self._note(command, 0, output)
        if not self.is_quiet:
            for line in output_lines(output):
                self.screen.line(line)

    def holdfast(self, *arguments: str, expected: int = 0) -> None:
        """Run a command as a person would, on a terminal with colours."""
        shown = shlex.join([PROGRAM, *arguments])
        self._announce(shown)
        command = [sys.executable, "-m", PROGRAM, *arguments]
        if self.is_quiet:
            self._note(shown, expected, self._run(command, expected))
        else:
            self._run(command, expected, captured=False)

    def ask(self, *arguments: str) -> Any:
        """The data of a command whose output is not shown."""
        return json.loads(self._run([sys.executable, "-m", PROGRAM, *arguments, "--format", "json"], 0))["data"]

    def checkpoints_around(self, step_index: int) -> tuple[str, str]:
        listed = [each for each in self.ask("checkpoint", "list")["checkpoints"] if each["step_index"] == step_index]
        before = next(each for each in listed if "on_tool_write" in each["triggers"])
        after = next(each for each in listed if "on_tool_write_complete" in each["triggers"])
        return before["display_id"], after["display_id"]

    def decision_of(self, step_index: int) -> str:
        listed = self.ask("checkpoint", "list")["checkpoints"]
        return next(str(each["decision_id"]) for each in listed if each["step_index"] == step_index)

    def _announce(self, command: str) -> None:
        if not self.is_quiet:
            self.screen.line()
            self.screen.line(("$ ", "dim"), (command, "id"))

    def _note(self, command: str, exit_code: int, output: str) -> None:
        self.transcript.append({"command": command, "exit_code": exit_code, "output": output})

    def _run(self, command: Sequence[str], expected: int, *, captured: bool = True) -> str:
        ended = subprocess.run(
            command,
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if captured else None,
            stderr=subprocess.STDOUT if captured else None,
            text=True,
            errors="replace",
            check=False,
        )
        if ended.returncode != expected:
            said = f" It said:\n{ended.stdout}" if ended.stdout else ""
            raise SandboxError(
                f"The demo went wrong: `{shlex.join(command)}` ended with {ended.returncode}, not {expected}.{said}",
                hint="Run `holdfast doctor`; with `holdfast demo --keep` the folder stays to be looked at.",
            )
        return ended.stdout or ""
