"""The two clients of hooks, as an agent starts them: real processes, and a real socket that the test listens on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast.guard
from holdfast.guard.wire import Answer, Request, WireError, read_request, short_address, sockets_folder

_PACKAGE = Path(holdfast.guard.__file__).parent
_COMPILED = _PACKAGE / "hook-client"
CLIENTS = {
    "python": (sys.executable, "-I", "-S", str(_PACKAGE / "client.py")),
    "compiled": (str(_COMPILED),),
}
PROTECTED = Answer(0, b'{"systemMessage": "kept"}\n')
PAYLOAD = b'{"hook_event_name": "PreToolUse"}'


def _measurable(words: Sequence[str]) -> list[str]:
    """What begins a client; an isolated interpreter is not measured, and a hook starts one."""
    is_measured = "COVERAGE_PROCESS_CONFIG" in os.environ
    return [word for word in words if not is_measured or word not in ("-I", "-S")]


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest) -> str:
    if request.param == "compiled" and not _COMPILED.exists():
        pytest.skip("there was no compiler when Holdfast was installed")
    return str(request.param)


@dataclass
class Scene:
    """A home of Holdfast, and a folder that an agent works in."""

    home: Path
    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sockets_folder(self.home).mkdir(parents=True)
        self.folder.mkdir(parents=True)

    def hook(
        self, client: str, *options: str, payload: bytes = PAYLOAD, limit: str = "60"
    ) -> subprocess.CompletedProcess[bytes]:
        words = [*_measurable(CLIENTS[client]), "--agent", "codex", "--limit", limit, *options]
        return subprocess.run(
            words, input=payload, cwd=self.folder, env=self.environment(), capture_output=True, check=False
        )

    def environment(self) -> dict[str, str]:
        known = {"HOLDFAST_HOME": str(self.home), "HOLDFAST_GUARD_WAIT": "0.2"}
        return {**os.environ, **known, **self.variables}

    @contextmanager
    def served_by(self, serve: Callable[[socket.socket], object], times: int = 1) -> Iterator[None]:
        """A process of the folder, of which each connection is handled so; it must be asked exactly that often."""
        with socket.socket(socket.AF_UNIX) as listener:
            with short_address(self.home, self.folder) as address:
                Path(address).unlink(missing_ok=True)
                listener.bind(address)
            listener.listen()
            served = []

            def work() -> None:
                for _ in range(times):
                    connection, _ = listener.accept()
                    with connection, suppress(OSError, WireError):
                        served.append(connection)
                        serve(connection)

            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            yield
            thread.join()
            assert len(served) == times

    @contextmanager
    def answered(self, answer: Answer, requests: list[Request | None], times: int = 1) -> Iterator[None]:
        def serve(connection: socket.socket) -> None:
            requests.append(read_request(connection))
            connection.sendall(answer.encoded())

        with self.served_by(serve, times):
            yield


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "home", tmp_path / "project")


def result(ended: subprocess.CompletedProcess[bytes]) -> tuple[int, bytes, bytes]:
    return ended.returncode, ended.stdout, ended.stderr


def guard_that_answers(folder: Path, answer: Answer) -> str:
    """A program that is started in place of Python, listens for the folder it is given, and answers once."""
    program = folder / "guard.py"
    program.write_text(
        f"#!{sys.executable}\n"
        "import os, sys\n"
        f"sys.path.insert(0, {str(_PACKAGE.parents[1])!r})\n"
        "from pathlib import Path\n"
        "import socket\n"
        "from holdfast.guard.wire import read_request, short_address, Answer\n"
        "home, folder = Path(os.environ['HOLDFAST_HOME']), Path(sys.argv[4])\n"
        "listener = socket.socket(socket.AF_UNIX)\n"
        "with short_address(home, folder) as address:\n"
        "    Path(address).unlink(missing_ok=True)\n"
        "    listener.bind(address)\n"
        "listener.listen()\n"
        "connection, _ = listener.accept()\n"
        "request = read_request(connection)\n"
        "said = [*sys.argv[1:4], os.getcwd(), request.verb, request.agent]\n"
        "out = '\\n'.join(said).encode() + b'\\n' + os.fsencode(folder) + b'\\n' + request.payload\n"
        f"connection.sendall(Answer({answer.exit_code}, out, {answer.stderr!r}).encoded())\n"
        "connection.close()\n"
    )
    program.chmod(0o755)
    return str(program)


def test_the_message_arrives_as_it_came_and_the_answer_is_printed_with_its_exit_code(client: str, scene: Scene) -> None:
    requests: list[Request | None] = []
    with scene.answered(Answer(7, b"out\0\xff", b"err\n"), requests):
        ended = scene.hook(client, payload=b"\0\xff{\n")
    assert result(ended) == (7, b"out\0\xff", b"err\n")
    assert requests == [Request("HOOK", "codex", b"\0\xff{\n")]


def test_a_message_and_an_answer_of_many_megabytes_arrive_whole(client: str, scene: Scene) -> None:
    large = os.urandom(1 << 20) * 9
    requests: list[Request | None] = []
    with scene.answered(Answer(0, large, large[::-1]), requests):
        ended = scene.hook(client, payload=large)
    assert result(ended) == (0, large, large[::-1])
    assert requests == [Request("HOOK", "codex", large)]


@pytest.mark.parametrize("name", [b"two words", b"a\nnew line", b"\xff\xfe", "é".encode(), b"-"])
def test_the_process_is_found_and_started_for_a_folder_of_any_name(client: str, tmp_path: Path, name: bytes) -> None:
    scene = Scene(tmp_path / "home", tmp_path / os.fsdecode(name))
    scene.variables["HOLDFAST_GUARD_WAIT"] = "60"
    requests: list[Request | None] = []
    with scene.answered(PROTECTED, requests):
        assert result(scene.hook(client)) == (0, PROTECTED.stdout, b"")
    # That process has ended and its socket was left: another one is started.
    ended = scene.hook(client, "--python", guard_that_answers(tmp_path, Answer(2, b"", b"no\n")))
    lines = b"\n".join((b"-P", b"-m", b"holdfast.guard.process", b"/", b"HOOK", b"codex"))
    assert result(ended) == (2, lines + b"\n" + os.fsencode(scene.folder) + b"\n" + PAYLOAD, b"no\n")


def test_a_home_with_a_path_longer_than_an_address_is_reached(client: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path.joinpath(*["a rather long name"] * 10), tmp_path / "project")
    with scene.answered(PROTECTED, []):
        assert result(scene.hook(client)) == (0, PROTECTED.stdout, b"")


def test_the_folder_is_the_repository_around_the_current_one_or_the_one_that_the_agent_names(
    client: str, scene: Scene, tmp_path: Path
) -> None:
    (scene.folder / ".git").mkdir()
    inner = scene.folder / "src" / "deep"
    inner.mkdir(parents=True)
    with scene.answered(PROTECTED, []):
        ended = Scene.hook(_at(scene, inner), client)
        assert result(ended) == (0, PROTECTED.stdout, b"")
    for variable in ("CLAUDE_PROJECT_DIR", "GEMINI_PROJECT_DIR"):
        other = Scene(tmp_path / variable, tmp_path / f"{variable} folder")
        with other.answered(PROTECTED, []):
            there = _at(other, inner)
            there.variables[variable] = f"{other.folder}/../{other.folder.name}"
            assert result(there.hook(client)) == (0, PROTECTED.stdout, b"")
        (other.folder / ".git").mkdir()
        (other.folder / "package").mkdir()
        with other.answered(PROTECTED, []):
            there.variables[variable] = str(other.folder / "package")
            assert result(there.hook(client)) == (0, PROTECTED.stdout, b"")


def _at(scene: Scene, folder: Path) -> Scene:
    found = object.__new__(Scene)
    found.home, found.folder, found.variables = scene.home, folder, {}
    return found


FAILURES: dict[str, Sequence[str]] = {
    "no process, and none can be started": (),
    "a program that ends at once": ("--python", "/bin/false"),
    "a program that does not exist": ("--python", "/nowhere/python"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_without_a_process_the_tool_is_blocked_or_let_through_as_the_hook_says(
    client: str, scene: Scene, failure: str
) -> None:
    blocked = scene.hook(client, "--on-failure", "block", *FAILURES[failure])
    assert (blocked.returncode, blocked.stdout) == (2, b"")
    assert b"could not take a checkpoint, so this tool was not run" in blocked.stderr
    assert b"agents.on-failure warn" in blocked.stderr
    for options in (("--on-failure", "warn"), ()):
        let_through = scene.hook(client, *options, *FAILURES[failure])
        assert (let_through.returncode, let_through.stdout) == (0, b"")
        assert b"does not protect this folder at the moment" in let_through.stderr


def _says_nothing(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


def _trickles(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(b"0 1000000 0\n")
    with suppress(OSError):
        while True:
            connection.sendall(b"x")
            connection.settimeout(0.05)
            with suppress(TimeoutError):
                if not connection.recv(1):
                    return


@pytest.mark.parametrize("serve", [_says_nothing, _trickles])
def test_a_process_that_hangs_holds_the_agent_up_no_longer_than_the_limit(
    client: str, scene: Scene, serve: Callable[[socket.socket], object]
) -> None:
    with scene.served_by(serve):
        ended = scene.hook(client, "--on-failure", "block", limit="0.4")
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert b"did not answer within 0.4 s" in ended.stderr


def test_a_process_that_reads_nothing_holds_the_agent_up_no_longer_than_the_limit(client: str, scene: Scene) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        with short_address(scene.home, scene.folder) as address:
            listener.bind(address)
        listener.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            small = scene.hook(client, limit="0.3")
            large = scene.hook(client, payload=b"x" * (4 << 20), limit="0.3")
            first.close()
    for ended in (small, large):
        assert (ended.returncode, ended.stdout) == (0, b"")
        assert b"did not answer within 0.3 s" in ended.stderr


def test_an_agent_that_does_not_end_its_message_is_not_waited_for(client: str, scene: Scene) -> None:
    reader, writer = os.pipe()
    words = [*CLIENTS[client], "--agent", "codex", "--limit", "0.2"]
    ended = subprocess.run(
        words, stdin=reader, cwd=scene.folder, env=scene.environment(), capture_output=True, check=False
    )
    os.close(reader)
    os.close(writer)
    assert ended.returncode == 0
    assert b"did not end its message" in ended.stderr


WRONG = (b"nonsense\n", b"0 0\n", b"256 0 0\n", b"0 -1 0\n", b"0 9999999999 0\n", b"0 99999999999 0\n", b"0  0 0\n")
WRONG_TOO = (b"\n", b"0 5 0\nabc", b"0 0", b"x" * 1000, b"0 0 1\n", b"1\n" * 40, b" 0 0 0\n", b"0 0 0 \n", b"+1 0 0\n")


@pytest.mark.parametrize("answer", [*WRONG, *WRONG_TOO])
def test_a_wrong_answer_is_no_answer(client: str, scene: Scene, answer: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(answer)

    with scene.served_by(serve):
        ended = scene.hook(client, "--on-failure", "block")
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert b"not understood" in ended.stderr


def test_a_process_that_ends_as_it_is_asked_is_asked_again(client: str, scene: Scene) -> None:
    asked = []

    def serve(connection: socket.socket) -> None:
        asked.append(read_request(connection))
        if len(asked) == 2:
            connection.sendall(PROTECTED.encoded())

    with scene.served_by(serve, times=2):
        assert result(scene.hook(client)) == (0, PROTECTED.stdout, b"")
    assert asked == [Request("HOOK", "codex", PAYLOAD)] * 2


def test_a_process_that_ends_twice_is_not_asked_for_ever(client: str, scene: Scene) -> None:
    with scene.served_by(read_request, times=2):
        ended = scene.hook(client, "--on-failure", "block")
    assert ended.returncode == 2
    assert b"ended before it answered" in ended.stderr


def test_a_process_that_answers_without_reading_is_understood(client: str, scene: Scene) -> None:
    def serve(connection: socket.socket) -> None:
        connection.sendall(Answer(2, b"", b"too large\n").encoded())
        connection.shutdown(socket.SHUT_RD)

    with scene.served_by(serve):
        ended = scene.hook(client, payload=b"x" * (4 << 20))
    assert result(ended) == (2, b"", b"too large\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_do_not_disturb_it(client: str, scene: Scene, closed: str) -> None:
    requests: list[Request | None] = []
    words = ["sh", "-c", f'exec "$@" {closed}', "sh", *CLIENTS[client], "--agent", "codex", "--limit", "60"]
    with scene.answered(Answer(3, b"out", b"err"), requests):
        ended = subprocess.run(
            words, input=PAYLOAD, cwd=scene.folder, env=scene.environment(), capture_output=True, check=False
        )
    assert ended.returncode == 3
    assert requests == [Request("HOOK", "codex", b"" if "<&-" in closed else PAYLOAD)]
    assert ended.stdout == (b"" if closed.startswith(">&-") or " >&-" in closed else b"out")
    assert ended.stderr == (b"" if "2>&-" in closed else b"err")


def test_output_that_nobody_reads_does_not_change_how_it_ends(client: str, scene: Scene) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = [*CLIENTS[client], "--agent", "codex", "--limit", "60"]
    with scene.answered(Answer(5, b"x" * 100_000), []):
        ended = subprocess.run(words, input=b"", stdout=writer, cwd=scene.folder, env=scene.environment(), check=False)
    os.close(writer)
    assert ended.returncode == 5


def test_a_folder_that_is_gone_is_said(client: str, scene: Scene) -> None:
    words = ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *CLIENTS[client], "--agent", "codex", "--on-failure", "block"]
    ended = subprocess.run(
        words, input=PAYLOAD, cwd=scene.folder, env=scene.environment(), capture_output=True, check=False
    )
    assert ended.returncode == 2
    assert b"the folder cannot be found: No such file or directory" in ended.stderr


@pytest.mark.skipif(not _COMPILED.exists(), reason="there was no compiler when Holdfast was installed")
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    answer=st.binary(max_size=80) | st.from_regex(rb"[0-9]{1,4} [0-9]{1,3} [0-9]{1,3}\n.{0,40}", fullmatch=True),
    blocks=st.booleans(),
    limit=st.sampled_from(["60", "7.5", "60.", "nonsense", "-1", ".5.", "", "1e9"]),
)
def test_both_clients_do_the_same_with_any_answer(
    tmp_path_factory: pytest.TempPathFactory, answer: bytes, blocks: bool, limit: str
) -> None:
    place = tmp_path_factory.mktemp("scene")
    scene = Scene(place / "home", place / "project")
    times = 2 if answer else 4

    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(answer)

    option = ("--on-failure", "block") if blocks else ()
    with scene.served_by(serve, times):
        ended = [result(scene.hook(each, *option, limit=limit)) for each in CLIENTS]
    assert ended[0] == ended[1]


@pytest.mark.skipif(not _COMPILED.exists(), reason="there was no compiler when Holdfast was installed")
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("policy", ["block", "warn"])
def test_both_clients_say_the_same_about_a_failure(scene: Scene, failure: str, policy: str) -> None:
    ended = [result(scene.hook(each, "--on-failure", policy, *FAILURES[failure])) for each in CLIENTS]
    sockets_folder(scene.home).rmdir()
    ended += [result(scene.hook(each, "--on-failure", policy, *FAILURES[failure])) for each in CLIENTS]
    sockets_folder(scene.home).write_text("not a folder")
    blocked = [result(scene.hook(each, "--on-failure", policy, *FAILURES[failure])) for each in CLIENTS]
    assert len(set(ended)) == 1
    assert len(set(blocked)) == 1
    assert b"Not a directory" in blocked[0][2]
