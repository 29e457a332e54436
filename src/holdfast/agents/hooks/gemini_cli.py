"""gemini-cli: what its hooks send, and how they are answered.

Not known: an id of a call, how long it took, which version it is, and whether a subagent makes it. Commands of one turn
run at the same time; a call that ends is told from the others only by its tool and arguments. A call that it refuses by
itself, such as writing outside of the folder, comes with no hook at all.
"""

from __future__ import annotations

import re

import msgspec

from holdfast.agents.hooks.answering import reply_in_json
from holdfast.agents.hooks.event import HookAnswer, HookEvent, HookKind, Reply
from holdfast.agents.hooks.payload import Fields, about, absolute, decoded, ending, fields, is_ours, text

_KINDS = {
    "SessionStart": HookKind.SESSION_START,
    "SessionEnd": HookKind.SESSION_END,
    "BeforeAgent": HookKind.PROMPT,
    "BeforeTool": HookKind.BEFORE_TOOL,
    "AfterTool": HookKind.AFTER_TOOL,
    "AfterAgent": HookKind.TURN_END,
}
_TOLD_AT = {
    HookKind.SESSION_START: "SessionStart",
    HookKind.PROMPT: "BeforeAgent",
    HookKind.AFTER_TOOL: "AfterTool",
}
_SHELL = "run_shell_command"
_WRITERS = frozenset({"write_file", "replace"})
_READERS = frozenset(
    {"read_file", "read_many_files", "list_directory", "glob", "grep_search", "web_fetch", "google_web_search"}
    | {"write_todos", "ask_user", "get_internal_docs", "list_mcp_resources", "read_mcp_resource", "update_topic"}
)
_EXIT_CODE = re.compile(r"^Exit Code: (\d+)$", re.MULTILINE)


class GeminiCli:
    name = "gemini-cli"

    def event(self, payload: bytes) -> HookEvent:
        sent = decoded(payload, self.name)
        kind = _KINDS.get(text(sent, "hook_event_name"), HookKind.OTHER)
        event = HookEvent(
            kind,
            self.name,
            text(sent, "session_id"),
            folder=text(sent, "cwd"),
            transcript=text(sent, "transcript_path"),
            prompt=text(sent, "prompt") if kind is HookKind.PROMPT else "",
            source=text(sent, "source", "reason"),
        )
        return _with_call(event, sent) if kind in (HookKind.BEFORE_TOOL, HookKind.AFTER_TOOL) else event

    def reply(self, event: HookEvent, answer: HookAnswer) -> Reply:
        return reply_in_json(event.kind, answer, _TOLD_AT)


def _with_call(event: HookEvent, sent: Fields) -> HookEvent:
    tool, arguments = text(sent, "tool_name"), fields(sent, "tool_input")
    named = absolute((text(arguments, "file_path"),), event.folder)
    response = fields(sent, "tool_response")
    shown = text(response, "returnDisplay")
    return msgspec.structs.replace(
        event,
        tool=tool,
        what=about(arguments, named),
        paths=named if tool in _WRITERS else (),
        reads_only=tool in _READERS or is_ours(tool),
        result=ending(text(fields(response, "error"), "message") or (shown if tool == _SHELL else "")),
        is_failed=bool(response.get("error")) or (tool == _SHELL and _has_failed(text(response, "llmContent"))),
    )


def _has_failed(told: str) -> bool:
    """Whether the command ended with an error, by what the model is told, of which the end is not the command's."""
    codes = _EXIT_CODE.findall(told)
    return bool(codes) and codes[-1] != "0"
