"""Reading what an agent sent: JSON of which nothing but the fields that are needed is believed, and those tolerantly.

An agent may be newer than Holdfast. A field that is missing, or of another type, is empty; only what is no JSON object
at all is refused.
"""

from __future__ import annotations

import json
import os.path
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from holdfast.agents.hooks.event import RESULT_LIMIT_BYTES
from holdfast.errors import UsageError

Fields = Mapping[str, Any]
_OURS = re.compile(r"(\A|_)holdfast_+(checkpoint|timeline|show|diff|restore|rewind|undo_rewind)\Z")
_LONGEST_LINE = 500
_TELLING = ("command", "cmd", "pattern", "query", "url", "path", "description", "prompt", "name")
"""Arguments that say in a line what a call is about, the best first."""


def is_ours(tool: str) -> bool:
    """Whether it is a tool of ``holdfast mcp``: what that does is recorded, and is no work of the agent."""
    return _OURS.search(tool) is not None


def decoded(payload: bytes, agent: str) -> Fields:
    """The object that was sent."""
    try:
        found = _value(payload)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{agent} sent something through its hook that is not JSON: {error}.",
            hint="`holdfast agents status` shows how its hooks are set up.",
        ) from error
    if not isinstance(found, dict):
        raise UsageError(
            f"{agent} sent something through its hook that is not a JSON object.",
            hint="`holdfast agents status` shows how its hooks are set up.",
        )
    return found


def _value(payload: bytes) -> Any:
    try:
        return msgspec.json.decode(payload)
    except ValueError:
        # An agent that cuts a text may send half of a character, which is no valid text. Its hook counts all the same.
        found = json.loads(payload)
        return msgspec.json.decode(json.dumps(found, ensure_ascii=False).encode(errors="replace"))


def text(fields: Fields, *names: str) -> str:
    """The first of these fields that is a text which is not empty."""
    return next((found for name in names if isinstance(found := fields.get(name), str) and found), "")


def fields(within: Fields, name: str) -> Fields:
    found = within.get(name)
    return found if isinstance(found, dict) else {}


def milliseconds(within: Fields, name: str) -> int | None:
    found = within.get(name)
    is_number = isinstance(found, int | float) and not isinstance(found, bool) and 0 <= found < 2**53
    return int(found) if is_number and found is not None else None


def one_line(said: str) -> str:
    """The text as one line that can be read at a glance."""
    line = " ".join(said.split())
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


def ending(said: str) -> str:
    """The end of a long text."""
    content = said.encode(errors="surrogatepass")
    return said if len(content) <= RESULT_LIMIT_BYTES else content[-RESULT_LIMIT_BYTES:].decode(errors="ignore")


def absolute(paths: Iterable[str], folder: str) -> tuple[str, ...]:
    """The paths as they are meant in that folder, without those that are empty."""
    return tuple(os.path.normpath(os.path.join(folder, each)) for each in paths if each)


def about(arguments: Fields, paths: Iterable[str] = ()) -> str:
    """What a call does, in one line: its paths, or else the argument that says most."""
    known = ", ".join(paths) or text(arguments, *_TELLING)
    if not known and arguments:
        known = msgspec.json.encode(arguments).decode()
    return one_line(known)
