"""Who counts as dead, and who is ended; what the store does with that is in the tests of the records."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.db.lease import EXPIRES_AFTER, is_dead
from holdfast.db.store import Store, open_store
from holdfast.model import Lease, now
from holdfast.system.identity import machine_id
from holdfast.system.machine import boot_id, pid_namespace, process_of


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "300"]) as process:
        yield process
        process.kill()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(None, tmp_path) as store:
        yield store


def lease_of(store: Store, process: subprocess.Popen[bytes], *, silent: bool = False, **fields: Any) -> Lease:
    found = process_of(process.pid)
    at = now() - (EXPIRES_AFTER + timedelta(seconds=1) if silent else timedelta())
    own = {
        "host": platform.node(),
        "pid": process.pid,
        "process_started_at": found.started_at if found else 0.0,
        "boot_id": boot_id(),
        "pid_namespace": pid_namespace(),
        "machine_id": machine_id(store.home),
    }
    return Lease(plan_id="p", token=1, owner="o", acquired_at=at, heartbeat_at=at, **{**own, **fields})


@pytest.mark.parametrize("silent", [False, True])
def test_a_running_owner_is_not_dead_however_silent_it_is(
    store: Store, owner: subprocess.Popen[bytes], silent: bool
) -> None:
    assert not is_dead(store, lease_of(store, owner, silent=silent))


def test_a_stopped_owner_is_not_dead_either(store: Store, owner: subprocess.Popen[bytes]) -> None:
    owner.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, owner.pid, os.WSTOPPED | os.WNOWAIT)
    assert not is_dead(store, lease_of(store, owner, silent=True))


def test_an_owner_that_ended_is_dead_at_once(store: Store, owner: subprocess.Popen[bytes]) -> None:
    lease = lease_of(store, owner)
    owner.kill()
    owner.wait()
    assert is_dead(store, lease)


def test_another_process_with_its_number_is_not_the_owner(store: Store, owner: subprocess.Popen[bytes]) -> None:
    assert is_dead(store, lease_of(store, owner, process_started_at=1.0))


def test_nobody_survives_the_machine(store: Store, owner: subprocess.Popen[bytes]) -> None:
    assert is_dead(store, lease_of(store, owner, boot_id="another start"))


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"machine_id": "another"},
        {"machine_id": "another", "boot_id": "another start"},
        {"machine_id": None, "boot_id": "another start"},
        {"machine_id": None, "host": "elsewhere"},
        {"pid_namespace": "pid:[1]"},
    ],
    ids=["machine", "host name of ours", "host name of ours, earlier version", "host", "container"],
)
def test_one_that_we_cannot_see_is_dead_when_it_has_been_silent_for_long(
    store: Store, owner: subprocess.Popen[bytes], elsewhere: dict[str, str | None]
) -> None:
    assert not is_dead(store, lease_of(store, owner, **elsewhere, process_started_at=1.0))
    assert is_dead(store, lease_of(store, owner, **elsewhere, silent=True))


def test_the_lease_of_an_earlier_version_is_judged_by_its_process_in_the_same_start_of_the_machine(
    store: Store, owner: subprocess.Popen[bytes]
) -> None:
    assert not is_dead(store, lease_of(store, owner, silent=True, machine_id=None))
    assert is_dead(store, lease_of(store, owner, machine_id=None, process_started_at=1.0))
