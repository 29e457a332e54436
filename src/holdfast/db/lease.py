"""One process at a time on a plan: taking its lease, keeping it alive, noticing that its owner is dead."""

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
"""How long an owner that we cannot see may be silent before it counts as dead, and a stopped one before it is ended."""

END_SECONDS = 5.0
"""How long a stopped owner, once killed, may take to be gone."""
_UNSEEN = Process(None, is_stopped=False, group=None)


@contextmanager
def leased(
    store: Store, plan_id: str, command: str, *, on_stop_request: Callable[[], None] = lambda: None
) -> Iterator[Lease]:
    """The right to change the plan, for as long as this lasts; whoever holds it can be asked to stop."""
    end_if_stopped(store, plan_id)
    lease = store.leases.acquire(_asked_for(store, plan_id, command), is_dead=lambda held: is_dead(store, held))
    over = threading.Event()
    keeper = threading.Thread(
        target=_keep, args=(store, lease, over, on_stop_request), name="holdfast-lease", daemon=True
    )
    keeper.start()
    try:
        yield lease
    except BaseException:
        # What went wrong first is what the caller must hear; a lease that stays is that of a dead process soon.
        with suppress(HoldfastError):
            _let_go(store, lease, over, keeper)
        raise
    else:
        with suppress(DatabaseFullError):  # what was done is done, and must not be told as if it were not
            _let_go(store, lease, over, keeper)


def _let_go(store: Store, lease: Lease, over: threading.Event, keeper: threading.Thread) -> None:
    over.set()
    keeper.join()
    store.leases.release(lease)


def _asked_for(store: Store, plan_id: str, command: str) -> Lease:
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
    )


def _keep(store: Store, lease: Lease, over: threading.Event, on_stop_request: Callable[[], None]) -> None:
    beat_at = time.monotonic() + HEARTBEAT_SECONDS
    while not over.wait(LISTEN_SECONDS):
        # A missed beat is no reason to stop: every transaction checks the lease by itself.
        with suppress(HoldfastError):
            if time.monotonic() >= beat_at:
                beat_at = time.monotonic() + HEARTBEAT_SECONDS
                store.leases.heartbeat(lease)
            current = store.find(Lease, lease.plan_id)
            if current is not None and current.token == lease.token and current.stop_requested:
                on_stop_request()


def is_dead(store: Store, lease: Lease) -> bool:
    """Whether its owner can no longer be at work; a stopped one can, as soon as it is continued.

    What runs is known of this machine only, and a host name does not tell which one that is. Of all others only their
    silence tells, by the clock of the database.
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
    # An earlier version took it. No two machines were started as the same boot.
    return (lease.host, lease.boot_id) == (platform.node(), boot_id())


def _is_silent(store: Store, lease: Lease) -> bool:
    return store.now() - lease.heartbeat_at > EXPIRES_AFTER


def holder_of(store: Store, plan_id: str) -> Lease | None:
    """Who may change the plan now, if anybody who is not dead."""
    lease = store.find(Lease, plan_id)
    return lease if lease is not None and lease.owner is not None and not is_dead(store, lease) else None


def refuse_if_held(store: Store, plan_id: str) -> None:
    """For those who only look: what they saw would not be so any more."""
    holder = holder_of(store, plan_id)
    if holder is not None:
        raise in_use(holder)


def end_if_stopped(store: Store, plan_id: str) -> None:
    """Kill an owner that is stopped and has been silent for long.

    It looks at its lease only when it records something, and may have been stopped just before it starts a step or
    puts a file in place: continued, it would do that once more. Done before the lease is asked for: it may have been
    stopped inside of a transaction, and then nobody else can begin one.
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
