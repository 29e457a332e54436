"""The pictures of a terminal in the README, from real runs in a terminal: ``python -m tools.docs.terminal``.

The commands are typed into a pseudo-terminal, so they print as they do for a person, with colours. In the second
picture Claude Code works, with a scripted model; without it (``make agents`` installs it) that one is not made anew.
"""

from __future__ import annotations

import fcntl
import io
import itertools
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from rich.console import Console
from rich.text import Text

from tools.docs.pages import DOCS, ROOT, blocks
from tools.scripted_model import ScriptedModel, Turn, serving

PICTURE, SESSION_PICTURE = DOCS / "img" / "terminal.svg", DOCS / "img" / "session.svg"
_AGENTS = ROOT / "build" / "agents" / "node_modules" / ".bin"
_WIDTH, _HEIGHT = 92, 60
# Like rich's own, but without its title bar's buttons and without fonts that a reader's browser would have to fetch.
_SVG = """<svg viewBox="0 0 {terminal_width} {terminal_height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; \
font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
<rect fill="#292929" x="0" y="0" width="{terminal_width}" height="{terminal_height}" rx="8"/>
<g transform="translate(9, 6)" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


def picture() -> str:
    """What the README's tour looks like: the plan that goes wrong, its log, and the way back."""
    with tempfile.TemporaryDirectory() as folder:
        terminal = _Terminal(Path(folder))
        terminal.prepare()
        executed = _until(terminal.type("holdfast plan execute plan.yaml"), "kept")
        before = re.search(r"(cp_\w+) +before step 2:", Text.from_ansi(terminal.type("holdfast log")).plain)
        assert before is not None
        go_back = f"holdfast plan rollback --yes latest {before[1]}"
        gone_back = _until(terminal.type(go_back), "Impact")
        log = _until(terminal.type("holdfast log"), "look ")
        return _drawn([("holdfast plan execute plan.yaml", executed), (go_back, gone_back), ("holdfast log", log)])


def session_picture(claude: str) -> str:
    """An agent that works in the folder itself: a prompt, its calls, and one of them taken back."""
    turns = (
        Turn("", "Write", {"file_path": "@/greet.md", "content": "# Greet\n\nSays good day.\n"}),
        Turn("", "Bash", {"command": "rm -rf *.yaml", "description": "tidy up"}),
        Turn("", "Bash", {"command": "sed -i s/Hello/Good\\ day/ greet.py", "description": "be polite"}),
        Turn("Done: the greeting is polite, and described."),
    )
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "shop"
        with serving(ScriptedModel([_at(turn, project) for turn in turns])) as address:
            user = Path(folder) / "user"
            user.mkdir()
            variables = {
                "HOME": str(user),
                "ANTHROPIC_BASE_URL": address,
                "ANTHROPIC_API_KEY": "x",
                "IS_SANDBOX": "1",
                "PATH": os.pathsep.join([str(Path(claude).parent), os.environ["PATH"]]),
            }
            terminal = _Terminal(Path(folder), variables)
            terminal.prepare()
            words = [
                "holdfast agents install claude-code",
                'claude -p "make the greeting polite" --permission-mode bypassPermissions',
                "holdfast log",
                "holdfast undo --only-call 2 --yes",
                "holdfast blame plan.yaml",
            ]
            ends = {"holdfast log": "show one", "holdfast agents install claude-code": "see whether"}
            typed = [(each, _until(terminal.type(each), ends.get(each, "conversation"))) for each in words]
            terminal.type("holdfast guard stop")
            return _drawn(typed)


def _at(turn: Turn, project: Path) -> Turn:
    """The turn with its paths in that folder."""
    named = {name: each.replace("@/", f"{project}/") for name, each in turn.arguments.items()}
    return Turn(turn.text, turn.tool, named)


def _drawn(typed: Sequence[tuple[str, str]]) -> str:
    console = Console(record=True, width=_WIDTH + 2, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for words, answer in typed:
        console.print(Text.assemble(("$ ", "green"), (words, "bold")))
        console.print(Text.from_ansi(answer), end="\n\n")
    return console.export_svg(title="", code_format=_SVG, unique_id="holdfast")


class _Terminal:
    """Somebody at a terminal, in the tour's project."""

    def __init__(self, folder: Path, variables: Mapping[str, str] = MappingProxyType({})) -> None:
        self._folder, self._variables = folder, variables
        self._project = folder / "shop"
        self._project.mkdir()

    def prepare(self) -> None:
        for block in blocks((ROOT / "README.md").read_text()):
            if block.file is not None:
                (self._project / block.file).write_text(block.text)
        self.type("git init -q -b main && git add . && git -c user.name=Ada -c user.email=a@b commit -qm first")

    def type(self, command: str) -> str:
        """What it prints on a terminal of this width."""
        master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _HEIGHT, _WIDTH, 0, 0))
        variables = {
            "HOLDFAST_HOME": str(self._folder / "home"),
            **self._variables,
            "PATH": os.pathsep.join(
                [str(Path(sys.executable).parent), self._variables.get("PATH", os.environ["PATH"])]
            ),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "PAGER": "cat",
        }
        started = subprocess.Popen(
            ["sh", "-c", command],
            cwd=self._project,
            env={**os.environ, **variables},
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
        )
        os.close(terminal)
        read = b"".join(iter(lambda: _read(master), b""))
        started.wait()
        os.close(master)
        return "\n".join(_left_on_screen(read.decode())).replace(str(self._folder), "~")


def _read(descriptor: int) -> bytes:
    """Nothing at the end, which a terminal says with an error."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""


def _left_on_screen(printed: str) -> list[str]:
    """The lines that are there in the end, after those that were only for the moment are overwritten."""
    lines, row = [""], 0
    for control, up, text in re.findall(
        r"(\n|\x1b\[(?:(\d+)A|2K|\?\d+[lh]|K)|\r)|((?:[^\n\r\x1b]|\x1b\[[\d;]*m)+)", printed
    ):
        if control == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif up:
            row -= int(up)
        elif control == "\x1b[2K":
            lines[row] = ""
        lines[row] += text
    return lines


def _until(lines: str, end: str) -> str:
    """The lines before the first that holds this word, without blank ones at the end."""
    kept = itertools.takewhile(lambda line: end not in Text.from_ansi(line).plain, lines.splitlines())
    return "\n".join(kept).rstrip()


if __name__ == "__main__":
    PICTURE.write_text(picture())
    found = shutil.which("claude", path=os.pathsep.join([str(_AGENTS), os.environ["PATH"]]))
    if found is not None:
        SESSION_PICTURE.write_text(session_picture(found))
