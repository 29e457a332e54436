"""The pages of the documentation: where they are, and the blocks of code in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FRONT_PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md")
_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_HEREDOC = re.compile(r"<<'?(\w+)'?$")


@dataclass(frozen=True)
class Block:
    """A fenced block; its words are those after the fence, such as ``console`` or ``yaml plan.yaml``."""

    words: tuple[str, ...]
    text: str
    line: int

    @property
    def is_session(self) -> bool:
        return self.words == ("console",)

    @property
    def file(self) -> str | None:
        """The file whose content it shows."""
        return self.words[1] if len(self.words) == 2 and self.words[1] != "not-run" else None


@dataclass(frozen=True)
class Command:
    """What is typed, and what it answers."""

    typed: str
    answer: str
    line: int


def all_pages() -> list[Path]:
    return [*FRONT_PAGES, *sorted(DOCS.rglob("*.md"))]


def blocks(text: str) -> Iterator[Block]:
    for match in _FENCE.finditer(text):
        yield Block(tuple(match["info"].split()), match["text"], text.count("\n", 0, match.start()) + 1)


def commands(block: Block) -> Iterator[Command]:
    """A line with ``$ `` in front is typed, with the lines of a here-document; what follows is the answer."""
    lines = block.text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        typed = lines[start].removeprefix("$ ")
        first = start + 1
        if heredoc := _HEREDOC.search(typed):
            first = lines.index(heredoc[1], first) + 1
            typed = "\n".join([typed, *lines[start + 1 : first]])
        yield Command(typed, "\n".join(lines[first:end]), block.line + 1 + start)
