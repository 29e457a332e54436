"""The scripted model that real agents are tried with: the same turn in the form of each interface."""

from __future__ import annotations

import gzip
import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tools.scripted_model import ScriptedModel, Turn, serving

TURNS = (Turn("I look.", "bash", {"command": "ls"}), Turn("Done."))
TOOLS = [{"name": "bash", "functionDeclarations": [{"name": "bash"}]}]


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(TURNS)


@pytest.fixture
def address(model: ScriptedModel) -> Iterator[str]:
    with serving(model) as address:
        yield address


def ask(address: str, path: str, body: dict[str, Any] | None = None, **headers: str) -> str:
    data = None if body is None else json.dumps(body).encode()
    if headers.get("Content-Encoding") == "gzip":
        data = gzip.compress(data or b"")
    with urllib.request.urlopen(urllib.request.Request(f"{address}{path}", data, headers)) as answer:
        return str(answer.read().decode())


def events(text: str) -> list[dict[str, Any]]:
    lines = (line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {"))
    return [json.loads(line) for line in lines]


def test_messages(address: str) -> None:
    first = {"tools": TOOLS, "messages": [{"role": "user"}]}
    answer = json.loads(ask(address, "/v1/messages?beta=true", first))
    assert [block["type"] for block in answer["content"]] == ["text", "tool_use"]
    assert (answer["content"][1]["name"], answer["content"][1]["input"]) == ("bash", {"command": "ls"})
    assert answer["stop_reason"] == "tool_use"
    second = {**first, "messages": [{"role": "user"}, {"role": "assistant"}, {"role": "user"}], "stream": True}
    kinds = [each["type"] for each in events(ask(address, "/v1/messages", second))]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert "Done." in ask(address, "/v1/messages", second)
    assert "scripted" in ask(address, "/v1/messages", {"messages": []})
    assert json.loads(ask(address, "/v1/messages/count_tokens", first))["input_tokens"] == 1


def test_chat_completions(address: str) -> None:
    body = {"messages": [{"role": "user"}]}
    answer = json.loads(ask(address, "/v1/chat/completions", body))
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"command": "ls"}
    streamed = ask(address, "/v1/chat/completions", {"messages": [{"role": "assistant"}], "stream": True})
    assert events(streamed)[0]["choices"][0]["delta"]["content"] == "Done."
    assert streamed.endswith("data: [DONE]\n\n")


def test_responses(address: str) -> None:
    found = events(ask(address, "/v1/responses", {"tools": TOOLS, "input": [{"role": "user"}]}))
    assert found[-1]["response"]["output"][1]["name"] == "bash"
    items = [{"role": "user"}, {"role": "assistant"}, {"type": "function_call"}, {"type": "function_call_output"}]
    found = events(ask(address, "/v1/responses", {"tools": TOOLS, "input": items}))
    assert found[-1]["response"]["output"][0]["content"][0]["text"] == "Done."


def test_gemini(address: str) -> None:
    body = {"tools": TOOLS, "contents": [{"role": "user"}]}
    (answer,) = events(ask(address, "/v1beta/models/x:streamGenerateContent?alt=sse", body))
    assert answer["candidates"][0]["content"]["parts"][1]["functionCall"]["args"] == {"command": "ls"}
    later = {**body, "contents": [{"role": "model"}]}
    assert "Done." in ask(address, "/v1beta/models/x:generateContent", later)
    assert "next_speaker" in ask(address, "/v1beta/models/x:generateContent", {"contents": []})


def test_all_requests_are_kept_also_compressed_ones(address: str, model: ScriptedModel) -> None:
    ask(address, "/v1/models")
    ask(address, "/v1/responses", {"input": "x"}, **{"Content-Encoding": "gzip"})
    assert [(path, body) for path, body in model.requests] == [("/v1/models", {}), ("/v1/responses", {"input": "x"})]
