"""How the conversation with an agent goes on from the moment to which its files went back."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CLAUDE_CODE = "claude-code"
_MOST_BYTES = 256 << 20


def command_to_go_on(agent: str, session_id: str, transcript: str, call_id: str | None) -> str | None:
    """The command that continues the conversation from just before that call; None if the agent has no such command."""
    if agent != CLAUDE_CODE or not call_id or not transcript:
        return None
    at = _entry_before(Path(transcript), call_id)
    if at is None:
        return None
    words = ["claude", "-p", "--resume", session_id, "--resume-session-at", at, "--fork-session"]
    return f"{shlex.join(words)} PROMPT"


def _entry_before(transcript: Path, call_id: str) -> str | None:
    """The id of the entry that the agent answered with that call."""
    by_id: dict[str, Mapping[str, Any]] = {}
    for entry in _entries(transcript):
        uuid = entry.get("uuid")
        if not isinstance(uuid, str):
            continue
        by_id[uuid] = entry
        if call_id in _calls_in(entry):
            return _above_message(entry, by_id)
    return None


def _above_message(entry: Mapping[str, Any], by_id: Mapping[str, Mapping[str, Any]]) -> str | None:
    """One message of the agent has an entry for each of its parts."""
    message_id = _message(entry).get("id")
    above = entry.get("parentUuid")
    while message_id is not None and isinstance(above, str) and _message(by_id.get(above, {})).get("id") == message_id:
        above = by_id[above].get("parentUuid")
    return above if isinstance(above, str) else None


def _calls_in(entry: Mapping[str, Any]) -> set[Any]:
    content = _message(entry).get("content")
    parts = content if isinstance(content, list) else []
    return {part.get("id") for part in parts if isinstance(part, dict) and part.get("type") == "tool_use"}


def _message(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    message = entry.get("message")
    return message if isinstance(message, dict) else {}


def _entries(transcript: Path) -> Iterator[Mapping[str, Any]]:
    """What of it can be read; another program writes it, in a form that may change."""
    try:
        if transcript.stat().st_size > _MOST_BYTES:
            return
        with transcript.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                if isinstance(entry, dict):
                    yield entry
    except OSError:
        return
