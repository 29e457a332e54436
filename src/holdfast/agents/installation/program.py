"""The program that the hooks start, and how long it may take for each event."""

from __future__ import annotations

import re
import shlex

import msgspec

from holdfast.agents.hooks.answering import BLOCKED
from holdfast.agents.hooks.event import HookKind
from holdfast.model import Unprotected

_OURS = re.compile(r"holdfast/guard/(hook-client|client\.py)")


class HookProgram(msgspec.Struct, frozen=True):
    client: tuple[str, ...]
    """The words that start it."""
    python: str
    """What it starts the process of a folder with."""
    on_failure: Unprotected

    def words(self, agent: str, kind: HookKind, limit_seconds: float) -> list[str]:
        policy = Unprotected.BLOCK if self.blocks(kind) else Unprotected.WARN
        options = ["--agent", agent, "--python", self.python, "--limit", f"{limit_seconds:g}"]
        return [*self.client, *options, "--on-failure", policy]

    def blocks(self, kind: HookKind) -> bool:
        """Whether a checkpoint that cannot be taken stops what the hook announces: only what has not happened yet."""
        return kind is HookKind.BEFORE_TOOL and self.on_failure is Unprotected.BLOCK

    def command(self, agent: str, kind: HookKind, limit_seconds: float) -> str:
        """The same for a shell, with an end that blocks also if the client itself is gone, or is killed."""
        words = shlex.join(self.words(agent, kind, limit_seconds))
        return f"{words} || exit {BLOCKED}" if self.blocks(kind) else words


def is_ours(command: str) -> bool:
    """Whether it starts our program, also that of another installation of Holdfast."""
    return _OURS.search(command) is not None
