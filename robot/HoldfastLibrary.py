"""Keywords for stories on the command line: a scratch project, the real command, and comparisons of our own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from robot.libraries.BuiltIn import BuiltIn

from holdfast.guard.location import client_words

# At the end: with the root of the project in front, `robot` would mean this folder.
sys.path.append(str(Path(__file__).parents[1]))

from tests.support.repositories import git, make_repository


class HoldfastLibrary:
    ROBOT_LIBRARY_SCOPE = "TEST"

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._background: subprocess.Popen[bytes] | None = None

    # The project

    def make_a_scratch_project(self) -> str:
        """A git repository ``app`` and a folder ``data``, side by side, and a home for Holdfast."""
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-robot-"))
        for name in ("data", "home", "outside", "temporary"):
            (self.folder / name).mkdir(mode=0o700)
        (self.folder / "home" / "config.toml").write_text(
            f"sandbox.allow-write = {json.dumps([str(self.folder / 'outside')])}\n"
        )
        (self.folder / "data" / "orders.csv").write_text("1;2\n")
        (self.folder / "data" / "empty").mkdir()
        contents = {"version.txt": "1\n", ".gitignore": "*.log\n"}
        make_repository(self.folder / "app", contents, environment=self._environment(), has_user=True, message="first")
        return str(self.folder)

    def remove_the_scratch_project(self) -> None:
        if self._background is not None and self._background.poll() is None:
            self._background.kill()
            self._background.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder)

    @property
    def folder(self) -> Path:
        assert self._folder is not None, "make a scratch project first"
        return self._folder

    def git(self, *words: str) -> str:
        return git(self.folder / "app", *words, environment=self._environment()).strip()

    def take_plan(self, name: str, **words: str) -> str:
        """A plan file of ``robot/plans``, put beside the project; OUTSIDE and given words are filled in."""
        text = (Path(__file__).parent / "plans" / f"{name}.yaml").read_text()
        for word, value in {"OUTSIDE": str(self.folder / "outside"), **words}.items():
            text = text.replace(word, value)
        file = self.folder / f"{'-'.join([name, *words.values()])}.yaml"
        file.write_text(text)
        return str(file)

    def write_file(self, path: str, text: str) -> None:
        (self.folder / path).write_text(text)

    def read_file(self, path: str) -> str:
        return (self.folder / path).read_text()

    def folder_should_hold(self, path: str, *names: str) -> None:
        found = sorted(os.listdir(self.folder / path))
        assert found == sorted(names), f"{path} holds {found}"

    def file_should_not_exist(self, path: str) -> None:
        assert not os.path.lexists(self.folder / path), f"{path} exists"

    def _environment(self) -> dict[str, str]:
        # Without bytecode every command that is started would compile its imports again.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {
            **kept,
            "HOLDFAST_HOME": str(self.folder / "home"),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "TMPDIR": str(self.folder / "temporary"),
        }

    # The command

    def holdfast(self, *words: str, expected: int = 0) -> str:
        """Run the command, which must end with that exit code; what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *words],
            cwd=self.folder / "app",
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == int(expected), f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def holdfast_json(self, *words: str, expected: int = 0) -> Any:
        """The same with ``--format json``; the data of the envelope."""
        envelope = json.loads(self.holdfast(*words, "--format", "json", expected=expected))
        assert envelope["exit_code"] == int(expected)
        assert envelope["status"] == ("ok" if int(expected) == 0 else "error")
        return envelope["data"]

    def agent_runs(self, command: str) -> None:
        """An agent's call of a tool, told by its hooks as they are installed."""
        call = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": command}
        self._hook("PreToolUse", **call)
        subprocess.run(["sh", "-ec", command], cwd=self.folder / "app", env=self._environment(), check=True)
        self._hook("PostToolUse", tool_response={"stdout": ""}, **call)

    def _hook(self, event: str, **more: Any) -> None:
        folder = self.folder / "app"
        said = {"session_id": "a session", "cwd": str(folder), "transcript_path": "", "hook_event_name": event, **more}
        subprocess.run(
            [*client_words(), "--agent", "claude-code", "--python", sys.executable, "--on-failure", "block"],
            cwd=folder,
            env=self._environment(),
            input=json.dumps(said).encode(),
            stdout=subprocess.DEVNULL,
            check=True,
        )

    def start_holdfast(self, *words: str) -> None:
        self._background = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *words],
            cwd=self.folder / "app",
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def wait_for_file(self, path: str) -> None:
        deadline = time.monotonic() + 60
        while not (self.folder / path).exists():
            assert time.monotonic() < deadline, f"{path} did not appear"
            time.sleep(0.02)

    def wait_for_holdfast(self, expected: int = 0) -> None:
        """Let the command in the background come to its end, which must be with that exit code."""
        assert self._background is not None
        found = self._background.wait(60)
        assert found == int(expected), f"exit code {found}"

    def kill_holdfast(self) -> None:
        assert self._background is not None
        self._background.send_signal(signal.SIGKILL)
        self._background.wait()

    def skip_without_landlock(self) -> None:
        level = next(each for each in self.holdfast_json("doctor")["findings"] if each["name"] == "confinement")
        BuiltIn().skip_if(level["level"] != "ok", f"confinement: {level['detail']}")

    # Checkpoints

    def checkpoint_before_step(self, index: int) -> str:
        listed = self.holdfast_json("checkpoint", "list", "latest")["checkpoints"]
        return next(
            each["checkpoint_id"]
            for each in listed
            if each["step_index"] == int(index) and "on_tool_write" in each["triggers"]
        )

    def nth_checkpoint(self, number: int) -> str:
        return self.holdfast_json("checkpoint", "list", "latest")["checkpoints"][int(number) - 1]["checkpoint_id"]

    def checkpoint_of_rest(self) -> str:
        """Of a moment at which a program that is still running had written something and rested."""
        listed = self.holdfast_json("checkpoint", "list", "latest")["checkpoints"]
        return next(each["checkpoint_id"] for each in listed if each["triggers"] == ["settled"])

    def moment_before(self, words: str) -> str:
        """The checkpoint in the line of the log below the one that says these words, as a reader finds it."""
        lines = self.holdfast("log").splitlines()
        (place,) = (number for number, line in enumerate(lines) if words in line)
        return lines[place + 1].split()[1]

    def sandbox_of(self, resource: str) -> str:
        listed = self.holdfast_json("plan", "status", "latest")["resources"]
        return next(each["sandbox_path"] for each in listed if each["name"] == resource)

    # Comparing, without a line of Holdfast's code

    def picture_of(self, folder: str) -> dict[str, tuple[Any, ...]]:
        """Everything in a folder but ``.git``: kind, mode, time, content, target."""
        root = self.folder / folder
        found: dict[str, tuple[Any, ...]] = {}
        for directory, folders, names in os.walk(root):
            folders[:] = [each for each in folders if each != ".git"]
            for name in [*folders, *names]:
                path = Path(directory) / name
                status = path.lstat()
                found[str(path.relative_to(root))] = (stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode),
                                                      status.st_mtime_ns, _content(path))  # fmt: skip
        return found

    def fingerprint_of_repository(self) -> str:
        """Every byte of the user's repository, its ``.git`` included."""
        digest = hashlib.sha256()
        root = self.folder / "app"
        for path in sorted(root.rglob("*")):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + _content(path).encode())
        return digest.hexdigest()

    def damage_saved_content(self) -> None:
        import sqlite3

        connection = sqlite3.connect(self.folder / "home" / "objects.db")
        connection.execute("UPDATE object SET data = zeroblob(length(data))")
        connection.commit()
        connection.close()


def _content(path: Path) -> str:
    if path.is_symlink():
        return os.readlink(path)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
