"""A model that says what a script tells it: a server on loopback for trying real coding agents without a model.

It speaks the interfaces of Anthropic (messages), OpenAI (chat completions, responses) and Gemini (generateContent).
Which turn comes next follows from the conversation in the request, so an agent may repeat a request or continue later.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from threading import Thread
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """What the model says in one turn: a text and, unless the name is empty, the call of a tool."""

    text: str
    tool: str = ""
    arguments: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    kind: str
    content: bytes


class ScriptedModel:
    """The script, and all requests that came."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = turns
        self.requests: list[tuple[str, Json]] = []

    def answer(self, path: str, body: Json) -> Answer:
        self.requests.append((path, body))
        if "count_tokens" in path or "countTokens" in path:
            return _document({"input_tokens": 1, "totalTokens": 1})
        if path.startswith("/v1/messages"):
            return self._messages(body)
        if "/chat/completions" in path:
            return self._chat(body)
        if "/responses" in path:
            return self._responses(body)
        if "enerateContent" in path:
            return self._gemini(path, body)
        return _document({"object": "list", "data": [], "models": []})

    def _turn(self, said: int, has_tools: bool) -> Turn:
        """The turn after so many; a request without tools asks for a title or the like."""
        return self._turns[min(said, len(self._turns) - 1)] if has_tools else Turn("scripted")

    def _messages(self, body: Json) -> Answer:
        said = _count(body.get("messages"), "assistant")
        turn = self._turn(said, bool(body.get("tools")))
        blocks: list[Json] = [{"type": "text", "text": turn.text}]
        if turn.tool:
            blocks.append({"type": "tool_use", "id": f"toolu_{said}", "name": turn.tool, "input": turn.arguments})
        usage = {"input_tokens": 1, "output_tokens": 1}
        reason = "tool_use" if turn.tool else "end_turn"
        message = {"id": f"msg_{said}", "type": "message", "role": "assistant", "model": body.get("model", "scripted")}
        ended = {"stop_reason": reason, "stop_sequence": None}
        if not body.get("stream"):
            return _document({**message, "content": blocks, **ended, "usage": usage})
        started = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        events: list[Json] = [{"type": "message_start", "message": started}]
        for index, block in enumerate(blocks):
            events += _block_events(index, block)
        events += [{"type": "message_delta", "delta": ended, "usage": usage}, {"type": "message_stop"}]
        return _stream(events)

    def _chat(self, body: Json) -> Answer:
        said = _count(body.get("messages"), "assistant")
        # An agent without tools reads what it is to do from the text.
        turn = self._turn(said, has_tools=True)
        message: Json = {"role": "assistant", "content": turn.text}
        if turn.tool:
            function = {"name": turn.tool, "arguments": json.dumps(turn.arguments)}
            message["tool_calls"] = [{"index": 0, "id": f"call_{said}", "type": "function", "function": function}]
        reason = "tool_calls" if turn.tool else "stop"
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        frame: Json = {"id": f"chat_{said}", "created": 1, "model": "scripted", "usage": usage}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return _document({**frame, "object": "chat.completion", "choices": [choice]})
        deltas: tuple[tuple[Json, str | None], ...] = ((message, None), ({}, reason))
        choices = [{"index": 0, "delta": delta, "finish_reason": ended} for delta, ended in deltas]
        pieces = [{**frame, "object": "chat.completion.chunk", "choices": [each]} for each in choices]
        return _stream(pieces, last="data: [DONE]\n\n")

    def _responses(self, body: Json) -> Answer:
        given = body.get("input")
        conversation: list[Json] = given if isinstance(given, list) else []
        said = _turns_of_responses(conversation)
        tools = [*(body.get("tools") or ()), *(each for item in conversation for each in item.get("tools", ()))]
        turn = self._turn(said, bool(tools))
        content = [{"type": "output_text", "text": turn.text, "annotations": []}]
        items: list[Json] = [{"type": "message", "role": "assistant", "id": f"msg_{said}", "content": content}]
        if turn.tool:
            arguments = json.dumps(turn.arguments)
            call = {"id": f"fc_{said}", "call_id": f"call_{said}", "name": turn.tool, "arguments": arguments}
            items.append({"type": "function_call", **call, **_namespace_of(turn.tool, tools)})
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        response = {"id": f"resp_{said}", "object": "response", "status": "completed", "output": items}
        events: list[Json] = [{"type": "response.created", "response": {"id": f"resp_{said}"}}]
        for index, item in enumerate(items):
            events.append({"type": "response.output_item.added", "output_index": index, "item": item})
            events.append({"type": "response.output_item.done", "output_index": index, "item": item})
        events.append({"type": "response.completed", "response": {**response, "usage": {**usage, **details}}})
        return _stream(events)

    def _gemini(self, path: str, body: Json) -> Answer:
        said = _count(body.get("contents"), "model")
        has_tools = any(each.get("functionDeclarations") for each in body.get("tools", []))
        turn = self._turn(said, has_tools)
        # Without tools it asks which model to use, and who speaks next.
        choice = {"model_choice": "flash", "next_speaker": "user", "reasoning": "-"}
        parts: list[Json] = [{"text": turn.text if has_tools else json.dumps(choice)}]
        if turn.tool:
            parts.append({"functionCall": {"id": f"call_{said}", "name": turn.tool, "args": turn.arguments}})
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        answer = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}
        return _stream([answer]) if "stream" in path else _document(answer)


def _count(messages: object, role: str) -> int:
    return sum(each.get("role") == role for each in messages) if isinstance(messages, list) else 0


def _turns_of_responses(items: Iterable[Json]) -> int:
    """How many turns of the model are among the items: its texts and calls, as long as nothing stands between them."""
    calls = ("function_call", "custom_tool_call", "local_shell_call", "reasoning")
    is_own = (item.get("type") in calls or item.get("role") == "assistant" for item in items)
    return sum(own for own, _ in groupby(is_own))


def _namespace_of(name: str, tools: Iterable[Json]) -> Json:
    """In which namespace a tool is offered, if it is in one."""
    names = [each["name"] for each in tools if any(tool.get("name") == name for tool in each.get("tools", ()))]
    return {"namespace": names[0]} if names else {}


def _block_events(index: int, block: Json) -> Iterator[Json]:
    if block["type"] == "text":
        empty: Json = {"type": "text", "text": ""}
        delta: Json = {"type": "text_delta", "text": block["text"]}
    else:
        empty = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    yield {"type": "content_block_start", "index": index, "content_block": empty}
    yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _document(content: Json) -> Answer:
    return Answer("application/json", json.dumps(content).encode())


def _stream(events: Iterable[Json], last: str = "") -> Answer:
    named = ((f"event: {each['type']}\n" if "type" in each else "", json.dumps(each)) for each in events)
    texts = "".join(f"{name}data: {data}\n\n" for name, data in named)
    return Answer("text/event-stream", (texts + last).encode())


@contextmanager
def serving(model: ScriptedModel) -> Iterator[str]:
    """The address of the model, which answers as long as the context lasts."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(model))
    thread = Thread(target=server.serve_forever, name="scripted-model", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler_for(model: ScriptedModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that the base class has
            """Say nothing."""

        def do_GET(self) -> None:
            self._send(model.answer(self.path, {}))

        def do_HEAD(self) -> None:
            self._send(Answer("text/plain", b""))

        def do_POST(self) -> None:
            content = self._content()
            if self.headers.get("Content-Encoding") == "gzip":
                content = gzip.decompress(content)
            body = json.loads(content or b"{}")
            self._send(model.answer(self.path, body if isinstance(body, dict) else {}))

        def _content(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)

        def _send(self, answer: Answer) -> None:
            self.send_response(200)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

    return Handler
