"""One process at a time on a plan: taking its lease, keeping it alive, noticing that its owner is dead."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from holdfast.db.store import Store
from holdfast.errors import HoldfastError
from holdfast.ids import new_id
from holdfast.machine import boot_id, is_ended, is_same_start, is_stopped, started_at
from holdfast.model import Lease, now

HEARTBEAT_SECONDS = 10.0
LISTEN_SECONDS = 0.5
EXPIRES_AFTER = timedelta(seconds=60)
"""How long an owner on another machine, or one that is stopped, may be silent before it counts as dead."""

END_SECONDS = 5.0
"""How long a stopped owner, once killed, may take to be gone."""


@contextmanager
def leased(
    store: Store, plan_id: str, command: str, *, on_stop_request: Callable[[], None] = lambda: None
) -> Iterator[Lease]:
    """The right to change the plan, for as long as this lasts; whoever holds it can be asked to stop."""
    lease = store.acquire_lease(_asked_for(plan_id, command), is_gone=_is_gone)
    over = threading.Event()
    keeper = threading.Thread(
        target=_keep, args=(store, lease, over, on_stop_request), name="holdfast-lease", daemon=True
    )
    keeper.start()
    try:
        yield lease
    finally:
        over.set()
        keeper.join()
        store.release_lease(lease)


def _asked_for(plan_id: str, command: str) -> Lease:
    at, pid = now(), os.getpid()
    return Lease(
        plan_id=plan_id,
        token=0,
        owner=new_id(),
        host=platform.node(),
        pid=pid,
        process_started_at=started_at(pid) or 0.0,
        boot_id=boot_id(),
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
                store.heartbeat(lease)
            current = store.find(Lease, lease.plan_id)
            if current is not None and current.token == lease.token and current.stop_requested:
                on_stop_request()


def is_dead(lease: Lease) -> bool:
    is_silent = now() - lease.heartbeat_at > EXPIRES_AFTER
    if lease.host != platform.node():
        return is_silent
    if lease.boot_id is None:  # an earlier version's, which counted its start in another way
        return is_silent or started_at(lease.pid) is None
    if lease.boot_id != boot_id() or not is_same_start(started_at(lease.pid), lease.process_started_at):
        return True
    return is_silent and is_stopped(lease.pid)


def _is_gone(lease: Lease) -> bool:
    """Whether its plan can be taken over. A stopped owner is killed first: continued, it would write once more.

    It looks at its lease only when it records something, and may have been stopped just before it starts a step or
    puts a file in place.
    """
    if not is_dead(lease):
        return False
    is_here = (lease.host, lease.boot_id) == (platform.node(), boot_id())
    return not is_here or is_ended(lease.pid, lease.process_started_at, END_SECONDS)
