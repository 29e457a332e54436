"""An agent that works in the user's own folder, and says so through its hooks."""

from __future__ import annotations

import json
import subprocess
import sys

from behave import step, use_step_matcher

from holdfast.guard.location import client_words

use_step_matcher("re")

_SESSION = "01234567-89ab-cdef-0123-456789abcdef"


@step(r'an agent works in "([^"]+)"')
def work(context, place):
    """Each line is a prompt after ``>``, or a command after ``$``."""
    if context.mine is None:
        context.mine = context.scratch.mine()
    context.add_cleanup(lambda: context.scratch.run("guard", "stop", place=place))
    calls = getattr(context, "calls", 0)
    for line in context.text.splitlines():
        kind, _, text = line.strip().partition(" ")
        if kind == ">":
            _say(context, place, "UserPromptSubmit", prompt=text)
            continue
        calls += 1
        call = {"tool_name": "Bash", "tool_input": {"command": text}, "tool_use_id": f"call {calls}"}
        _say(context, place, "PreToolUse", **call)
        context.scratch.shell(text, place)
        _say(context, place, "PostToolUse", tool_response={"stdout": ""}, **call)
    context.calls = calls


def _say(context, place, event, **more):
    folder = context.scratch.root / place
    said = {"session_id": _SESSION, "cwd": str(folder), "transcript_path": "", "hook_event_name": event, **more}
    ended = subprocess.run(
        [*client_words(), "--agent", "claude-code", "--python", sys.executable, "--on-failure", "block"],
        cwd=folder,
        env=context.scratch.environment,
        input=json.dumps(said),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended
