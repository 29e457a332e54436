"""The process of a guard: ``python -m holdfast.guard.process FOLDER``, started by the first hook or `holdfast guard`.

At most one runs for each folder. It ends by itself when nothing was asked of it for a while, and its death loses
nothing: the next hook starts it again, and a call of which only the beginning is known counts as interrupted.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

from holdfast.agents.hooks.event import HookAnswer, HookEvent, HookKind, Reply
from holdfast.config.loading import home_directory, load_settings
from holdfast.errors import HoldfastError
from holdfast.guard.hearing import Heard, Listening
from holdfast.guard.server import Job, Server
from holdfast.guard.wire import HOOK, RECORD, STATUS, STOP, Request, lock_place, socket_name, sockets_folder
from holdfast.model import Unprotected
from holdfast.names import name_text

if TYPE_CHECKING:
    from holdfast import SavedFirst
    from holdfast.guard.sessions import Sessions

RECORD_WRITES = "--record-writes"
"""Also record what is written when no agent tells of it."""
_IDLE_SECONDS = 30 * 60.0
_SETTLE_SECONDS = 2.0
_TELLING_SECONDS = 3.0
"""How long a guard that cannot record anything stays, so that whoever asks is told why."""
_ENDING_SECONDS = 10.0
"""How long the guard before this one may need to end."""
_PAUSE_SECONDS = 0.02
_REMEMBER_SECONDS = 5.0
"""After so much quiet there is time for what only a later process needs."""
_PATIENCE_SECONDS = 55.0
"""How long an agent waits for the checkpoint before a call; below the limits of the agents themselves."""
_PROMPT_SECONDS = 0.15
"""How long a prompt is held up at most: if something takes longer, it goes on meanwhile."""
_PATIENCE_WITH = {
    HookKind.BEFORE_TOOL: _PATIENCE_SECONDS,
    HookKind.AFTER_TOOL: _PATIENCE_SECONDS,
    HookKind.PROMPT: _PROMPT_SECONDS,
}
"""For how long an agent is held up by what it says; everything else is only taken note of."""


class Guard:
    def __init__(self, folder: Path, home: Path, listener: socket.socket, *, records_writes: bool) -> None:
        self._folder, self._home, self._records_writes = folder, home, records_writes
        self._server = Server(listener, self._job_for)
        self._started_at = datetime.now(UTC)
        self._sessions: Sessions | None = None
        self._stops_calls = True
        self._problem = ""
        """Why nothing can be recorded."""
        self._heard: object = None
        self._changed_at: float | None = None

    def run(self) -> None:
        self._server.listen()  # others can connect already: importing the rest takes longer than they should wait for
        try:
            self._record()
        except HoldfastError as error:
            # Those that wait are told why nothing is recorded.
            self._problem = _words_of(error)
            self._sessions = None
            self._server.run(self._end_soon)

    def _record(self) -> None:
        from holdfast.app import Holdfast
        from holdfast.guard.sessions import Sessions

        with Holdfast.open(self._folder, home=self._home) as holdfast:
            self._sessions = Sessions(holdfast)
            try:
                if self._records_writes:
                    self._server.do(Job(self._settle))
                self._server.run(self._between)
            finally:
                self._sessions.close()

    def _end_soon(self) -> None:
        if self._server.idle_seconds > _TELLING_SECONDS:
            self._server.stop()

    # What is asked for

    def _job_for(self, request: Request, pid: int | None) -> tuple[Job, float]:
        if request.verb == HOOK:
            return self._hook(request, pid)
        if request.verb == RECORD:
            self._records_writes = True
        jobs = {STATUS: self._status, RECORD: self._settle, STOP: self._stop}
        return Job(jobs.get(request.verb, _unknown)), _PATIENCE_SECONDS

    def _hook(self, request: Request, pid: int | None) -> tuple[Job, float]:
        from holdfast.agents.hooks.adapters import adapter_for
        from holdfast.guard.seen import note_seen

        try:
            adapter = adapter_for(request.agent)
            event = adapter.event(request.payload)
        except HoldfastError as error:
            # Nothing is known of it, so nothing is held up by it either.
            reply = Reply(stderr=f"holdfast: {_words_of(error)}\n")
            return Job(lambda: reply, reply=reply), 0
        with suppress(OSError):
            note_seen(self._home, self._folder, event.agent, event.kind)

        nothing = adapter.reply(event, HookAnswer())
        can_tell = adapter.reply(event, HookAnswer(tell="something")) != nothing
        saved = self._saved_first(event)
        patience = 0.0 if saved is not None else _PATIENCE_WITH.get(event.kind, 0.0)
        late = nothing if saved is not None else adapter.reply(event, self._late_answer(event))

        def hear() -> Reply:
            listening = Listening(
                can_be_told=lambda: can_tell and not job.is_given_up,
                is_stopped=lambda: job.is_given_up and saved is None and self._blocks(),
            )
            return adapter.reply(event, self._heard_answer(Heard(event, pid, saved), listening))

        job = Job(hear, reply=late)
        return job, patience

    def _saved_first(self, event: HookEvent) -> SavedFirst | None:
        try:
            return self._sessions.save_first(event) if self._sessions is not None else None
        except (HoldfastError, OSError):
            return None  # then it waits for the checkpoint, and is told what is wrong

    def _heard_answer(self, heard: Heard, listening: Listening) -> HookAnswer:
        if self._sessions is None:
            return self._failure(heard.event, self._problem)
        try:
            return self._sessions.hear(heard, listening)
        except Exception as error:  # noqa: BLE001 - the agent is told, and no error ends the guard
            return self._failure(heard.event, _words_of(error))

    def _late_answer(self, event: HookEvent) -> HookAnswer:
        if event.kind is not HookKind.BEFORE_TOOL or event.reads_only:
            return HookAnswer()
        return self._failure(event, "The checkpoint before this call takes too long.")

    def _failure(self, event: HookEvent, why: str) -> HookAnswer:
        sentence = f"Holdfast could not take a checkpoint of {name_text(str(self._folder))}: {why}"
        if event.reads_only:
            return HookAnswer()  # it changes nothing that would have to be undone
        if event.kind is HookKind.BEFORE_TOOL and self._blocks():
            return HookAnswer(block=f"{sentence} So the call was stopped (setting `agents.on-failure`).")
        return HookAnswer(show=f"{sentence} What happens now cannot be undone.")

    def _blocks(self) -> bool:
        """As it is set now: a person may change it while the guard runs."""
        with suppress(HoldfastError):
            settings = load_settings(self._home, self._folder, os.environ, {})
            self._stops_calls = settings.on_failure is Unprotected.BLOCK
        return self._stops_calls

    def _status(self) -> Reply:
        found = {
            "folder": str(self._folder),
            "pid": os.getpid(),
            "started_at": self._started_at.isoformat(timespec="seconds"),
            "idle_seconds": round(self._server.idle_seconds),
            "records_writes": self._records_writes,
            "agents": [] if self._sessions is None else self._sessions.names,
            "problem": self._problem or None,
        }
        return Reply(stdout=json.dumps(found))

    def _stop(self) -> Reply:
        self.stop()
        return Reply()

    def stop(self) -> None:
        """End as soon as everything is done that was asked for."""
        self._server.stop()

    # What nobody asks for

    def _settle(self) -> Reply:
        if self._sessions is None:
            return Reply(exit_code=1, stderr=self._problem)
        try:
            self._sessions.settle()
        except Exception as error:  # noqa: BLE001 - it is tried again when something changes
            return Reply(exit_code=1, stderr=_words_of(error))
        finally:
            self._changed_at = None
        return Reply()

    def _between(self) -> None:
        if self._server.idle_seconds > _IDLE_SECONDS or not self._folder.is_dir():
            self._server.stop()
        if self._records_writes:
            self._look_for_writes()
        if self._sessions is not None and self._server.idle_seconds > _REMEMBER_SECONDS:
            self._sessions.remember()

    def _look_for_writes(self) -> None:
        """A checkpoint as soon as something was written, and then nothing for a moment."""
        assert self._sessions is not None
        heard = self._sessions.heard()
        if heard != self._heard:
            self._heard, self._changed_at = heard, time.monotonic()
            self._server.note_use()
        elif self._changed_at is not None and time.monotonic() - self._changed_at > _SETTLE_SECONDS:
            self._settle()  # what was written meanwhile is heard of next time


def _unknown() -> Reply:
    return Reply(exit_code=1, stderr="holdfast: this guard does not know what was asked.\n")


def _words_of(error: Exception) -> str:
    if isinstance(error, HoldfastError):
        return f"{error.message} {error.hint}".strip()
    return f"{type(error).__name__}: {error}"


def main(arguments: list[str]) -> int:
    folder, home = Path(arguments[0]), home_directory(os.environ)
    sockets = sockets_folder(home)
    sockets.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = socket_name(folder)
    with lock_place(home, folder).open("a") as lock:
        if not _is_only_one(lock, sockets / name):
            return 0
        listener = _listener_at(sockets / name)
        guard = Guard(folder, home, listener, records_writes=RECORD_WRITES in arguments)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: guard.stop())
        try:
            guard.run()
        finally:
            with suppress(OSError):
                (sockets / name).unlink()
    return 0


def _is_only_one(lock: IO[str], place: Path) -> bool:
    """Whether this process is the guard now; False if another one listens. One that is about to end is waited for."""
    deadline = time.monotonic() + _ENDING_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if _is_listened_at(place) or time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        else:
            return True


def _is_listened_at(place: Path) -> bool:
    descriptor = os.open(place.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_PAUSE_SECONDS)
            connection.connect(f"/proc/self/fd/{descriptor}/{place.name}")  # a whole path may be too long for a socket
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except OSError:
        return True  # so many ask it that it has no time
    finally:
        os.close(descriptor)
    return True


def _listener_at(place: Path) -> socket.socket:
    with suppress(FileNotFoundError):
        place.unlink()  # of a guard that was killed; we hold the lock
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    os.fchmod(listener.fileno(), 0o600)  # the file gets the mode of the socket, so it never has another one
    os.chdir(place.parent)  # a whole path may be too long for a socket
    listener.bind(place.name)
    listener.listen(32)
    os.chdir("/")
    return listener


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
