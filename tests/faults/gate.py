"""A gate before every system call with which a process tree changes files: let it through, fail it, or stop the world.

The kernel's seccomp notifications are used, because they give one order to the calls of all processes and threads of a
command: at the moment of call N exactly the calls before it have happened and nothing else can. strace counts for each
thread and each kind of call on its own, which names no such moment. Neither root nor a package is needed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.crashes import fork

_LIBC = ctypes.CDLL(None, use_errno=True)

# Where the path of a call is: ("fd", argument), ("path", argument) or ("at", argument with the folder, with the path).
_X86_64 = {
    "write": (1, ("fd", 0)), "open": (2, ("path", 0)), "pwrite64": (18, ("fd", 0)), "writev": (20, ("fd", 0)),
    "sendfile": (40, ("fd", 0)), "fsync": (74, ("fd", 0)), "fdatasync": (75, ("fd", 0)), "truncate": (76, ("path", 0)),
    "ftruncate": (77, ("fd", 0)), "rename": (82, ("path", 1)), "mkdir": (83, ("path", 0)), "rmdir": (84, ("path", 0)),
    "creat": (85, ("path", 0)), "link": (86, ("path", 1)), "unlink": (87, ("path", 0)), "symlink": (88, ("path", 1)),
    "chmod": (90, ("path", 0)), "fchmod": (91, ("fd", 0)), "chown": (92, ("path", 0)), "fchown": (93, ("fd", 0)),
    "lchown": (94, ("path", 0)), "utime": (132, ("path", 0)), "setxattr": (188, ("path", 0)),
    "lsetxattr": (189, ("path", 0)), "fsetxattr": (190, ("fd", 0)), "removexattr": (197, ("path", 0)),
    "lremovexattr": (198, ("path", 0)), "fremovexattr": (199, ("fd", 0)), "utimes": (235, ("path", 0)),
    "openat": (257, ("at", 0, 1)), "mkdirat": (258, ("at", 0, 1)), "fchownat": (260, ("at", 0, 1)),
    "unlinkat": (263, ("at", 0, 1)), "renameat": (264, ("at", 2, 3)), "linkat": (265, ("at", 2, 3)),
    "symlinkat": (266, ("at", 1, 2)), "fchmodat": (268, ("at", 0, 1)), "utimensat": (280, ("at", 0, 1)),
    "fallocate": (285, ("fd", 0)), "pwritev": (296, ("fd", 0)), "syncfs": (306, ("fd", 0)),
    "renameat2": (316, ("at", 2, 3)), "copy_file_range": (326, ("fd", 2)), "fchmodat2": (452, ("at", 0, 1)),
}  # fmt: skip
_AARCH64 = {
    "setxattr": (5, ("path", 0)), "lsetxattr": (6, ("path", 0)), "fsetxattr": (7, ("fd", 0)),
    "removexattr": (14, ("path", 0)), "lremovexattr": (15, ("path", 0)), "fremovexattr": (16, ("fd", 0)),
    "mkdirat": (34, ("at", 0, 1)), "unlinkat": (35, ("at", 0, 1)), "symlinkat": (36, ("at", 1, 2)),
    "linkat": (37, ("at", 2, 3)), "renameat": (38, ("at", 2, 3)), "truncate": (45, ("path", 0)),
    "ftruncate": (46, ("fd", 0)), "fallocate": (47, ("fd", 0)), "fchmod": (52, ("fd", 0)),
    "fchmodat": (53, ("at", 0, 1)), "fchownat": (54, ("at", 0, 1)), "fchown": (55, ("fd", 0)),
    "openat": (56, ("at", 0, 1)), "write": (64, ("fd", 0)), "writev": (66, ("fd", 0)), "pwrite64": (68, ("fd", 0)),
    "pwritev": (70, ("fd", 0)), "sendfile": (71, ("fd", 0)), "fsync": (82, ("fd", 0)), "fdatasync": (83, ("fd", 0)),
    "utimensat": (88, ("at", 0, 1)), "syncfs": (267, ("fd", 0)), "renameat2": (276, ("at", 2, 3)),
    "copy_file_range": (285, ("fd", 2)), "fchmodat2": (452, ("at", 0, 1)),
}  # fmt: skip
_MACHINES = {"x86_64": (0xC000003E, 317, _X86_64), "aarch64": (0xC00000B7, 277, _AARCH64)}
_OPENS = {"open": 1, "openat": 2}
"""Which argument says whether it is for writing."""
_FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_RECEIVE, _ANSWER, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082104
_CONTINUE = 1
_WAKE_ON_THE_SAME_CORE = 1
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_NO_NEW_PRIVILEGES, _CHILD_SUBREAPER = 38, 36
_FOLDER_OF_THE_PROCESS = -100
_OWN_MOUNTS, _BOUND, _PRIVATE, _DETACHED = 0x20000, 4096, 1 << 18 | 1 << 14, 2
_NOTICE, _REPLY = struct.Struct("QIIiIQ6Q"), struct.Struct("QqiI")
_NOTICE_BYTES = 80
_PATIENCE_SECONDS = 5.0
"""How long what a command started may outlive it."""
_BOOT_ID = b"/proc/sys/kernel/random/boot_id"


class GateIsMissingError(Exception):
    """This machine has no such gate."""


@dataclass(frozen=True)
class Call:
    """One system call that changes something below the watched folder."""

    number: int
    name: str
    path: str
    """Below the watched folder."""
    process: int
    program: str
    flags: int = 0

    def __str__(self) -> str:
        return f"{self.name} {self.path} by {self.program}"


Answer = int | None
"""An error number, or None: let it happen."""
Keeper = Callable[[Call], Answer]


class StopEverything(Exception):
    """Raised by a keeper: nothing of this tree may do anything more."""


@dataclass
class Ended:
    status: int
    """As Python's subprocess gives it: the exit code, or minus the signal."""
    output: str
    errors: str
    calls: list[Call] = field(default_factory=list)
    was_stopped: bool = False
    left_running: list[str] = field(default_factory=list)
    """Programs that were still there when the command had ended."""


def let_through(_: Call) -> Answer:
    return None


def missing() -> str:
    """Why there is no gate here; empty if there is one."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        return f"the gate knows the system calls of Linux on x86_64 and aarch64, not of {platform.machine()}"
    try:
        available = Path("/proc/sys/kernel/seccomp/actions_avail").read_text()
    except OSError:
        return "this kernel has no seccomp"
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        return "this kernel does not tell the children of a process (CONFIG_PROC_CHILDREN)"
    return "" if "user_notif" in available else "this kernel has no seccomp notifications (Linux 5.9)"


def become_reaper() -> None:
    """Orphans of the commands run from here become our children, so that none is overlooked."""
    _LIBC.prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)


def show_boot_id(file: Path) -> None:
    """This process and what it starts find that id of the running system; needs root."""
    _LIBC.unshare(_OWN_MOUNTS)
    for source, target, flags in ((b"none", b"/", _PRIVATE), (os.fsencode(file), _BOOT_ID, _BOUND)):
        if _LIBC.mount(source, target, None, ctypes.c_ulong(flags), None) != 0:
            raise OSError(ctypes.get_errno(), "mount")
    # Disks of other trials would stay mounted for as long as this process is there.
    for line in Path("/proc/self/mounts").read_text().splitlines():
        place = line.split()[1]
        if place.endswith("/disk") and not Path(place).is_relative_to(file.parent):
            _LIBC.umount2(os.fsencode(place), _DETACHED)


def run_gated(
    action: Callable[[], int],
    *,
    below: Path,
    keeper: Keeper = let_through,
    output: Path,
    seconds: float = 60.0,
) -> Ended:
    """Run the action in a child, asking the keeper before each of its changes below that folder."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    others = frozenset(children())
    child = fork()
    if child == 0:
        _be_the_child(action, theirs, output)
    theirs.close()
    with ours:
        received = socket.recv_fds(ours, 1, 1)[1]
    if not received:
        os.waitpid(child, 0)
        raise GateIsMissingError("the filter could not be installed")
    gate = _Gate(received[0], child, others, os.fsencode(below), keeper)
    try:
        return gate.watch(output, time.monotonic() + seconds)
    finally:
        os.close(received[0])


def run_ungated(
    action: Callable[[], int],
    *,
    output: Path,
    kill: Callable[[int], None] | None = None,
    seconds: float = 60.0,
) -> Ended:
    """Run the action in a child at full speed while ``kill`` does to it what it likes; what is left then may go on."""
    others = frozenset(children())
    child = fork()
    if child == 0:
        _be_the_child(action, None, output)
    if kill is not None:
        kill(child)
    status = _wait_for(child, seconds)
    left_running = _still_there(others) if kill is None else []
    return Ended(os.waitstatus_to_exitcode(status), *_said(output), left_running=left_running)


def _wait_for(child: int, seconds: float) -> int:
    descriptor = os.pidfd_open(child)
    try:
        ended = select.select([descriptor], [], [], seconds)[0]
    finally:
        os.close(descriptor)
    if not ended:
        _kill(child)
    status = os.waitpid(child, 0)[1]
    if not ended:
        raise TimeoutError("the command did not end")
    return status


def _still_there(others: Collection[int]) -> list[str]:
    """What the command left running, which is ended."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while running := descendants(but=others):
        if time.monotonic() > deadline:
            names = [program_of(pid) for pid in running]
            for pid in running:
                _kill(pid)
            return names
        time.sleep(0.005)
    reap_orphans(but=others)
    return []


def _said(output: Path) -> tuple[str, str]:
    out, err = (output.with_suffix(f".{name}").read_text(errors="replace") for name in ("out", "err"))
    return out, err


def _be_the_child(action: Callable[[], int], channel: socket.socket | None, output: Path) -> None:
    status = 255
    try:
        os.setpgid(0, 0)
        for number, name in ((1, "out"), (2, "err")):
            descriptor = os.open(output.with_suffix(f".{name}"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # The runner of the tests may have put something else in their place.
        sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
        if channel is not None:
            listener = _install_filter()
            socket.send_fds(channel, [b"x"], [listener])
            os.close(listener)
            channel.close()
        status = action()
    except BaseException:  # noqa: BLE001 - a fork of a test must not come back into the test
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _install_filter() -> int:
    """The listener on all of this process's and its descendants' calls that change something."""
    arch, seccomp, calls = _MACHINES[platform.machine()]
    program = _filter(arch, calls)
    code = b"".join(struct.pack("HBBI", *each) for each in program)
    buffer = ctypes.create_string_buffer(code)
    fprog = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer))
    _LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
        listener = _LIBC.syscall(seccomp, _SET_MODE_FILTER, flags, fprog)
        if listener >= 0:
            return int(listener)
    raise OSError(ctypes.get_errno(), "seccomp")


def _filter(arch: int, calls: Mapping[str, tuple[int, Any]]) -> list[tuple[int, int, int, int]]:
    load, equal, set_, give = 0x20, 0x15, 0x45, 0x06
    program = [(load, 0, 0, 4), (equal, 1, 0, arch), (give, 0, 0, _ALLOW), (load, 0, 0, 0)]
    for name, (number, _) in calls.items():
        if name in _OPENS:
            argument = 16 + 8 * _OPENS[name]
            test = [(load, 0, 0, argument), (set_, 0, 1, _FOR_WRITING), (give, 0, 0, _NOTIFY), (give, 0, 0, _ALLOW)]
            program += [(equal, 0, len(test), number), *test]
        else:
            program += [(equal, 0, 1, number), (give, 0, 0, _NOTIFY)]
    return [*program, (give, 0, 0, _ALLOW)]


class _Gate:
    def __init__(self, listener: int, child: int, others: frozenset[int], below: bytes, keeper: Keeper) -> None:
        self._listener, self._child, self._below, self._keeper = listener, child, below, keeper
        self._others = others
        self._calls = {number: (name, where) for name, (number, where) in _MACHINES[platform.machine()][2].items()}
        self._seen: list[Call] = []
        self._status: int | None = None
        self._notice = ctypes.create_string_buffer(_NOTICE_BYTES)
        # Half as long for each call; kernels before 6.6 do not know it and do without.
        _LIBC.ioctl(listener, ctypes.c_ulong(_SET_FLAGS), ctypes.c_ulong(_WAKE_ON_THE_SAME_CORE))

    def watch(self, output: Path, deadline: float) -> Ended:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        was_stopped, left_running = False, []
        ended_at = None
        while True:
            events = dict(poll.poll(20))
            happened = events.get(self._listener, 0)
            if happened & select.POLLIN:
                try:
                    self._handle()
                except StopEverything:
                    was_stopped = True
                    self._end_all(poll)
                    break
            elif happened:
                break
            self._reap()
            if self._status is not None and not happened:
                ended_at = ended_at or time.monotonic()
                if time.monotonic() > ended_at + _PATIENCE_SECONDS:
                    left_running = [program_of(pid) for pid in descendants(but=self._others)]
                    self._end_all(poll)
                    break
            if time.monotonic() > deadline:
                self._end_all(poll)
                raise TimeoutError(
                    f"the command did not end: {[program_of(pid) for pid in descendants(but=self._others)]}"
                )
        while self._status is None:
            self._reap(blocking=True)
        reap_orphans(but=self._others)
        return Ended(self._status, *_said(output), self._seen, was_stopped, left_running)

    def _reap(self, *, blocking: bool = False) -> None:
        """Only the command itself; its orphans stay zombies until the end and harm nobody."""
        if self._status is None:
            pid, status = os.waitpid(self._child, 0 if blocking else os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)

    def _end_all(self, poll: select.poll) -> None:
        while True:
            for pid in descendants(but=self._others):
                _kill(pid)
            if dict(poll.poll(2)).get(self._listener, 0) & (select.POLLHUP | select.POLLERR):
                return

    def _handle(self) -> None:
        ctypes.memset(self._notice, 0, _NOTICE_BYTES)  # the kernel wants it so
        if _LIBC.ioctl(self._listener, ctypes.c_ulong(_RECEIVE), self._notice) != 0:
            return
        ident, pid, _, number, _, _, *args = _NOTICE.unpack(self._notice.raw)
        answer: Answer = None
        call = self._understand(pid, number, args)
        if call is not None:
            self._seen.append(call)
            answer = self._keeper(call)
        reply = _REPLY.pack(ident, 0, -answer if answer else 0, 0 if answer else _CONTINUE)
        _LIBC.ioctl(self._listener, ctypes.c_ulong(_ANSWER), reply)

    def _understand(self, pid: int, number: int, args: list[int]) -> Call | None:
        name, where = self._calls[number]
        path = _path_of(pid, where, args)
        if path is None or not (path == self._below or path.startswith(self._below + b"/")):
            return None
        flags = args[_OPENS[name]] if name in _OPENS else 0
        shown = os.fsdecode(path[len(self._below) + 1 :])
        return Call(len(self._seen) + 1, name, shown, pid, self._program(pid), flags)

    def _program(self, pid: int) -> str:
        is_the_command = pid == self._child or os.path.exists(f"/proc/{self._child}/task/{pid}")
        return "holdfast" if is_the_command else program_of(pid)


def _path_of(pid: int, where: tuple[Any, ...], args: list[int]) -> bytes | None:
    try:
        match where:
            case ("fd", argument):
                return os.readlink(f"/proc/{pid}/fd/{ctypes.c_int(args[argument]).value}".encode())
            case ("path", argument):
                return _joined(pid, _FOLDER_OF_THE_PROCESS, _text_at(pid, args[argument]))
            case ("at", folder, argument):
                text = _text_at(pid, args[argument]) if args[argument] else b""
                return _joined(pid, ctypes.c_int(args[folder]).value, text)
    except OSError:
        return None
    raise AssertionError(where)


def _joined(pid: int, folder: int, path: bytes) -> bytes:
    if path.startswith(b"/"):
        return os.path.normpath(path)
    link = f"/proc/{pid}/cwd" if folder == _FOLDER_OF_THE_PROCESS else f"/proc/{pid}/fd/{folder}"
    return os.path.normpath(os.path.join(os.readlink(link.encode()), path))


def _text_at(pid: int, address: int) -> bytes:
    text = b""
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:
        while b"\0" not in text and len(text) < 4096:
            # Not across the end of a page: the next one may not be there.
            text += os.pread(memory, 512 - (address + len(text)) % 512, address + len(text))
    finally:
        os.close(memory)
    return text.partition(b"\0")[0]


def _thread_group_of(pid: int) -> int:
    lines = _read(f"/proc/{pid}/status").splitlines()
    return next((int(line.partition(b":")[2]) for line in lines if line.startswith(b"Tgid:")), 0)


def program_of(pid: int) -> str:
    return _read(f"/proc/{pid}/comm").rstrip(b"\n").decode(errors="replace") or "?"


def _read(path: str) -> bytes:
    """What the kernel says there; nothing if what it is about is gone. Read for every call, so in the cheapest way."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def children(of: int | None = None) -> list[int]:
    """Dead ones that nobody has waited for too."""
    pid = of or os.getpid()
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [int(child) for thread in threads for child in _read(f"/proc/{pid}/task/{thread}/children").split()]


def descendants(*, of: int | None = None, but: Collection[int] = ()) -> list[int]:
    """All processes below that one (by default this one) that still run, but for these and what is below them."""
    found, pending = [], [of or os.getpid()]
    while pending:
        some = [pid for pid in children(pending.pop()) if pid not in but and is_running(pid)]
        found += some
        pending += some
    return found


def is_running(pid: int) -> bool:
    after = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return bool(after) and after[0] not in (b"Z", b"X")


def reap_orphans(*, but: Collection[int] = ()) -> None:
    for pid in children():
        if pid not in but:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


# Keepers


def stop_at(number: int) -> Keeper:
    """kill -9 of everything just before that call."""

    def keeper(call: Call) -> Answer:
        if call.number >= number:
            raise StopEverything
        return None

    return keeper


def kill_caller_at(number: int) -> Keeper:
    """kill -9 of only the process that makes that call, or the next one that the command does not make itself."""
    killed = []

    def keeper(call: Call) -> Answer:
        if call.number >= number and call.program != "holdfast" and not killed:
            killed.append(call)
            _kill(_thread_group_of(call.process))
        return None

    return keeper


_NEED_SPACE = frozenset(
    [
        "write",
        "pwrite64",
        "writev",
        "pwritev",
        "sendfile",
        "copy_file_range",
        "open",
        "openat",
        "mkdir",
        "mkdirat",
        "link",
        "linkat",
        "symlink",
        "symlinkat",
        "rename",
        "renameat",
        "renameat2",
        "fallocate",
        "ftruncate",
        "truncate",
        "setxattr",
        "lsetxattr",
        "fsetxattr",
        "fsync",
        "fdatasync",
    ]
)
NAME_FILES = frozenset(
    [
        "open",
        "openat",
        "mkdir",
        "mkdirat",
        "rmdir",
        "unlink",
        "unlinkat",
        "link",
        "linkat",
        "symlink",
        "symlinkat",
        "rename",
        "renameat",
        "renameat2",
        "chmod",
        "fchmod",
        "fchmodat",
        "fchmodat2",
        "chown",
        "fchown",
        "lchown",
        "fchownat",
        "utimensat",
        "utimes",
        "utime",
        "setxattr",
        "lsetxattr",
        "fsetxattr",
        "removexattr",
        "lremovexattr",
        "fremovexattr",
        "truncate",
    ]
)
_OPEN = frozenset(("open", "openat"))
_FLUSHES = frozenset(("fsync", "fdatasync", "syncfs"))


def changes_nothing(call: Call) -> bool:
    """Whether all files are after this call what they were before it, as anybody but the disk itself sees them."""
    if call.name in _OPEN:
        return not call.flags & (os.O_CREAT | os.O_TRUNC)
    return call.name in _FLUSHES


@dataclass(frozen=True)
class Failure:
    """An error of the operating system, at calls where it can happen."""

    number: int
    at: frozenset[str] | None
    """None: at all."""
    lasts: bool
    """From that call on, as a full disk does, or only once."""

    @property
    def name(self) -> str:
        return errno.errorcode[self.number]

    def can_hit(self, call: Call) -> bool:
        if self.number == errno.ENOSPC and call.name in _OPEN and not call.flags & os.O_CREAT:
            return False
        return self.at is None or call.name in self.at


FAILURES = (
    Failure(errno.EIO, None, lasts=False),
    Failure(errno.ENOSPC, _NEED_SPACE, lasts=True),
    Failure(errno.EROFS, NAME_FILES, lasts=True),
    Failure(errno.EMFILE, _OPEN, lasts=False),
)


def fail_at(number: int, failure: Failure) -> Keeper:
    def keeper(call: Call) -> Answer:
        is_now = call.number >= number if failure.lasts else call.number == number
        return failure.number if is_now and failure.can_hit(call) else None

    return keeper
