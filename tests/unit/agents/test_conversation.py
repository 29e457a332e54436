"""The command that continues a conversation with Claude Code from before a call, found in what it keeps of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.conversation import command_to_go_on


def _entry(uuid: str, parent: str | None, role: str, *content: dict[str, Any], message_id: str = "") -> dict[str, Any]:
    message = {"role": role, "content": list(content), **({"id": message_id} if message_id else {})}
    return {"uuid": uuid, "parentUuid": parent, "type": role, "message": message}


def _call(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "Bash", "input": {}}


def _written(folder: Path, *lines: str) -> str:
    transcript = folder / "talk.jsonl"
    transcript.write_text("\n".join(lines) + "\n")
    return str(transcript)


@pytest.fixture
def transcript(tmp_path: Path) -> str:
    text = {"type": "text", "text": "two things at once"}
    entries = [
        _entry("u1", None, "user", {"type": "text", "text": "do the work"}),
        _entry("a1", "u1", "assistant", _call("toolu_1"), message_id="m1"),
        _entry("u2", "a1", "user", {"type": "tool_result", "tool_use_id": "toolu_1"}),
        _entry("a2", "u2", "assistant", text, message_id="m2"),
        _entry("a3", "a2", "assistant", _call("toolu_2"), message_id="m2"),
        _entry("a4", "a3", "assistant", _call("toolu_3"), message_id="m2"),
    ]
    return _written(tmp_path, '{"type": "summary"}', "not json", "[]", *map(json.dumps, entries))


def test_it_goes_on_from_the_result_of_the_call_before(transcript: str) -> None:
    command = command_to_go_on("claude-code", "s 1", transcript, "toolu_2")
    assert command == "claude -p --resume 's 1' --resume-session-at u2 --fork-session PROMPT"


def test_of_several_calls_in_one_message_it_goes_on_from_before_that_message(transcript: str) -> None:
    command = command_to_go_on("claude-code", "s1", transcript, "toolu_3")
    assert command is not None
    assert "--resume-session-at u2" in command


def test_the_first_call_follows_the_prompt(transcript: str) -> None:
    command = command_to_go_on("claude-code", "s1", transcript, "toolu_1")
    assert command is not None
    assert "--resume-session-at u1" in command


@pytest.mark.parametrize("call_id", ["toolu_9", "", None])
def test_there_is_no_command_for_a_call_that_is_not_in_it(transcript: str, call_id: str | None) -> None:
    assert command_to_go_on("claude-code", "s1", transcript, call_id) is None


def test_there_is_none_for_other_agents_and_for_a_conversation_that_is_gone(transcript: str, tmp_path: Path) -> None:
    assert command_to_go_on("codex", "s1", transcript, "toolu_2") is None
    assert command_to_go_on("claude-code", "s1", str(tmp_path / "gone.jsonl"), "toolu_2") is None
    assert command_to_go_on("claude-code", "s1", "", "toolu_2") is None
