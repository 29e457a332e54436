"""The program that a hook starts: hands what the agent said to the process of its folder, and prints the answer.

``python -I -S client.py --agent NAME --python PROGRAM [--on-failure block|warn] [--limit SECONDS]``

It uses only the standard library, and of that only what is loaded quickly, because an agent waits for it twice with
each tool. ``_client.c`` does the same in less time: change both together. It never hangs, and never looks into the
message.
"""

from __future__ import annotations

import _socket
import errno
import os
import select
import sys
import time
from struct import pack

BLOCKED = 2
LARGEST_BYTES = 256 * 1024**2
_LONGEST_HEADER = 64
_PIECE_BYTES = 1 << 16
_PAUSE_SECONDS = 0.005
_DEFAULT_LIMIT_SECONDS, _DEFAULT_WAIT_SECONDS = 30.0, 5.0
_SOCKETS = b"guards"
_FOLDER_VARIABLES = (b"CLAUDE_PROJECT_DIR", b"GEMINI_PROJECT_DIR")


class Unreachable(Exception):
    """Why there is no answer."""


class _Ended(Unreachable):
    """The process ended before it said anything, perhaps because it was not needed for long; another one may answer."""

    def __init__(self) -> None:
        super().__init__("its process for this folder ended before it answered")


def folder_of(environment: dict[bytes, bytes]) -> bytes:
    """The repository around the folder that the agent works in, which it names or which is the current one; or that."""
    named = next((found for name in _FOLDER_VARIABLES if (found := environment.get(name))), None)
    try:
        start = os.path.realpath(named, strict=True) if named else _current_folder()
        return os.path.realpath(_repository_around(start), strict=True)
    except OSError as error:
        raise _not_found(error) from error


def _current_folder() -> bytes:
    try:
        return os.getcwdb()
    except OSError as error:
        raise _not_found(error) from error


def _not_found(error: OSError) -> Unreachable:
    return Unreachable(f"the folder cannot be found: {os.strerror(error.errno or 0)}")


def _repository_around(current: bytes) -> bytes:
    folder = current
    while not os.path.exists(os.path.join(folder, b".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return current
        folder = above
    return folder


def home_of(environment: dict[bytes, bytes]) -> bytes:
    """Holdfast's home, as ``config.loading.home_directory`` finds it."""
    if home := environment.get(b"HOLDFAST_HOME"):
        return home if home.startswith(b"/") else os.path.join(_current_folder(), home)
    state = environment.get(b"XDG_STATE_HOME", b"")
    if not state.startswith(b"/"):
        user = environment.get(b"HOME", b"")
        if not user.startswith(b"/"):
            import pwd

            user = os.fsencode(pwd.getpwuid(os.getuid()).pw_dir)
        state = os.path.join(user, b".local/state")
    return os.path.join(state, b"holdfast")


def name_of(folder: bytes) -> bytes:
    """What the files of a folder's process are called: FNV-1a of its path."""
    number = 0xCBF29CE484222325
    for each in folder:
        number = (number ^ each) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return b"%016x" % number


class Deadline:
    def __init__(self, seconds: float) -> None:
        self._seconds, self._end = seconds, time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    @property
    def passed(self) -> Unreachable:
        return Unreachable(f"its process for this folder did not answer within {self._seconds:g} s")


def _all_input(deadline: Deadline) -> bytes:
    """Standard input to its end; nothing if it is closed."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    pieces: list[bytes] = []
    size = 0
    while True:
        if not poll.poll(deadline.left * 1000):
            raise Unreachable("the agent did not end its message")
        try:
            piece = os.read(0, _PIECE_BYTES)
        except OSError:
            return b"".join(pieces)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST_BYTES:
            raise Unreachable("the agent's message is too large")


class Guard:
    """The process of one folder, at the other end of its socket."""

    def __init__(self, home: bytes, folder: bytes, python: str, deadline: Deadline, wait: float) -> None:
        self._sockets, self._folder = os.path.join(home, _SOCKETS), folder
        self._socket = name_of(folder) + b".sock"
        self._python, self._deadline, self._wait = python, deadline, wait

    def answer(self, request: bytes) -> tuple[int, bytes, bytes]:
        try:
            return self._exchange(request)
        except _Ended:
            return self._exchange(request)

    def _exchange(self, request: bytes) -> tuple[int, bytes, bytes]:
        connection = self._connection()
        try:
            self._send(connection, request)
            return self._receive(connection)
        except BlockingIOError:
            raise self._deadline.passed from None
        finally:
            connection.close()

    def _connection(self) -> _socket.socket:
        connection = self._connect()
        if connection is not None:
            return connection
        if not self._python:
            raise Unreachable("no process listens for this folder, and the hook names no Python to start one with")
        _start([self._python.encode(errors="surrogateescape"), b"-P", b"-m", b"holdfast.guard.process", self._folder])
        waited = Deadline(min(self._wait, self._deadline.left))
        while waited.left:
            time.sleep(_PAUSE_SECONDS)
            if connection := self._connect():
                return connection
        raise Unreachable("its process for this folder did not start")

    def _connect(self) -> _socket.socket | None:
        """None if no process listens."""
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            # By its name in the current folder: a path may be longer than an address can be.
            os.chdir(self._sockets)
            self._limit(connection, _socket.SO_SNDTIMEO)
            connection.connect(self._socket)
        except OSError as error:
            connection.close()
            if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
                return None
            if error.errno == errno.EAGAIN:
                raise self._deadline.passed from None
            raise Unreachable(f"its socket for this folder cannot be used: {os.strerror(error.errno or 0)}") from None
        return connection

    def _limit(self, connection: _socket.socket, option: int) -> None:
        left = max(self._deadline.left, 0.001)
        connection.setsockopt(_socket.SOL_SOCKET, option, pack("ll", int(left), int(left % 1 * 1e6)))

    def _send(self, connection: _socket.socket, request: bytes) -> None:
        rest = memoryview(request)
        while rest:
            self._limit(connection, _socket.SO_SNDTIMEO)
            try:
                rest = rest[connection.send(rest) :]
            except (BrokenPipeError, ConnectionResetError):
                return  # it may have answered already

    def _receive(self, connection: _socket.socket) -> tuple[int, bytes, bytes]:
        got = bytearray()
        code, out, end = 0, 0, None
        while end is None or len(got) < end:
            self._limit(connection, _socket.SO_RCVTIMEO)
            try:
                piece = connection.recv(_PIECE_BYTES)
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise _Ended if end is None and not got else _not_understood()
            got += piece
            if end is None and b"\n" in got[:_LONGEST_HEADER]:
                header = bytes(got[: got.index(b"\n")])
                code, out, err = _sizes(header)
                got = got[len(header) + 1 :]
                end = out + err
            elif end is None and len(got) >= _LONGEST_HEADER:
                raise _not_understood()
            if not self._deadline.left:
                raise self._deadline.passed
        return code, bytes(got[:out]), bytes(got[out:end])


def _not_understood() -> Unreachable:
    return Unreachable("its process for this folder answered something that is not understood")


def _sizes(header: bytes) -> tuple[int, int, int]:
    words = header.split(b" ")
    if len(words) != 3 or not all(word.isdigit() and len(word) <= 10 for word in words):
        raise _not_understood()
    code, out, err = map(int, words)
    if code > 255 or out + err > LARGEST_BYTES:
        raise _not_understood()
    return code, out, err


def _start(command: list[bytes]) -> None:
    """Start a program that outlives this process, and the terminal."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            os.chdir("/")
            null = os.open(os.devnull, os.O_RDWR)
            for each in range(3):
                os.dup2(null, each)
            os.closerange(3, 256)
            os.execv(command[0], command)
    finally:
        os._exit(127)


def _print(descriptor: int, content: bytes) -> None:
    try:
        while content:
            content = content[os.write(descriptor, content) :]
    except OSError:
        return  # nobody reads it; how the hook ends still counts


def _seconds(text: str | None, default: float) -> float:
    """A number of seconds, written in digits and at most one point."""
    digits = (text or "").replace(".", "", 1)
    return float(text or "") if digits.isascii() and digits.isdigit() and len(digits) < 10 else default


def main(arguments: list[str]) -> int:
    options = dict(zip(arguments[::2], arguments[1::2], strict=False))
    deadline = Deadline(_seconds(options.get("--limit"), _DEFAULT_LIMIT_SECONDS))
    wait = _seconds(os.environ.get("HOLDFAST_GUARD_WAIT"), _DEFAULT_WAIT_SECONDS)
    try:
        payload = _all_input(deadline)
        folder, home = folder_of(os.environb.copy()), home_of(os.environb.copy())
        guard = Guard(home, folder, options.get("--python", ""), deadline, wait)
        header = b"HOOK %s %d\n" % (os.fsencode(options.get("--agent", "-")), len(payload))
        code, out, err = guard.answer(header + payload)
    except Exception as reason:  # noqa: BLE001 - an agent would take any other end for a hook that lets the tool run
        return _give_up(str(reason), options.get("--on-failure") == "block")
    _print(1, out)
    _print(2, err)
    return code


def _give_up(reason: str, blocks: bool) -> int:
    see = "Run `holdfast guard status` in this folder to see more."
    said = f"Holdfast does not protect this folder at the moment: {reason}. {see}\n"
    if blocks:
        said = (
            f"Holdfast could not take a checkpoint, so this tool was not run: {reason}. {see} To let tools run without "
            "protection, run `holdfast config set agents.on-failure warn` and then `holdfast agents install`.\n"
        )
    _print(2, said.encode())
    return BLOCKED if blocks else 0


if __name__ == "__main__":
    # What is opened must not take the place of a closed standard stream.
    while os.open(os.devnull, os.O_RDWR) < 3:
        pass
    sys.exit(main(sys.argv[1:]))
