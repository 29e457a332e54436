"""Door: listens while a process executes a plan, and has what is asked for done at a moment at which that is safe."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.door.wire import (
    MOST_REQUEST_BYTES,
    Answer,
    Busy,
    Done,
    Failed,
    Request,
    at_short_path,
    decoded,
    encoded,
    read_line,
)
from holdfast.errors import HoldfastError, SandboxError, described

Serve = Callable[[Request], object]

_REQUEST_SECONDS = 5.0
"""How long a request may take to arrive."""
_OPEN_SECONDS = 10.0
"""How long it waits until a step runs: a plan is between two steps for a moment only."""
_MOST_AT_ONCE = 8
_PEER = struct.Struct("3i")
_ROOT = 0


class NotNow(Exception):
    """Nothing was done, because this is no moment for it."""


class Door:
    """Each request is served in a thread of its own, those for one plan one after the other."""

    def __init__(self, place: Path, listener: socket.socket) -> None:
        self.place, self._listener = place, listener
        self._changed = threading.Condition()
        self._open: dict[str, Serve] = {}
        self._served: set[str] = set()
        self._is_over = False
        self._talking: set[socket.socket] = set()

    @contextmanager
    def open_for(self, plan_id: str, serve: Serve) -> Iterator[None]:
        """In this context requests for the plan are served. It is left when none of them is being served."""
        with self._changed:
            self._open[plan_id] = serve
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                del self._open[plan_id]
                self._changed.wait_for(lambda: plan_id not in self._served)

    def accept_all(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # the door is closed
            with self._changed:
                is_welcome = len(self._talking) < _MOST_AT_ONCE and _is_of_same_user(connection)
                if is_welcome:
                    self._talking.add(connection)
            if is_welcome:
                threading.Thread(target=self._talk, args=(connection,), name="holdfast-door", daemon=True).start()
            else:
                connection.close()

    def close(self) -> None:
        """Whoever still waits gets no answer, and finds out by the lease how the plan is."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
            for connection in self._talking:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)  # who has not said what it wants is not waited for
            self._changed.wait_for(lambda: not self._talking)

    def _talk(self, connection: socket.socket) -> None:
        try:
            with suppress(OSError):
                connection.settimeout(_REQUEST_SECONDS)
                line = read_line(connection, MOST_REQUEST_BYTES)
                answer = None if line is None else self._answer(line)
                if answer is not None:
                    connection.sendall(encoded(answer))
        finally:
            with self._changed:
                self._talking.discard(connection)
                connection.close()
                self._changed.notify_all()

    def _answer(self, line: bytes) -> Answer | None:
        try:
            request: Request = decoded(line, Request)
        except ValueError as error:
            return Failed("UsageError", f"This is no request: {error}.", "")
        try:
            with self._turn(request.plan_id) as serve:
                return None if serve is None else Done(serve(request))
        except NotNow:
            return Busy()
        except HoldfastError as error:
            return Failed(type(error).__name__, error.message, error.hint)
        except OSError as error:
            return Failed(SandboxError.__name__, f"{described(error)}.", "")
        except Exception as error:  # noqa: BLE001 - whoever asks gets the reason, and the plan goes on
            return Failed(SandboxError.__name__, f"Holdfast has a bug: {type(error).__name__}: {error}", "")

    @contextmanager
    def _turn(self, plan_id: str) -> Iterator[Serve | None]:
        """What serves the plan, for one request at a time; None if the door was closed meanwhile."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: self._is_over or (plan_id in self._open and plan_id not in self._served), _OPEN_SECONDS
            )
            if not found:
                raise NotNow
            serve = None if self._is_over else self._open[plan_id]
            if serve is not None:
                self._served.add(plan_id)
        try:
            yield serve
        finally:
            if serve is not None:
                with self._changed:
                    self._served.discard(plan_id)
                    self._changed.notify_all()


@contextmanager
def listening(place: Path) -> Iterator[Door | None]:
    """A door at that place, which only this user can enter; None if there can be no socket.

    The plan runs without it all the same: what would have been asked for is then refused, because the plan is in use.
    """
    try:
        listener = _listener_at(place)
    except OSError:
        yield None
        return
    door = Door(place, listener)
    accepting = threading.Thread(target=door.accept_all, name="holdfast-door", daemon=True)
    accepting.start()
    try:
        yield door
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # closing alone does not wake who waits for a connection
        accepting.join()
        listener.close()
        door.close()
        place.unlink(missing_ok=True)


def _listener_at(place: Path) -> socket.socket:
    place.unlink(missing_ok=True)  # of a process that was killed; we hold the lease
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), 0o600)  # the file gets the mode of the socket, so it never has another one
        at_short_path(place, listener.bind)
        listener.listen(_MOST_AT_ONCE)
    except OSError:
        listener.close()
        raise
    return listener


def _is_of_same_user(connection: socket.socket) -> bool:
    _, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return user in (os.geteuid(), _ROOT)
