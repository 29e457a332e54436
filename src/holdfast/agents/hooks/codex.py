"""codex: what its hooks send, and how they are answered.

The fields are those of Claude Code. Known: an id for each call. Not known: whether a command failed, how long it took,
and which version it is. No hook ends a call whose patch does not fit, a patch that is applied through the shell, or a
command that is still running when the agent goes on: such a call is over at the next hook of the session.
"""

from __future__ import annotations

import re

import msgspec

from holdfast.agents.hooks.answering import reply_in_json
from holdfast.agents.hooks.claude_code import event_of
from holdfast.agents.hooks.event import HookAnswer, HookEvent, HookKind, Reply
from holdfast.agents.hooks.payload import absolute, decoded, fields, one_line, text

_KINDS = {
    "SessionStart": HookKind.SESSION_START,
    "SessionEnd": HookKind.SESSION_END,
    "UserPromptSubmit": HookKind.PROMPT,
    "PreToolUse": HookKind.BEFORE_TOOL,
    "PostToolUse": HookKind.AFTER_TOOL,
    "Stop": HookKind.TURN_END,
}
_TOLD_AT = {
    HookKind.SESSION_START: "SessionStart",
    HookKind.PROMPT: "UserPromptSubmit",
    HookKind.BEFORE_TOOL: "PreToolUse",
    HookKind.AFTER_TOOL: "PostToolUse",
}
_PATCH = "apply_patch"
_PATCHED = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+)$", re.MULTILINE)


class Codex:
    name = "codex"

    def event(self, payload: bytes) -> HookEvent:
        sent = decoded(payload, self.name)
        event = event_of(sent, self.name, _KINDS.get(text(sent, "hook_event_name"), HookKind.OTHER))
        if event.tool != _PATCH:
            return msgspec.structs.replace(event, is_end_untold=event.what.startswith(_PATCH))
        paths = absolute(_PATCHED.findall(text(fields(sent, "tool_input"), "command")), event.folder)
        return msgspec.structs.replace(event, paths=paths, what=one_line(", ".join(paths)) or event.what)

    def reply(self, event: HookEvent, answer: HookAnswer) -> Reply:
        return reply_in_json(event.kind, answer, _TOLD_AT)
