"""opencode: what our plugin in it (``installation/opencode.js``) sends, and how it is answered.

Known: the version, an id for each call, also of parallel ones, its duration, and for a subagent the call that started
it: a child session counts as part of the session of the person. The prompt of a child session is the agent's own.
"""

from __future__ import annotations

import msgspec

from holdfast.agents.hooks.answering import BLOCKED
from holdfast.agents.hooks.event import HookAnswer, HookEvent, HookKind, Reply
from holdfast.agents.hooks.payload import Fields, about, absolute, decoded, ending, fields, is_ours, text

_KINDS = {
    "session.created": HookKind.SESSION_START,
    "dispose": HookKind.SESSION_END,
    "chat.message": HookKind.PROMPT,
    "tool.execute.before": HookKind.BEFORE_TOOL,
    "tool.execute.after": HookKind.AFTER_TOOL,
    "tool.failed": HookKind.AFTER_TOOL,
    "session.idle": HookKind.TURN_END,
}
_WRITERS = frozenset({"write", "edit", "multiedit"})
_READERS = frozenset({"read", "grep", "glob", "list", "webfetch", "websearch", "todowrite", "todoread", "skill"})


class OpenCode:
    name = "opencode"

    def event(self, payload: bytes) -> HookEvent:
        sent = decoded(payload, self.name)
        kind = _KINDS.get(text(sent, "event"), HookKind.OTHER)
        if text(sent, "parentID") and kind not in (HookKind.BEFORE_TOOL, HookKind.AFTER_TOOL):
            kind = HookKind.OTHER
        event = HookEvent(
            kind,
            self.name,
            text(sent, "parentID", "sessionID"),
            version=text(sent, "version"),
            folder=text(sent, "directory"),
            prompt=text(sent, "prompt") if kind is HookKind.PROMPT else "",
            parent_call_id=text(sent, "parentCallID"),
        )
        return _with_call(event, sent) if kind in (HookKind.BEFORE_TOOL, HookKind.AFTER_TOOL) else event

    def reply(self, event: HookEvent, answer: HookAnswer) -> Reply:
        if event.kind is HookKind.BEFORE_TOOL and answer.block:
            return Reply(BLOCKED, stderr=f"{answer.block}\n")
        said = {name: told for name, told in (("tell", answer.tell), ("show", answer.show)) if told}
        return Reply(stdout=msgspec.json.encode(said).decode() + "\n" if said else "")


def _with_call(event: HookEvent, sent: Fields) -> HookEvent:
    tool, arguments = text(sent, "tool"), fields(sent, "args")
    named = absolute((text(arguments, "filePath"),), event.folder)
    is_shell = tool == "bash"
    return msgspec.structs.replace(
        event,
        call_id=text(sent, "callID"),
        tool=tool,
        what=about(arguments, named),
        paths=named if tool in _WRITERS else (),
        reads_only=tool in _READERS or is_ours(tool),
        result=ending(text(sent, "error") or (text(sent, "output") if is_shell else "")),
        is_failed=text(sent, "event") == "tool.failed" or sent.get("exit") not in (None, 0),
    )
