"""Whether codex trusts our hooks: it does not run those that it does not trust, and says nothing about it.

codex itself is asked, over the interface that its own screens use (``codex app-server``). It keeps its answer in
``config.toml``: for each hook a checksum of what was trusted.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from holdfast.agents.installation.json_hooks import JsonHooks
from holdfast.agents.installation.json_text import BrokenText
from holdfast.agents.installation.program import is_ours

_PATIENCE_SECONDS = 20
_STATE = ("hooks", "state")


class TrustedHook(msgspec.Struct, frozen=True, rename="camel"):
    """One of our hooks, as codex sees it."""

    key: str
    current_hash: str
    trust_status: str
    """``trusted``, ``managed``, ``untrusted``, or ``modified`` since it was trusted."""
    enabled: bool = True

    @property
    def runs(self) -> bool:
        return self.enabled and self.trust_status in ("trusted", "managed")


def hooks_of_codex(program: str, folder: Path, environment: Mapping[str, str]) -> list[TrustedHook] | None:
    """Our hooks that codex would look at in this folder; None if it does not say."""
    found = _asked(program, folder, environment)
    if found is None:
        return None
    try:
        listed = [
            each for of_folder in found["data"] for each in of_folder["hooks"] if is_ours(each.get("command") or "")
        ]
        return msgspec.convert(listed, type=list[TrustedHook])
    except (KeyError, TypeError, AttributeError, msgspec.ValidationError):
        return None


def _asked(program: str, folder: Path, environment: Mapping[str, str]) -> Any:
    client = {"clientInfo": {"name": "holdfast", "title": "Holdfast", "version": "0"}}
    questions = (
        {"id": 1, "method": "initialize", "params": client},
        {"method": "initialized"},
        {"id": 2, "method": "hooks/list", "params": {"cwds": [str(folder)]}},
    )
    try:
        with subprocess.Popen(
            [program, "app-server"],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # it may be a script that starts the real program
        ) as process:
            return _conversation(process, questions)
    except (OSError, ValueError):
        return None


def _conversation(process: subprocess.Popen[str], questions: Sequence[Mapping[str, Any]]) -> Any:
    """The answer to the last question. codex ends when its standard input does, so that stays open until then."""
    from threading import Timer

    assert process.stdin is not None
    assert process.stdout is not None
    killer = Timer(_PATIENCE_SECONDS, _kill, [process])
    killer.start()
    try:
        process.stdin.write("".join(f"{json.dumps(each)}\n" for each in questions))
        process.stdin.flush()
        for line in process.stdout:
            answer = json.loads(line)
            if answer.get("id") == 2:
                return answer.get("result")
        return None
    finally:
        killer.cancel()
        _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """With all that it started: otherwise that would keep its output open, and the reader waiting."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def keys_of_ours(hooks_file: Path, text: str) -> list[str]:
    """By what codex knows our hooks in that file, which says this: the file, the event, and the place below it."""
    places = JsonHooks(with_comments=False).places(text)
    return [f"{hooks_file}:{_snake(event)}:{group}:{place}" for event, group, place in places]


def _snake(event: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()


def with_trust(text: str, hooks: Sequence[TrustedHook]) -> str:
    """The ``config.toml`` with trust in these hooks as they are now."""
    import tomlkit

    document = _document(text)
    table = document
    for name in _STATE:
        if name not in table:
            table[name] = tomlkit.table(is_super_table=True)
        table = table[name]
        if not isinstance(table, dict):
            raise BrokenText(f"{name} must be a table", text, 0)
    for each in hooks:
        if each.key not in table:
            table[each.key] = tomlkit.table()
        table[each.key]["trusted_hash"] = each.current_hash
    return tomlkit.dumps(document)


def without_trust(text: str, keys: Sequence[str], before: str | None) -> str:
    """The ``config.toml`` without what is said about these hooks, unless it was there before."""
    import tomlkit

    document = _document(text)
    kept = _state(_document(before or ""))
    state = _state(document)
    for key in keys:
        if key in state and key not in kept:
            del state[key]
    if not state and not kept and "hooks" in document and "state" in document["hooks"]:
        del document["hooks"]["state"]
        if not document["hooks"]:
            del document["hooks"]
    return tomlkit.dumps(document)


def _state(document: Any) -> Any:
    hooks = document.get(_STATE[0], {})
    return hooks.get(_STATE[1], {}) if isinstance(hooks, dict) else {}


def _document(text: str) -> Any:
    import tomlkit
    from tomlkit.exceptions import ParseError

    try:
        return tomlkit.parse(text)
    except ParseError as error:
        lines = text.splitlines(keepends=True)[: max(error.line - 1, 0)]
        raise BrokenText("it is not valid TOML", text, sum(map(len, lines))) from error
