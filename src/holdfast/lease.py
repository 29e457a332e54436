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
from holdfast.model import Lease, new_id, now

HEARTBEAT_SECONDS = 10.0
LISTEN_SECONDS = 0.5
EXPIRES_AFTER = timedelta(seconds=60)
"""How long an owner on another machine, or one that is stopped, may be silent before it counts as dead."""


@contextmanager
def leased(
    store: Store, plan_id: str, command: str, *, on_stop_request: Callable[[], None] = lambda: None
) -> Iterator[Lease]:
    """The right to change the plan, for as long as this lasts; whoever holds it can be asked to stop."""
    lease = store.acquire_lease(
        plan_id, new_id(), platform.node(), os.getpid(), _started_at(os.getpid()) or 0.0, command, is_dead=is_dead
    )
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
    started_at = _started_at(lease.pid)
    if started_at is None or abs(started_at - lease.process_started_at) > 1.0:
        return True
    return is_silent and _is_stopped(lease.pid)


def _started_at(pid: int) -> float | None:
    """When that process was started; None if there is none that still runs."""
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


def _is_stopped(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return True
