from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.mcp.messages import encoded
from holdfast.mcp.stdio import Stdio
from tests.support.mcp_clients import ENVELOPE, McpClient

HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
TOOLS = {"checkpoint", "timeline", "show", "diff", "restore", "rewind", "undo_rewind"}


@pytest.mark.parametrize("version", HANDSHAKES)
def test_every_version_with_a_handshake_is_spoken(client: McpClient, version: str) -> None:
    said = client.handshake(version)
    assert said["protocolVersion"] == version
    assert said["capabilities"] == {"tools": {}}
    assert "rewind" in said["instructions"]
    assert {each["name"] for each in client.request("tools/list")["result"]["tools"]} == TOOLS


@pytest.mark.parametrize("version", ["1999-01-01", "2026-07-28", "next"])
def test_a_version_without_a_handshake_is_answered_with_the_newest_that_has_one(
    client: McpClient, version: str
) -> None:
    assert client.handshake(version)["protocolVersion"] == "2025-11-25"


def test_a_request_can_bring_its_version_with_it(client: McpClient) -> None:
    found = client.request("server/discover", {"_meta": ENVELOPE})["result"]
    assert found["supportedVersions"] == ["2026-07-28"]
    assert found["resultType"] == "complete"
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "holdfast"
    listed = client.request("tools/list", {"_meta": ENVELOPE})["result"]
    assert {each["name"] for each in listed["tools"]} == TOOLS
    assert listed["ttlMs"] > 0
    assert listed["cacheScope"] == "private"


def test_an_envelope_of_an_unknown_version_is_refused_with_those_that_are_known(client: McpClient) -> None:
    meta = {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2031-01-01"}
    error = client.request("tools/list", {"_meta": meta})["error"]
    assert error["code"] == -32022
    assert error["data"] == {"supported": ["2026-07-28"], "requested": "2031-01-01"}


def test_older_clients_are_not_sent_what_came_later(client: McpClient) -> None:
    client.handshake("2024-11-05")
    tool = client.request("tools/list")["result"]["tools"][0]
    assert not {"annotations", "title", "outputSchema"} & set(tool)
    assert "structuredContent" not in client.call("timeline")


def test_a_client_is_told_which_tools_only_read(client: McpClient) -> None:
    client.handshake()
    tools = {each["name"]: each["annotations"] for each in client.request("tools/list")["result"]["tools"]}
    assert {name for name, hints in tools.items() if hints["readOnlyHint"]} == {"timeline", "show", "diff"}
    assert {name for name, hints in tools.items() if hints["destructiveHint"]} == {"restore", "rewind", "undo_rewind"}


def test_schemas_are_in_one_piece_and_of_objects(client: McpClient) -> None:
    client.handshake()
    for tool in client.request("tools/list")["result"]["tools"]:
        for schema in (tool["inputSchema"], tool["outputSchema"]):
            assert schema["type"] == "object"
            assert "$ref" not in json.dumps(schema)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"nonsense", -32700),
        (b'{"jsonrpc": "2.0", "id": 1', -32700),
        (b"\xff\xfe", -32700),
        (b"[" * 100_000, -32700),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "' + b"x" * (5 << 20), -32700),
        (b"[]", -32600),
        (b"42", -32600),
        (b'{"id": 7, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 99999999999999999999999, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 7, "method": 5}', -32600),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": [1]}', -32602),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "nothing/like/it"}', -32601),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "initialize"}', -32602),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"cursor": "x"}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"_meta": 3}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": 3}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "apply"}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "show", "arguments": []}}', -32602),
    ],
)
def test_what_is_wrong_is_answered_with_its_code(client: McpClient, line: bytes, code: int) -> None:
    client.send_line(line)
    assert client.receive()["error"]["code"] == code
    assert client.request("ping")["result"] == {}


def test_text_that_is_not_unicode_is_answered_to_its_request(client: McpClient) -> None:
    client.handshake()
    wanted = {"name": "show", "arguments": {"id": "\ud800"}}
    assert client.request("tools/call", wanted)["error"]["code"] == -32700


def test_wrong_arguments_are_an_error_up_to_2025_06_18_and_later_a_result_for_the_model(client: McpClient) -> None:
    client.handshake("2025-06-18")
    asked = {"name": "timeline", "arguments": {"limit": "many"}}
    assert client.request("tools/call", asked)["error"]["code"] == -32602
    client.handshake("2025-11-25")
    assert "limit" in client.refused("timeline", limit="many")


def test_a_number_sent_as_text_is_understood(client: McpClient) -> None:
    client.handshake()
    assert client.done("timeline", limit="5")["moments"] == []


def test_notifications_and_answers_to_nothing_are_ignored(client: McpClient) -> None:
    for message in (
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/of/no/kind", "params": {"x": 1}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "unknown"}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": [1]}},
        {"jsonrpc": "2.0", "id": "holdfast-1", "result": {"action": "accept"}},
        {"jsonrpc": "2.0", "id": 99, "error": {"code": 1, "message": "no"}},
    ):
        client.send(message)
    assert client.request("ping")["result"] == {}
    assert client.told == []


def test_a_batch_is_answered_with_a_batch_in_the_version_that_has_them(client: McpClient) -> None:
    client.handshake("2025-03-26")
    client.send(
        [
            {"jsonrpc": "2.0", "id": "a", "method": "ping"},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": "b", "method": "tools/list"},
            {"jsonrpc": "2.0", "id": "c", "method": "no/such"},
            3,
        ]
    )
    answers = {each["id"]: each for each in client.receive()}
    assert set(answers) == {"a", "b", "c", None}
    assert answers["a"]["result"] == {}
    assert answers["c"]["error"]["code"] == -32601


def test_a_batch_is_refused_in_a_version_that_has_none(client: McpClient) -> None:
    client.handshake("2025-11-25")
    client.send([{"jsonrpc": "2.0", "id": 1, "method": "ping"}])
    assert client.receive()["error"]["code"] == -32600


def test_an_id_that_is_in_use_is_refused(client: McpClient, project: Path) -> None:
    client.handshake("2025-06-18", {"elicitation": {}})
    taken = client.done("checkpoint")["moment"]["id"]
    (project / "new.txt").write_text("new\n")
    asked = {"name": "rewind", "arguments": {"to": taken, "dry_run": False}}
    client.send({"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": asked})
    question = client.receive()
    assert question["method"] == "elicitation/create"
    client.send({"jsonrpc": "2.0", "id": "same", "method": "tools/list"})
    assert client.receive()["error"]["code"] == -32600
    client.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
    assert client.receive()["id"] == "same"
    client.send({"jsonrpc": "2.0", "id": "same", "method": "tools/list"})
    assert client.receive()["result"]["tools"]


def test_a_byte_that_is_no_text_is_sent_escaped() -> None:
    sent = encoded({"caf\udce9": ["\udcff", 1, None]})
    assert json.loads(sent) == {"caf\\xe9": ["\\xff", 1, None]}


def test_lines_are_read_in_pieces_and_the_last_needs_no_end() -> None:
    reading, writing = os.pipe()
    for piece in (b'{"a"', b": 1}\n\n{}", b"\n", b"last"):
        os.write(writing, piece)
    os.close(writing)
    assert list(Stdio(reading, writing).lines()) == [b'{"a": 1}', b"{}", b"last"]
    os.close(reading)
    assert list(Stdio(reading, writing).lines()) == []


_IDS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.floats(allow_nan=False))
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=10)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
_METHODS = st.sampled_from(
    [
        "initialize",
        "server/discover",
        "ping",
        "tools/list",
        "tools/call",
        "resources/list",
        "notifications/cancelled",
        "",
    ]
)
_CALLS = st.fixed_dictionaries(
    {"name": st.one_of(st.sampled_from(sorted(TOOLS)), _JSON), "arguments": _JSON},
    optional={"_meta": st.one_of(st.just(ENVELOPE), _JSON), "requestState": _JSON, "inputResponses": _JSON},
)
_MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0"])},
    optional={"id": _IDS, "method": st.one_of(_METHODS, _JSON), "params": st.one_of(_CALLS, _JSON), "result": _JSON},
)


@pytest.mark.unmeasured
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=st.lists(_MESSAGES, max_size=4), as_batch=st.booleans())
def test_whatever_comes_is_answered_in_the_protocol(
    client: McpClient, project: Path, messages: list[Any], as_batch: bool
) -> None:
    before = sorted(project.parent.iterdir())
    for each in [messages] if as_batch else messages:
        client.send(each)
    number = client.begin("ping")
    client.send({"jsonrpc": "2.0", "id": f"last {number}", "method": "tools/list"})
    found: list[Any] = []
    while not any(each.get("id") == f"last {number}" for each in found):
        line = client.receive()
        found += line if isinstance(line, list) else [line]
    for each in found:
        assert each["jsonrpc"] == "2.0"
        assert "Traceback" not in json.dumps(each)
        assert each.get("error", {}).get("code") != -32603, each
    assert {each.name for each in project.parent.iterdir()} <= {each.name for each in before} | {"home"}
