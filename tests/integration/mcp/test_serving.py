"""``holdfast mcp`` as a client starts it: a process, with pipes for input and output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.mcp_clients import McpClient, served_by_process

HOLDFAST = Path(sys.executable).with_name("holdfast")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("one\n")
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "HOLDFAST_HOME": str(tmp_path / "home")}


@pytest.fixture
def client(project: Path, environment: dict[str, str]) -> Iterator[McpClient]:
    with served_by_process([HOLDFAST, "mcp"], project, environment) as (client, _):
        yield client


def test_a_client_goes_back_over_pipes(client: McpClient, project: Path) -> None:
    client.handshake("2025-06-18")
    taken = client.done("checkpoint", label="good")["moment"]["id"]
    (project / "notes.txt").write_text("two\n")
    token = client.done("rewind", to="good")["confirmation_token"]
    assert client.done("rewind", to=taken, dry_run=False, confirmation_token=token)["is_done"]
    assert (project / "notes.txt").read_text() == "one\n"


def test_another_folder_is_served_with_an_option(tmp_path: Path, project: Path, environment: dict[str, str]) -> None:
    elsewhere = tmp_path / "elsewhere" / "below"
    elsewhere.mkdir(parents=True)
    arguments = [HOLDFAST, "mcp", "--project", project]
    with served_by_process(arguments, elsewhere, environment) as (client, _):
        client.handshake()
        assert client.done("timeline")["folder"] == str(project)


def test_what_was_asked_before_the_client_hung_up_is_answered(project: Path, environment: dict[str, str]) -> None:
    asked = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "checkpoint"}},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "timeline"}},
    ]
    done = subprocess.run(
        [HOLDFAST, "mcp"],
        cwd=project,
        env=environment,
        input="\n".join(map(json.dumps, asked)).encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == b""
    answers = {each["id"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert set(answers) == {1, 2, 3}
    assert len(answers[3]["result"]["structuredContent"]["moments"]) == 2


def test_it_ends_when_the_client_hangs_up_while_the_person_is_asked(project: Path, environment: dict[str, str]) -> None:
    with served_by_process([HOLDFAST, "mcp"], project, environment) as (client, process):
        client.handshake("2025-11-25", {"elicitation": {}})
        taken = client.done("checkpoint")["moment"]["id"]
        (project / "notes.txt").write_text("two\n")
        client.begin("tools/call", {"name": "rewind", "arguments": {"to": taken, "dry_run": False}})
        assert client.receive()["method"] == "elicitation/create"
        client.hang_up()
        assert process.wait(timeout=60) == 0
    assert (project / "notes.txt").read_text() == "two\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_without_a_traceback(project: Path, environment: dict[str, str], number: int) -> None:
    with served_by_process([HOLDFAST, "mcp"], project, environment) as (client, process):
        client.handshake()
        client.done("checkpoint")
        process.send_signal(number)
        process.wait(timeout=60)
    assert b"Traceback" not in (project.parent / "stderr").read_bytes()


def test_a_folder_that_is_gone_is_a_sentence(client: McpClient, project: Path) -> None:
    client.handshake()
    client.done("checkpoint")
    project.rename(project.with_name("moved"))
    assert client.refused("checkpoint")
    assert client.request("ping")["result"] == {}


def test_a_format_for_programs_is_refused(project: Path, environment: dict[str, str]) -> None:
    command = [HOLDFAST, "mcp", "--format", "json"]
    done = subprocess.run(
        command, cwd=project, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert json.loads(done.stdout)["data"]["error"]["type"] == "UsageError"


_NAMES = st.sampled_from(
    ["", ".", "..", "../outside.txt", "/", "/etc/passwd", "notes.txt", "sub/x", "good", "link/outside.txt", "\0",
     "\ud800", "project:notes.txt", "folder:../outside.txt", ".git/config", "a" * 300]
)  # fmt: skip
_TEXTS = st.one_of(_NAMES, st.text(max_size=8))
_ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "label": _TEXTS,
        "limit": st.integers(),
        "id": _TEXTS,
        "from": st.one_of(st.just("good"), _TEXTS),
        "to": st.one_of(st.just("good"), _TEXTS),
        "path": _TEXTS,
        "paths": st.lists(_TEXTS, max_size=3),
        "dry_run": st.booleans(),
        "confirmation_token": _TEXTS,
    },
)
_BY_TOOL = {
    "checkpoint": ("label",),
    "timeline": ("limit",),
    "show": ("id",),
    "diff": ("from", "to", "path"),
    "restore": ("from", "paths"),
    "rewind": ("to", "dry_run", "confirmation_token"),
    "undo_rewind": (),
}


@st.composite
def _calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Mostly with arguments that the tool has."""
    tool = draw(st.sampled_from(sorted(_BY_TOOL)))
    arguments = draw(_ARGUMENTS)
    if draw(st.integers(0, 4)):
        arguments = {name: value for name, value in arguments.items() if name in _BY_TOOL[tool]}
    return tool, arguments


@pytest.mark.unmeasured
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(_calls(), min_size=1, max_size=6))
def test_no_call_leaves_the_folder_or_ends_in_a_traceback(
    client: McpClient, project: Path, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    outside = project.parent / "outside.txt"
    if not outside.exists():
        outside.write_text("secret of the person\n")
        (project / "link").symlink_to(project.parent)
        client.handshake()
        client.done("checkpoint", label="good")
    (project / "notes.txt").write_text("two\n")
    for tool, arguments in calls:
        answer = client.request("tools/call", {"name": tool, "arguments": arguments})
        said = json.dumps(answer)
        assert "Traceback" not in said
        assert "secret" not in said
        assert answer.get("error", {}).get("code", -32602) in (-32602, -32700), answer
    assert outside.read_text() == "secret of the person\n"
    assert {each.name for each in project.parent.iterdir()} == {"project", "home", "outside.txt", "stderr"}
    assert (project.parent / "stderr").read_bytes() == b""
