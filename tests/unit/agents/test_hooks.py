from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.agents.hooks.adapters import ADAPTERS, adapter_for
from holdfast.agents.hooks.event import RESULT_LIMIT_BYTES, HookAnswer, HookEvent, HookKind
from holdfast.errors import UsageError

RECORDED = Path(__file__).parents[2] / "data" / "hooks"
FOLDER = "/home/me/app"
AGENTS = tuple(ADAPTERS)
COMMIT = "git add -A && git commit -qm 'agent commit' && git log --oneline"
IGNORED = "mkdir -p build && echo SECRET=2 > .env && echo y > build/new.o"


def recorded(name: str) -> list[HookEvent]:
    text = (RECORDED / f"{name}.jsonl").read_text().replace("@CWD@", FOLDER).replace("@HOME@", "/home/me")
    lines = map(json.loads, text.splitlines())
    return [adapter_for(each["agent"]).event(json.dumps(each["payload"]).encode()) for each in lines]


def calls(events: list[HookEvent]) -> list[HookEvent]:
    return [each for each in events if each.kind is HookKind.BEFORE_TOOL]


def event(agent: str, **sent: Any) -> HookEvent:
    return adapter_for(agent).event(json.dumps(sent).encode())


@pytest.mark.parametrize("agent", AGENTS)
def test_a_recorded_session_begins_with_its_start_and_the_prompt_and_ends_with_the_turn_and_the_session(
    agent: str,
) -> None:
    events = recorded(agent)
    kinds = [each.kind for each in events if each.kind is not HookKind.OTHER]
    assert kinds[:3] == [HookKind.SESSION_START, HookKind.PROMPT, HookKind.BEFORE_TOOL]
    assert kinds[-2:] == [HookKind.TURN_END, HookKind.SESSION_END]
    assert [each.prompt.strip('"') for each in events if each.kind is HookKind.PROMPT] == ["do the work"]
    assert len({each.session_id for each in events}) == 1
    assert {each.folder for each in events} == {FOLDER}
    assert {each.agent for each in events} == {agent}


@pytest.mark.parametrize("agent", AGENTS)
def test_every_recorded_command_is_told_with_its_text_and_without_paths(agent: str) -> None:
    commands = [each for each in calls(recorded(agent)) if each.tool.lower() in ("bash", "run_shell_command")]
    assert {"rm notes.txt", IGNORED, COMMIT, "echo after >> README.md"} <= {each.what for each in commands}
    assert all(each.paths == () and not each.reads_only for each in commands)


@pytest.mark.parametrize(
    ("agent", "written"),
    [
        ("claude-code", ["new.py", "app.py", "one.txt", "two.txt"]),
        ("codex", ["patched.txt"]),
        ("gemini-cli", ["new.py", "app.py", "one.txt", "two.txt"]),
        ("opencode", ["new.py", "app.py", "two.txt", "one.txt"]),
    ],
)
def test_a_tool_for_files_says_which_files_it_will_write(agent: str, written: list[str]) -> None:
    found = [each for each in calls(recorded(agent)) if each.paths]
    assert [each.paths for each in found] == [(f"{FOLDER}/{name}",) for name in written]
    assert [each.what for each in found] == [f"{FOLDER}/{name}" for name in written]


@pytest.mark.parametrize("agent", ["claude-code", "gemini-cli", "opencode"])
def test_a_tool_that_reads_is_known_to_read_only(agent: str) -> None:
    reading = [each for each in calls(recorded(agent)) if each.reads_only]
    assert [each.what for each in reading] == [f"{FOLDER}/app.py", f"{FOLDER}/README.md"]


@pytest.mark.parametrize("agent", ["claude-code", "codex", "opencode"])
def test_each_call_that_ended_is_the_one_of_that_id_that_began(agent: str) -> None:
    for name in (agent, f"{agent}-parallel"):
        events = recorded(name)
        begun = {(each.parent_call_id, each.call_id): each for each in calls(events)}
        ended = [each for each in events if each.kind is HookKind.AFTER_TOOL]
        assert len(begun) == len(calls(events))
        assert all(begun[each.parent_call_id, each.call_id].what == each.what for each in ended)


def test_a_call_of_gemini_has_no_id_and_is_told_by_tool_and_arguments() -> None:
    for name in ("gemini-cli", "gemini-cli-parallel"):
        events = recorded(name)
        ended = [each for each in events if each.kind is HookKind.AFTER_TOOL]
        assert not any(each.call_id for each in events)
        assert Counter((each.tool, each.what) for each in calls(events)) == Counter(
            (each.tool, each.what) for each in ended
        )


@pytest.mark.parametrize("agent", ["claude-code", "gemini-cli", "opencode"])
def test_a_command_that_failed_is_told_as_failed(agent: str) -> None:
    failed = [each for each in recorded(agent) if each.is_failed]
    assert [(each.kind, each.what) for each in failed] == [(HookKind.AFTER_TOOL, "echo half > half.txt; false")]
    assert failed[0].result


@pytest.mark.parametrize("agent", ["gemini-cli", "opencode"])
def test_an_edit_that_does_not_fit_is_told_as_failed_with_the_reason(agent: str) -> None:
    failed = [each for each in recorded(f"{agent}-parallel") if each.is_failed]
    assert [each.paths for each in failed] == [(f"{FOLDER}/app.py",)]
    assert "Could not find" in failed[0].result


def test_what_a_subagent_does_is_kept_apart() -> None:
    for agent, parents in (("claude-code", 2), ("opencode", 2)):
        events = recorded(f"{agent}-parallel")
        of_subagents = [each for each in calls(events) if each.parent_call_id]
        assert len({each.parent_call_id for each in of_subagents}) == parents
        assert {each.session_id for each in of_subagents} == {events[0].session_id}


def test_only_what_a_person_wrote_is_a_prompt() -> None:
    for agent in AGENTS:
        prompts = [each.prompt for each in recorded(f"{agent}-parallel") if each.kind is HookKind.PROMPT]
        assert [each.strip('"') for each in prompts] == ["do the work"]


def test_a_patch_that_does_not_fit_and_a_command_that_goes_on_have_no_end_in_codex() -> None:
    events = recorded("codex-parallel")
    ended = {each.call_id for each in events if each.kind is HookKind.AFTER_TOOL}
    assert [each.call_id in ended for each in calls(events)] == [False, True, False]


def test_a_patch_of_codex_names_all_its_files() -> None:
    patch = "*** Begin Patch\n*** Add File: a b.txt\n+x\n*** Update File: c\n*** Move to: /d\n*** Delete File: ../e\n"
    call = event(
        "codex", hook_event_name="PreToolUse", cwd="/f/g", tool_name="apply_patch", tool_input={"command": patch}
    )
    assert call.paths == ("/f/g/a b.txt", "/f/g/c", "/d", "/f/e")


@pytest.mark.parametrize("agent", AGENTS)
def test_an_event_of_a_newer_agent_is_another_one(agent: str) -> None:
    for sent in ({"hook_event_name": "Tomorrow", "event": "tomorrow"}, {}, {"hook_event_name": 3, "event": []}):
        found = event(agent, session_id="s", sessionID="s", **sent)
        assert (found.kind, found.session_id) == (HookKind.OTHER, "s")
        assert adapter_for(agent).reply(found, HookAnswer()).exit_code == 0


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("sent", [b"", b"{", b"[]", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"a": "\xff"}'])
def test_what_is_no_json_object_is_refused(agent: str, sent: bytes) -> None:
    with pytest.raises(UsageError):
        adapter_for(agent).event(sent)


@pytest.mark.parametrize("agent", AGENTS)
def test_half_of_a_character_does_not_hide_an_event(agent: str) -> None:
    sent = {"hook_event_name": "SessionEnd", "event": "dispose", "session_id": "s", "sessionID": "s"}
    found = adapter_for(agent).event(json.dumps({**sent, "cut": "\ud83d"}).encode())
    assert found.session_id == "s"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = (
    *("hook_event_name", "event", "session_id", "sessionID", "cwd", "directory", "prompt", "tool_name", "tool"),
    *("tool_input", "args", "tool_response", "tool_use_id", "callID", "parentID", "exit", "duration", "duration_ms"),
    *("error", "output", "source", "agent_id"),
)
EVENTS = ("PreToolUse", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "BeforeTool", "AfterTool")
OWN_EVENTS = ("tool.execute.before", "tool.execute.after", "tool.failed", "chat.message", "dispose")
TOOLS = ("Write", "Bash", "apply_patch", "write_file", "run_shell_command", "write", "bash")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sent=st.dictionaries(st.sampled_from(FIELDS), values, max_size=len(FIELDS)),
    names=st.tuples(st.sampled_from(EVENTS), st.sampled_from(OWN_EVENTS), st.sampled_from(TOOLS)),
    agent=st.sampled_from(AGENTS),
)
def test_fields_of_any_type_are_taken_as_unknown_rather_than_refused(
    sent: dict[str, Any], names: tuple[str, str, str], agent: str
) -> None:
    known = {"hook_event_name": names[0], "event": names[1], "tool_name": names[2], "tool": names[2]}
    found = event(agent, **{**sent, **known})
    assert msgspec.json.decode(msgspec.json.encode(found), type=HookEvent) == found
    assert "\n" not in found.what
    assert all(each.startswith("/") or not found.folder.startswith("/") for each in found.paths)


def test_of_a_long_output_the_end_is_kept() -> None:
    response = {"stdout": "é" * 10_000 + "the end"}
    found = event("claude-code", hook_event_name="PostToolUse", tool_name="Bash", tool_response=response)
    assert len(found.result.encode()) <= RESULT_LIMIT_BYTES
    assert found.result.endswith("éthe end")


@pytest.mark.parametrize("agent", AGENTS)
def test_a_tool_is_blocked_with_the_reason_on_standard_error(agent: str) -> None:
    adapter = adapter_for(agent)
    before = HookEvent(HookKind.BEFORE_TOOL, agent, "s")
    reply = adapter.reply(before, HookAnswer(block="The disk is full."))
    assert (reply.exit_code, reply.stderr) == (2, "The disk is full.\n")
    # What has already happened cannot be blocked.
    after = adapter.reply(HookEvent(HookKind.AFTER_TOOL, agent, "s"), HookAnswer(block="The disk is full."))
    assert after.exit_code == 0


@pytest.mark.parametrize("agent", ["claude-code", "codex", "gemini-cli"])
def test_the_model_is_told_with_the_name_of_the_event(agent: str) -> None:
    adapter = adapter_for(agent)
    told = [each for each in recorded(agent) if each.kind in (HookKind.SESSION_START, HookKind.PROMPT)]
    for each in told:
        said = json.loads(adapter.reply(each, HookAnswer(tell="changed", show="look")).stdout)
        assert said["systemMessage"] == "look"
        assert said["hookSpecificOutput"]["additionalContext"] == "changed"
        kind = adapter.event(json.dumps({"hook_event_name": said["hookSpecificOutput"]["hookEventName"]}).encode()).kind
        assert kind is each.kind


def test_a_failed_call_of_claude_code_is_answered_as_the_event_that_it_was() -> None:
    failed = HookEvent(HookKind.AFTER_TOOL, "claude-code", "s", is_failed=True)
    said = json.loads(adapter_for("claude-code").reply(failed, HookAnswer(tell="x")).stdout)
    assert said["hookSpecificOutput"]["hookEventName"] == "PostToolUseFailure"


@pytest.mark.parametrize("agent", AGENTS)
def test_an_empty_answer_prints_nothing(agent: str) -> None:
    for each in recorded(agent):
        reply = adapter_for(agent).reply(each, HookAnswer())
        assert (reply.exit_code, reply.stdout, reply.stderr) == (0, "", "")


def test_an_agent_without_hooks_is_refused_with_a_near_name() -> None:
    with pytest.raises(UsageError, match="claude-code"):
        adapter_for("claude-cod")


@pytest.mark.parametrize(
    ("agent", "sent"),
    [
        ("claude-code", {"hook_event_name": "PreToolUse", "tool_name": "mcp__holdfast__rewind"}),
        ("claude-code", {"hook_event_name": "PreToolUse", "tool_name": "mcp__plugin_holdfast_holdfast__undo_rewind"}),
        ("codex", {"hook_event_name": "PreToolUse", "tool_name": "mcp__holdfast__restore"}),
        ("gemini-cli", {"hook_event_name": "BeforeTool", "tool_name": "mcp_holdfast_checkpoint"}),
        ("opencode", {"event": "tool.execute.before", "tool": "holdfast_timeline"}),
    ],
)
def test_a_tool_of_our_own_server_is_no_work_of_the_agent(agent: str, sent: dict[str, Any]) -> None:
    """Otherwise it would be refused, because a call is running: itself."""
    common = {"session_id": "s", "cwd": FOLDER}
    assert event(agent, **common, **sent).reads_only
    name = "tool_name" if "tool_name" in sent else "tool"
    for other in ("mcp__other__rewind", "mcp__holdfast__apply", "holdfast_restorer"):
        assert not event(agent, **common, **{**sent, name: other}).reads_only
