"""A client of ``holdfast mcp``, over pipes to a server in a thread, or to a process."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.app import Holdfast
from holdfast.mcp.offer import toolset
from holdfast.mcp.server import Server
from holdfast.mcp.stdio import Stdio

Json = dict[str, Any]
Answering = Callable[[Json], Json | None]
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class McpClient:
    """Sends requests and keeps what comes in between: ``told`` has all notifications, ``asked`` all requests."""

    def __init__(self, outgoing: int, incoming: int) -> None:
        self._outgoing, self._incoming = outgoing, os.fdopen(incoming, "rb")
        self._last = 0
        self.told: list[Json] = []
        self.asked: list[Json] = []
        self.answering: Answering = lambda _: None
        """What the person answers to a question; None leaves it open."""

    def send_line(self, line: bytes) -> None:
        data = line + b"\n"
        while data:
            data = data[os.write(self._outgoing, data) :]

    def send(self, message: Any) -> None:
        self.send_line(json.dumps(message).encode())

    def receive(self) -> Any:
        """The next line that comes, or None at the end."""
        line = self._incoming.readline()
        return json.loads(line) if line else None

    def begin(self, method: str, params: Json | None = None) -> int:
        self._last += 1
        message: Json = {"jsonrpc": "2.0", "id": self._last, "method": method}
        self.send(message if params is None else {**message, "params": params})
        return self._last

    def request(self, method: str, params: Json | None = None) -> Json:
        """The answer to a request: its result, or its error."""
        number = self.begin(method, params)
        while True:
            message = self.receive()
            assert message is not None, "the server has ended"
            if message.get("id") == number and "method" not in message:
                return dict(message)
            self._take(message)

    def _take(self, message: Json) -> None:
        if "id" not in message:
            self.told.append(message)
            return
        self.asked.append(message)
        answer = self.answering(message)
        if answer is not None:
            self.send({"jsonrpc": "2.0", "id": message["id"], "result": answer})

    def handshake(self, version: str = "2025-11-25", capabilities: Json | None = None) -> Json:
        about = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": {"name": "tests"}}
        answer = self.request("initialize", about)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return dict(answer["result"])

    def call(self, tool: str, meta: Json | None = None, **arguments: Any) -> Json:
        """The result of a tool; ``from_`` stands for ``from``."""
        given = {name.rstrip("_"): value for name, value in arguments.items()}
        params: Json = {"name": tool, "arguments": given}
        answer = self.request("tools/call", params if meta is None else {**params, "_meta": meta})
        assert "error" not in answer, answer
        return dict(answer["result"])

    def done(self, tool: str, **arguments: Any) -> Json:
        """What a tool returns if nothing goes wrong."""
        result = self.call(tool, **arguments)
        assert not result.get("isError"), result
        return dict(result["structuredContent"])

    def refused(self, tool: str, **arguments: Any) -> str:
        """What a tool says if something goes wrong."""
        result = self.call(tool, **arguments)
        assert result.get("isError"), result
        return str(result["content"][0]["text"])

    def hang_up(self) -> None:
        if self._outgoing >= 0:
            os.close(self._outgoing)
            self._outgoing = -1

    def close(self) -> None:
        self.hang_up()
        self._incoming.close()


@contextmanager
def served_in_thread(project: Path, home: Path) -> Iterator[McpClient]:
    """The server in this process."""
    to_server, from_client = os.pipe()
    to_client, from_server = os.pipe()
    server = Server(Stdio(to_server, from_server), toolset(lambda: Holdfast.open(project, home=home, environment={})))
    thread = threading.Thread(target=server.serve)
    thread.start()
    client = McpClient(from_client, to_client)
    try:
        yield client
    finally:
        client.hang_up()
        thread.join()
        client.close()
        os.close(to_server)
        os.close(from_server)


@contextmanager
def served_by_process(
    arguments: Sequence[str | Path], cwd: Path, environment: Mapping[str, str]
) -> Iterator[tuple[McpClient, subprocess.Popen[bytes]]]:
    """The command in a process of its own; its standard error goes to ``stderr`` beside the folder."""
    with (
        open(cwd.parent / "stderr", "wb") as stderr,
        subprocess.Popen(
            arguments, cwd=cwd, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        client = McpClient(os.dup(process.stdin.fileno()), os.dup(process.stdout.fileno()))
        process.stdin.close()
        try:
            yield client, process
        finally:
            client.close()
            process.wait(timeout=60)
