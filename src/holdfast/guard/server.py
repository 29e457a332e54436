"""The guard's socket: takes what is said at it, and has one thread do it in that order.

What no agent has to wait for is answered at once, and done before anything that comes later.
"""

from __future__ import annotations

import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from holdfast.agents.hooks.event import Reply
from holdfast.guard.wire import Answer, Request, WireError, read_request

_REQUEST_SECONDS = 10.0
_LOOK_SECONDS = 0.2
_PEER = struct.Struct("3i")
_ROOT = 0


class Job(msgspec.Struct):
    """Something to do in the guard's one working thread."""

    do: Callable[[], Reply]
    reply: Reply = Reply()
    """The answer; until the job is done, that for who does not wait any longer."""
    is_done: threading.Event = msgspec.field(default_factory=threading.Event)
    is_given_up: bool = False
    """Whoever asked has got that answer, and does not hear of the outcome."""


class Server:
    """``serve`` makes a job of a request of a process, and says for how long it is waited for."""

    def __init__(self, listener: socket.socket, serve: Callable[[Request, int | None], tuple[Job, float]]) -> None:
        self._listener, self._serve = listener, serve
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._used_at = time.monotonic()
        self._is_over = threading.Event()

    @property
    def idle_seconds(self) -> float:
        return time.monotonic() - self._used_at

    def note_use(self) -> None:
        self._used_at = time.monotonic()

    def listen(self) -> None:
        threading.Thread(target=self._accept, name="holdfast-guard", daemon=True).start()

    def stop(self) -> None:
        """End as soon as everything is done that was asked for."""
        self._is_over.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._jobs.put(None)

    def do(self, job: Job) -> None:
        self._jobs.put(job)

    def run(self, between: Callable[[], None]) -> None:
        """Do the jobs until the server is stopped; ``between`` is called now and then while there is none."""
        while True:
            try:
                job = self._jobs.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                between()
                continue
            if job is None:
                return
            job.reply = job.do()
            job.is_done.set()

    def _accept(self) -> None:
        while not self._is_over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                time.sleep(_LOOK_SECONDS)  # out of descriptors for a moment; or it is over
                continue
            threading.Thread(target=self._talk, args=(connection,), name="holdfast-guard", daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, WireError):
            pid, user = peer_of(connection)
            if user not in (os.geteuid(), _ROOT):
                return
            connection.settimeout(_REQUEST_SECONDS)
            request = read_request(connection)
            if request is None:
                return
            self.note_use()
            job, patience = self._serve(request, pid or None)
            self._jobs.put(job)
            job.is_given_up = not job.is_done.wait(patience)
            connection.settimeout(_REQUEST_SECONDS)
            connection.sendall(_answer_of(job.reply).encoded())
            self.note_use()


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Process and user at the other end."""
    pid, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return pid, user


def _answer_of(reply: Reply) -> Answer:
    out, err = (text.encode("utf-8", "surrogateescape") for text in (reply.stdout, reply.stderr))
    return Answer(reply.exit_code, out, err)
