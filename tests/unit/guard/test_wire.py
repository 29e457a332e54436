from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.config.loading import home_directory
from holdfast.guard.client import folder_of, home_of, name_of
from holdfast.guard.seen import last_seen, note_seen
from holdfast.guard.wire import (
    HOOK,
    STATUS,
    Answer,
    Request,
    WireError,
    ask,
    read_answer,
    read_request,
    short_address,
    socket_name,
    sockets_folder,
)

names = st.from_regex(r"[a-z0-9-]{1,64}", fullmatch=True)


def sent(pieces: Sequence[bytes]) -> socket.socket:
    """The end of a connection on which these pieces come, and then nothing more."""
    ours, theirs = socket.socketpair()

    def send() -> None:
        with theirs:
            try:
                for piece in pieces:
                    theirs.sendall(piece)
            except OSError:
                return  # the reader has heard enough

    threading.Thread(target=send, daemon=True).start()
    return ours


def cut(content: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted({place % (len(content) + 1) for place in places} | {0, len(content)})
    return [content[begin:end] for begin, end in pairwise(ends)]


@settings(deadline=None)
@given(agent=names, payload=st.binary(max_size=400), places=st.lists(st.integers(0, 500), max_size=6))
def test_a_request_is_read_as_it_was_sent_however_it_is_cut(agent: str, payload: bytes, places: list[int]) -> None:
    request = Request(HOOK, agent, payload)
    with sent(cut(request.encoded(), places)) as connection:
        assert read_request(connection) == request


@settings(deadline=None)
@given(
    code=st.integers(0, 255),
    out=st.binary(max_size=300),
    err=st.binary(max_size=300),
    places=st.lists(st.integers(0, 700), max_size=6),
)
def test_an_answer_is_read_as_it_was_sent_however_it_is_cut(
    code: int, out: bytes, err: bytes, places: list[int]
) -> None:
    answer = Answer(code, out, err)
    with sent(cut(answer.encoded(), places)) as connection:
        assert read_answer(connection) == answer


nearly = st.lists(
    st.sampled_from(
        [b"HOOK", b"STATUS", b" ", b"0", b"12", b"codex", b"\n", b"-1", b"99999999999", b"\0", b"\xff", b"x"]
    )
    | st.binary(max_size=8),
    max_size=12,
).map(b"".join)


@settings(deadline=None)
@given(content=nearly)
def test_whatever_else_comes_is_refused_and_never_believed(content: bytes) -> None:
    with sent([content]) as connection:
        try:
            request = read_request(connection)
        except WireError:
            request = None
        assert request is None or content.startswith(request.encoded())
    with sent([content]) as connection:
        try:
            answer = read_answer(connection)
        except WireError:
            return
        assert content.endswith(answer.stdout + answer.stderr) or len(content) > len(answer.encoded())


@pytest.mark.parametrize("content", [b"HOOK codex 5\nabc", b"HOOK codex", b"HOOK codex 9999999999\n", b"x" * 300])
def test_a_request_that_is_cut_off_or_too_large_is_refused(content: bytes) -> None:
    with sent([content]) as connection, pytest.raises(WireError):
        read_request(connection)


def test_who_only_looks_whether_somebody_listens_asks_nothing() -> None:
    with sent([]) as connection:
        assert read_request(connection) is None


def test_a_socket_is_reached_although_its_path_is_longer_than_an_address(tmp_path: Path) -> None:
    home = tmp_path.joinpath(*["a rather long name"] * 10)
    folder = tmp_path / "project"
    sockets_folder(home).mkdir(parents=True)
    assert ask(home, folder, Request(STATUS), limit_seconds=5) is None
    with socket.socket(socket.AF_UNIX) as listener:
        with short_address(home, folder) as address:
            listener.bind(address)
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                request = read_request(connection)
                connection.sendall(Answer(3, repr(request).encode(), b"no").encoded())

        thread = threading.Thread(target=serve)
        thread.start()
        answer = ask(home, folder, Request(STATUS), limit_seconds=5)
        thread.join()
    assert answer == Answer(3, repr(Request(STATUS)).encode(), b"no")
    # The process has ended, and its socket was left.
    assert (sockets_folder(home) / socket_name(folder)).is_socket()
    assert ask(home, folder, Request(STATUS), limit_seconds=5) is None


def test_each_folder_has_a_name_of_its_own_that_never_changes() -> None:
    # The values that the published reference of FNV-1a gives.
    assert [name_of(each) for each in (b"", b"a", b"foobar")] == [
        b"cbf29ce484222325",
        b"af63dc4c8601ec8c",
        b"85944171f73967e8",
    ]


@pytest.mark.parametrize(
    "variables",
    [
        {"HOLDFAST_HOME": "/somewhere"},
        {"HOLDFAST_HOME": "here/below"},
        {"HOLDFAST_HOME": "", "XDG_STATE_HOME": "/state", "HOME": "/home/me"},
        {"XDG_STATE_HOME": "relative", "HOME": "/home/me"},
        {"HOME": "/home/me"},
    ],
)
def test_the_client_finds_the_home_that_the_commands_use(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOLDFAST_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert home_of(os.environb.copy()) == os.fsencode(home_directory(os.environ))


def test_the_folder_is_the_repository_around_where_the_agent_works_or_that_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, link = tmp_path / "repository" / "src" / "deep", tmp_path / "link"
    inner.mkdir(parents=True)
    link.symlink_to(inner)
    monkeypatch.chdir(inner)
    assert folder_of({}) == os.fsencode(inner)
    (tmp_path / "repository" / ".git").write_text("gitdir: elsewhere\n")
    assert folder_of({}) == os.fsencode(tmp_path / "repository")
    assert folder_of({b"GEMINI_PROJECT_DIR": os.fsencode(link)}) == os.fsencode(tmp_path / "repository")
    assert folder_of({b"CLAUDE_PROJECT_DIR": os.fsencode(tmp_path), b"GEMINI_PROJECT_DIR": b"/"}) == os.fsencode(
        tmp_path
    )


def test_the_last_event_of_each_agent_is_known(tmp_path: Path) -> None:
    sockets_folder(tmp_path).mkdir()
    folder = tmp_path / "project"
    assert last_seen(tmp_path, folder) == {}
    at = datetime(2026, 11, 19, tzinfo=UTC)
    note_seen(tmp_path, folder, "codex", "prompt", at)
    note_seen(tmp_path, folder, "claude-code", "before_tool", at)
    note_seen(tmp_path, folder, "codex", "turn_end", at)
    seen = last_seen(tmp_path, folder)
    assert {agent: (each.at, each.event) for agent, each in seen.items()} == {
        "codex": (at, "turn_end"),
        "claude-code": (at, "before_tool"),
    }
    assert last_seen(tmp_path, tmp_path) == {}
    next(sockets_folder(tmp_path).iterdir()).write_text("{")
    assert last_seen(tmp_path, folder) == {}
