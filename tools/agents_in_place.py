"""Tries real coding agents in the real folder, with our hooks: ``python -m tools.agents_in_place [NAME...]``.

Each works with a scripted model on a scratch project: it writes, reads, edits and removes files, changes one that git
ignores, commits, and runs a command that fails. Then a person writes a file; one call in the middle is taken back, then
all of the prompt, and each is brought back again. The whole folder is compared each time.
"""

from __future__ import annotations

import re
import subprocess  # nosec B404
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from tools.agents import AGENTS, HOLDFAST, Agent, Trial, install, try_all
from tools.scripted_model import ScriptedModel, Turn, serving

_PATIENCE_SECONDS = 180
_COMMANDS = (
    "rm notes.txt",
    "mkdir -p build && echo SECRET=2 > .env && echo y > build/new.o",
    "git add -A && git commit -qm 'the agent commits'",
    "echo half > half.txt; false",
    "echo after >> app.py",
)
_REMOVAL = "rm notes.txt"
_PATCH = '*** Begin Patch\n*** Update File: app.py\n@@\n-print("hello")\n+print("goodbye")\n*** End Patch\n'
Contents = dict[str, tuple[int, bytes]]


def _turns(tool: str, argument: str, others: Sequence[Turn]) -> list[Turn]:
    commands = [Turn("I go on.", tool, {argument: each, "description": "a command"}) for each in _COMMANDS]
    return [*others, *commands, Turn("All done.")]


def _claude(folder: Path) -> list[Turn]:
    app = str(folder / "app.py")
    new = {"file_path": str(folder / "new.py"), "content": "x = 1\n"}
    edit = {"file_path": app, "old_string": "hello", "new_string": "goodbye"}
    others = [
        Turn("I write.", "Write", new),
        Turn("I go on.", "Read", {"file_path": app}),
        Turn("I go on.", "Edit", edit),
    ]
    return _turns("Bash", "command", others)


def _codex(_: Path) -> list[Turn]:
    write, edit = "printf 'x = 1\\n' > new.py", f"apply_patch <<'EOF'\n{_PATCH}EOF"
    return [
        *(Turn("I work.", "exec_command", {"cmd": each}) for each in (write, "cat app.py", edit, *_COMMANDS)),
        Turn("All done."),
    ]


def _gemini(_: Path) -> list[Turn]:
    edit = {"file_path": "app.py", "old_string": "hello", "new_string": "goodbye", "instruction": "greet"}
    others = [
        Turn("I write.", "write_file", {"file_path": "new.py", "content": "x = 1\n"}),
        Turn("I go on.", "read_file", {"file_path": "app.py"}),
        Turn("I go on.", "replace", edit),
    ]
    return _turns("run_shell_command", "command", others)


def _opencode(folder: Path) -> list[Turn]:
    app = str(folder / "app.py")
    new = {"filePath": str(folder / "new.py"), "content": "x = 1\n"}
    edit = {"filePath": app, "oldString": "hello", "newString": "goodbye"}
    others = [
        Turn("I write.", "write", new),
        Turn("I go on.", "read", {"filePath": app}),
        Turn("I go on.", "edit", edit),
    ]
    return _turns("bash", "command", others)


SESSIONS: Mapping[str, tuple[str, Callable[[Path], list[Turn]], tuple[str, ...]]] = {
    "claude": ("claude-code", _claude, ()),
    "codex": ("codex", _codex, ("codex", "exec", "-s", "danger-full-access", "do the work")),
    "gemini": ("gemini-cli", _gemini, ("gemini", "--yolo", "--skip-trust", "-p", "do the work")),
    "opencode": ("opencode", _opencode, ()),
}
"""The name of its hooks, what the model says, and how it is started if not as under ``holdfast run``."""


class InPlace(Trial):
    def __init__(self, agent: Agent, folder: Path) -> None:
        super().__init__(agent, folder)
        self._hooks, self._turns, command = SESSIONS[agent.name]
        self._command = command or agent.command
        (self.project / ".gitignore").write_text(".env\nbuild/\n")
        (self.project / ".env").write_text("SECRET=1\n")
        for words in (("config", "user.name", "A"), ("config", "user.email", "a@localhost"), ("add", ".")):
            subprocess.run(["git", *words], cwd=self.project, check=True)
        subprocess.run(["git", "commit", "--quiet", "-m", "second"], cwd=self.project, check=True)

    def problems(self) -> list[str]:
        with serving(ScriptedModel(self._turns(self.project))) as address:
            self._variables = {**self._environment(address), "HOLDFAST_HOME": str(self.home / "holdfast")}
            if self.agent.name == "claude":
                self._variables["IS_SANDBOX"] = "1"
            try:
                return self._story()
            except subprocess.CalledProcessError as error:
                return [f"{error.cmd} ended with {error.returncode}: {error.stdout[-1000:]}\n{error.stderr[-2000:]}"]
            finally:
                stop = [str(HOLDFAST), "guard", "stop"]
                subprocess.run(stop, cwd=self.project, env=self._variables, capture_output=True, check=False)

    def _story(self) -> list[str]:
        settings = _contents(self.home, without=self.project)
        self._run(str(HOLDFAST), "agents", "install", self._hooks, *(["--trust"] if self._hooks == "codex" else []))
        installed = _contents(self.home, without=self.project).keys() - settings.keys()
        before, head = _contents(self.project), self._head()
        self._run(*self._command)
        after = _contents(self.project)
        mine = {"mine.txt": (0o644, b"mine\n")}
        (self.project / "mine.txt").write_text("mine\n")
        (self.project / "mine.txt").chmod(0o644)
        found = _differences("after the work", {**after, **mine}, _contents(self.project))
        if after == before or self._head() == head:
            found.append("the agent has changed nothing, or did not commit")
        number = self._number_of_removal()
        if number is None:
            return [*found, f"the removal is no call: {self._run(str(HOLDFAST), 'log')}"]
        self._run(str(HOLDFAST), "undo", "--yes", "--only-call", number)
        notes = {"notes.txt": before["notes.txt"]}
        found += _differences("without the removal", {**after, **mine, **notes}, _contents(self.project))
        self._run(str(HOLDFAST), "redo", "--yes")
        found += _differences("with it again", {**after, **mine}, _contents(self.project))
        self._run(str(HOLDFAST), "undo", "--yes", "--prompt", "1")
        found += _differences("without the prompt", {**before, **mine}, _contents(self.project))
        found += [] if self._head() == head else ["the branch is not where it was"]
        self._run(str(HOLDFAST), "redo", "--yes")
        found += _differences("with the prompt again", {**after, **mine}, _contents(self.project))
        self._run(str(HOLDFAST), "agents", "status", self._hooks)
        self._run(str(HOLDFAST), "agents", "uninstall", self._hooks)
        left = _contents(self.home, without=self.project)
        own = [name for name in installed if not name.startswith("holdfast/") and name in left]
        return found + [f"uninstall left {name}" for name in own if b"hook-client" in left[name][1]]

    def _number_of_removal(self) -> str | None:
        """The number of the call that removed a file: reading is a call as well."""
        lines = self._run(str(HOLDFAST), "log").splitlines()
        found = (re.search(rf"call (\d+): \S+ {_REMOVAL}", line) for line in lines)
        return next((each[1] for each in found if each), None)

    def _head(self) -> str:
        return self._run("git", "rev-parse", "HEAD")

    def _run(self, *words: str) -> str:
        return subprocess.run(
            words,
            cwd=self.project,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=_PATIENCE_SECONDS,
        ).stdout


def _contents(folder: Path, without: Path | None = None) -> Contents:
    """Every file with its mode and content; git's own folder is looked at by git."""
    found: Contents = {}
    for path in folder.rglob("*"):
        is_left_out = ".git" in path.parts or (without is not None and path.is_relative_to(without))
        if path.is_file() and not path.is_symlink() and not is_left_out:
            found[str(path.relative_to(folder))] = path.stat().st_mode & 0o777, path.read_bytes()
    return found


def _differences(when: str, expected: Contents, found: Contents) -> list[str]:
    names = sorted(expected.keys() | found.keys())
    return [f"{when}: {name} differs" for name in names if expected.get(name) != found.get(name)]


def _problems(agent: Agent, folder: Path) -> list[str]:
    return InPlace(agent, folder).problems()


def main(names: Sequence[str]) -> int:
    agents = [each for each in AGENTS if each.name in SESSIONS and (not names or each.name in names)]
    install(agents)
    return try_all((each.name, partial(_problems, each)) for each in agents)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
