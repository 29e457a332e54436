"""One process at a time on a plan: takes its lease, keeps it alive, and notices that an owner is dead."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from holdfast.db.access import in_use
from holdfast.db.store import Store
from holdfast.errors import ConflictError, DatabaseFullError, HoldfastError
from holdfast.model import Lease, now
from holdfast.system.identity import find_machine_id, machine_id
from holdfast.system.ids import new_id
from holdfast.system.machine import Process, boot_id, end, pid_namespace, process_of

HEARTBEAT_SECONDS = 10.0
LISTEN_SECONDS = 0.5
EXPIRES_AFTER = timedelta(seconds=60)
"""How long an owner that we cannot see may be silent before it counts as dead, a stopped one before it is killed."""

END_SECONDS = 5.0
"""How long a stopped owner may take to end after it was killed."""
_UNSEEN = Process(None, is_stopped=False, group=None)


@contextmanager
def leased(
    store: Store, plan_id: str, command: str, *, on_stop_request: Callable[[], None] | None = None
) -> Iterator[Lease]:
    """Hold the right to change the plan; ``on_stop_request`` is called if another process asks this one to stop."""
    end_if_stopped(store, plan_id)
    asked = _asked_for(store, plan_id, command, listens=on_stop_request is not None)
    lease = store.leases.acquire(asked, is_dead=lambda held: is_dead(store, held))
    over = threading.Event()
    keeper = threading.Thread(
        target=_keep, args=(store, lease, over, on_stop_request), name="holdfast-lease", daemon=True
    )
    keeper.start()
    try:
        yield lease
    except BaseException:
        # The caller must get the first error; a lease that stays will soon belong to a dead process.
        with suppress(HoldfastError):
            _let_go(store, lease, over, keeper)
        raise
    else:
        with suppress(DatabaseFullError):  # the work is done, and must not be reported as failed
            _let_go(store, lease, over, keeper)


def _let_go(store: Store, lease: Lease, over: threading.Event, keeper: threading.Thread) -> None:
    over.set()
    keeper.join()
    store.leases.release(lease)


def _asked_for(store: Store, plan_id: str, command: str, *, listens: bool) -> Lease:
    at, pid = now(), os.getpid()
    own = process_of(pid)
    return Lease(
        plan_id=plan_id,
        token=0,
        owner=new_id(),
        host=platform.node(),
        pid=pid,
        process_started_at=(own.started_at if own is not None else None) or 0.0,
        boot_id=boot_id(),
        pid_namespace=pid_namespace(),
        machine_id=machine_id(store.home),
        command=command,
        acquired_at=at,
        heartbeat_at=at,
        listens=listens,
    )


def _keep(store: Store, lease: Lease, over: threading.Event, on_stop_request: Callable[[], None] | None) -> None:
    beat_at = time.monotonic() + HEARTBEAT_SECONDS
    while not over.wait(LISTEN_SECONDS):
        # A missed heartbeat is no reason to stop: every transaction checks the lease itself.
        with suppress(HoldfastError):
            if time.monotonic() >= beat_at:
                beat_at = time.monotonic() + HEARTBEAT_SECONDS
                store.leases.heartbeat(lease)
            if on_stop_request is not None and _is_asked_to_stop(store, lease):
                on_stop_request()


def _is_asked_to_stop(store: Store, lease: Lease) -> bool:
    current = store.find(Lease, lease.plan_id)
    return current is not None and current.token == lease.token and bool(current.stop_requested)


def is_dead(store: Store, lease: Lease) -> bool:
    """Whether its owner can no longer be at work; a stopped process still can, as soon as it is continued.

    Only the processes of this machine are known, and a host name does not identify a machine. An owner on another
    machine is judged by its silence alone, by the clock of the database.
    """
    if not _is_of_this_machine(store, lease):
        return _is_silent(store, lease)
    if lease.boot_id != boot_id():
        return True
    owner = process_of(lease.pid) if lease.pid_namespace == pid_namespace() else _UNSEEN
    if owner is not None and owner.started_at is None:
        return _is_silent(store, lease)
    return owner is None or owner.started_at != lease.process_started_at


def _is_of_this_machine(store: Store, lease: Lease) -> bool:
    if lease.machine_id is not None:
        return lease.machine_id == find_machine_id(store.home)
    # An earlier version took the lease. No two machines have the same boot id.
    return (lease.host, lease.boot_id) == (platform.node(), boot_id())


def _is_silent(store: Store, lease: Lease) -> bool:
    return store.now() - lease.heartbeat_at > EXPIRES_AFTER


def holder_of(store: Store, plan_id: str) -> Lease | None:
    """The lease of the process that may change the plan now; None if there is none, or its owner is dead."""
    lease = store.find(Lease, plan_id)
    return lease if lease is not None and lease.owner is not None and not is_dead(store, lease) else None


def refuse_if_held(store: Store, plan_id: str) -> None:
    """Refuse to read a plan that another process may be changing."""
    holder = holder_of(store, plan_id)
    if holder is not None:
        raise in_use(holder)


def end_if_stopped(store: Store, plan_id: str) -> None:
    """Kill an owner that is stopped and has been silent for long.

    It checks its lease only when it records something, and may have been stopped just before it starts a step or puts a
    file in place: if it were continued, it would still do that. Called before the lease is acquired: the owner may have
    been stopped inside a transaction, and then no other process can begin one.
    """
    lease = store.find(Lease, plan_id)
    if lease is None or lease.owner is None or is_dead(store, lease) or not _is_silent(store, lease):
        return
    is_in_sight = (lease.boot_id, lease.pid_namespace) == (boot_id(), pid_namespace())
    if not is_in_sight or not _is_of_this_machine(store, lease):
        return
    owner = process_of(lease.pid)
    if owner is not None and owner.is_stopped and not end(lease.pid, lease.process_started_at, END_SECONDS):
        raise ConflictError(
            f"Plan {plan_id} is in use by process {lease.pid}, which is stopped and cannot be ended from here.",
            hint=f"Continue it with `kill -CONT {lease.pid}`, or end it with `kill -KILL {lease.pid}`; then try again.",
        )
