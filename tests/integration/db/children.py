"""Real processes that work on the same database at once, wait for each other, or are killed in the middle."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import Any

import sqlalchemy

from holdfast.db.engine import Engine, Row, Stored
from holdfast.db.store import open_store
from holdfast.errors import HoldfastError
from holdfast.model import Decision, Plan
from tests.integration.db.samples import a_decision, a_lease

# Its processes have everything imported already, and nothing open.
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload([__name__, "alembic.command", "psycopg"])


class Child:
    """Runs a task with the URL and home of the database and what else it takes."""

    def __init__(self, task: Callable[..., Any], *arguments: Any, start: Barrier | None = None) -> None:
        self._receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(target=_run, args=(sender, start, task, arguments))
        self._process.start()
        sender.close()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def end(self) -> tuple[int | None, Any]:
        """Its exit status (negative: the signal that killed it), and what its task returned or the error it met."""
        self._process.join(100)
        try:
            return self._process.exitcode, self._receiver.recv()
        except EOFError:
            return self._process.exitcode, None
        finally:
            self._receiver.close()


def run_at_once(processes: int, task: Callable[..., Any], *arguments: Any) -> list[tuple[int | None, Any]]:
    start = context.Barrier(processes)
    children = [Child(task, *arguments, start=start) for _ in range(processes)]
    return [child.end() for child in children]


def _run(sender: Connection, start: Barrier | None, task: Callable[..., Any], arguments: Sequence[Any]) -> None:
    if start is not None:
        start.wait()
    try:
        sender.send(task(*arguments))
    except HoldfastError as error:
        sender.send(f"{type(error).__name__}: {error}")
        sys.exit(error.exit_code)


def opening(url: str | None, home: Path) -> None:
    open_store(url, home).close()


def deciding(url: str | None, home: Path, plan_id: str, times: int) -> list[int]:
    """Record decisions on one plan, each with the next number; the numbers."""
    numbers = []
    with open_store(url, home) as store:
        plan = store.get(Plan, plan_id)
        for _ in range(times):
            with store.transaction():
                decision = a_decision(plan, store.next_sequence(Decision, plan_id))
                store.insert(decision)
            numbers.append(decision.sequence)
    return numbers


def holding(url: str | None, home: Path, plan_id: str, held: Event, go_on: Event) -> None:
    """Take the plan's lease, then change the plan when told to."""
    with open_store(url, home) as store:
        lease = store.leases.acquire(a_lease(plan_id, owner="child"), is_dead=lambda _: False)
        held.set()
        go_on.wait()
        with store.transaction(lease):
            store.save(store.get(Plan, plan_id).changed(name="written too late"))


def killed_while_creating(url: str | None, home: Path, statement: str) -> None:
    """Open a database, and be killed when it comes to that statement."""
    execute = Engine.execute

    def watched(self: Engine, sql: str, parameters: Sequence[Stored] = ()) -> list[Row]:
        _be_killed_at(statement, sql)
        return execute(self, sql, parameters)

    Engine.execute = watched  # type: ignore[method-assign]
    opening(url, home)


def killed_while_migrating(url: str | None, home: Path, statement: str) -> None:
    """The same, but it is the migrations that come to that statement."""

    def watch(_connection: object, _cursor: object, sql: str, *_: object) -> None:
        _be_killed_at(statement, sql)

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", watch)
    sqlalchemy.event.listen(sqlalchemy.Engine, "commit", lambda _: _be_killed_at(statement, "COMMIT"))
    opening(url, home)


def _be_killed_at(statement: str, sql: str) -> None:
    if sql.startswith(statement):
        os.kill(os.getpid(), signal.SIGKILL)
