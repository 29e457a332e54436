"""What a tool is, and the tools of a server: listed as a client's version knows it, checked and called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from holdfast.errors import HoldfastError, described
from holdfast.mcp.messages import INVALID_PARAMS, Refused
from holdfast.mcp.results import schema_of
from holdfast.mcp.versions import Client
from holdfast.names import valid_text


class Call(msgspec.Struct, frozen=True):
    """One call of a tool, and what the tool can do meanwhile."""

    name: str
    arguments: dict[str, Any]
    client: Client
    state: str | None
    """What an earlier answer to this call told the client to send along."""
    answers: dict[str, Any]
    """What the person answered to the questions of that answer."""
    progress_token: int | str | None
    ask: Callable[[str, dict[str, Any]], dict[str, Any] | None]
    notify: Callable[[str, dict[str, Any]], None]
    is_cancelled: Callable[[], bool]


class InputRequired(Exception):
    """The client has to ask the person, and then to call the tool again with the answer and this state."""

    def __init__(self, requests: dict[str, Any], state: str) -> None:
        super().__init__()
        self.requests, self.state = requests, state


class Readable(Protocol):
    """A result of a tool, which is a struct."""

    def text(self) -> str: ...


class Tool(msgspec.Struct, frozen=True):
    name: str
    title: str
    description: str
    arguments: type[msgspec.Struct]
    result: type[msgspec.Struct]
    work: Callable[[Any, Call], Readable]
    reads_only: bool = False
    is_destructive: bool = False
    is_always_loaded: bool = False
    """Clients that load tools only when they are looked for show this one from the start."""

    def listed(self, client: Client) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "inputSchema": schema_of(self.arguments),
        }
        if client.knows_annotations:
            shown["annotations"] = {
                "title": self.title,
                "readOnlyHint": self.reads_only,
                "destructiveHint": self.is_destructive,
                "openWorldHint": False,
            }
        if client.knows_structure:
            shown |= {"title": self.title, "outputSchema": schema_of(self.result)}
        if self.is_always_loaded:
            shown["_meta"] = {"anthropic/alwaysLoad": True}
        return shown


class Toolset:
    def __init__(self, tools: Sequence[Tool], instructions: str) -> None:
        self._tools = {each.name: each for each in tools}
        self.instructions = instructions

    def listed(self, client: Client) -> list[dict[str, Any]]:
        return [each.listed(client) for each in self._tools.values()]

    def call(self, call: Call) -> dict[str, Any]:
        """The result of a call; what went wrong in a tool is a result that the model reads."""
        tool = self._tools.get(call.name)
        if tool is None:
            raise Refused(INVALID_PARAMS, f"There is no tool {call.name!r}; there are {', '.join(self._tools)}.")
        try:
            # Models send numbers as text.
            arguments = msgspec.convert(call.arguments, tool.arguments, strict=False)
        except msgspec.ValidationError as error:
            if not call.client.wants_wrong_arguments_as_results:
                raise Refused(INVALID_PARAMS, f"{call.name}: {error}.") from error
            return _failed(f"The arguments of {call.name} are wrong: {error}.")
        try:
            return _succeeded(tool.work(arguments, call), call.client)
        except InputRequired as asked:
            return {"resultType": "input_required", "inputRequests": asked.requests, "requestState": asked.state}
        except HoldfastError as error:
            return _failed(" ".join(filter(None, (error.message, error.hint))))
        except OSError as error:
            return _failed(f"{described(error)}.")


def _succeeded(result: Readable, client: Client) -> dict[str, Any]:
    said: dict[str, Any] = {"content": [{"type": "text", "text": valid_text(result.text())}]}
    if client.knows_structure:
        said["structuredContent"] = msgspec.to_builtins(result)
    return said


def _failed(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": valid_text(text)}], "isError": True}
