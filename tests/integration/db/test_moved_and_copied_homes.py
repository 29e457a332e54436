from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.app import Holdfast
from holdfast.db.engine import Engine, SqliteDialect
from holdfast.db.store import Store
from holdfast.doctor import examine
from holdfast.errors import HoldfastError
from holdfast.events import StepStarted
from holdfast.model import Checkpoint, Plan, PlanState, StepRun
from holdfast.process.leftovers import MARK_VARIABLE, mark_of
from holdfast.system import sqlite
from tests.support.trees import describe
from tests.support.unprivileged import folder_for_nobody, run_as_a_user
from tests.support.workshop import Died, Workshop, dies_at, files, run

COMMIT = "echo 2 > version.txt && git add version.txt && git commit --quiet --message second"


@pytest.fixture
def begun(workshop: Workshop) -> Plan:
    """A plan that died in its second step."""
    plan = workshop.create(
        run(COMMIT), run("echo '3;4' >> orders.csv", resource="data"), run("git status --porcelain > seen.txt")
    )
    with pytest.raises(Died):
        workshop.open().execute(
            plan.plan_id, listener=dies_at(lambda event: isinstance(event, StepStarted) and event.index == 1)
        )
    workshop.close()
    return plan


def move_home(workshop: Workshop) -> Path:
    """The home is somewhere else from now on; where it was before."""
    workshop.close()
    before, workshop.home = workshop.home, workshop.folder / "moved" / "home"
    workshop.home.parent.mkdir()
    before.rename(workshop.home)
    return before


def copy_home(workshop: Workshop) -> Path:
    """Commands use a copy of the home from now on; where the original is."""
    workshop.close()
    before, workshop.home = workshop.home, workshop.folder / "copied home"
    shutil.copytree(before, workshop.home, symlinks=True)
    return before


def as_the_version_before(workshop: Workshop) -> None:
    """Records and catalogue with absolute paths."""
    workshop.close()
    store = Store(Engine(SqliteDialect(workshop.home / "holdfast.db")), workshop.home)
    plans = store.plans.of_project(None)
    plans += [each for plan in plans for each in store.plans.below(plan.plan_id)]
    records: list[Plan | Checkpoint | StepRun] = [*plans]
    for plan in plans:
        records += [*store.checkpoints.of(plan.plan_id), *store.runs.of(plan.plan_id)]
    store.home = workshop.folder / "no home"  # so nothing is taken off what is below the real one
    for record in records:
        store.save(record)
    store.close()
    connection = sqlite.connect(workshop.home / "objects.db")
    for checkpoint_id, text in connection.execute("SELECT checkpoint_id, record FROM snapshot").fetchall():
        record = json.loads(text)
        record["snapshot_path"] = f"{workshop.home}/{record['snapshot_path']}"
        connection.execute(
            "UPDATE snapshot SET record = ? WHERE checkpoint_id = ?", (json.dumps(record), checkpoint_id)
        )
    connection.close()
    assert str(workshop.home) in stored_paths(workshop)


def stored_paths(workshop: Workshop) -> str:
    """Everything in both databases that may hold a path, as text."""
    texts = []
    questions = {
        "holdfast.db": "SELECT resources FROM plan UNION ALL SELECT filesystem_path FROM checkpoint_metadata "
        "UNION ALL SELECT conflicts FROM step_run UNION ALL SELECT data FROM operation",
        "objects.db": "SELECT record FROM snapshot",
    }
    for name, question in questions.items():
        connection = sqlite.connect(workshop.home / name)
        texts += [str(row[0]) for row in connection.execute(question).fetchall()]
        connection.close()
    return "\n".join(texts)


def test_paths_are_stored_without_the_home_and_shown_with_it(workshop: Workshop, begun: Plan) -> None:
    assert str(workshop.home) not in stored_paths(workshop)
    assert f'"sandboxes/{begun.plan_id}/app"' in stored_paths(workshop)
    move_home(workshop)
    holdfast = workshop.open()
    place = str(workshop.home / "sandboxes" / begun.plan_id / "app")
    assert holdfast.find_plan(begun.plan_id).resource("app").sandbox_path == place
    first = holdfast.checkpoints(begun.plan_id)[0].checkpoint
    assert first.filesystem_path == place
    assert holdfast.service.manager.get_checkpoint(first.checkpoint_id).snapshot_path == place
    listed = holdfast.service.manager.list_checkpoints(f"{begun.plan_id}/app")
    assert {each.snapshot_path for each in listed} == {place}


def test_a_home_named_relatively_is_the_same_from_every_folder(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workshop.folder)
    with Holdfast.open(workshop.app, home=Path("home")) as holdfast:
        plan = holdfast.create_plan(workshop.plan_file(run("echo 2 > version.txt")))
    monkeypatch.chdir(workshop.data)
    with Holdfast.open(workshop.app, home=Path("..", "home")) as holdfast:
        holdfast.execute(plan.plan_id)
    assert files(workshop.home / "sandboxes" / plan.plan_id / "app")["version.txt"] == "2\n"
    assert not (workshop.data / "home").exists()


@pytest.mark.parametrize("prepare", [lambda _: None, as_the_version_before], ids=["now", "of the version before"])
def test_a_moved_home_works_entirely(workshop: Workshop, begun: Plan, prepare: Callable[[Workshop], None]) -> None:
    prepare(workshop)
    before = move_home(workshop)
    holdfast = workshop.open()
    done = holdfast.execute(begun.plan_id).plan
    assert done.state is PlanState.COMPLETE
    assert workshop.sandbox(done).is_relative_to(workshop.home)
    assert {each.path for each in holdfast.diff(begun.plan_id)} >= {"version.txt", "orders.csv"}
    first = holdfast.checkpoints(begun.plan_id)[0].checkpoint.checkpoint_id
    holdfast.rollback(begun.plan_id, first)
    assert files(workshop.sandbox(done))["version.txt"] == "1\n"
    holdfast.execute(begun.plan_id)
    holdfast.apply(begun.plan_id)
    assert (workshop.app / "version.txt").read_text() == "2\n"
    holdfast.unapply(begun.plan_id)
    assert (workshop.app / "version.txt").read_text() == "1\n"
    assert [each.detail for each in examine(workshop.open()) if each.level == "problem"] == []
    holdfast.delete(begun.plan_id)
    assert list((workshop.home / "sandboxes").iterdir()) == []
    assert not before.exists()


@pytest.mark.parametrize("prepare", [lambda _: None, as_the_version_before], ids=["now", "of the version before"])
def test_a_copied_home_never_touches_the_sandboxes_of_the_original(
    workshop: Workshop, begun: Plan, prepare: Callable[[Workshop], None]
) -> None:
    prepare(workshop)
    original = copy_home(workshop)
    untouched = describe(original / "sandboxes")
    holdfast = workshop.open()
    done = holdfast.execute(begun.plan_id).plan
    holdfast.rollback(begun.plan_id, holdfast.checkpoints(begun.plan_id)[0].checkpoint.checkpoint_id)
    assert files(workshop.sandbox(done))["version.txt"] == "1\n"
    holdfast.delete(begun.plan_id)
    workshop.close()
    assert describe(original / "sandboxes") == untouched
    workshop.home = original
    holdfast = workshop.open()
    assert holdfast.verify().is_sound
    assert holdfast.execute(begun.plan_id).plan.state is PlanState.COMPLETE


def test_a_copied_home_does_not_end_what_a_step_of_the_original_left_running(workshop: Workshop, begun: Plan) -> None:
    (left,) = workshop.open().store.runs.unfinished(begun.plan_id)
    marked = {**os.environ, MARK_VARIABLE: mark_of(left.run_id, workshop.home)}
    with subprocess.Popen(["sleep", "1000"], env=marked) as process:
        try:
            original = copy_home(workshop)
            workshop.open().execute(begun.plan_id)
            assert process.poll() is None
            workshop.close()
            workshop.home = original
            move_home(workshop)
            workshop.open().execute(begun.plan_id)
            assert process.poll() is not None
        finally:
            process.kill()


@pytest.mark.parametrize("prepare", [lambda _: None, as_the_version_before], ids=["now", "of the version before"])
def test_subplans_in_conflict_are_resolved_in_a_moved_home(
    workshop: Workshop, prepare: Callable[[Workshop], None]
) -> None:
    sides = [{"name": side, "steps": [run(f"echo {side} > version.txt")]} for side in ("left", "right")]
    plan = workshop.create({"name": "divide", "parallel": 2, "subplans": sides}, run("cat version.txt > seen.txt"))
    assert workshop.open().execute(plan.plan_id).plan.state is PlanState.CONSTRAINED
    prepare(workshop)
    before = move_home(workshop)
    holdfast = workshop.open()
    ((where, conflict),) = holdfast.conflicts(holdfast.find_plan(plan.plan_id))
    assert len(conflict.kept) > 1
    assert all(Path(each).is_file() and Path(each).is_relative_to(workshop.home) for each in conflict.kept)
    (workshop.sandbox(where) / "version.txt").write_text("both\n")
    done = holdfast.execute(plan.plan_id).plan
    assert done.state is PlanState.COMPLETE
    assert files(workshop.sandbox(done))["seen.txt"] == "both\n"
    assert not before.exists()


def test_a_home_moved_while_an_apply_was_cut_short_has_it_undone(
    workshop: Workshop, begun: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.db.store import Store as Records

    workshop.open().execute(begun.plan_id)
    with monkeypatch.context() as patched:
        save = Records.save

        def dies_when_applied(self: Records, record: object) -> None:
            if isinstance(record, Plan) and record.state is PlanState.APPLIED:
                raise Died
            save(self, record)  # type: ignore[arg-type]

        patched.setattr(Records, "save", dies_when_applied)
        with pytest.raises(Died):
            workshop.open().apply(begun.plan_id)
    move_home(workshop)
    holdfast = workshop.open()
    holdfast.execute(begun.plan_id)
    assert (workshop.app / "version.txt").read_text() == "1\n"
    holdfast.apply(begun.plan_id)
    assert (workshop.app / "version.txt").read_text() == "2\n"


def test_moved_homes_and_lost_records_are_the_same_to_a_normal_user() -> None:
    with folder_for_nobody() as folder:
        assert run_as_a_user(_move_and_lose, str(folder)) == ["2\n", "1\n", 8]


def _move_and_lose(folder: str) -> list[str | int]:
    place = Path(folder)
    workshop = Workshop(place)
    plan = workshop.create(run("echo 2 > version.txt"))
    workshop.open().execute(plan.plan_id)
    move_home(workshop)
    holdfast = workshop.open()
    file = workshop.sandbox(holdfast.find_plan(plan.plan_id)) / "version.txt"
    seen: list[str | int] = [file.read_text()]
    holdfast.rollback(plan.plan_id, holdfast.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id)
    seen.append(file.read_text())
    workshop.close()
    (workshop.home / "holdfast.db").write_bytes(b"")
    try:
        workshop.open().list_plans()
    except HoldfastError as error:
        seen.append(error.exit_code)
    return seen
