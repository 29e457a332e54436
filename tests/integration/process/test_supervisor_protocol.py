"""What the supervisor and the executor say to each other, seen from the executor's end of the socket."""

from __future__ import annotations

import errno
import json
import marshal
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.process import supervisor
from holdfast.process.confinement import landlock_abi, rules_for

needs_landlock = pytest.mark.skipif(not landlock_abi(), reason="the kernel has no Landlock")


class Control:
    """A supervisor of the test's own, at the other end of a socket."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.socket, end = socket.socketpair()
        with end:
            self.process = subprocess.Popen(
                [sys.executable, "-P", supervisor.__file__, str(end.fileno())],
                pass_fds=[end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def start(self, command: str, **changes: Any) -> None:
        environment = {os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()}
        parameters = {
            "argv": [b"/bin/sh", b"-c", command.encode()],
            "cwd": os.fsencode(self.cwd),
            "mounts": [],
            "rules": None,
            "terminal": False,
        }
        document = marshal.dumps({**parameters, "environment": environment, **changes})
        self.socket.sendall(f"{len(document):0{supervisor.LENGTH_DIGITS}d}".encode() + document)

    def report(self) -> Any:
        with self.socket.makefile("rb") as answers:
            return json.loads(answers.readline())


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    control = Control(tmp_path)
    yield control
    control.socket.close()
    control.process.wait()


def ended(report: dict[str, Any]) -> tuple[int, bool]:
    assert report["adopts_orphans"] is (sys.platform == "linux")
    assert report["survivors"] == []
    return os.waitstatus_to_exitcode(report["wait_status"]), report["stopped"]


def test_the_report_tells_how_the_command_ended(control):
    control.start("exit 3")
    assert ended(control.report()) == (3, False)


def test_the_report_comes_after_the_last_orphan_is_gone(control, pid_file):
    control.start("(setsid sh -c 'echo $$ > orphan; exec sleep 1000' &); until test -s orphan; do sleep 0.01; done")
    assert ended(control.report()) == (0, False)
    assert not pid_file("orphan").is_alive


def test_one_byte_stops_the_command(control, pid_file, wait_until):
    control.start("echo $$ > main; exec sleep 1000")
    wait_until(lambda: pid_file("main").is_written)
    control.socket.send(b"s")
    assert ended(control.report()) == (-signal.SIGTERM, True)


def test_a_command_that_does_not_stop_is_killed(control, pid_file, wait_until):
    control.start("trap '' TERM; echo $$ > main; while :; do sleep 0.01; done")
    wait_until(lambda: pid_file("main").is_written)
    control.socket.send(b"s")
    assert ended(control.report()) == (-signal.SIGKILL, True)


def test_the_end_of_the_executor_is_the_end_of_everything(control, pid_file, wait_until):
    control.start("trap '' TERM; echo $$ > main; while :; do sleep 0.01; done")
    wait_until(lambda: pid_file("main").is_written)
    control.socket.close()
    control.process.wait()
    assert not pid_file("main").is_alive


def test_an_executor_that_dies_before_it_said_anything_leaves_no_supervisor(control):
    control.socket.send(b"0000")
    control.socket.close()
    assert control.process.wait() == 1


@pytest.mark.parametrize(
    ("changes", "report"),
    [
        ({"cwd": b"/nowhere"}, {"failed": supervisor.ENTERING, "errno": errno.ENOENT}),
        ({"argv": [b"/nowhere"]}, {"failed": supervisor.EXECUTING, "errno": errno.ENOENT}),
        ({"argv": [b"/bin/sh", b"a\0b"]}, {"failed": supervisor.EXECUTING, "errno": errno.EINVAL}),
    ],
)
def test_what_could_not_be_started_is_reported_with_its_reason(control, changes, report):
    control.start("true", **changes)
    assert control.report() == report


def test_children_are_found_without_the_kernels_list_as_well():
    child = subprocess.Popen(["sleep", "1000"])
    try:
        assert child.pid in supervisor.children_by_scan(os.getpid())
        assert supervisor.parent_of(str(child.pid)) == os.getpid()
    finally:
        child.kill()
        child.wait()


def test_a_process_that_is_gone_has_no_parent():
    child = subprocess.Popen(["true"])
    child.wait()
    assert supervisor.parent_of(str(child.pid)) is None


def rules(place: Path, abi: int) -> tuple[bytes, tuple[tuple[bytes, int], ...]]:
    made = rules_for([place], abi)
    return made.attributes, made.beneath


@pytest.mark.parametrize("abi", range(1, landlock_abi() + 1))
def test_the_rules_of_every_version_of_landlock_keep_writes_inside(control, tmp_path, abi):
    outside = tmp_path / "outside"
    outside.write_text("as it was")
    (tmp_path / "inside").mkdir()
    command = (
        f"echo x > new; rm -f {outside}; echo x > {outside}; mkdir {outside}.d; kill -0 $PPID && echo x > signalled"
    )
    control.start(command, cwd=os.fsencode(tmp_path / "inside"), rules=rules(tmp_path / "inside", abi))
    control.report()
    assert outside.read_text() == "as it was"
    assert not (tmp_path / "outside.d").exists()
    expected = {"new"} if abi >= 6 else {"new", "signalled"}
    assert {path.name for path in (tmp_path / "inside").iterdir()} == expected


@needs_landlock
def test_what_cannot_be_started_is_reported_also_when_it_is_confined(control):
    control.start("true", argv=[b"/nowhere"], rules=rules(Path("/"), landlock_abi()))
    assert control.report() == {"failed": supervisor.EXECUTING, "errno": errno.ENOENT}


@needs_landlock
@pytest.mark.parametrize(
    ("wrong", "number"),
    [
        ((bytes(24), ()), errno.ENOMSG),
        ((rules_for([], 1).attributes, ((b"/nowhere", 2),)), errno.ENOENT),
        ((rules_for([], 1).attributes, ((b"/dev/null", 1 << 4),)), errno.EINVAL),
    ],
)
def test_a_command_that_cannot_be_confined_does_not_run(control, tmp_path, wrong, number):
    control.start("touch ran", rules=wrong)
    assert control.report() == {"failed": supervisor.CONFINING, "errno": number}
    assert not (tmp_path / "ran").exists()


def test_children_are_found_also_by_looking_at_every_process() -> None:
    with subprocess.Popen(["sleep", "300"]) as child:
        assert child.pid in supervisor.children()
        assert child.pid in supervisor.children_by_scan(os.getpid())
        assert os.getpid() not in supervisor.children_by_scan(os.getpid())
        child.kill()


def test_a_signal_for_a_process_that_is_gone_is_nothing() -> None:
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as child:
        supervisor.send(signal.SIGTERM, child.pid)
        assert child.wait() == -signal.SIGTERM
    supervisor.send(signal.SIGTERM, child.pid)
    supervisor.send_to_group(signal.SIGTERM, child.pid)
