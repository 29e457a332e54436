"""A page typed line by line by somebody new, in a folder of their own, and what it says compared with what happens.

Ids, times, durations and sizes are never the same twice. An id of the page stands for the one that is printed in its
place, from there on also in what is typed. A line with only ``…`` stands for any lines, ``…`` in a line for any text.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tools.docs.pages import Command, blocks, commands

_ID = r"(?:cp_)?01[0-9A-HJKMNP-TV-Z]{6,24}|(?=[0-9a-f]*[0-9])[0-9a-f]{7,64}"
_TOKENS = re.compile(
    rf"(?P<id>(?<![\w-])(?:{_ID})(?!\w))"
    r"|(?P<time>\d\d:\d\d(?::\d\d)?)|(?P<date>\d{4}-\d\d-\d\d)|(?P<duration>\d+\.\d s\b)|(?P<size>\d[\d.]* [kMG]?B\b)"
    r"|(?P<any>…)|(?P<blank>[ \t]+)"
)
_PATTERNS = {
    "time": r"\d\d:\d\d(?::\d\d)?",
    "date": r"\d{4}-\d\d-\d\d",
    "duration": r"\d+\.\d s",
    "size": r"\d[\d.]* [kMG]?B",
    "any": r".*?",
    "blank": r"[ \t]+",
}
_ANY_LINES = r"(?:.*\n)*?"

_OF_A_KILLED_JOB = re.compile(r"bash: line \d+: +\d+ Killed ")
"""What the shell says of a job in the background, or not, as it has ended by then or not."""


class Mismatch(AssertionError):
    """What a page says is not what happens."""


class Session:
    """A shell in ``folder``, which also holds the home of whoever types and everything Holdfast keeps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cwd = folder / "work"
        self._variables = folder / "variables"
        self._known: dict[str, str] = {}
        self._status = 0
        for each in (self._cwd, folder / "bin", folder / "home"):
            each.mkdir()
        for name, command in (("holdfast", [sys.executable, "-m", "holdfast"]), ("python", [sys.executable])):
            program = folder / "bin" / name
            program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
            program.chmod(0o755)
        (folder / "home" / ".gitconfig").write_text(
            "[user]\n\tname = Ada\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n"
        )

    def type_page(self, page: Path) -> int:
        """Type everything a page tells to type; how many commands that were."""
        count = 0
        for block in blocks(page.read_text()):
            if block.file is not None:
                (self._cwd / block.file).write_text(block.text)
            for command in commands(block) if block.is_session else ():
                self._type(page, command)
                count += 1
        return count

    def _type(self, page: Path, command: Command) -> None:
        typed = _TOKENS.sub(lambda match: self._known.get(match[0], match[0]), command.typed)
        answer = self._run(typed)
        match = re.fullmatch(_pattern(command.answer), answer)
        wrong = "" if match else "not what the page says"
        for number, said in enumerate(_ids(command.answer)):
            found = match[f"id{number}"] if match else ""
            known = self._known.setdefault(said, found)
            if not (known.startswith(found) or found.startswith(known)):
                wrong = f"{said} stood for {known} before, and for {found} here"
            self._known[said] = found
        if wrong:
            heading = f"{page.name}:{command.line}: {wrong}\n$ {typed}"
            raise Mismatch(f"{heading}\n--- said ---\n{command.answer}\n--- printed ---\n{answer}")

    def _run(self, typed: str) -> str:
        script = [
            f". {shlex.quote(str(self._variables))}" if self._variables.exists() else ":",
            f"cd {shlex.quote(str(self._cwd))}",
            f"(exit {self._status})",
            typed,
            "status=$?",
            f"export -p > {shlex.quote(str(self._variables))}",
            f"pwd > {shlex.quote(str(self._folder / 'cwd'))}",
            "exit $status",
        ]
        ended = subprocess.run(
            ["bash", "-c", "\n".join(script)],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self._status = ended.returncode
        self._cwd = Path((self._folder / "cwd").read_text().strip())
        lines = [line for line in ended.stdout.splitlines() if not _OF_A_KILLED_JOB.match(line)]
        return "".join(f"{line.rstrip()}\n" for line in lines)

    def _environment(self) -> dict[str, str]:
        """Ours, without what is set for the person who runs the tests."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "GIT_"))}
        ours = os.fspath(Path(sys.executable).parent)
        places = [place for place in os.environ["PATH"].split(os.pathsep) if place != ours]
        return {
            **kept,
            "HOME": str(self._folder / "home"),
            "XDG_STATE_HOME": str(self._folder / "home" / "state"),
            "PATH": os.pathsep.join([str(self._folder / "bin"), *places]),
            "LC_ALL": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "",
            "COLUMNS": "120",
        }


def _ids(said: str) -> list[str]:
    return [match[0] for match in _TOKENS.finditer(said) if match.lastgroup == "id"]


def _pattern(said: str) -> str:
    """A regular expression for what may be printed in place of what the page says."""
    numbers = iter(range(len(said)))

    def line_pattern(line: str) -> str:
        parts, end = [], 0
        for match in _TOKENS.finditer(line):
            parts.append(re.escape(line[end : match.start()]))
            kind = match.lastgroup or ""
            parts.append(f"(?P<id{next(numbers)}>{_ID})" if kind == "id" else _PATTERNS[kind])
            end = match.end()
        return "".join([*parts, re.escape(line[end:]), r"\n"])

    return "".join(_ANY_LINES if line.strip() == "…" else line_pattern(line.rstrip()) for line in said.splitlines())
