"""What a command does with a guard that answers nonsense, or not at all; and which process an agent is."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.errors import ConflictError, SandboxError
from holdfast.guard import asking
from holdfast.guard.agent_process import agent_process
from holdfast.guard.wire import Answer, read_request, short_address, sockets_folder
from holdfast.system.machine import process_of


@contextmanager
def _listening(home: Path, folder: Path, serve: Callable[[socket.socket], object]) -> Iterator[None]:
    folder.mkdir()
    sockets_folder(home).mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        with short_address(home, folder) as address:
            listener.bind(address)
        listener.listen()

        def work() -> None:
            connection, _ = listener.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        yield
        thread.join()


def test_nonsense_is_said_to_be_nonsense(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "folder"

    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"what?\n")

    with _listening(home, folder, serve), pytest.raises(SandboxError, match="answered something else"):
        asking.status_of(home, folder)


def test_one_that_does_not_answer_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_ANSWER_SECONDS", 0.05)
    home, folder, over = tmp_path / "home", tmp_path / "folder", threading.Event()
    with _listening(home, folder, lambda _: over.wait(30)):
        with pytest.raises(ConflictError, match="does not answer"):
            asking.stop(home, folder)
        over.set()


def test_one_that_knows_nothing_has_no_status(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "folder"

    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(Answer(1).encoded())

    with _listening(home, folder, serve):
        assert asking.status_of(home, folder) is None
    assert asking.status_of(home, folder) is None
    assert list(asking.running(tmp_path / "nowhere", iter([folder]))) == []


def test_the_agent_is_the_nearest_process_above_the_hook_that_is_no_shell() -> None:
    """Here pytest is the agent, and starts its hook through two shells."""
    script = "sh -c \"$0 -c 'import os; print(os.getpid(), flush=True); input()'; true\"; true"
    words = ["sh", "-c", script, sys.executable]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        found = agent_process(int(started.stdout.readline()))
        started.communicate("\n")
    own = process_of(os.getpid())
    assert own is not None
    assert found == (os.getpid(), own.started_at)


def test_of_a_process_that_is_gone_or_not_seen_nothing_is_known() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as started:
        pass
    assert agent_process(started.pid) is None
    assert agent_process(None) is None
    assert agent_process(1) is None
