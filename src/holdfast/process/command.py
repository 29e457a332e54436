"""Runs a supervised command: none of its processes outlives the call, and the end of what it printed is kept.

A small supervisor (``supervisor.py``) is the parent of the command and adopts every process the command leaves behind.
It ends them all when the command has ended, when it is told to stop, and when this process dies, however it dies.
Every process also carries a mark in its environment: if the supervisor itself is killed, the processes of the step are
found by that mark. Only a process that left its parents and also emptied its environment could then remain.
"""

from __future__ import annotations

import marshal
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import SandboxError, ViewError
from holdfast.process import supervisor
from holdfast.process.confinement import landlock_abi, rules_for
from holdfast.process.leftovers import MARK_VARIABLE, end_leftovers, survivors_error
from holdfast.process.mount import Mount
from holdfast.process.passthrough import Outlet, Passthrough
from holdfast.process.watch import STOP_SECONDS, Answer, Channels, OutputTail, Report, StopReason, Watch

REQUESTS_VARIABLE = "HOLDFAST_REQUESTS_FD"
DEFAULT_OUTPUT_LIMIT_BYTES = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class ProcessResult:
    """How a command ended."""

    exit_code: int | None
    """None if a signal ended it."""
    signal: str | None
    signal_number: int | None
    output: str
    """The end of what it printed, standard output and standard error together."""
    output_bytes: int
    """How much it printed in all."""
    timed_out: bool
    cancelled: bool


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
    mounts: Sequence[Mount] = (),
    passthrough: Passthrough | None = None,
) -> ProcessResult:
    """Run a command (a string: through ``/bin/sh -c``) and return when it and all it started are gone.

    ``requests`` answers requests of the command, one JSON object a line, over the descriptor that the environment
    variable ``HOLDFAST_REQUESTS_FD`` names; the time for an answer does not count against ``timeout_seconds``.
    After a crash ``end_leftovers`` finds the command's processes by ``mark``. With ``writable`` the command and all it
    starts can write only there, if the kernel can enforce it (``confinement.landlock_abi``). Only the command and what
    it starts see the ``mounts``; ``cwd`` and the program are looked up after mounting. Without ``passthrough`` the
    command has no input.
    """
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    mark = mark or os.urandom(16).hex()
    tail = OutputTail(output_limit_bytes)
    job = _Job(argv, cwd, {**environment, MARK_VARIABLE: mark}, writable, mounts, passthrough)
    with (
        _outlets(passthrough) as outlets,
        _supervisor(job, mark, with_requests=requests is not None) as channels,
    ):
        watch = Watch(channels, tail, timeout_seconds, on_output, cancelled, requests, passthrough, outlets)
        report = watch.until_over()
        if report is None or not report.adopts_orphans:
            end_leftovers(mark)
        watch.read_what_remains()
        _tell_failed_writes(passthrough, outlets)
    return _result(report, watch.stop_reason, tail, job)


@contextmanager
def _outlets(passthrough: Passthrough | None) -> Iterator[tuple[Outlet, ...]]:
    """One for the output of the command and one for its errors; none without a passthrough."""
    with ExitStack() as opened:
        wanted = () if passthrough is None else (passthrough.output, passthrough.errors)
        yield tuple(opened.enter_context(Outlet(each)) for each in wanted)


def _tell_failed_writes(passthrough: Passthrough | None, outlets: tuple[Outlet, ...]) -> None:
    if passthrough is not None:
        for descriptor, outlet in zip((passthrough.output, passthrough.errors), outlets, strict=True):
            if outlet.failure is not None:
                passthrough.on_failed_write(descriptor, outlet.failure)


@dataclass(frozen=True)
class _Job:
    """What the supervisor is to run."""

    argv: list[str]
    cwd: Path
    environment: Mapping[str, str]
    writable: Sequence[Path] | None
    mounts: Sequence[Mount]
    passthrough: Passthrough | None

    @property
    def wants_terminal(self) -> bool:
        return self.passthrough is not None and self.passthrough.is_terminal


@contextmanager
def _supervisor(job: _Job, mark: str, *, with_requests: bool) -> Iterator[Channels]:
    """Start a supervisor that runs the command; leaving closes the control socket, which ends all it started."""
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


def _start_supervisor(ours: ExitStack, job: _Job, mark: str, with_requests: bool) -> Channels:
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
    return Channels(process, control, output, requests, requests_descriptor, errors)


def _to_start_python() -> dict[str, str]:
    """How the supervisor finds its libraries. It gets no other variables, because the command could read them."""
    return {name: value for name, value in os.environ.items() if name.startswith(("LD_", "DYLD_"))}


def _opened(ours: ExitStack, theirs: ExitStack, make: Callable[[], tuple[int, int]]) -> tuple[int, int]:
    """Two connected descriptors: ours, which does not block, and theirs."""
    here, there = make()
    ours.callback(os.close, here)
    theirs.callback(os.close, there)
    os.set_blocking(here, False)
    return here, there


def _send_parameters(channels: Channels, job: _Job) -> None:
    """Send all texts as bytes: the supervisor ignores Python's settings and may use another encoding."""
    environment = dict(job.environment)
    if channels.requests_descriptor is not None:
        environment[REQUESTS_VARIABLE] = str(channels.requests_descriptor)
    parameters = {
        "argv": [os.fsencode(word) for word in job.argv],
        "cwd": os.fsencode(job.cwd),
        "environment": {os.fsencode(name): os.fsencode(value) for name, value in environment.items()},
        "mounts": [(os.fsencode(each.source), os.fsencode(each.target), each.read_only) for each in job.mounts],
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


def _result(report: Report | None, stop_reason: StopReason | None, tail: OutputTail, job: _Job) -> ProcessResult:
    if report is None:
        # The supervisor is dead: the kernel and ``end_leftovers`` have killed the command.
        report = Report(wait_status=signal.SIGKILL.value, stopped=True)
    if report.failed is not None:
        raise _start_error(report, job)
    if report.survivors:
        raise survivors_error(report.survivors)
    assert report.wait_status is not None  # no process is left, so the command has ended
    code = os.waitstatus_to_exitcode(report.wait_status)
    if code < 0 and job.passthrough is not None:
        job.passthrough.on_signal(-code)
    return ProcessResult(
        exit_code=code if code >= 0 else None,
        signal=_signal_name(-code) if code < 0 else None,
        signal_number=-code if code < 0 else None,
        output=tail.text(),
        output_bytes=tail.total_bytes,
        timed_out=report.stopped and stop_reason is StopReason.TIMEOUT,
        cancelled=report.stopped and stop_reason is StopReason.CANCELLED,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _start_error(report: Report, job: _Job) -> SandboxError:
    reason = os.strerror(report.errno)
    if report.failed == supervisor.ENTERING:
        return SandboxError(f"{job.cwd} cannot be entered: {reason}")
    if report.failed == supervisor.VIEWING:
        return ViewError(
            f"{job.argv[0]} was not started, because it could not be shown the sandboxes at the places of the real "
            f"folders: {reason}",
            reason=reason,
            hint="`holdfast config set sandbox.view own-path` lets steps work without that.",
        )
    if report.failed == supervisor.CONFINING:
        return SandboxError(
            f"{job.argv[0]} was not started, because it could not be confined: {reason}",
            hint="Turn `sandbox.confine` off if the step may write wherever you can.",
        )
    return SandboxError(f"{job.argv[0]} cannot be started: {reason}")
