"""A project with all a person's project has, a home, a plan; kept aside at every stage and put back in a moment."""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import holdfast
from holdfast.sandbox import spares
from holdfast.system import reserve
from tests.faults.gate import Ended, Keeper, run_gated, run_ungated, show_boot_id
from tests.support.repositories import git, make_repository, settings_of_a_person
from tests.support.trees import Thing, describe, write

LONG_AGO_NS = 1_500_000_000 * 10**9
"""When all of the user's files were changed last."""
SET_BY_STEPS_NS = 1_600_000_000 * 10**9

_WORK_ON_APP = """set -e
echo more >> 'a file.txt'
rm gone.txt
mkdir made
echo x > 'made/x y'
ln -s '../a file.txt' made/link
chmod 755 tool.sh
echo built > cache.bin
GIT_AUTHOR_DATE=@1600000000 GIT_COMMITTER_DATE=@1600000000 git -c user.name=Step -c user.email=step@example.org \
    commit --quiet --message 'by a step' 'a file.txt'
"""
_TOUCH_ALL = "find . -exec touch -h -d @1600000000 {} +"
_WORK_ON_DATA = f"""set -e
echo more >> orders.csv
mv 'old name' 'new name'
chmod 600 orders.csv
mkdir -p deep/er
echo x > deep/er/x
ln deep/er/x 'second name'
{_TOUCH_ALL}
"""
STEPS: list[dict[str, Any]] = [
    {"name": "work on app", "run": _WORK_ON_APP},
    {"name": "work on data", "resource": "data", "run": _WORK_ON_DATA},
    {
        "name": "finish",
        "tool": "edit_file",
        "args": {"path": "made/x y", "find": "x", "replace": "x and y"},
        "decision": {"type": "strategy_choice", "question": "How to end?", "chosen": "well"},
    },
]
STEPS_WITH_SUBPLANS: list[dict[str, Any]] = [
    {
        "name": "two at once",
        "parallel": 2,
        "merge": "three_way",
        "subplans": [
            {
                "name": "left",
                "steps": [{"name": "left file", "run": "set -e; echo left >> 'left file.txt'; rm gone.txt"}],
            },
            {"name": "right", "steps": [{"name": "right file", "run": "echo right >> 'right file.txt'"}]},
        ],
    },
]
FEW_CHECKPOINTS: dict[str, Any] = {
    "policy": {"max_checkpoints": 2, "auto_create_on": ["on_tool_write"]},
    "steps": [
        {"name": "add", "run": "echo more >> orders.csv"},
        {"name": "add again", "run": f"set -e; echo again >> orders.csv; mv 'old name' 'new name'; {_TOUCH_ALL}"},
    ],
    "validate": ["grep -q again orders.csv", "test -e 'new name'"],
}
"""None is taken after a step, and few are kept."""
WITH_A_CONFLICT: dict[str, Any] = {
    "steps": [
        {
            "name": "the same line",
            "parallel": 2,
            "subplans": [
                {"name": "left", "steps": [{"name": "left line", "run": "echo left >> orders.csv"}]},
                {"name": "right", "steps": [{"name": "right line", "run": "echo right >> orders.csv"}]},
            ],
        },
        {"name": "use it", "run": f"set -e; cat orders.csv >> seen; {_TOUCH_ALL}"},
    ],
}
OTHER_STEPS: list[dict[str, Any]] = [
    {
        "name": "otherwise",
        "resource": "data",
        "run": "set -e; echo other >> orders.csv; rm 'old name'; touch -d @1600000000 .",
    },
]


_IMPORTED_LATE = ("email.parser", "encodings.utf_8_sig", "glob", "psutil", "resource")
"""What commands import only when they need it, besides their own modules."""


_FOR_OTHERS = ("holdfast.langgraph", "holdfast.minisweagent")
"""What programs of others import, with packages that need not be there."""


def warm_up() -> None:
    """Import all that a command may import: its forks then start at once and find it there."""
    own = (module.name for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."))
    for name in (*own, *_IMPORTED_LATE):
        if not name.endswith("__main__") and not name.startswith(_FOR_OTHERS):
            importlib.import_module(name)
    # The folders here are so small that no spares of them would be kept.
    spares.FEWEST_ENTRIES = 1
    # And the disks that lose their power are so small that none would be.
    reserve.LITTLE_SPACE_BYTES = reserve._FEW_FILES = 0
    gc.collect()
    gc.freeze()


class World:
    """Always at the same place, and its home is always the same folder: a copy of one is another home."""

    def __init__(self, folder: Path, *, kept: Path | None = None) -> None:
        self.folder = folder
        """All that is put back; nothing of the campaign itself lies in it."""
        self.kept = kept or folder.with_name(f"{folder.name}.kept")
        self.real, self.home, self.temporary = folder / "real", folder / "home", folder / "tmp"
        self.app, self.data = self.real / "app", self.real / "data set"
        self.plan_file, self.steps_file = folder / "plan.yaml", folder / "other steps.yaml"
        self.subplans_file = folder / "plan with subplans.yaml"
        self.few_checkpoints_file, self.conflict_file = folder / "few checkpoints.yaml", folder / "conflict.yaml"
        self.notes: dict[str, Any] = {}
        """What the scenarios must remember, as the ids of plans."""
        self.to_be_stopped_at: list[int] = []
        """At which of its calls the next command that goes on is stopped, and the one after it, and so on."""
        self.boot: Path | None = None
        """A file with the boot id that commands find, after the machine was started anew."""
        self.commands: list[str] = []
        """Each that was run since the world was put back, and how it ended."""

    # Making it, keeping it, putting it back

    def make(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.kept, ignore_errors=True)
        self.kept.mkdir(parents=True)
        for folder in (self.folder, self.real, self.temporary, self.data):
            folder.mkdir(parents=True)
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder / "nobody"),
            "TMPDIR": str(self.temporary),
            "HOLDFAST_HOME": str(self.home),
            "LC_ALL": "C.UTF-8",
            **{name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},
            **settings_of_a_person(self.folder),
        }
        self._make_app()
        write(self.data / "orders.csv", "1;2\n", mode=0o640)
        write(self.data / "old name", "named\n")
        write(self.data / "deep" / "file with spaces", "deep\n", mode=0o400)
        os.symlink("orders.csv", self.data / "link")
        self._set_times()
        resources = {"app": {"type": "git", "path": "real/app"}, "data": {"type": "directory", "path": "real/data set"}}
        self._write_plan(self.plan_file, resources, {"steps": STEPS})
        # Every subplan copies all resources of its plan.
        self._write_plan(self.subplans_file, {"app": resources["app"]}, {"steps": STEPS_WITH_SUBPLANS})
        self._write_plan(self.few_checkpoints_file, {"data": resources["data"]}, FEW_CHECKPOINTS)
        self._write_plan(self.conflict_file, {"data": resources["data"]}, WITH_A_CONFLICT)
        self.steps_file.write_text(json.dumps({"steps": OTHER_STEPS}))

    def _write_plan(self, file: Path, resources: dict[str, Any], what: dict[str, Any]) -> None:
        file.write_text(json.dumps({"name": "the plan", "resources": resources, **what}))

    def _make_app(self) -> None:
        contents = {
            "a file.txt": "a\n",
            "gone.txt": "to be removed\n",
            "mine.txt": "committed\n",
            ".gitignore": "*.bin\n",
        }
        write(self.app / "tool.sh", "#!/bin/sh\n", mode=0o644)
        os.symlink("a file.txt", self.app / "link")
        make_repository(self.app, contents, environment=self.environment)
        write(self.app / "mine.txt", "not committed\n")
        write(self.app / "staged by me", "staged\n", mode=0o600)
        self.git("add", "staged by me")
        write(self.app / "untracked by me.txt", "untracked\n")
        write(self.app / "cache.bin", b"\0\1")

    def _set_times(self) -> None:
        for path in [*self.real.rglob("*"), self.real]:
            if ".git" not in path.relative_to(self.real).parts:
                os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS), follow_symlinks=False)

    def keep(self, stage: str) -> None:
        _copy(self.folder, self.kept / stage)
        (self.kept / f"{stage}.json").write_text(json.dumps(self.notes))

    def put_back(self, stage: str) -> None:
        for path in [*self.folder.iterdir(), *(self.home.iterdir() if self.home.is_dir() else ())]:
            if path != self.home:
                _remove(path)
        _copy(f"{self.kept / stage}/.", self.folder)
        self.notes = json.loads((self.kept / f"{stage}.json").read_text())
        self.commands, self.to_be_stopped_at, self.boot = [], [], None

    # Commands

    def git(self, *words: str) -> str:
        return git(self.app, *words, environment=self.environment)

    def run(self, *words: str, keeper: Keeper | None = None, as_a_program: bool = False) -> Ended:
        """A command as a user types it, in the project's folder; without a keeper at full speed, and no calls are seen.

        As a program it is started like any other; otherwise it is a fork of this process, which saves the imports.
        """
        action = (lambda: self._exec(words)) if as_a_program else (lambda: self.call(*words))
        output = self.kept / "output"
        if keeper is None:
            ended = run_ungated(action, output=output)
        else:
            ended = run_gated(action, below=self.folder, keeper=keeper, output=output)
        self.commands.append(f"holdfast {' '.join(words)} -> {ended.status}")
        return ended

    def run_while(self, kill: Callable[[int], None], *words: str) -> Ended:
        """A command at full speed, to which ``kill`` does something meanwhile."""
        ended = run_ungated(lambda: self.call(*words), output=self.kept / "output", kill=kill)
        self.commands.append(f"holdfast {' '.join(words)} -> {ended.status}")
        return ended

    def start(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        """A command as a program of its own that runs beside us."""
        return subprocess.Popen(
            [sys.executable, "-m", "holdfast", *words],
            cwd=self.app,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def call(self, *words: str) -> int:
        """The command in this process, which is a fork."""
        from holdfast.cli.main import run

        self._enter()
        return run(list(words))

    def _exec(self, words: Sequence[str]) -> int:
        self._enter()
        os.execve(sys.executable, [sys.executable, "-m", "holdfast", *words], self.environment)

    def _enter(self) -> None:
        os.environ.clear()
        os.environ.update(self.environment)
        if self.boot is not None:
            show_boot_id(self.boot)
        os.chdir(self.app)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def must(self, *words: str) -> dict[str, Any]:
        """A command that must succeed, and its data."""
        ended = self.run("--format", "json", *words)
        assert ended.status == 0, f"{words}: {ended.status} {ended.output} {ended.errors}"
        data: dict[str, Any] = json.loads(ended.output)["data"]
        return data

    @property
    def plan_id(self) -> str:
        return str(self.notes["plan_id"])

    def sandbox(self, name: str, plan_id: str | None = None) -> Path:
        return self.home / "sandboxes" / (plan_id or self.plan_id) / name

    # What is there

    def real_files(self) -> dict[bytes, Thing]:
        """To the last byte and nanosecond, git's own files too."""
        return describe(self.real)


def _copy(source: Path | str, target: Path) -> None:
    subprocess.run(["cp", "-a", "--reflink=auto", source, target], check=True)


def _remove(folder: Path) -> None:
    """Also right after a kill, when a process, with the mounts that it saw, may still be on its way out."""
    for _ in range(1_000):
        if folder.is_symlink() or not folder.is_dir():
            folder.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            return
        time.sleep(0.01)
    raise AssertionError(f"{folder} cannot be removed: {sorted(folder.rglob('*'))[:3]}")
