"""The real process of a folder, and an agent's recorded hooks said to it while the work is really done."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.guard.wire import HOOK, STATUS, STOP, Answer, Request, ask, sockets_folder
from tests.integration.cli.project import wait_until
from tests.support.repositories import settings_of_a_person
from tests.support.sessions import Place

RECORDED = Path(__file__).parents[1] / "data" / "hooks"
_SECONDS = 60.0
_WITH_TIMES = """
import sys
from holdfast.guard import process
process._IDLE_SECONDS, process._SETTLE_SECONDS = map(float, sys.argv[1:3])
sys.exit(process.main(sys.argv[3:]))
"""


class Guarded:
    """A folder with its guard. ``idle``, ``settle``: after how many seconds it ends, or records what was written."""

    def __init__(self, place: Place, *, idle: float = 600, settle: float = 0.05) -> None:
        self.place, self._times = place, (str(idle), str(settle))
        self.processes: list[subprocess.Popen[bytes]] = []
        self.environment = {**os.environ, "HOLDFAST_HOME": str(place.home)}

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-P", "-c", _WITH_TIMES, *self._times, str(self.place.root.resolve()), *more]
        process = subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL)
        self.processes.append(process)
        wait_until(lambda: process.poll() is not None or self.is_there())
        return process

    def is_there(self) -> bool:
        return sockets_folder(self.place.home).is_dir() and self.ask(Request(STATUS)) is not None

    def ask(self, request: Request) -> Answer | None:
        return ask(self.place.home, self.place.root.resolve(), request, limit_seconds=_SECONDS)

    def status(self) -> dict[str, Any]:
        answer = self.ask(Request(STATUS))
        assert answer is not None
        found: dict[str, Any] = json.loads(answer.stdout)
        return found

    def say(self, agent: str, payload: object) -> Answer:
        answer = self.ask(Request(HOOK, agent, json.dumps(payload).encode()))
        assert answer is not None
        return answer

    def stop(self) -> None:
        self.ask(Request(STOP))
        for process in self.processes:
            process.wait(_SECONDS)

    def kill(self) -> None:
        self.processes[-1].send_signal(signal.SIGKILL)
        self.processes[-1].wait(_SECONDS)

    def end(self) -> None:
        """End them as a person would: what a killed process did is not measured."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(_SECONDS)


class Claude:
    """What Claude Code says of one session."""

    def __init__(self, guarded: Guarded, session_id: str = "11111111-1111-1111-1111-111111111111") -> None:
        self.guarded = guarded
        self._common = {"session_id": session_id, "cwd": str(guarded.place.root), "transcript_path": ""}
        self._calls = 0

    def say(self, event: str, **more: object) -> Answer:
        return self.guarded.say("claude-code", {**self._common, "hook_event_name": event, **more})

    def before(self, command: str = "true") -> tuple[Answer, dict[str, object]]:
        self._calls += 1
        call = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": f"toolu_{self._calls}"}
        return self.say("PreToolUse", **call), call

    def after(self, call: dict[str, object]) -> Answer:
        return self.say("PostToolUse", **call, tool_response={"stdout": "done"})

    def run(self, command: str) -> None:
        """A call that is really made."""
        answer, call = self.before(command)
        assert answer.exit_code == 0, answer
        subprocess.run(["sh", "-c", command], cwd=self.guarded.place.root, check=True)
        self.after(call)


class Replay:
    """The recorded hooks of an agent, each call with its effects."""

    def __init__(self, guarded: Guarded, name: str) -> None:
        self.guarded, self.root = guarded, guarded.place.root
        text = (RECORDED / f"{name}.jsonl").read_text()
        text = text.replace("@CWD@", str(self.root)).replace("@HOME@", str(guarded.place.folder / "person"))
        text = re.sub(r"sleep \d+; ", "", text)  # the order is what counts
        self.events = [json.loads(line) for line in text.splitlines()]
        self.answers: list[tuple[str, Answer]] = []
        self.trees: list[dict[bytes, object]] = []
        """The folder at the beginning, and after each call, or calls at the same time, that changed it."""

    def run(self, events: Sequence[dict[str, Any]] | None = None) -> None:
        open_calls = 0
        self._note()
        for each in self.events if events is None else events:
            answer = self.guarded.say(each["agent"], each["payload"])
            self.answers.append((each["event"], answer))
            if _begins(each["event"]):
                open_calls += not _is_end_untold(each["payload"])
                if answer.exit_code == 0:
                    self._do(each["payload"])
            elif _ends(each["event"]):
                open_calls -= 1
            if open_calls == 0:
                self._note()
        self.guarded.status()  # what nobody waits for is done before it
        self._note()

    def _note(self) -> None:
        tree = self.guarded.place.tree()
        if not self.trees or tree != self.trees[-1]:
            self.trees.append(tree)

    def _do(self, payload: dict[str, Any]) -> None:
        words = payload.get("tool_input") or payload.get("args") or {}
        command, file = words.get("command"), words.get("file_path") or words.get("filePath")
        if command is not None and "*** Begin Patch" in command:
            _patch(self.root, command)
        elif command is not None:
            environment = {**os.environ, **settings_of_a_person(self.guarded.place.folder)}
            subprocess.run(["sh", "-c", command], cwd=self.root, env=environment, capture_output=True, check=False)
        elif "content" in words:
            (self.root / file).write_text(words["content"])
        elif "old_string" in words or "oldString" in words:
            old, new = words.get("old_string") or words["oldString"], words.get("new_string") or words["newString"]
            (self.root / file).write_text((self.root / file).read_text().replace(old, new))


def _begins(event: str) -> bool:
    return event in ("PreToolUse", "BeforeTool", "tool.execute.before")


def _ends(event: str) -> bool:
    return event in ("PostToolUse", "PostToolUseFailure", "AfterTool", "tool.execute.after")


def _is_end_untold(payload: dict[str, Any]) -> bool:
    words = payload.get("tool_input") or {}
    return payload.get("tool_name") == "Bash" and str(words.get("command", "")).startswith("apply_patch")


def _patch(root: Path, patch: str) -> None:
    """As much of that format as the recordings have."""
    file = root
    for line in patch.splitlines():
        if line.startswith(("*** Add File: ", "*** Update File: ")):
            file = root / line.partition(": ")[2]
        elif line.startswith("-"):
            file.write_text(file.read_text().replace(line[1:] + "\n", ""))
        elif line.startswith("+"):
            with file.open("a") as opened:
                opened.write(line[1:] + "\n")


@contextmanager
def guarded(place: Place, *more: str, **times: float) -> Iterator[Guarded]:
    made = Guarded(place, **times)
    try:
        made.start(*more)
        yield made
    finally:
        made.end()
