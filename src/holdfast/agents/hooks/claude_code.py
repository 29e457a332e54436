"""Claude Code: what its hooks send, and how they are answered.

Known: an id for each call, also of parallel ones, whose hooks come at the same time. A call of a subagent names the
subagent, but not the call that started it. A failed call comes as an event of its own. Nothing says which version it
is. A subagent that has ended in the background comes as a prompt, which no person wrote.
"""

from __future__ import annotations

import msgspec

from holdfast.agents.hooks.answering import reply_in_json
from holdfast.agents.hooks.event import HookAnswer, HookEvent, HookKind, Reply
from holdfast.agents.hooks.payload import Fields, about, absolute, decoded, ending, fields, is_ours, text

_KINDS = {
    "SessionStart": HookKind.SESSION_START,
    "SessionEnd": HookKind.SESSION_END,
    "UserPromptSubmit": HookKind.PROMPT,
    "PreToolUse": HookKind.BEFORE_TOOL,
    "PostToolUse": HookKind.AFTER_TOOL,
    "PostToolUseFailure": HookKind.AFTER_TOOL,
    "Stop": HookKind.TURN_END,
}
_TOLD_AT = {
    HookKind.SESSION_START: "SessionStart",
    HookKind.PROMPT: "UserPromptSubmit",
    HookKind.BEFORE_TOOL: "PreToolUse",
    HookKind.AFTER_TOOL: "PostToolUse",
}
_WRITTEN = ("file_path", "notebook_path")
_WRITERS = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_READERS = frozenset(
    {"Read", "Grep", "Glob", "LS", "NotebookRead", "WebFetch", "WebSearch", "ToolSearch", "TodoWrite", "ListAgents"}
    | {"AskUserQuestion", "BashOutput", "TaskOutput", "ListMcpResourcesTool", "ReadMcpResourceTool", "ReportFindings"}
)
_NO_PERSON_WROTE = "<task-notification>"


class ClaudeCode:
    name = "claude-code"

    def event(self, payload: bytes) -> HookEvent:
        sent = decoded(payload, self.name)
        return event_of(sent, self.name, _KINDS.get(text(sent, "hook_event_name"), HookKind.OTHER))

    def reply(self, event: HookEvent, answer: HookAnswer) -> Reply:
        failure = {HookKind.AFTER_TOOL: "PostToolUseFailure"} if event.is_failed else {}
        return reply_in_json(event.kind, answer, {**_TOLD_AT, **failure})


def event_of(sent: Fields, agent: str, kind: HookKind) -> HookEvent:
    """The event, for any agent that sends the fields of Claude Code."""
    prompt = text(sent, "prompt") if kind is HookKind.PROMPT else ""
    if prompt.startswith(_NO_PERSON_WROTE):
        kind, prompt = HookKind.OTHER, ""
    event = HookEvent(
        kind,
        agent,
        text(sent, "session_id"),
        folder=text(sent, "cwd"),
        transcript=text(sent, "transcript_path"),
        prompt=prompt,
        parent_call_id=text(sent, "agent_id"),
        source=text(sent, "source", "reason"),
    )
    return _with_call(event, sent) if kind in (HookKind.BEFORE_TOOL, HookKind.AFTER_TOOL) else event


def _with_call(event: HookEvent, sent: Fields) -> HookEvent:
    tool, arguments = text(sent, "tool_name"), fields(sent, "tool_input")
    paths = absolute((text(arguments, *_WRITTEN),), event.folder) if tool in _WRITERS else ()
    return msgspec.structs.replace(
        event,
        call_id=text(sent, "tool_use_id"),
        tool=tool,
        what=about(arguments, paths or absolute((text(arguments, *_WRITTEN),), event.folder)),
        paths=paths,
        reads_only=tool in _READERS or is_ours(tool),
        result=ending(_result(sent)),
        is_failed=text(sent, "hook_event_name") == "PostToolUseFailure",
    )


def _result(sent: Fields) -> str:
    """What a shell printed, or why the call failed; what a file tool says is only a copy of the file."""
    if error := text(sent, "error"):
        return error
    response = sent.get("tool_response")
    if isinstance(response, str):
        return response
    found = fields(sent, "tool_response")
    return "\n".join(each for each in (text(found, "stdout"), text(found, "stderr")) if each)
