"""How the home of an earlier version was made, and what is asked and done in it, then and now.

``tests/data/home_of_the_version_before.tar.gz`` holds a project, a home, and ``answers.json``: what Holdfast of commit
51e76c4 answered and did. It was made in the neutral place below, by

    unshare --uts sh -c 'hostname before; python -m tests.support.version_before ARCHIVE COMMAND'

with a COMMAND that starts Holdfast of that commit. Whoever changes a question or a story here makes it again so.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.support.repositories import log, make_repository, status
from tests.support.trees import write

PLACE = Path("/tmp/holdfast-before")
"""Where the archive was made; in the records as the place of the project and of the sandboxes."""

Command = Callable[[Sequence[str]], tuple[int, Any]]
"""Runs Holdfast with these words in the project: its exit code and the data of its envelope."""

_HOLD = PLACE / "hold"
_MAIN = {
    "name": "release",
    "resources": {"app": {"type": "git", "path": "app"}, "data": {"type": "directory", "path": "data"}},
    "steps": [
        {
            "name": "set the version",
            "run": "echo 2 > version.txt && git commit --quiet --all --message 'version 2'",
            "decision": {"type": "strategy_choice", "question": "Which version?", "chosen": "2"},
        },
        {
            "name": "change the orders",
            "resource": "data",
            "run": "echo '3;4' >> orders.csv; rm old.csv; ln -s orders.csv newest; mkdir years; chmod 700 years",
        },
        {
            "name": "write two chapters",
            "parallel": 2,
            "subplans": [
                {"name": "left", "steps": [{"name": "left chapter", "run": "echo left > left.txt"}]},
                {"name": "right", "steps": [{"name": "right chapter", "run": "echo right > right.txt"}]},
            ],
        },
        {
            "name": "build",
            "run": f"echo begun > built.txt; while test -e {_HOLD}; do sleep 0.02; done; echo done >> built.txt",
        },
    ],
    "validate": ["test -e built.txt"],
}  # fmt: skip
_APPLIED = {
    "name": "publish",
    "resources": {"site": {"type": "directory", "path": "site"}},
    "steps": [
        {"name": "write the page", "tool": "write_file", "args": {"path": "index.html", "content": "new\n"}},
        {"name": "remove the old one", "run": "rm old.html"},
    ],
}
QUESTIONS: dict[str, Sequence[str]] = {
    "list": ("plan", "list"),
    "status": ("plan", "status", "{release}"),
    "status of the applied plan": ("plan", "status", "{publish}"),
    "log": ("plan", "log", "{release}"),
    "tree": ("plan", "tree", "{release}"),
    "diff": ("plan", "diff", "{release}", "--patch"),
    "diff of two checkpoints": ("plan", "diff", "{release}", "{first}", "{left behind}"),
    "diff of the applied plan": ("plan", "diff", "{publish}", "--patch"),
    "checkpoints": ("checkpoint", "list", "{release}"),
    "one checkpoint": ("checkpoint", "show", "{left behind}"),
    "verify": ("checkpoint", "verify"),
    "dry run of resume": ("plan", "resume", "{release}", "--dry-run"),
    "dry run of unapply": ("plan", "unapply", "{publish}", "--dry-run"),
}
"""What is only looked at, by what it is about."""
_RESUME = ("plan", "resume", "{release}")
_VERIFY = ("checkpoint", "verify")
STORIES: dict[str, Sequence[Sequence[str]]] = {
    "resume": [_RESUME, _VERIFY],
    # One commit: the version before could not keep those of the sandbox.
    "apply": [
        _RESUME,
        ("plan", "apply", "{release}", "--yes", "--commits", "squash"),
        ("plan", "unapply", "{release}", "--yes"),
    ],
    "rollback": [("plan", "rollback", "{release}", "{first}", "--yes"), _RESUME, _VERIFY],
    "rollback to what a rollback left": [("plan", "rollback", "{release}", "{left behind}", "--yes"), _VERIFY],
    "restore a file": [_RESUME, ("plan", "rollback", "{release}", "{first}", "--only", "data:old.csv", "--yes")],
    "prune": [
        ("checkpoint", "prune", "{release}", "--keep", "3"),
        _VERIFY,
        ("plan", "rollback", "{release}", "{first}", "--yes"),
    ],
    "delete": [("plan", "delete", "{release}", "--yes"), ("plan", "delete", "{publish}", "--yes"), _VERIFY],
    "unapply": [("plan", "unapply", "{publish}", "--yes"), ("plan", "apply", "{publish}", "--yes")],
}
"""What is changed, each in the home as it was made."""


def named(words: Sequence[str], names: dict[str, str]) -> list[str]:
    """The words of a command with the ids of this home in them."""
    return [word.format_map(names) for word in words]


def seen(place: Path, command: Command) -> dict[str, Any]:
    """What a user can see after a change: how far the plans are, and every file of theirs."""
    code, listed = command(["plan", "list"])
    assert code == 0
    plans = {each["name"]: [each["phase"], each["state"]] for each in listed["plans"]}
    sandboxes = sorted((place / "home" / "sandboxes").glob("*/*"))
    return {
        "plans": plans,
        "real files": {name: files(place / "project" / name) for name in ("app", "data", "site")},
        "sandboxes": {str(each.relative_to(place)): files(each) for each in sandboxes if each.name[0] != "."},
        "commits": log(place / "project" / "app"),
        "changed for git": status(place / "project" / "app"),
    }


def files(folder: Path) -> dict[str, str]:
    """Kind, permissions and content of everything in a folder but its repository."""
    return {
        str(path.relative_to(folder)): f"{path.lstat().st_mode:o} {_content(path)}"
        for path in sorted(folder.rglob("*"))
        if ".git" not in path.relative_to(folder).parts
    }


def _content(path: Path) -> str:
    if path.is_symlink():
        return os.readlink(path)
    return path.read_text() if path.is_file() else ""


# How the archive was made


class _Maker:
    def __init__(self, program: Sequence[str]) -> None:
        self._program = program
        self.project = PLACE / "project"

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "HOLDFAST_HOME": str(PLACE / "home"), "GIT_CONFIG_GLOBAL": os.devnull}

    def command(self, words: Sequence[str]) -> tuple[int, Any]:
        done = subprocess.run(
            [*self._program, *words, "--format", "json"], cwd=self.project, env=self._environment(),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, json.loads(done.stdout)["data"]

    def must(self, *words: str) -> Any:
        code, data = self.command(words)
        assert code == 0, (words, data)
        return data

    def make(self) -> dict[str, str]:
        """The ids of what is in it, by name."""
        self._make_project()
        names = {"publish": self._create(_APPLIED)}
        self.must("plan", "execute", names["publish"])
        self.must("plan", "apply", names["publish"], "--yes")
        names["release"] = self._create(_MAIN)
        self.must("plan", "execute", names["release"])
        listed = self.must("checkpoint", "list", names["release"])["checkpoints"]
        names["first"], names["left behind"] = listed[0]["checkpoint_id"], listed[-1]["checkpoint_id"]
        second = next(each for each in listed if each["step_index"] == 1)["checkpoint_id"]
        self.must("plan", "rollback", names["release"], second, "--yes")
        self._execute_and_kill(names["release"])
        return names

    def _make_project(self) -> None:
        make_repository(self.project / "app", {"version.txt": "1\n"}, has_user=True, message="version 1")
        contents = {
            "data/orders.csv": "1;2\n",
            "data/old.csv": "0;0\n",
            "site/index.html": "old\n",
            "site/old.html": "older\n",
        }
        for name, content in contents.items():
            write(self.project / name, content)

    def _create(self, document: dict[str, Any]) -> str:
        file = self.project / f"{document['name']}.yaml"
        file.write_text(json.dumps(document))
        return str(self.must("plan", "create", str(file))["plan_id"])

    def _execute_and_kill(self, plan_id: str) -> None:
        """The last step waits; nothing of ours outlives its process, so a kill of that is all there is to do."""
        _HOLD.touch()
        built = PLACE / "home" / "sandboxes" / plan_id / "app" / "built.txt"
        running = subprocess.Popen(
            [*self._program, "plan", "execute", plan_id], cwd=self.project, env=self._environment()
        )
        while not built.exists():
            assert running.poll() is None
            time.sleep(0.02)
        running.send_signal(signal.SIGKILL)
        running.wait()
        time.sleep(2)
        _HOLD.unlink()
        assert built.read_text() == "begun\n"


def main(archive: Path, *program: str) -> None:
    shutil.rmtree(PLACE, ignore_errors=True)
    maker = _Maker(program)
    names = maker.make()
    kept = PLACE.with_suffix(".kept")
    shutil.rmtree(kept, ignore_errors=True)
    subprocess.run(["cp", "-a", PLACE, kept], check=True)
    answers: dict[str, Any] = {"names": names, "questions": {}, "stories": {}}
    for about, words in QUESTIONS.items():
        answers["questions"][about] = maker.command(named(words, names))
    for story, commands in STORIES.items():
        shutil.rmtree(PLACE)
        subprocess.run(["cp", "-a", kept, PLACE], check=True)
        answers["stories"][story] = [
            {"exit_code": maker.command(named(words, names))[0], "seen": seen(PLACE, maker.command)}
            for words in commands
        ]
    (kept / "answers.json").write_text(json.dumps(answers, indent=1))
    (kept / "home" / "reserve").unlink()
    # Not by Python's tarfile, which rounds the times of files.
    subprocess.run(
        ["tar", "-czf", archive, "--format=posix", "--owner=0", "--group=0", "--numeric-owner", *os.listdir(kept)],
        cwd=kept,
        check=True,
    )
    shutil.rmtree(PLACE)
    shutil.rmtree(kept)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), *sys.argv[2:])
