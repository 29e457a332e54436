"""A SQLite database is replaced only if no program uses it, and only as a whole."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.errors import ConflictError
from holdfast.snapshot.restore.staging import mark_of
from tests.integration.apply.conftest import Desk
from tests.support.databases import TOTAL, busy_writer, change, make_database, open_connection, sum_in
from tests.support.moments import just_before
from tests.support.repositories import git
from tests.support.trees import compare, describe

JOURNALS = ["wal", "delete"]
ADD = "UPDATE account SET amount = amount + 1000 WHERE id = 1"
ADD_MORE = "UPDATE account SET amount = amount + 7 WHERE id = 2"


def sql(statement: str, end: str = "connection.close()") -> str:
    """A step that works on the database in its sandbox."""
    code = (
        "import os, sqlite3; connection = sqlite3.connect('shop.db', isolation_level=None); "
        f"connection.execute('{statement}'); {end}"
    )
    return f'env -u COVERAGE_PROCESS_CONFIG {sys.executable} -c "{code}"'


def dry_run(desk: Desk, plan_id: str) -> None:
    with desk.open() as holdfast:
        holdfast.apply_preview(plan_id)


@pytest.fixture(params=JOURNALS)
def shop(desk: Desk, request: pytest.FixtureRequest) -> Path:
    return make_database(desk.data / "shop.db", request.param)


@pytest.fixture
def logged(desk: Desk) -> Path:
    return make_database(desk.data / "shop.db", "wal")


def without_index(changes: list[str]) -> list[str]:
    """The index of a log is memory that all who read share."""
    return [each for each in changes if "-shm" not in each]


def test_a_database_that_a_program_has_open_is_not_replaced(desk: Desk, shop: Path):
    with open_connection(shop) as program:
        plan = desk.run(data=f"{sql(ADD)} && echo new > one.csv")
        before = desk.everything()
        for attempt in (lambda: dry_run(desk, plan.plan_id), lambda: desk.apply(plan)):
            with pytest.raises(ConflictError, match=rf"open in other programs.*\n.*shop\.db: .*{program.process.pid}"):
                attempt()
        assert without_index(compare(before, desk.everything())) == []
        program.close()
    desk.apply(plan)
    assert sum_in(shop) == TOTAL + 1000
    assert (desk.data / "one.csv").read_text() == "new\n"


def test_what_a_program_committed_before_the_sandbox_was_made_is_in_the_result(desk: Desk, shop: Path):
    with open_connection(shop) as program:
        program.execute(ADD_MORE)
        plan = desk.run(data=sql(ADD))
        program.close()
    desk.apply(plan)
    assert sum_in(shop) == TOTAL + 1007
    desk.unapply(plan)
    assert sum_in(shop) == TOTAL + 7


def test_what_a_program_committed_since_is_a_conflict(desk: Desk, shop: Path):
    with open_connection(shop) as program:
        plan = desk.run(data=sql(ADD))
        program.execute(ADD_MORE)
        program.close()
    with pytest.raises(ConflictError, match=r"changed by the plan and also outside of it.*\n.*shop\.db"):
        desk.apply(plan)
    assert sum_in(shop) == TOTAL + 7


def test_a_database_that_the_plan_left_alone_may_be_busy(desk: Desk, shop: Path):
    with busy_writer(shop):
        plan = desk.run(data="echo new > one.csv")
        desk.apply(plan)
        assert sum_in(desk.sandbox(plan, "data") / "shop.db") == TOTAL
        desk.unapply(plan)
    assert sum_in(shop) == TOTAL
    assert (desk.data / "one.csv").read_text() == "one.csv\n"


def test_a_database_that_a_program_has_open_is_not_deleted(desk: Desk, shop: Path):
    plan = desk.run(data="rm shop.db")
    with open_connection(shop) as program:
        with pytest.raises(ConflictError, match="open in other programs"):
            desk.apply(plan)
        program.execute(ADD_MORE)
    assert sum_in(shop) == TOTAL + 7


def test_a_log_that_the_plan_does_not_know_is_not_given_another_database(desk: Desk, logged: Path):
    with open_connection(logged) as program:
        program.execute(ADD_MORE)
        plan = desk.run(data=sql(ADD))
        program.kill()
    before = desk.everything()
    for attempt in (lambda: dry_run(desk, plan.plan_id), lambda: desk.apply(plan)):
        with pytest.raises(ConflictError, match=r"not in their databases yet.*\n.*shop\.db-wal") as refusal:
            attempt()
    assert "close it again" in refusal.value.hint
    assert compare(before, desk.everything()) == []
    assert sum_in(logged) == TOTAL + 7  # that opens and closes it
    desk.apply(plan)
    assert sum_in(logged) == TOTAL + 1007


def test_a_new_database_is_not_put_beside_an_old_log(desk: Desk, logged: Path):
    with open_connection(logged) as program:
        program.execute(ADD_MORE)
        program.kill()
    logged.unlink()
    (desk.data / "shop.db-wal").rename(desk.folder / "log")
    plan = desk.run(data=sql("CREATE TABLE account (id, amount)"))
    (desk.folder / "log").rename(desk.data / "shop.db-wal")
    with pytest.raises(ConflictError, match=r"shop\.db-wal"):
        desk.apply(plan)
    assert not logged.exists()


def test_a_log_that_the_plan_used_up_goes_with_the_change(desk: Desk, logged: Path):
    with open_connection(logged) as program:
        program.execute(ADD_MORE)
        program.kill()
    before = describe(desk.data)
    plan = desk.run(data=sql(ADD))
    desk.apply(plan)
    assert not (desk.data / "shop.db-wal").exists()
    desk.unapply(plan)
    assert compare(before, describe(desk.data)) == []
    assert sum_in(logged) == TOTAL + 7


def test_a_log_that_the_plan_left_is_not_put_beside_a_database_that_changed_since(desk: Desk, logged: Path):
    plan = desk.run(data=sql(ADD, end="os._exit(0)"))
    assert (desk.sandbox(plan, "data") / "shop.db-wal").stat().st_size > 0
    change(logged, ADD_MORE)
    with pytest.raises(ConflictError, match=r"data: shop\.db(\n|$)"):
        desk.apply(plan)
    assert sum_in(logged) == TOTAL + 7


def test_a_log_that_the_plan_left_comes_with_its_database(desk: Desk, logged: Path):
    plan = desk.run(data=sql(ADD, end="os._exit(0)"))
    desk.apply(plan)
    assert sum_in(logged) == TOTAL + 1000


def test_a_program_that_opens_the_database_in_the_last_moment_keeps_it(desk: Desk, shop: Path):
    plan = desk.run(data=sql(ADD))
    before = desk.everything()
    with ExitStack() as stack:
        programs = []

        def open_it() -> None:
            programs.append(stack.enter_context(open_connection(shop)))

        refused = pytest.raises(ConflictError, match="open in other programs; nothing was changed")
        with just_before("os.rename", f".holdfast-*-{mark_of(b'shop.db').decode()}", open_it), refused:
            desk.apply(plan)
        assert desk.everything()[b"data/shop.db"] == before[b"data/shop.db"]
        programs[0].execute(ADD_MORE)
        programs[0].close()
    assert desk.leftovers() == []
    assert sum_in(shop) == TOTAL + 7
    assert desk.state(plan) == ("execute", "complete")


def test_unapply_waits_for_the_program_to_close_the_database(desk: Desk, shop: Path):
    plan = desk.run(data=sql(ADD))
    desk.apply(plan)
    with open_connection(shop) as program:
        with pytest.raises(ConflictError, match="open in other programs; nothing was changed"):
            desk.unapply(plan)
        assert desk.state(plan) == ("apply", "applied")
        program.close()
    desk.unapply(plan)
    assert sum_in(shop) == TOTAL


def test_undoing_waits_for_the_program_to_close_the_database(desk: Desk, shop: Path):
    plan = desk.run(data=f"{sql(ADD)} && echo new > zz.csv")
    with ExitStack() as stack:
        programs = []

        def meddle() -> None:
            (desk.data / "zz.csv").write_text("somebody else's")
            programs.append(stack.enter_context(open_connection(shop)))

        refused = pytest.raises(ConflictError, match="cannot be restored yet")
        with just_before("os.rename", f".holdfast-*-{mark_of(b'zz.csv').decode()}", meddle), refused:
            desk.apply(plan)
        assert sum_in(shop) == TOTAL + 1000
        with pytest.raises(ConflictError, match="cannot be restored yet"):
            desk.next_command(plan)
        programs[0].close()
    desk.next_command(plan)
    assert sum_in(shop) == TOTAL
    assert (desk.data / "zz.csv").read_text() == "somebody else's"
    assert desk.leftovers() == []


def test_undoing_leaves_a_database_that_somebody_has_written_to_in_a_log(desk: Desk, logged: Path):
    plan = desk.run(data=f"{sql(ADD)} && echo new > zz.csv")

    def meddle() -> None:
        (desk.data / "zz.csv").write_text("somebody else's")
        with open_connection(logged) as program:
            program.execute(ADD_MORE)
            program.kill()

    refused = pytest.raises(ConflictError, match=r"Something else changed zz\.csv")
    with just_before("os.rename", f".holdfast-*-{mark_of(b'zz.csv').decode()}", meddle), refused:
        desk.apply(plan)
    assert sum_in(logged) == TOTAL + 1007
    with desk.open() as holdfast:
        assert "shop.db" in (holdfast.find_plan(plan.plan_id).error or "")


def test_a_tracked_database_is_copied_whole_though_git_ignores_its_log(desk: Desk):
    shop = make_database(desk.app / "shop.db", "wal")
    (desk.app / ".gitignore").write_text("*-wal\n*-shm\n")
    git(desk.app, "add", "-A")
    git(desk.app, "commit", "-qm", "the shop")
    with open_connection(shop) as program:
        program.execute(ADD_MORE)
        plan = desk.run(app="echo new > README.md")
        assert sum_in(desk.sandbox(plan) / "shop.db") == TOTAL + 7
        program.kill()
    plan = desk.run(app="echo newer > README.md")
    assert sum_in(desk.sandbox(plan) / "shop.db") == TOTAL + 7
