"""The neutral form of what an agent says through a hook, and of what it is answered."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

RESULT_LIMIT_BYTES = 4096
"""How much of a tool's output an event keeps: the end of it."""


class HookKind(StrEnum):
    SESSION_START = "session_start"
    SESSION_END = "session_end"
    PROMPT = "prompt"
    BEFORE_TOOL = "before_tool"
    AFTER_TOOL = "after_tool"
    TURN_END = "turn_end"
    OTHER = "other"
    """Anything else, also what a newer agent may say; it is noted and never refused."""


class HookEvent(msgspec.Struct, frozen=True):
    kind: HookKind
    agent: str
    session_id: str
    version: str = ""
    folder: str = ""
    """The agent's current folder, absolute."""
    transcript: str = ""
    prompt: str = ""
    call_id: str = ""
    """Empty if the agent gives none."""
    tool: str = ""
    what: str = ""
    """One line: the command, or the paths."""
    paths: tuple[str, ...] = ()
    """Absolute paths that the call says it will write; empty if that is not known, as for a shell."""
    reads_only: bool = False
    """The tool is known never to write."""
    result: str = ""
    """The end of what the tool put out."""
    is_end_untold: bool = False
    """No hook says when the call ends: it is over at the next hook of the session."""
    is_failed: bool = False
    parent_call_id: str = ""
    """Of the subagent that makes the call, if the agent says so."""
    source: str = ""
    """How the session began or ended."""


class HookAnswer(msgspec.Struct, frozen=True):
    block: str = ""
    """Why the tool may not run; empty lets it run."""
    tell: str = ""
    """What the model is told."""
    show: str = ""
    """What the person is shown."""


class Reply(msgspec.Struct, frozen=True):
    """What the hook's process prints, and how it ends."""

    exit_code: int = 0
    stdout: str = ""
    stderr: str = ""


class Adapter(Protocol):
    @property
    def name(self) -> str: ...

    def event(self, payload: bytes) -> HookEvent:
        """What the agent says. Raises a UsageError if it is no payload of this agent at all."""

    def reply(self, event: HookEvent, answer: HookAnswer) -> Reply:
        """The answer as this agent reads it; what it has no way to be told is left out."""
