"""The server: reads requests in one thread, and does what they ask for in another, one after the other.

So a request can be cancelled, a ping answered, and a question to the person answered, while a tool works.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec

from holdfast.mcp.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Id,
    Malformed,
    Message,
    Notification,
    Refused,
    Request,
    Response,
    answer,
    error_answer,
    notification,
    read_line,
    request,
)
from holdfast.mcp.stdio import Stdio
from holdfast.mcp.tools import Call, Toolset
from holdfast.mcp.versions import ENVELOPE_VERSIONS, Client, client_from_handshake, client_of

NAME = "holdfast"
_SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
_CACHED_MS = 3_600_000
"""How long a client may rely on the list of tools: it does not change while the server lives."""

Send = Callable[[dict[str, Any] | None], None]
"""Takes the answer to a request; None if it gets none, because it was cancelled."""


class _Waiting(msgspec.Struct, frozen=True):
    """A request that was read and not answered yet."""

    request: Request
    send: Send
    cancelled: threading.Event


class Server:
    def __init__(self, stdio: Stdio, tools: Toolset) -> None:
        self._stdio, self._tools = stdio, tools
        self._info = {"name": NAME, "title": "Holdfast", "version": _version()}
        self._client = Client()
        self._waiting: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._open: dict[Id, _Waiting] = {}
        self._questions: dict[Id, queue.SimpleQueue[dict[str, Any] | None]] = {}
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._has_ended = False
        self._methods: dict[str, Callable[[dict[str, Any], Client], dict[str, Any]]] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "tools/list": self._list_tools,
        }

    def serve(self) -> None:
        """Until the client closes its end; what was asked for until then is done."""
        threading.Thread(target=self._read, name="holdfast-mcp-input", daemon=True).start()
        while (waiting := self._waiting.get()) is not None:
            said = None if waiting.cancelled.is_set() else self._answered(waiting)
            with self._lock:
                del self._open[waiting.request.id]
            waiting.send(None if waiting.cancelled.is_set() else said)

    # In the thread that reads

    def _read(self) -> None:
        try:
            for line in self._stdio.lines():
                found = line if isinstance(line, Malformed) else read_line(line)
                if isinstance(found, list):
                    self._take_batch(found)
                else:
                    self._take(found, self._send)
        finally:
            with self._lock:
                self._has_ended = True
                for each in self._questions.values():
                    each.put(None)
            self._waiting.put(None)

    def _take_batch(self, messages: list[Message]) -> None:
        if not self._client.reads_batches:
            refused = Malformed(None, INVALID_REQUEST, "Send one message a line; batches are not in this version.")
            self._stdio.send(error_answer(None, refused))
            return
        expected = sum(isinstance(each, Request | Malformed) for each in messages)
        answers = _BatchedAnswers(expected, self._stdio.send)
        for each in messages:
            self._take(each, answers.add)

    def _take(self, message: Message, send: Send) -> None:
        if isinstance(message, Malformed):
            send(error_answer(message.id, message))
        elif isinstance(message, Response):
            self._note_answer(message)
        elif isinstance(message, Notification):
            if message.method == "notifications/cancelled":
                self._cancel(message.params.get("requestId"))
        elif message.method == "ping":
            send(answer(message.id, {}))
        else:
            self._queue(message, send)

    def _queue(self, asked: Request, send: Send) -> None:
        waiting = _Waiting(asked, send, threading.Event())
        with self._lock:
            is_known = asked.id in self._open
            if not is_known:
                self._open[asked.id] = waiting
        if is_known:
            send(error_answer(asked.id, Refused(INVALID_REQUEST, "A request with this id is not answered yet.")))
        else:
            self._waiting.put(waiting)

    def _note_answer(self, response: Response) -> None:
        with self._lock:
            question = self._questions.get(response.id)
        if question is not None:
            question.put(response.result)

    def _cancel(self, request_id: object) -> None:
        with self._lock:
            waiting = self._open.get(request_id) if isinstance(request_id, int | str) else None
            if waiting is not None:
                waiting.cancelled.set()
                for each in self._questions.values():
                    each.put(None)  # only one request is worked on, and it looks whether it was cancelled

    def _send(self, said: dict[str, Any] | None) -> None:
        if said is not None:
            self._stdio.send(said)

    # In the main thread

    def _answered(self, waiting: _Waiting) -> dict[str, Any]:
        asked = waiting.request
        try:
            client = client_of(asked.params, self._client)
            result = self._result(waiting, client)
            if client.is_enveloped:
                stamp = {**result.get("_meta", {}), _SERVER_INFO_KEY: self._info}
                result = {"resultType": "complete", **result, "_meta": stamp}
            return answer(asked.id, result)
        except Refused as refused:
            return error_answer(asked.id, refused)
        except Exception as error:  # noqa: BLE001 - the last border: the client gets an answer, never a traceback
            return error_answer(asked.id, Refused(INTERNAL_ERROR, f"{type(error).__name__}: {error}"))

    def _result(self, waiting: _Waiting, client: Client) -> dict[str, Any]:
        asked = waiting.request
        if asked.method == "tools/call":
            return self._tools.call(_call(waiting, client, self))
        method = self._methods.get(asked.method)
        if method is None:
            raise Refused(METHOD_NOT_FOUND, f"There is no method {asked.method!r}.")
        return method(asked.params, client)

    def _initialize(self, params: dict[str, Any], _client: Client) -> dict[str, Any]:
        self._client = client_from_handshake(params)
        return {"protocolVersion": self._client.version, "serverInfo": self._info, **self._offer()}

    def _discover(self, _params: dict[str, Any], _client: Client) -> dict[str, Any]:
        return {"supportedVersions": list(ENVELOPE_VERSIONS), **self._offer(), **_cacheable()}

    def _offer(self) -> dict[str, Any]:
        return {"capabilities": {"tools": {}}, "instructions": self._tools.instructions}

    def _list_tools(self, params: dict[str, Any], client: Client) -> dict[str, Any]:
        if params.get("cursor") is not None:
            raise Refused(INVALID_PARAMS, "There are no more tools; the cursor is not one of ours.")
        return {"tools": self._tools.listed(client), **(_cacheable() if client.is_enveloped else {})}

    # For a tool that is called

    def ask(self, waiting: _Waiting, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """What the client answers to a request of ours; None if it refuses, has gone, or has cancelled its own."""
        number = f"holdfast-{next(self._numbers)}"
        answered: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        with self._lock:
            if self._has_ended or waiting.cancelled.is_set():
                return None
            self._questions[number] = answered
        try:
            self._stdio.send(request(number, method, params))
            result = answered.get()
        finally:
            with self._lock:
                del self._questions[number]
        return None if waiting.cancelled.is_set() else result

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._stdio.send(notification(method, params))


def _call(waiting: _Waiting, client: Client, server: Server) -> Call:
    """A call of a tool as its client sent it; what is not of the right form is refused."""
    params = waiting.request.params
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict | None):
        raise Refused(INVALID_PARAMS, "tools/call needs a name, which is text; arguments are an object.")
    state, answers = params.get("requestState"), params.get("inputResponses")
    token = params["_meta"].get("progressToken") if isinstance(params.get("_meta"), dict) else None
    is_token = isinstance(token, int | str) and not isinstance(token, bool)
    return Call(
        name=name,
        arguments=arguments or {},
        client=client,
        state=state if isinstance(state, str) else None,
        answers=answers if isinstance(answers, dict) else {},
        progress_token=token if is_token else None,
        ask=lambda method, asked: server.ask(waiting, method, asked),
        notify=server.notify,
        is_cancelled=waiting.cancelled.is_set,
    )


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(NAME)
    except PackageNotFoundError:
        return "(run from source)"


def _cacheable() -> dict[str, Any]:
    return {"ttlMs": _CACHED_MS, "cacheScope": "private"}


class _BatchedAnswers:
    """The answers to a batch, sent together when all are there; None is of a request that was cancelled."""

    def __init__(self, expected: int, send: Callable[[Any], None]) -> None:
        self._missing, self._send = expected, send
        self._answers: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def add(self, each: dict[str, Any] | None) -> None:
        with self._lock:
            self._missing -= 1
            self._answers += [each] if each is not None else []
            is_whole = not self._missing
        if is_whole and self._answers:
            self._send(self._answers)
