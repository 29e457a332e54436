"""Supervised processes: runs a command of which nothing outlives the call, and keeps the end of what it printed.

A small supervisor (``supervisor.py``) is the parent of the command and adopts every process the command leaves behind.
It ends them all when the command has ended, when it is told to stop, and when this process dies, however it dies.
Every process also carries a mark in its environment: should the supervisor itself be killed, the processes of the step
are found by that mark. What could then remain is one that left its parents and emptied its environment as well.
"""

from __future__ import annotations

import json
import marshal
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import SandboxError
from holdfast.process import supervisor
from holdfast.process.confinement import landlock_abi, rules_for
from holdfast.process.outlet import Outlet

if TYPE_CHECKING:
    import psutil

Answer = Callable[[dict[str, Any]], dict[str, Any]]

MARK_VARIABLE = "HOLDFAST_PROCESS_MARK"
REQUESTS_VARIABLE = "HOLDFAST_REQUESTS_FD"
DEFAULT_OUTPUT_LIMIT_BYTES = 64 * 1024
CHUNK_BYTES = 64 * 1024
MAX_CHUNKS_AFTER_END = 64
MAX_REQUEST_BYTES = 16 * 1024 * 1024
CANCEL_POLL_SECONDS = 0.05
ANSWER_SECONDS = 5.0
STOP_SECONDS = supervisor.GRACE_SECONDS + supervisor.GIVE_UP_SECONDS + 5.0
SWEEP_SECONDS = 10.0
TERMINAL_FULL_SECONDS = 0.01


@dataclass(frozen=True, kw_only=True)
class ProcessResult:
    """How a command ended."""

    exit_code: int | None
    """None if a signal ended it."""
    signal: str | None
    output: str
    """The end of what it printed, standard output and standard error together."""
    output_bytes: int
    """How much it printed in all."""
    timed_out: bool
    cancelled: bool


@dataclass(frozen=True, kw_only=True)
class Passthrough:
    """The input and output of whoever started us, handed through to a command while it runs."""

    stdin: int
    """A descriptor that the command's input is read from."""
    output: int
    """A descriptor that what it prints is handed on to. If that fails, the command's own output is closed: it then has
    a broken pipe, as it would have without us if the reader had gone away."""
    errors: int
    on_failed_write: Callable[[int, OSError], None] = lambda _descriptor, _error: None
    """Called with ``output`` or ``errors`` if no more can be written there."""
    is_terminal: bool = False
    """The command gets a terminal of its own, of which this one is the other side; it has one output then."""
    on_terminal: Callable[[int], None] = lambda _: None
    """Called with our side of that terminal, to set its size."""


def run_supervised(
    command: str | Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    timeout_seconds: float | None = None,
    output_limit_bytes: int = DEFAULT_OUTPUT_LIMIT_BYTES,
    on_output: Callable[[bytes], None] | None = None,
    cancelled: threading.Event | None = None,
    requests: Answer | None = None,
    mark: str | None = None,
    writable: Sequence[Path] | None = None,
    passthrough: Passthrough | None = None,
) -> ProcessResult:
    """Run a command (a string: through ``/bin/sh -c``) and return when it and all it started are gone.

    ``requests`` answers what the command asks, one JSON object a line, over the descriptor that the environment
    variable ``HOLDFAST_REQUESTS_FD`` names; the time an answer takes does not count against ``timeout_seconds``.
    ``mark`` is what ``end_leftovers`` later finds the command's processes by. With ``writable`` the command and all
    it starts can write only there, where the kernel can enforce it (``confinement.landlock_abi``). Without
    ``passthrough`` the command has no input.
    """
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    mark = mark or secrets.token_hex(16)
    tail = OutputTail(output_limit_bytes)
    job = _Job(argv, cwd, {**environment, MARK_VARIABLE: mark}, writable, passthrough)
    with (
        _outlets(passthrough) as outlets,
        _supervisor(job, mark, with_requests=requests is not None) as channels,
    ):
        watch = _Watch(channels, tail, timeout_seconds, on_output, cancelled, requests, passthrough, outlets)
        report = watch.until_over()
        if report is None or not report.get("adopts_orphans", True):
            end_leftovers(mark)
        watch.read_what_remains()
        _tell_failed_writes(passthrough, outlets)
    return _result(report, watch.stop_reason, tail, job)


@contextmanager
def _outlets(passthrough: Passthrough | None) -> Iterator[tuple[Outlet, ...]]:
    """For what the command prints and for what it prints as errors; none if nobody but us wants it."""
    with ExitStack() as opened:
        wanted = () if passthrough is None else (passthrough.output, passthrough.errors)
        yield tuple(opened.enter_context(Outlet(each)) for each in wanted)


def _tell_failed_writes(passthrough: Passthrough | None, outlets: tuple[Outlet, ...]) -> None:
    if passthrough is not None:
        for descriptor, outlet in zip((passthrough.output, passthrough.errors), outlets, strict=True):
            if outlet.failure is not None:
                passthrough.on_failed_write(descriptor, outlet.failure)


def mark_of(run_id: str, home: Path) -> str:
    """What the processes of a run are found by: another one in a copy of the home, the same one if it was moved."""
    place = home.stat()
    return f"{run_id}@{place.st_dev}:{place.st_ino}"


def end_leftovers(mark: str) -> int:
    """Kill every process that carries the mark, and their descendants; how many there were, once all are gone.

    For the processes of a step whose executor and supervisor were both killed, before anybody relies on its files.
    """
    import psutil

    deadline = time.monotonic() + SWEEP_SECONDS
    ended: set[int] = set()
    while marked := _marked_processes(mark):
        if time.monotonic() > deadline:
            raise _survivors_error([process.pid for process in marked])
        for process in marked:
            ended.add(process.pid)
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(marked, timeout=0.5)
    return len(ended)


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
        """As UTF-8; what is not, and the NUL that no database stores as text, become replacement characters."""
        self._trim()
        kept = bytes(self._kept)
        if self.total_bytes > len(kept):
            kept = _without_cut_character(kept)
        return kept.decode("utf-8", errors="replace").replace("\0", "\ufffd")

    def _trim(self) -> None:
        del self._kept[: max(0, len(self._kept) - self._limit_bytes)]


def _without_cut_character(data: bytes) -> bytes:
    """Drop what is left at the start of a character that began before it."""
    for index in range(min(3, len(data))):
        if data[index] & 0xC0 != 0x80:
            return data[index:]
    return data[3:]


@dataclass(frozen=True)
class _Job:
    """What the supervisor is to run."""

    argv: list[str]
    cwd: Path
    environment: Mapping[str, str]
    writable: Sequence[Path] | None
    passthrough: Passthrough | None

    @property
    def wants_terminal(self) -> bool:
        return self.passthrough is not None and self.passthrough.is_terminal


@dataclass(frozen=True)
class _Channels:
    """One running supervisor and what connects us to it."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    output: int
    requests: socket.socket | None
    requests_descriptor: int | None
    """The other end of ``requests``, as the command will find it."""
    errors: int | None = None
    """What it prints as errors, where that is apart from its output."""


@contextmanager
def _supervisor(job: _Job, mark: str, *, with_requests: bool) -> Iterator[_Channels]:
    """A supervisor that runs the command; closing the control socket, on whatever way out, ends all it started."""
    with ExitStack() as ours:
        try:
            channels = _start_supervisor(ours, job, mark, with_requests)
        except OSError as error:
            raise SandboxError(f"no process could be started: {error.strerror}") from error
        try:
            with suppress(ConnectionError):
                _send_parameters(channels, job)
            yield channels
        finally:
            channels.control.close()
            _wait_until_gone(channels.process, mark)


def _start_supervisor(ours: ExitStack, job: _Job, mark: str, with_requests: bool) -> _Channels:
    with ExitStack() as theirs:
        control, control_end = socket.socketpair()
        ours.enter_context(control)
        theirs.enter_context(control_end)
        inherited = [control_end.fileno()]
        requests = requests_descriptor = None
        if with_requests:
            requests, requests_end = socket.socketpair()
            ours.enter_context(requests)
            theirs.enter_context(requests_end)
            requests_descriptor = requests_end.fileno()
            inherited.append(requests_descriptor)
        output, output_end = _opened(ours, theirs, os.openpty if job.wants_terminal else os.pipe)
        errors, errors_end = None, output_end
        given_input = subprocess.DEVNULL
        if job.wants_terminal:
            given_input = output_end
        elif job.passthrough is not None:
            errors, errors_end = _opened(ours, theirs, os.pipe)
            given_input = job.passthrough.stdin
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__, str(control_end.fileno())],
            stdin=given_input,
            stdout=output_end,
            stderr=errors_end,
            pass_fds=inherited,
            env={**_to_start_python(), MARK_VARIABLE: mark},
            start_new_session=True,
        )
    if job.wants_terminal and job.passthrough is not None:
        job.passthrough.on_terminal(output)
    return _Channels(process, control, output, requests, requests_descriptor, errors)


def _to_start_python() -> dict[str, str]:
    """What the supervisor needs of our environment: how its libraries are found. The command might look at the rest."""
    return {name: value for name, value in os.environ.items() if name.startswith(("LD_", "DYLD_"))}


def _opened(ours: ExitStack, theirs: ExitStack, make: Callable[[], tuple[int, int]]) -> tuple[int, int]:
    """Two connected descriptors: ours, which never blocks, and theirs."""
    here, there = make()
    ours.callback(os.close, here)
    theirs.callback(os.close, there)
    os.set_blocking(here, False)
    return here, there


def _send_parameters(channels: _Channels, job: _Job) -> None:
    """As bytes: the supervisor, which ignores Python's own settings, may take another encoding for the system's."""
    environment = dict(job.environment)
    if channels.requests_descriptor is not None:
        environment[REQUESTS_VARIABLE] = str(channels.requests_descriptor)
    parameters = {
        "argv": [os.fsencode(word) for word in job.argv],
        "cwd": os.fsencode(job.cwd),
        "environment": {os.fsencode(name): os.fsencode(value) for name, value in environment.items()},
        "rules": _rules(job.writable),
        "terminal": job.wants_terminal,
    }
    document = marshal.dumps(parameters)
    channels.control.sendall(f"{len(document):0{supervisor.LENGTH_DIGITS}d}".encode() + document)


def _rules(writable: Sequence[Path] | None) -> tuple[bytes, tuple[tuple[bytes, int], ...]] | None:
    if writable is None or not landlock_abi():
        return None
    rules = rules_for(writable, landlock_abi())
    return rules.attributes, rules.beneath


def _wait_until_gone(process: subprocess.Popen[bytes], mark: str) -> None:
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        end_leftovers(mark)


class _StopReason(Enum):
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


class _Watch:
    """Serves a running command until its supervisor has reported, or is dead."""

    def __init__(
        self,
        channels: _Channels,
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
        self._outlets = dict(zip((channels.output, channels.errors), outlets, strict=False))
        self._tail = tail
        self._deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        self._on_output = on_output
        self._cancelled = cancelled
        self._answer = answer
        self._selector = selectors.DefaultSelector()
        self._report = bytearray()
        self._asked = bytearray()
        self._is_over = False
        self.stop_reason: _StopReason | None = None

    def until_over(self) -> dict[str, Any] | None:
        """The supervisor's report; None if it was killed before it could give one."""
        with self._selector as selector:
            selector.register(self._channels.control, selectors.EVENT_READ, self._read_report)
            for descriptor in (self._channels.output, self._channels.errors):
                if descriptor is not None:
                    self._listen_to(descriptor)
            if self._passthrough is not None and self._passthrough.is_terminal:
                selector.register(self._passthrough.stdin, selectors.EVENT_READ, self._read_keys)
            if self._channels.requests is not None:
                selector.register(self._channels.requests, selectors.EVENT_READ, self._read_requests)
            while not self._is_over:
                for key, _ in selector.select(self._patience_seconds()):
                    key.data()
                self._stop_if_due()
        return json.loads(self._report) if self._report.endswith(b"\n") else None

    def read_what_remains(self) -> None:
        """What the command printed last; an end of file is not waited for, a stranger may hold the pipe open."""
        for descriptor in (self._channels.output, self._channels.errors):
            for _ in range(MAX_CHUNKS_AFTER_END):
                self._wait_for_reader(descriptor)
                if descriptor is None or not self._read_chunk(descriptor):
                    break

    def _wait_for_reader(self, descriptor: int | None) -> None:
        """Until what was handed on is written; not for a slow reader of a command that was stopped."""
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
            self._stop(_StopReason.CANCELLED)
        elif is_late:
            self._stop(_StopReason.TIMEOUT)

    def _stop(self, reason: _StopReason) -> None:
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
            # No more is read than can be handed on; meanwhile the command waits, as it would without us.
            self._selector.unregister(descriptor)
            self._selector.register(outlet.descriptor, selectors.EVENT_WRITE, lambda: self._hand_on(descriptor, outlet))

    def _hand_on(self, descriptor: int, outlet: Outlet) -> None:
        """More of what waited, now that the reader took some or is gone."""
        outlet.write()
        if outlet.waiting:
            return
        self._selector.unregister(outlet.descriptor)
        if outlet.failure is not None:
            _hang_up(descriptor)
        else:
            self._listen_to(descriptor)

    def _read_keys(self) -> None:
        """What somebody types goes to the terminal of the command, which also makes signals of it."""
        assert self._passthrough is not None
        try:
            data = os.read(self._passthrough.stdin, CHUNK_BYTES)
        except OSError:
            data = b""  # how a terminal says that it is gone
        if not data:
            self._selector.unregister(self._passthrough.stdin)
        while data:
            try:
                data = data[os.write(self._channels.output, data) :]
            except BlockingIOError:
                self._read_chunk(self._channels.output)  # it waits for us to read before it reads
                time.sleep(TERMINAL_FULL_SECONDS)
            except OSError:
                return  # nobody has that terminal open any more

    def _read_chunk(self, descriptor: int) -> bytes | None:
        """None when there is nothing to read now, empty at the end of file."""
        try:
            data = os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""  # how a terminal says that nobody has it open any more
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
        # The rest of one that is too long is read and dropped: the command waits until all of it is, and for an answer.
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
    """Close our end of what the command prints into; the number stays taken until the end."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, descriptor, inheritable=False)
    os.close(nowhere)


def _parse_request(line: bytes) -> dict[str, Any] | str:
    """The request, or why it is none."""
    if len(line) > MAX_REQUEST_BYTES:
        return f"a request may have at most {MAX_REQUEST_BYTES >> 20} MiB"
    with suppress(ValueError):
        request = json.loads(line)
        if isinstance(request, dict):
            return request
    return "a request is one JSON object on one line"


def _result(
    report: dict[str, Any] | None, stop_reason: _StopReason | None, tail: OutputTail, job: _Job
) -> ProcessResult:
    if report is None:
        # The kernel and the sweep have killed whatever there was, so this is what happened to the command.
        report = {"wait_status": signal.SIGKILL.value, "stopped": True, "survivors": []}
    if "failed" in report:
        raise _start_error(report, job)
    if report["survivors"]:
        raise _survivors_error(report["survivors"])
    code = os.waitstatus_to_exitcode(report["wait_status"])
    return ProcessResult(
        exit_code=code if code >= 0 else None,
        signal=_signal_name(-code) if code < 0 else None,
        output=tail.text(),
        output_bytes=tail.total_bytes,
        timed_out=report["stopped"] and stop_reason is _StopReason.TIMEOUT,
        cancelled=report["stopped"] and stop_reason is _StopReason.CANCELLED,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _start_error(report: dict[str, Any], job: _Job) -> SandboxError:
    reason = os.strerror(report["errno"])
    if report["failed"] == "enter":
        return SandboxError(f"{job.cwd} cannot be entered: {reason}")
    if report["failed"] == "confine":
        return SandboxError(
            f"{job.argv[0]} was not started, because it could not be confined: {reason}",
            hint="Turn `sandbox.confine` off if the step may write wherever you can.",
        )
    return SandboxError(f"{job.argv[0]} cannot be started: {reason}")


def _survivors_error(pids: list[int]) -> SandboxError:
    listed = ", ".join(map(str, sorted(pids)))
    return SandboxError(
        f"processes of the step could not be ended: {listed}",
        hint="End them yourself before you go on; they may still write into the sandbox.",
    )


def _marked_processes(mark: str) -> list[psutil.Process]:
    import psutil

    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK_VARIABLE) == mark:
                found.update({each.pid: each for each in (process, *process.children(recursive=True))})
    found.pop(os.getpid(), None)
    return [process for process in found.values() if _is_alive(process)]


def _is_alive(process: psutil.Process) -> bool:
    import psutil

    with suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
