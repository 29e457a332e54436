"""A project to run plans in from Python: a git repository, a folder of data, and a home of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.app import Holdfast
from holdfast.events import Event, Listener
from holdfast.model import CheckpointGroup, Plan
from tests.support.repositories import make_repository


class Workshop:
    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self.app, self.data = folder / "app", folder / "data"
        self.outside = folder / "outside"
        """Where steps may write although no rollback takes it back."""
        for place in (self.data, self.outside, self.home):
            place.mkdir(mode=0o700)
        (self.home / "config.toml").write_text(f"sandbox.allow-write = {json.dumps([str(self.outside)])}\n")
        (self.data / "orders.csv").write_text("1;2\n")
        make_repository(self.app, {"version.txt": "1\n"}, has_user=True)
        self._opened: list[Holdfast] = []

    def open(self, **settings: str) -> Holdfast:
        """Holdfast as a new process would open it."""
        overrides: Mapping[str, str] = {
            name.replace("__", ".").replace("_", "-"): value for name, value in settings.items()
        }
        opened = Holdfast.open(self.app, home=self.home, environment=dict(os.environ), overrides=overrides)
        self._opened.append(opened)
        return opened

    def close(self) -> None:
        for opened in self._opened:
            opened.close()

    def plan_file(self, *steps: Mapping[str, Any], **more: Any) -> Path:
        file = self.folder / "plan.yaml"
        resources = {"app": {"type": "git", "path": "app"}, "data": {"type": "directory", "path": "data"}}
        # JSON is YAML.
        file.write_text(json.dumps({"name": "a plan", "resources": resources, "steps": list(steps), **more}))
        return file

    def steps_file(self, *steps: Mapping[str, Any]) -> Path:
        file = self.folder / "steps.yaml"
        file.write_text(json.dumps({"steps": list(steps)}))
        return file

    def create(self, *steps: Mapping[str, Any], **more: Any) -> Plan:
        return self.open().create_plan(self.plan_file(*steps, **more))

    def sandbox(self, plan: Plan, resource: str = "app") -> Path:
        return Path(plan.resource(resource).sandbox_path)

    def groups(self, plan: Plan) -> list[CheckpointGroup]:
        return self.open().store.groups.of(plan.plan_id)

    def moments(self, plan: Plan) -> list[tuple[str, ...]]:
        return [tuple(group.triggers) for group in self.groups(plan)]


class Died(BaseException):
    """What a kill looks like to whoever asked for the execution: it ends, and nothing is recorded any more."""


def dies_at(is_last: Callable[[Event], bool]) -> Listener:
    def listen(event: Event) -> None:
        if is_last(event):
            raise Died

    return listen


def run(command: str, **more: Any) -> dict[str, Any]:
    return {"run": command, **more}


def files(folder: Path) -> dict[str, str]:
    """The files of a folder without its repository, by path."""
    return {str(path.relative_to(folder)): path.read_text() for path in _plain_files(folder)}


def _plain_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and ".git" not in path.relative_to(folder).parts:
            yield path


_KILLED_IN_RESTORE = """
import os, signal, sys
from holdfast.cli.main import main
from holdfast.snapshot.restore import write
left = int(sys.argv.pop(1))
original = write._Restorer._put
def put(self, *args, **kwargs):
    global left
    left -= 1
    if left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self, *args, **kwargs)
write._Restorer._put = put
main()
"""


def killed_in_rollback(workshop: Workshop, call: int, *arguments: str) -> int:
    """The exit code of ``plan rollback``, which is killed when its restore writes the entry number ``call``."""
    words = ["--home", str(workshop.home), "plan", "rollback", "--yes", *arguments]
    command = [sys.executable, "-c", _KILLED_IN_RESTORE, str(call), *words]
    return subprocess.run(command, cwd=workshop.app, check=False).returncode
