"""One damaged record: it is shown as such, only what needs that very record is refused, and it can be removed."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.model import RunStatus
from holdfast.process.leftovers import MARK_VARIABLE, mark_of
from holdfast.system.sqlite import module  # another library would drop the locks of this process
from tests.integration.cli.project import Project

STEPS = "".join(
    f"  - {{name: {name}, tool: write_file, args: {{path: {name}, content: {name}}}}}\n"
    for name in ("one", "two", "three")
)
NOT_JSON = "metadata_json = 'not JSON'"
UNKNOWN_FIELD = """metadata_json = substr(metadata_json, 1, length(metadata_json) - 1) || ',"mood":"good"}'"""
CHECKSUM = "checksum = 'ffffffffffffffffffffffffffffffff'"


def change(project: Project, statement: str) -> None:
    with closing(module.connect(project.home / "holdfast.db")) as connection, connection:
        assert connection.execute(statement).rowcount == 1, statement


def ask(project: Project, question: str) -> list[Any]:
    with closing(module.connect(project.home / "holdfast.db")) as connection:
        return [row[0] for row in connection.execute(question)]


@pytest.fixture
def plan(project: Project) -> str:
    return str(project.json("plan", "execute", str(project.plan(STEPS)))["plan_id"])


@pytest.fixture(params=[NOT_JSON, UNKNOWN_FIELD, CHECKSUM], ids=["not JSON", "an unknown field", "a wrong checksum"])
def damaged(project: Project, plan: str, request: pytest.FixtureRequest) -> str:
    """The id of the checkpoint before the second step, whose record is damaged."""
    checkpoint = project.checkpoint_before(1)
    change(project, f"UPDATE checkpoint_metadata SET {request.param} WHERE checkpoint_id = '{checkpoint}'")
    return checkpoint


def test_it_is_listed_as_damaged_beside_all_others(project: Project, plan: str, damaged: str) -> None:
    listed = {each["checkpoint_id"]: each["damaged"] for each in project.checkpoints()}
    assert len({frozenset(each) for each in project.checkpoints()}) == 1, "damaged ones have other keys"
    assert [each for each, problem in listed.items() if problem] == [damaged]
    assert len(listed) == len(ask(project, "SELECT checkpoint_id FROM checkpoint_metadata"))
    assert list(listed) == sorted(listed)
    shown = project.call("checkpoint", "list").stdout
    assert "its record is damaged" in shown
    assert f"holdfast checkpoint delete {plan} cp_" in shown


LOOKS = (
    ["plan", "status"],
    ["plan", "log"],
    ["plan", "tree"],
    ["plan", "diff"],
    ["plan", "list"],
    ["checkpoint", "verify"],
)


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
@pytest.mark.unmeasured
def test_looking_at_everything_else_works(project: Project, damaged: str, words: list[str]) -> None:
    assert project.call(*words).exit_code == 0


def test_only_what_needs_that_very_record_is_refused(project: Project, plan: str, damaged: str) -> None:
    for words in (
        ["checkpoint", "show", damaged],
        ["plan", "rollback", "--yes", plan, damaged],
        ["plan", "diff", plan, damaged],
    ):
        refused = project.call(*words)
        assert refused.exit_code == 8, words
        assert f"holdfast checkpoint delete {plan} {damaged}" in refused.stderr


def test_the_plan_goes_back_goes_on_is_corrected_and_applied(project: Project, plan: str, damaged: str) -> None:
    before_last = project.checkpoint_before(2)
    assert project.call("plan", "rollback", "--yes", plan, before_last).exit_code == 0
    assert not (project.sandbox() / "three").exists()
    assert project.call("plan", "execute", plan).exit_code == 0
    decision = next(each["decision_id"] for each in project.json("plan", "status")["steps"] if each["name"] == "two")
    corrected = project.call("plan", "correct", "--yes", "--mode", "revert", "--guidance", "again", decision)
    assert corrected.exit_code == 0, corrected
    assert project.call("checkpoint", "create", plan).exit_code == 0
    assert project.call("checkpoint", "prune", "--keep", "3", plan).exit_code == 0
    assert project.call("plan", "apply", "--yes", plan).exit_code == 0
    assert (project.app / "three").read_text() == "three"


def test_doctor_names_the_command_that_removes_it_and_that_works(project: Project, plan: str, damaged: str) -> None:
    found = next(each for each in project.json("doctor", exit_code=8)["findings"] if each["name"] == "records")
    command = f"holdfast checkpoint delete {plan} {damaged}"
    assert command in found["hint"]
    removed = project.json(*command.split()[1:], "--yes")
    assert removed["deleted"] == 1
    assert damaged not in {each["checkpoint_id"] for each in project.checkpoints()}
    assert project.call("doctor").exit_code == 0
    assert project.call("checkpoint", "verify").exit_code == 0


@pytest.mark.parametrize("position", ["first", "last"])
def test_one_whose_moment_the_plan_needs_is_removed_and_the_moment_stays(
    project: Project, plan: str, position: str
) -> None:
    order = "sequence, checkpoint_id" if position == "first" else "sequence DESC"
    checkpoint, group = (
        ask(project, f"SELECT {column} FROM checkpoint_metadata ORDER BY {order} LIMIT 1")[0]
        for column in ("checkpoint_id", "group_id")
    )
    change(project, f"UPDATE checkpoint_metadata SET {CHECKSUM} WHERE checkpoint_id = '{checkpoint}'")
    assert project.call("checkpoint", "delete", "--yes", plan, checkpoint).exit_code == 0
    assert group in ask(project, "SELECT group_id FROM checkpoint_group")
    assert project.call("plan", "diff", plan).exit_code == 0
    assert project.call("plan", "apply", "--yes", plan).exit_code == 0


def test_a_step_goes_back_to_its_start_although_the_record_of_that_checkpoint_is_damaged(project: Project) -> None:
    outside = project.folder / "outside"
    gate = outside / "gate"
    for folder in (outside, project.home):
        folder.mkdir()
    (project.home / "config.toml").write_text(f'sandbox.allow-write = ["{outside}"]\n')
    file = project.plan(
        f"  - run: 'echo half > half; touch {gate}; while test -e {gate}; do sleep 0.01; done; exit 1'\n"
    )
    process = project.start("plan", "execute", str(file))
    while not gate.exists():
        assert process.poll() is None
    before = ask(project, "SELECT group_before_id FROM step_run")[0]
    with closing(module.connect(project.home / "holdfast.db")) as connection, connection:
        connection.execute(f"UPDATE checkpoint_metadata SET {CHECKSUM} WHERE group_id = '{before}'")
    gate.unlink()
    process.communicate()
    assert process.returncode == 1
    assert not (project.sandbox() / "half").exists()
    assert project.json("plan", "status")["state"] == "errored"


# The record of a moment


@pytest.fixture
def damaged_group(project: Project, plan: str) -> str:
    """The id of a checkpoint in the middle whose group is damaged."""
    checkpoint = project.checkpoint_before(1)
    group = ask(project, f"SELECT group_id FROM checkpoint_metadata WHERE checkpoint_id = '{checkpoint}'")[0]
    change(project, f"UPDATE checkpoint_group SET states = '{{}}' WHERE group_id = '{group}'")
    return checkpoint


def test_a_damaged_moment_stops_only_those_that_need_it(project: Project, plan: str, damaged_group: str) -> None:
    for words in (*LOOKS, ["checkpoint", "list"]):
        assert project.call(*words).exit_code == 0, words
    assert [each["checkpoint_id"] for each in project.checkpoints() if each["damaged"]] == [damaged_group]
    assert project.call("plan", "rollback", "--yes", plan, damaged_group).exit_code == 8
    assert project.call("plan", "rollback", "--yes", plan, project.checkpoint_before(2)).exit_code == 0
    assert project.call("plan", "execute", plan).exit_code == 0
    assert project.call("plan", "apply", "--yes", plan).exit_code == 0


def test_s7_what_a_damaged_moment_needs_is_kept_while_other_content_is_freed(
    project: Project, plan: str, damaged_group: str
) -> None:
    states = _named(project, f"WHERE holder = '{_group_of(project, damaged_group)}'")
    other = project.json("plan", "execute", str(project.plan(STEPS, name="other.yaml")))["plan_id"]
    before = _objects(project)
    assert project.call("plan", "delete", "--yes", other).exit_code == 0
    assert states <= _objects(project) < before
    _delete_damaged_group(project, plan, damaged_group)
    assert states & _objects(project) == states & _named(project)


def _named(project: Project, where: str = "") -> set[bytes]:
    return set(map(bytes.fromhex, ask(project, f"SELECT state FROM named_state {where}")))


def test_s7_while_a_moment_is_damaged_nothing_is_collected_if_everything_must_be_counted_and_that_is_said(
    project: Project, plan: str, damaged_group: str
) -> None:
    other = project.json("plan", "execute", str(project.plan(STEPS, name="other.yaml")))["plan_id"]
    with closing(module.connect(project.home / "objects.db")) as content, content:
        content.execute("DELETE FROM meta WHERE key = 'counted'")
    before = _objects(project)
    deleted = project.call("plan", "delete", "--yes", other)
    assert deleted.exit_code == 0
    assert "No saved content was freed, because a record" in deleted.stdout + deleted.stderr
    assert _objects(project) == before
    _delete_damaged_group(project, plan, damaged_group)
    assert _objects(project) < before


def _group_of(project: Project, checkpoint: str) -> str:
    sql = f"SELECT group_id FROM checkpoint_metadata WHERE '{checkpoint}' IN (checkpoint_id, group_id)"
    return str(ask(project, sql)[0])


def _objects(project: Project) -> set[bytes]:
    with closing(module.connect(project.home / "objects.db")) as content:
        return {row[0] for row in content.execute("SELECT digest FROM object")}


def _delete_damaged_group(project: Project, plan: str, damaged_group: str) -> None:
    assert project.call("checkpoint", "delete", "--yes", plan, damaged_group).exit_code == 0
    assert damaged_group not in {each["checkpoint_id"] for each in project.checkpoints()}
    assert project.call("checkpoint", "verify").exit_code == 0
    assert project.call("doctor").exit_code == 0


@pytest.mark.parametrize("order", ["sequence", "sequence DESC"], ids=["first", "last"])
def test_a_damaged_moment_that_the_plan_cannot_do_without_is_not_deleted(
    project: Project, plan: str, order: str
) -> None:
    group = ask(project, f"SELECT group_id FROM checkpoint_group ORDER BY {order} LIMIT 1")[0]
    change(project, f"UPDATE checkpoint_group SET {CHECKSUM} WHERE group_id = '{group}'")
    refused = project.call("checkpoint", "delete", "--yes", plan, group)
    assert refused.exit_code == 4, refused
    assert f"holdfast plan delete {plan}" in refused.stderr
    assert group in ask(project, "SELECT group_id FROM checkpoint_group")
    assert project.call("plan", "delete", "--yes", plan).exit_code == 0
    assert project.call("doctor").exit_code == 0


# Other records


@pytest.mark.parametrize(
    "damage", ["decision SET chosen = 'x'", "step_run SET output = 'x'", "operation SET kind = 'x'"]
)
def test_what_is_damaged_is_left_out_and_named_by_those_who_only_look(project: Project, plan: str, damage: str) -> None:
    project.call("plan", "rollback", "--yes", plan, project.checkpoint_before(2))
    table = damage.split()[0]
    key = ask(project, f"SELECT min({'run_id' if table == 'step_run' else table + '_id'}) FROM {table}")[0]
    change(project, f"UPDATE {damage} WHERE '{key}' IN ({'run_id' if table == 'step_run' else table + '_id'})")
    for words in (["plan", "status"], ["plan", "log"], ["plan", "tree"], ["plan", "list"], ["checkpoint", "list"]):
        assert project.call(*words).exit_code == 0, words
    if table == "decision":
        shown = project.call("plan", "tree")
        assert f"decision {key}" in shown.stdout + shown.stderr
    assert project.call("plan", "delete", "--yes", plan).exit_code == 0


@pytest.mark.parametrize("table", ["plan", "plan_revision"])
def test_a_damaged_plan_does_not_concern_others_and_can_be_deleted(project: Project, plan: str, table: str) -> None:
    other = project.json("plan", "execute", str(project.plan(STEPS, name="other.yaml")))["plan_id"]
    change(project, f"UPDATE {table} SET {CHECKSUM} WHERE plan_id = '{plan}'")
    listed = project.call("plan", "list")
    assert listed.exit_code == 0
    assert other in listed.stdout
    assert f"{plan}" in listed.stdout + listed.stderr
    assert project.call("plan", "status", other).exit_code == 0
    assert project.call("plan", "rollback", "--yes", other, project.checkpoint_before(1, other)).exit_code == 0
    assert project.call("plan", "execute", other).exit_code == 0
    assert project.call("plan", "status", plan).exit_code == 8
    found = next(each for each in project.json("doctor", exit_code=8)["findings"] if each["name"] == "records")
    assert f"holdfast plan delete {plan}" in found["hint"]
    assert project.call("plan", "delete", "--yes", plan).exit_code == 0
    assert not (project.home / "sandboxes" / plan).exists()
    assert project.call("doctor").exit_code == 0
    assert project.call("plan", "apply", "--yes", other).exit_code == 0


def test_what_a_step_of_a_damaged_plan_left_running_is_ended_when_it_is_deleted(project: Project, plan: str) -> None:
    with Holdfast.open(project.folder, home=project.home) as holdfast, holdfast.store.transaction():
        run = holdfast.runs(plan)[-1].model_copy(update={"status": RunStatus.RUNNING, "finished_at": None})
        holdfast.store.save(run)
    mark = {MARK_VARIABLE: mark_of(run.run_id, project.home)}
    with subprocess.Popen(["sleep", "300"], env={**os.environ, **mark}) as left:
        change(project, f"UPDATE plan SET {CHECKSUM} WHERE plan_id = '{plan}'")
        try:
            assert project.call("plan", "delete", "--yes", plan).exit_code == 0
            left.wait(10)
        finally:
            left.kill()


@pytest.mark.parametrize("damage", [CHECKSUM, "token = 'x'"], ids=["a wrong checksum", "no number"])
def test_a_plan_whose_lease_is_damaged_can_be_looked_at_and_deleted(project: Project, plan: str, damage: str) -> None:
    other = project.json("plan", "execute", str(project.plan(STEPS, name="other.yaml")))["plan_id"]
    change(project, f"UPDATE lease SET {damage} WHERE plan_id = '{plan}'")
    for words in (["plan", "status", plan], ["plan", "diff", plan], ["plan", "list"]):
        assert project.call(*words).exit_code == 0, words
    assert project.call("plan", "execute", plan).exit_code == 8
    pruned = project.call("checkpoint", "prune", "--keep", "2", other)
    assert pruned.exit_code == 0
    assert "No saved content was freed" in pruned.stdout
    found = next(each for each in project.json("doctor", exit_code=8)["findings"] if each["name"] == "records")
    assert f"holdfast plan delete {plan}" in found["hint"]
    assert project.call("plan", "delete", "--yes", plan).exit_code == 0
    assert not (project.home / "sandboxes" / plan).exists()
    assert project.call("doctor").exit_code == 0
    assert project.call("plan", "apply", "--yes", other).exit_code == 0


def test_a_project_whose_record_is_damaged_keeps_its_plans_and_gets_new_ones(project: Project, plan: str) -> None:
    change(project, f"UPDATE project SET {CHECKSUM}")
    assert project.call("doctor").exit_code == 8
    assert [each["plan_id"] for each in project.json("plan", "list")["plans"]] == [plan]
    assert project.json("plan", "status", "latest")["plan_id"] == plan
    made = project.json("plan", "create", str(project.plan(STEPS, name="other.yaml")))["plan_id"]
    assert [each["plan_id"] for each in project.json("plan", "list")["plans"]] == [made, plan]
    assert project.call("doctor").exit_code == 0
