"""The door of a running plan: who may enter, what is answered, and that nobody who waits there holds it up."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.door import SOCKET
from holdfast.door.asking import ask, mark
from holdfast.door.listening import Door, NotNow, listening
from holdfast.door.wire import Done, Failed, Request, RestorePaths, TakeCheckpoint, decoded
from holdfast.errors import CheckpointNotFoundError, NotFoundError, SandboxError, UsageError
from tests.support.unprivileged import run_unprivileged

PLAN = "01M7H3WWVB6DG3ZSFPWWMM23EH"
REQUEST = TakeCheckpoint(PLAN, "green")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / SOCKET


@pytest.fixture
def door(place: Path) -> Iterator[Door]:
    with listening(place) as opened:
        assert opened is not None
        yield opened


def said_to(place: Path, text: bytes) -> bytes:
    """What comes back until the other side ends."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(place))
        connection.sendall(text)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def failed(place: Path, text: bytes) -> Failed:
    answer = decoded(said_to(place, text), Done | Failed)
    assert isinstance(answer, Failed)
    return answer


def test_a_request_gets_what_serving_it_returns(door: Door, place: Path) -> None:
    heard: list[Request] = []

    def serve(request: Request) -> object:
        heard.append(request)
        return {"file": "caf\udce9"}

    asked = RestorePaths(PLAN, "01M7H3WX8CCMQT5DCE9AWGYRVH", ("caf\udce9 \n",), is_preview=True)
    with door.open_for(PLAN, serve):
        assert ask(place, asked) == {"file": "caf\udce9"}
    assert heard == [asked]


def test_an_error_is_raised_where_it_was_asked(door: Door, place: Path) -> None:
    def serve(_: Request) -> object:
        raise CheckpointNotFoundError("no such checkpoint", hint="Look for it.")

    with door.open_for(PLAN, serve), pytest.raises(CheckpointNotFoundError) as caught:
        ask(place, REQUEST)
    assert (caught.value.message, caught.value.hint) == ("no such checkpoint", "Look for it.")


@pytest.mark.parametrize("raised", [OSError(28, "No space left on device"), ZeroDivisionError("a bug")])
def test_whatever_goes_wrong_the_plan_goes_on_and_who_asked_hears_it(
    door: Door, place: Path, raised: Exception
) -> None:
    def serve(_: Request) -> object:
        raise raised

    with door.open_for(PLAN, serve), pytest.raises(SandboxError, match=r"No space|a bug"):
        ask(place, REQUEST)


def test_a_request_waits_until_a_step_runs(door: Door, place: Path) -> None:
    answers: list[object] = []
    asking = threading.Thread(target=lambda: answers.append(ask(place, REQUEST)))
    asking.start()
    with door.open_for(PLAN, lambda _: "taken"):
        asking.join()
    assert answers == ["taken"]


def test_a_plan_that_cannot_be_served_now_and_one_that_has_ended_give_no_answer(place: Path) -> None:
    def serve(_: Request) -> object:
        raise NotNow

    with listening(place) as door:
        assert door is not None
        with door.open_for(PLAN, serve):
            assert ask(place, REQUEST) is None
        answers: list[object] = []
        asking = threading.Thread(target=lambda: answers.append(ask(place, REQUEST)))
        asking.start()
    asking.join()
    assert answers == [None]
    assert ask(place, REQUEST) is None


def test_a_step_does_not_end_in_the_middle_of_a_request(door: Door, place: Path) -> None:
    begun, events = threading.Event(), list[str]()

    def serve(_: Request) -> object:
        begun.set()
        threading.Event().wait(0.2)  # long enough for the step to end, if it did not wait
        events.append("served")
        return "taken"

    asking = threading.Thread(target=ask, args=(place, REQUEST))
    with door.open_for(PLAN, serve):
        asking.start()
        assert begun.wait(20)
    events.append("ended")
    asking.join()
    assert events == ["served", "ended"]


@pytest.mark.parametrize(
    "text",
    [
        b"\n",
        b"[]\n",
        b'{"type": "remove everything"}\n',
        b'{"type": "checkpoint", "plan_id": 1, "label": null}\n',
        b'{"type": "checkpoint", "plan_id": "x", "label": null, "command": "rm"}\n',
        b"[" * 100_000 + b"\n",
        b"\xff\xfe\n",
    ],
)
def test_what_is_no_request_is_refused(door: Door, place: Path, text: bytes) -> None:
    with door.open_for(PLAN, lambda _: pytest.fail("it was served")):
        assert failed(place, text).kind == "UsageError"


def test_a_request_that_is_cut_short_or_too_long_gets_no_answer(door: Door, place: Path) -> None:
    with door.open_for(PLAN, lambda _: pytest.fail("it was served")):
        assert said_to(place, b'{"type": "checkpoint"') == b""
        with suppress(BrokenPipeError, ConnectionResetError):  # the other side may end before all of it is sent
            assert said_to(place, b"x" * (8 << 20)) == b""


def test_who_says_nothing_holds_nobody_up(place: Path) -> None:
    silent = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    with listening(place) as door:
        assert door is not None
        for each in silent:
            each.connect(str(place))
        with door.open_for(PLAN, lambda _: "taken"):
            assert ask(place, REQUEST) == "taken"
    # The door is closed although they are still there.
    for each in silent:
        assert each.recv(1) == b""
        each.close()


def test_only_so_many_are_heard_at_once(door: Door, place: Path) -> None:
    many = [socket.socket(socket.AF_UNIX) for _ in range(9)]
    for each in many:
        each.settimeout(20)
        each.connect(str(place))
    assert many[-1].recv(1) == b""
    for each in many:
        each.close()


def _asked_by_nobody(place: str) -> str:
    return repr(ask(Path(place), REQUEST))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_not_heard(door: Door, place: Path) -> None:
    for folder in (place.parent, *list(place.parents)[:3]):
        folder.chmod(0o755)
    place.chmod(0o666)
    with door.open_for(PLAN, lambda _: "taken"):
        assert run_unprivileged(_asked_by_nobody, str(place)) == "None"
        assert ask(place, REQUEST) == "taken"


def test_the_socket_of_a_killed_process_is_replaced_and_a_folder_in_its_place_means_no_door(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / SOCKET))
    left.close()
    assert ask(tmp_path / SOCKET, REQUEST) is None
    with listening(tmp_path / SOCKET) as door:
        assert door is not None
        assert (tmp_path / SOCKET).stat().st_mode & 0o777 == 0o600
    (tmp_path / SOCKET).mkdir()
    with listening(tmp_path / SOCKET) as door:
        assert door is None


def test_a_program_marks_the_plan_that_its_variables_name(door: Door, place: Path) -> None:
    variables = {"HOLDFAST_SOCKET": str(place), "HOLDFAST_PLAN_ID": PLAN}
    with door.open_for(PLAN, lambda request: repr(request)):
        assert mark("green", variables) == repr(TakeCheckpoint(PLAN, "green", is_mark=True))
    with pytest.raises(UsageError):
        mark("green", {})
    with pytest.raises(NotFoundError):
        mark("green", {**variables, "HOLDFAST_SOCKET": str(place.with_name("nowhere"))})
