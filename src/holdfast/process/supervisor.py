"""The parent of one step's processes: starts the command, ends what it left behind, then reports how it ended.

A script of its own, ``python -I -S supervisor.py CONTROL_FD``. It starts once for every step, so it imports only cheap
modules: each of ``signal``, ``json``, ``socket``, ``typing`` and ``contextlib`` would make its start-up half as long
again.

On the control socket the executor first sends the parameters (eight digits of length, then one ``marshal`` document),
and later perhaps one byte, which means stop. End of file means that the executor is dead. The answer is one line of
JSON, sent when no process of the step is left, or when some could not be ended.
"""
# ruff: noqa: SIM105 - contextlib.suppress is one of the imports that cost too much

from __future__ import annotations

import ctypes
import errno
import marshal
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, NoReturn
else:
    import _signal as signal

LENGTH_DIGITS = 8
GRACE_SECONDS = 0.5
GIVE_UP_SECONDS = 30.0
PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
SYS_LANDLOCK_CREATE_RULESET = 444
SYS_LANDLOCK_ADD_RULE = 445
SYS_LANDLOCK_RESTRICT_SELF = 446
LANDLOCK_RULE_PATH_BENEATH = 1
CAP_SYS_ADMIN, CAP_PERFMON = 21, 38
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_REC, MS_SLAVE = 1 << 14, 1 << 19
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_MOUNT_SETATTR = 428, 429, 442
AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x100, 0x1000, 0x8000
OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH, MOUNT_ATTR_RDONLY = 1, 4, 1

# The stages of starting the command: showing it the sandboxes, entering its folder, confining it, executing it.
VIEWING, ENTERING, CONFINING, EXECUTING = 1, 2, 3, 4
# What ends the wait for the command.
ITS_OWN_END, STOP_REQUEST, DEAD_EXECUTOR = 1, 2, 3


def main() -> NoReturn:
    control = int(sys.argv[1])
    os.set_inheritable(control, False)
    adopts_orphans = prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake = wake_on_child_exit()
    parameters = read_parameters(control)
    family = Family(start(parameters, control), adopts_orphans, wake)
    over = family.wait_for_end_or_stop(control)
    if over == STOP_REQUEST:
        family.end(signal.SIGTERM, GRACE_SECONDS)
    family.end(signal.SIGKILL, GIVE_UP_SECONDS)
    report(
        control,
        wait_status="null" if family.status is None else family.status,
        stopped="false" if over == ITS_OWN_END else "true",
        adopts_orphans="true" if adopts_orphans else "false",
        survivors=[] if family.is_gone else children(),
    )


def prctl(option: int, value: int) -> bool:
    """Whether the kernel accepted it; only Linux has prctl."""
    try:
        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except AttributeError:
        return False


def wake_on_child_exit() -> int:
    """A pipe that becomes readable whenever a child has ended."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return read_end


def read_parameters(control: int) -> dict[str, Any]:
    length = int(read_exactly(control, LENGTH_DIGITS))
    # The process that started this one sends it, over a private socket pair.
    parameters: dict[str, Any] = marshal.loads(read_exactly(control, length))  # nosec B302
    return parameters


def read_exactly(control: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(control, size - len(data))
        if not piece:
            os._exit(1)
        data += piece
    return data


def start(parameters: dict[str, Any], control: int) -> int:
    """The command's process id, once it runs; a pipe that exec closes tells what failed before."""
    supervisor = os.getpid()
    read_end, write_end = os.pipe()
    command = os.fork()
    if command == 0:
        become_command(parameters, supervisor, write_end)
    os.close(write_end)
    failure = os.read(read_end, 100)
    os.close(read_end)
    if failure:
        stage, number = failure.split()
        report(control, failed=int(stage), errno=int(number))
    return command


def become_command(parameters: dict[str, Any], supervisor: int, failures: int) -> NoReturn:
    """Do everything between fork and exec, in the child."""
    stage = ENTERING
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        restore_signals()
        if parameters["terminal"]:
            take_terminal()
        if parameters["mounts"]:
            stage = VIEWING
            enter_view(parameters["mounts"])
            stage = ENTERING
        os.chdir(parameters["cwd"])
        stage = CONFINING
        if parameters["rules"] is not None:
            confine(*parameters["rules"])
        stage = EXECUTING
        argv = parameters["argv"]
        os.execvpe(argv[0], argv, parameters["environment"])
    except OSError as error:
        os.write(failures, b"%d %d" % (stage, error.errno or errno.EIO))
    except ValueError:
        os.write(failures, b"%d %d" % (stage, errno.EINVAL))
    finally:
        os._exit(127)


def take_terminal() -> None:
    """Make the terminal on standard input that of this session, so that keys make signals and shells have jobs."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def restore_signals() -> None:
    """Reset signals that Python ignores and that the executor's thread had blocked: commands expect the defaults."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def enter_view(mounts: list[tuple[bytes, bytes, bool]]) -> None:
    """Let this process, and all it starts, see other folders at some places; no other process notices.

    The mounts are in a mount namespace that ends with its last process. All sources are taken before the first mount,
    because a mount may cover the source of another one.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    checked(libc.unshare(CLONE_NEWNS if user == 0 else CLONE_NEWNS | CLONE_NEWUSER))
    if user != 0:
        # Only root may mount, so the others become the owner of a user namespace, with the same user and group.
        write_to_kernel("/proc/self/setgroups", "deny")
        write_to_kernel("/proc/self/uid_map", f"{user} {user} 1")
        write_to_kernel("/proc/self/gid_map", f"{group} {group} 1")
    # What is mounted outside later appears here, but not the other way round.
    checked(libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_SLAVE), None))
    taken = [(taken_tree(libc, source, read_only), target) for source, target, read_only in mounts]
    for tree, target in taken:
        system_call(libc, SYS_MOVE_MOUNT, tree, b"", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH)
        os.close(tree)


def taken_tree(libc: ctypes.CDLL, source: bytes, read_only: bool) -> int:
    """A folder, or a file, that can be mounted elsewhere."""
    flags = OPEN_TREE_CLONE | os.O_CLOEXEC | AT_RECURSIVE | AT_SYMLINK_NOFOLLOW
    tree = system_call(libc, SYS_OPEN_TREE, AT_FDCWD, source, flags)
    if read_only:
        # A struct mount_attr: what to set, what to clear, propagation, user namespace.
        attributes = MOUNT_ATTR_RDONLY.to_bytes(8, sys.byteorder) + bytes(24)
        system_call(libc, SYS_MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH | AT_RECURSIVE, attributes, len(attributes))
    return tree


def write_to_kernel(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    os.write(descriptor, text.encode())
    os.close(descriptor)


def checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def confine(attributes: bytes, beneath: tuple[tuple[bytes, int], ...]) -> None:
    """Enforce the rules of ``confinement.py`` for this process and for all it executes or starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    ruleset = system_call(libc, SYS_LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    for path, rights in beneath:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = rights.to_bytes(8, sys.byteorder) + descriptor.to_bytes(4, sys.byteorder)
        system_call(libc, SYS_LANDLOCK_ADD_RULE, ruleset, LANDLOCK_RULE_PATH_BENEATH, rule, 0)
        os.close(descriptor)
    # The kernel demands this: a set-user-id program must not run with rights missing that it relies on.
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    # With either capability root can read the environment of any process, and newer kernels do not check Landlock then.
    for capability in (CAP_SYS_ADMIN, CAP_PERFMON):
        prctl(PR_CAPBSET_DROP, capability)
    system_call(libc, SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def system_call(libc: ctypes.CDLL, number: int, *arguments: int | bytes) -> int:
    """Make a system call for which the C library has no function."""
    longs = (ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    return checked(int(libc.syscall(ctypes.c_long(number), *longs)))


def children() -> list[int]:
    """Our children at this moment: the command, and every orphan of the step, which the kernel gives to us."""
    own = os.getpid()
    try:
        with open(f"/proc/{own}/task/{own}/children", "rb") as listing:
            return [int(word) for word in listing.read().split()]
    except OSError:
        return children_by_scan(own)


def children_by_scan(parent: int) -> list[int]:
    """The same for a kernel without such a list; nothing if there is no /proc."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    return [int(name) for name in names if name.isdigit() and parent_of(name) == parent]


def parent_of(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            # The command's name, in parentheses, may itself hold spaces and parentheses.
            return int(stat.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


class Family:
    """The command and all its descendants."""

    def __init__(self, command: int, adopts_orphans: bool, wake: int) -> None:
        self.command = command
        self.adopts_orphans = adopts_orphans
        self.wake = wake
        self.status: int | None = None
        self.is_gone = False

    def wait_for_end_or_stop(self, control: int) -> int:
        poll = select.poll()
        poll.register(control, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        while True:
            self.reap()
            if self.status is not None:
                return ITS_OWN_END
            if any(descriptor == control for descriptor, _ in poll.poll()):
                return STOP_REQUEST if receive(control) else DEAD_EXECUTOR

    def end(self, number: int, patience_seconds: float) -> None:
        """Send the signal, also to processes that appear meanwhile, until none is left or the time is over."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        deadline = time.monotonic() + patience_seconds
        told: set[int] = set()
        if not self.adopts_orphans:
            send_to_group(number, self.command)
        self.reap()
        while not self.is_gone and time.monotonic() < deadline:
            for child in children():
                if number == signal.SIGKILL or child not in told:
                    send(number, child)
                    told.add(child)
            poll.poll(20)
            self.reap()

    def reap(self) -> None:
        try:
            while os.read(self.wake, 4096):
                pass
        except BlockingIOError:
            pass
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.command:
                    self.status = status
        except ChildProcessError:
            self.is_gone = True


def receive(control: int) -> bytes:
    try:
        return os.read(control, 1)
    except ConnectionError:
        return b""


def send(number: int, child: int) -> None:
    """Signal the child and its group: that is atomic, so a group that keeps forking cannot escape."""
    try:
        group = os.getpgid(child)
        if group != os.getpgrp():
            send_to_group(number, group)
        os.kill(child, number)
    except OSError:
        pass


def send_to_group(number: int, group: int) -> None:
    try:
        os.killpg(group, number)
    except OSError:
        pass


def report(control: int, **fields: Any) -> NoReturn:
    line = ", ".join(f'"{name}": {value}' for name, value in fields.items())
    try:
        os.write(control, f"{{{line}}}\n".encode())
    except ConnectionError:
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
