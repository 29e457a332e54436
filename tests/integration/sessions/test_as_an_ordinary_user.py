"""As root many things cannot go wrong: a folder with what its user may not read, or what is in use."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import HoldfastError
from tests.support.sessions import Agent, Place
from tests.support.trees import compare, describe
from tests.support.unprivileged import folder_for_nobody, run_unprivileged


def _with_closed_things(folder: str) -> Any:
    place = Place(Path(folder))
    place.make(has_git=False)
    closed = place.root / "closed"
    closed.mkdir()
    (closed / "inside").write_text("inside\n")
    (place.root / "secret").write_text("secret\n")
    (place.root / "secret").chmod(0)
    closed.chmod(0)
    modes = [path.stat().st_mode for path in (closed, place.root / "secret")]
    agent = place.agent()
    with agent.call("write"):
        (place.root / "new.txt").write_text("new\n")
    agent.in_place.undo()
    found = {
        "modes": [path.stat().st_mode for path in (closed, place.root / "secret")] == modes,
        "names": sorted(os.listdir(place.root)),
        "unheld": sorted(each.path for each in agent.in_place.moments()[0].view.group.unheld.get("folder", ())),
    }
    closed.chmod(0o700)
    found["inside"] = sorted(os.listdir(closed))
    place.close()
    return found


def test_what_its_user_may_not_read_is_listed_and_left_alone() -> None:
    with folder_for_nobody() as folder:
        found = run_unprivileged(_with_closed_things, str(folder))
    assert found["modes"]
    assert found["names"] == ["closed", "secret"]
    assert found["inside"] == ["inside"]
    assert found["unheld"] == ["closed"]  # a file can be read without letting anybody else in


def test_a_database_that_a_program_has_open_is_not_replaced(agent: Agent, place: Place) -> None:
    file = place.root / "app.db"
    with agent.call("make a database"), closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE t (x)")
    with agent.call("write"), closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("INSERT INTO t VALUES (1)")
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (1,)
        before = describe(place.root)
        with pytest.raises(HoldfastError, match=r"app\.db"):
            agent.in_place.undo()
        assert compare(before, describe(place.root)) == []
    agent.in_place.undo()
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_what_a_person_saves_at_the_last_moment_stays_and_nothing_is_undone(agent: Agent, place: Place) -> None:
    with agent.call("write"):
        (place.root / "a.txt").write_text("by the agent\n")
        (place.root / "b.txt").unlink()
        (place.root / "new.txt").write_text("new\n")
    undoing = place.open().in_place

    def save(found: Any) -> bool:
        assert found.changes
        (place.root / "new.txt").write_text("new, and more by a person\n")
        return True

    before = place.tree(b"new.txt")
    with pytest.raises(HoldfastError) as refused:
        undoing.undo(confirm=save)
    assert "new.txt" in refused.value.message
    assert place.differs_from(before, b"new.txt") == []
    assert (place.root / "new.txt").read_text() == "new, and more by a person\n"
