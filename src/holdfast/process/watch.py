"""Watches a running command: keeps and hands on what it prints, answers its requests, and stops it in time."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from holdfast.process import supervisor
from holdfast.process.passthrough import Outlet, Passthrough

Answer = Callable[[dict[str, Any]], dict[str, Any]]

CHUNK_BYTES = 64 * 1024
MAX_CHUNKS_AFTER_END = 64
MAX_REQUEST_BYTES = 16 * 1024 * 1024
CANCEL_POLL_SECONDS = 0.05
ANSWER_SECONDS = 5.0
STOP_SECONDS = supervisor.GRACE_SECONDS + supervisor.GIVE_UP_SECONDS + 5.0
TERMINAL_FULL_SECONDS = 0.01


@dataclass(frozen=True)
class Channels:
    """One running supervisor and what connects us to it."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    output: int
    requests: socket.socket | None
    requests_descriptor: int | None
    """The number of the command's end of ``requests``."""
    errors: int | None = None
    """What it prints as errors, if that does not go into ``output``."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The last line of the supervisor: how the command ended, or why it did not start."""

    wait_status: int | None = None
    stopped: bool = False
    adopts_orphans: bool = True
    survivors: Sequence[int] = ()
    """Processes that could not be ended."""
    failed: int | None = None
    """The stage at which starting the command failed, one of the supervisor's."""
    errno: int = 0


class OutputTail:
    """The last bytes of a stream, in bounded memory."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._kept = bytearray()
        self.total_bytes = 0

    def add(self, data: bytes) -> None:
        self.total_bytes += len(data)
        self._kept += data
        if len(self._kept) > self._limit_bytes + 4 * CHUNK_BYTES:
            self._trim()

    def text(self) -> str:
        """As UTF-8; invalid bytes, and the NUL that databases do not store in texts, become replacement characters."""
        self._trim()
        kept = bytes(self._kept)
        if self.total_bytes > len(kept):
            kept = _without_cut_character(kept)
        return kept.decode("utf-8", errors="replace").replace("\0", "\ufffd")

    def _trim(self) -> None:
        del self._kept[: max(0, len(self._kept) - self._limit_bytes)]


def _without_cut_character(data: bytes) -> bytes:
    """Drop the rest of a character whose beginning was cut off."""
    for index in range(min(3, len(data))):
        if data[index] & 0xC0 != 0x80:
            return data[index:]
    return data[3:]


class StopReason(Enum):
    """Why a command was stopped before it ended by itself."""

    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


class Watch:
    """Serves a running command until its supervisor has sent its report, or is dead."""

    def __init__(
        self,
        channels: Channels,
        tail: OutputTail,
        timeout_seconds: float | None,
        on_output: Callable[[bytes], None] | None,
        cancelled: threading.Event | None,
        answer: Answer | None,
        passthrough: Passthrough | None,
        outlets: tuple[Outlet, ...],
    ) -> None:
        self._channels = channels
        self._passthrough = passthrough
        self._printed = [each for each in (channels.output, channels.errors) if each is not None]
        self._outlets = dict(zip(self._printed, outlets, strict=False))
        self._tail = tail
        self._deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        self._on_output = on_output
        self._cancelled = cancelled
        self._answer = answer
        self._selector = selectors.DefaultSelector()
        self._report = bytearray()
        self._asked = bytearray()
        self._is_over = False
        self.stop_reason: StopReason | None = None

    def until_over(self) -> Report | None:
        """The supervisor's report; None if it was killed before it could give one."""
        with self._selector as selector:
            selector.register(self._channels.control, selectors.EVENT_READ, self._read_report)
            for descriptor in self._printed:
                self._listen_to(descriptor)
            if self._passthrough is not None and self._passthrough.is_terminal:
                selector.register(self._passthrough.stdin, selectors.EVENT_READ, self._read_keys)
            if self._channels.requests is not None:
                selector.register(self._channels.requests, selectors.EVENT_READ, self._read_requests)
            while not self._is_over:
                for key, _ in selector.select(self._patience_seconds()):
                    key.data()
                self._stop_if_due()
        return Report(**json.loads(self._report)) if self._report.endswith(b"\n") else None

    def read_what_remains(self) -> None:
        """Read what the command printed last, not up to the end of file: other programs may hold the pipe open."""
        for descriptor in self._printed:
            for _ in range(MAX_CHUNKS_AFTER_END):
                self._wait_for_reader(descriptor)
                if not self._read_chunk(descriptor):
                    break

    def _wait_for_reader(self, descriptor: int) -> None:
        """Wait until all output is handed on; a stopped command does not wait for a slow reader."""
        outlet = self._outlets.get(descriptor)
        while outlet is not None and outlet.waiting and self.stop_reason is None:
            if outlet.is_ready(CANCEL_POLL_SECONDS):
                outlet.write()
            elif self._cancelled is not None and self._cancelled.is_set():
                return

    def _patience_seconds(self) -> float | None:
        waits = []
        if self._deadline is not None:
            waits.append(max(0.0, self._deadline - time.monotonic()))
        if self._cancelled is not None and self.stop_reason is None:
            waits.append(CANCEL_POLL_SECONDS)
        return min(waits, default=None)

    def _stop_if_due(self) -> None:
        is_late = self._deadline is not None and time.monotonic() >= self._deadline
        if self.stop_reason is not None:
            if is_late:
                self._channels.process.kill()
        elif self._cancelled is not None and self._cancelled.is_set():
            self._stop(StopReason.CANCELLED)
        elif is_late:
            self._stop(StopReason.TIMEOUT)

    def _stop(self, reason: StopReason) -> None:
        self.stop_reason = reason
        self._deadline = time.monotonic() + STOP_SECONDS
        with suppress(ConnectionError):
            self._channels.control.send(b"s")

    def _read_report(self) -> None:
        try:
            data = self._channels.control.recv(CHUNK_BYTES)
        except ConnectionError:
            data = b""
        self._report += data
        self._is_over = not data or data.endswith(b"\n")

    def _listen_to(self, descriptor: int) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, lambda: self._read_printed(descriptor))

    def _read_printed(self, descriptor: int) -> None:
        if self._read_chunk(descriptor) == b"":
            self._selector.unregister(descriptor)
            return
        outlet = self._outlets.get(descriptor)
        if outlet is None:
            return
        if outlet.failure is not None:
            self._selector.unregister(descriptor)
            _hang_up(descriptor)
        elif outlet.waiting:
            # We read no more than we can hand on; meanwhile the command waits, as it would without us.
            self._selector.unregister(descriptor)
            self._selector.register(outlet.descriptor, selectors.EVENT_WRITE, lambda: self._hand_on(descriptor, outlet))

    def _hand_on(self, descriptor: int, outlet: Outlet) -> None:
        """Write more of what waits, now that the reader has taken some or is gone."""
        outlet.write()
        if outlet.waiting:
            return
        self._selector.unregister(outlet.descriptor)
        if outlet.failure is not None:
            _hang_up(descriptor)
        else:
            self._listen_to(descriptor)

    def _read_keys(self) -> None:
        """Hand keys to the terminal of the command, which also turns some of them into signals."""
        assert self._passthrough is not None
        try:
            data = os.read(self._passthrough.stdin, CHUNK_BYTES)
        except OSError:
            data = b""  # the terminal is gone
        if not data:
            self._selector.unregister(self._passthrough.stdin)
        while data:
            try:
                data = data[os.write(self._channels.output, data) :]
            except BlockingIOError:
                self._read_chunk(self._channels.output)  # the terminal takes no keys before we read its output
                time.sleep(TERMINAL_FULL_SECONDS)
            except OSError:
                return  # no process has that terminal open

    def _read_chunk(self, descriptor: int) -> bytes | None:
        """Read and hand on what is there; None if there is nothing now, empty at the end of file."""
        try:
            data = os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""  # no process has the terminal open
        if data:
            self._tail.add(data)
            if descriptor in self._outlets:
                self._outlets[descriptor].give(data)
            if self._on_output is not None:
                self._on_output(data)
        return data

    def _read_requests(self) -> None:
        assert self._channels.requests is not None
        try:
            data = self._channels.requests.recv(CHUNK_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            self._selector.unregister(self._channels.requests)
        *ends, rest = data.split(b"\n")
        for end in ends:
            request = bytes(self._asked + end)
            self._asked.clear()
            self._answer_request(request)
        # The rest of a request that is too long is read and dropped: the command must finish it to read our answer.
        if len(self._asked) <= MAX_REQUEST_BYTES:
            self._asked += rest

    def _answer_request(self, line: bytes) -> None:
        assert self._channels.requests is not None
        assert self._answer is not None
        started = time.monotonic()
        request = _parse_request(line)
        answer = {"error": request} if isinstance(request, str) else self._answer(request)
        self._channels.requests.settimeout(ANSWER_SECONDS)
        with suppress(ConnectionError, TimeoutError):
            self._channels.requests.sendall(json.dumps(answer).encode() + b"\n")
        if self._deadline is not None and self.stop_reason is None:
            self._deadline += time.monotonic() - started


def _hang_up(descriptor: int) -> None:
    """Close our end of the command's output, but keep its number in use."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, descriptor, inheritable=False)
    os.close(nowhere)


def _parse_request(line: bytes) -> dict[str, Any] | str:
    """The request, or what is wrong with it."""
    if len(line) > MAX_REQUEST_BYTES:
        return f"a request may have at most {MAX_REQUEST_BYTES >> 20} MiB"
    with suppress(ValueError):
        request = json.loads(line)
        if isinstance(request, dict):
            return request
    return "a request is one JSON object on one line"
