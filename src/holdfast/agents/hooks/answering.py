"""Answering in the form that Claude Code introduced, and codex and gemini-cli took over, each with its own words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.agents.hooks.event import HookAnswer, HookKind, Reply

BLOCKED = 2
"""How a hook ends that does not let the tool run; the reason is on standard error."""


def reply_in_json(kind: HookKind, answer: HookAnswer, told_at: Mapping[HookKind, str]) -> Reply:
    """The answer; ``told_at`` holds the name of the event for each kind at which the model can be told something."""
    if kind is HookKind.BEFORE_TOOL and answer.block:
        return Reply(BLOCKED, stderr=f"{answer.block}\n")
    said: dict[str, Any] = {}
    if answer.show:
        said["systemMessage"] = answer.show
    if answer.tell and kind in told_at:
        said["hookSpecificOutput"] = {"hookEventName": told_at[kind], "additionalContext": answer.tell}
    return Reply(stdout=msgspec.json.encode(said).decode() + "\n" if said else "")
