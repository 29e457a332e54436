"""A scratch project with a home of its own, the real command run in it, and what is on disk told without Holdfast."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil

from tests.support.repositories import make_repository
from tests.support.trees import Thing, compare, describe
from tests.support.warm import run_warm, run_warm_on_terminal

PROGRAM = Path(sys.executable).with_name("holdfast")
RESOURCES = """\
name: a test plan
resources:
  shop: {type: git, path: shop}
  data: {type: directory, path: data}
"""
FILES = {
    "shop/README.md": "The shop.\n",
    "shop/version.txt": "1\n",
    "shop/src/app.py": "print('hello')\n",
    "shop/.gitignore": "*.log\nbuild/\n",
    "data/orders.csv": "1;2;3\n",
    "data/private.key": "secret\n",
    # A step that runs `pause` waits in the middle of its work until the test lets it go on.
    # With a number, it is one of several such places.
    "bin/pause": '#!/bin/sh\ntouch "$TMPDIR/paused$1"\nuntil [ -e "$HOME/go$1" ]; do sleep 0.02; done\n',
    "user/.gitconfig": "[user]\n\tname = A User\n\temail = user@example.com\n[init]\n\tdefaultBranch = main\n",
}
NOT_MINE = (b"home", b"bin", b"user")
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    command: str
    exit_code: int
    stdout: str
    stderr: str = ""

    @property
    def said(self) -> str:
        return self.stdout + self.stderr

    @property
    def envelope(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.stdout)
        return found

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = self.envelope["data"]
        return found

    def __str__(self) -> str:
        return f"`{self.command}` ended with {self.exit_code} and said:\n{self.said}"


@dataclass(frozen=True)
class Scene:
    """Everything that a command could change: the user's files, the sandboxes, the records."""

    mine: dict[bytes, Thing]
    sandboxes: dict[bytes, Thing]
    records: dict[str, list[Any]]

    def differences_to(self, later: Scene) -> list[str]:
        tables = [name for name in self.records | later.records if self.records.get(name) != later.records.get(name)]
        return [
            *(f"my files: {each}" for each in compare(self.mine, later.mine)),
            *(f"sandboxes: {each}" for each in compare(self.sandboxes, later.sandboxes)),
            *(f"records of {name}" for name in tables),
        ]


class Scratch:
    """A repository ``shop`` and a folder ``data`` beside each other, with the plan files and Holdfast's home."""

    def __init__(self, root: Path) -> None:
        self.root, self.home = root, root / "home"
        self.background: subprocess.Popen[str] | None = None
        self._listed: tuple[str, list[dict[str, Any]]] | None = None

    def build(self) -> Scratch:
        for name, content in FILES.items():
            self.write(name, content)
        # So that making it later is no change of the user's folder.
        self.home.mkdir(mode=0o700)
        (self.root / "bin" / "pause").chmod(0o755)
        (self.root / "data" / "private.key").chmod(0o600)
        (self.root / "data" / "empty").mkdir(mode=0o711)
        (self.root / "data" / "latest").symlink_to("orders.csv")
        make_repository(self.root / "shop", {}, environment=self.environment, message="first")
        return self

    def copied_to(self, root: Path) -> Scratch:
        shutil.copytree(self.root, root, symlinks=True)
        return Scratch(root)

    @property
    def environment(self) -> dict[str, str]:
        # Without bytecode every command that is started would compile its imports again.
        dropped = ("HOLDFAST_", "GIT_", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        return {
            **kept,
            "PATH": os.pathsep.join((str(self.root / "bin"), str(PROGRAM.parent), os.environ["PATH"])),
            "HOME": str(self.root / "user"),
            "HOLDFAST_HOME": str(self.home),
            "GIT_CONFIG_GLOBAL": str(self.root / "user" / ".gitconfig"),
            "GIT_CONFIG_NOSYSTEM": "1",
        }

    def write(self, name: str, content: str) -> Path:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        return file

    def write_plan(self, name: str, content: str) -> Path:
        """A plan file; if it names no resources, it is about the shop and its data."""
        has_resources = re.search(r"^resources:", content, re.MULTILINE)
        return self.write(name, content if has_resources else RESOURCES + content)

    def shell(self, command: str, place: str | Path = ".") -> str:
        """What a person does or looks at; looking leaves even git's index alone."""
        ended = subprocess.run(
            ["/bin/sh", "-ec", command],
            cwd=self.root / place,
            env={**self.environment, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, f"`{command}` ended with {ended.returncode} in {place}:\n{ended.stdout}"
        return ended.stdout

    # The command

    def run(self, *arguments: str, place: str = ".", variables: Mapping[str, str] | None = None) -> Ended:
        ended = run_warm(arguments, self.root / place, {**self.environment, **(variables or {})})
        return Ended(_shown(arguments), *ended)

    def ask(self, *arguments: str) -> dict[str, Any]:
        """The data of a command that must succeed."""
        ended = self.run(*arguments, "--format", "json")
        assert ended.exit_code == 0, ended
        return ended.data

    def run_on_terminal(self, *arguments: str, answer: str) -> Ended:
        environment = {**self.environment, "TERM": "xterm"}
        return Ended(_shown(arguments), *run_warm_on_terminal(arguments, self.root, environment, answer=f"{answer}\n"))

    # A command in the background, held by a step that runs `pause`

    def start(self, *arguments: str) -> None:
        """Start a command in a process group of its own, and return when its plan has come to a pause."""
        for stale in self._pauses():
            stale.unlink()
        self.background = subprocess.Popen(
            [PROGRAM, *arguments],
            cwd=self.root,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.wait_for_pause()

    def wait_for_pause(self, name: str = "") -> None:
        process = self.background
        assert process is not None
        wait_until(lambda: bool(self._pauses(name)) or process.poll() is not None)
        assert self._pauses(name), self.finish()

    def _pauses(self, name: str = "") -> list[Path]:
        """Walked, as a glob does not bear that a directory vanishes meanwhile."""
        return [
            Path(folder) / f"paused{name}"
            for place in self.home.glob("sandboxes/*/.tmp")
            for folder, _, files in os.walk(place)
            if f"paused{name}" in files
        ]

    def let_go_on(self, name: str = "") -> None:
        self.write(f"user/go{name}", "")

    def interrupt_twice(self) -> Ended:
        """The second Ctrl-C as soon as the first is answered."""
        process = self.background
        assert process is not None
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        answer = iter(process.stderr.readline, "")
        assert any("again to stop at once" in line for line in answer), self.finish()
        process.send_signal(signal.SIGINT)
        return self.finish()

    def kill(self, *, group: bool, number: int = signal.SIGKILL) -> Ended:
        assert self.background is not None
        (os.killpg if group else os.kill)(self.background.pid, number)
        return self.finish()

    def finish(self) -> Ended:
        assert self.background is not None
        stdout, stderr = self.background.communicate(timeout=PATIENCE_SECONDS)
        ended = Ended(_shown(self.background.args[1:]), self.background.returncode, stdout, stderr)
        self.background = None
        return ended

    def step_processes(self) -> list[psutil.Process]:
        """What the steps of this project's plans have running; they all know their plan's id."""
        plans = {each.name for each in self.home.glob("sandboxes/*")}
        found = []
        for process in psutil.process_iter():
            try:
                is_ours = process.environ().get("HOLDFAST_PLAN_ID") in plans
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def end_everything(self) -> None:
        """For a scenario that failed: nothing it started may outlive it."""
        if self.background is not None:
            self.kill(group=True)
        for process in self.step_processes():
            process.kill()

    # What is on disk

    def sandboxes(self) -> Path:
        """The folder with the sandboxes of the newest plan that ran; those of its subplans lie beside it."""
        subplans = self.query("SELECT plan_id FROM plan WHERE parent_plan_id IS NOT NULL")
        return max(each for each in (self.home / "sandboxes").iterdir() if (each.name,) not in subplans)

    def sandbox(self, resource: str) -> Path:
        return self.sandboxes() / resource

    def described_sandboxes(self) -> dict[bytes, Thing]:
        return {
            os.path.join(os.fsencode(folder.name), path): thing
            for folder in self.sandboxes().iterdir()
            if not folder.name.startswith(".")
            for path, thing in describe(folder).items()
        }

    def mine(self) -> dict[bytes, Thing]:
        """All of the user's own files, those inside .git too.

        But for the times of git's objects: a step that writes content which the repository has already makes git
        mark the object there as still in use, by its time, so that no clean-up removes it meanwhile.
        """
        return {
            path: replace(thing, mtime_ns=0) if b"/.git/objects/" in path else thing
            for path, thing in describe(self.root, without=NOT_MINE).items()
        }

    def scene(self) -> Scene:
        """As it is now; the private folders for temporary files are nobody's promise."""
        sandboxes = self.home / "sandboxes"
        private = [os.fsencode(each.relative_to(sandboxes)) for each in sandboxes.glob("*/.tmp")]
        found = describe(sandboxes, without=private) if sandboxes.is_dir() else {}
        return Scene(self.mine(), found, self.records())

    def records(self) -> dict[str, list[Any]]:
        """Every row of every table, but for the leases: who asked last is no change of a plan."""
        tables = self.query("SELECT name FROM sqlite_master WHERE type = 'table' AND name != 'lease'")
        return {name: sorted(map(repr, self.query(f"SELECT * FROM {name}"))) for (name,) in tables}

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        database = self.home / "holdfast.db"
        if not database.exists():
            return []
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            return connection.execute(sql).fetchall()

    # What the commands say about plans and checkpoints

    def groups(self) -> list[dict[str, Any]]:
        """The checkpoint groups of the latest plan, oldest first; asked again only if the records changed."""
        records = repr(self.records())
        if self._listed is None or self._listed[0] != records:
            self._listed = records, self.ask("checkpoint", "list", "latest")["checkpoints"]
        grouped = groupby(self._listed[1], key=lambda checkpoint: checkpoint["group_id"])
        return [_group(list(members)) for _, members in grouped]

    def checkpoint(self, trigger: str, step: int | None = None) -> dict[str, Any]:
        """The newest group of that moment that led to where the plan is now."""
        index = None if step is None else step - 1
        return next(
            group
            for group in reversed(self.groups())
            if trigger in group["triggers"] and group["step_index"] == index and not group["superseded"]
        )


def _group(members: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        **members[0],
        "resources": [each["resource_id"] for each in members],
        "sizes": [each["size_bytes"] for each in members],
    }


def _shown(arguments: Any) -> str:
    return shlex.join(["holdfast", *map(str, arguments)])


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)
