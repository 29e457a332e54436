from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.app import Holdfast
from holdfast.checkpoints.garbage import Garbage
from holdfast.checkpoints.pruning import Pruning
from holdfast.checkpoints.recorder import GroupRecorder
from holdfast.content.verify import Verifier
from holdfast.errors import ContentError, NotFoundError, QuotaError, StateError, UsageError
from holdfast.model import Operation, OperationKind, Plan, PlanState, RollbackResult, now
from holdfast.snapshot.manager import CheckpointManager
from holdfast.system import sqlite
from holdfast.system.ids import new_id
from tests.integration.cli.damage import damage_objects
from tests.support.crashes import killed_at
from tests.support.workshop import Workshop, files, run


def test_the_oldest_checkpoints_beyond_the_limit_go_but_never_the_first(workshop: Workshop) -> None:
    steps = [run(f"echo {number} > f{number}") for number in range(12)]
    plan = workshop.create(*steps, policy={"max_checkpoints": 6})
    opened = workshop.open()
    assert opened.execute(plan.plan_id).succeeded
    groups = workshop.groups(plan)
    assert opened.store.checkpoints.count(plan.plan_id) <= 6
    assert groups[0].triggers == ("pre_execute",)
    assert groups[-1].triggers == ("post_execute",)
    # History is still one line from the last to the first.
    assert not opened.service.history(opened.find_plan(plan.plan_id)).superseded_groups
    for group in groups:
        opened.rollback(plan.plan_id, group.group_id)
        assert opened.find_plan(plan.plan_id).last_completed_step == group.last_completed_step


def test_pruning_frees_the_content_nobody_needs(workshop: Workshop) -> None:
    big = "head -c 3000000 /dev/urandom > big"
    plan = workshop.create(*[run(f"{big} # {number}") for number in range(8)], policy={"max_checkpoints": 4})
    opened = workshop.open()
    opened.execute(plan.plan_id)
    opened.service.garbage.collect()
    assert opened.service.manager.objects.content_bytes() < 4 * 3_100_000


def _write(workshop: Workshop, plan: Plan, size_bytes: int) -> None:
    (workshop.sandbox(plan) / "big").write_bytes(os.urandom(size_bytes))


def _content_bytes(workshop: Workshop) -> int:
    return workshop.open().service.manager.objects.content_bytes()


def _sizes(workshop: Workshop, plan: Plan, trigger: str) -> list[int]:
    listed = workshop.open().service.list_checkpoints(plan.plan_id)
    return [each.size_bytes for each in listed if each.checkpoint_type == trigger]


def test_the_state_that_going_back_leaves_counts_and_is_freed(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.content.tally._COLLECT_AFTER_BYTES", 1_000_000)
    plan = workshop.create(run("echo 2 > version.txt"), policy={"max_checkpoints": 4})
    workshop.open().execute(plan.plan_id)
    first = workshop.groups(plan)[0].group_id
    for _ in range(6):
        _write(workshop, plan, 1_000_000)
        workshop.open().rollback_preview(plan.plan_id, first)
        workshop.open().rollback(plan.plan_id, first)
    sizes = _sizes(workshop, plan, "before_rollback")
    assert sizes
    assert all(1_000_000 < size < 1_100_000 for size in sizes)
    assert _content_bytes(workshop) < 3_300_000


def test_the_state_before_single_files_were_restored_counts(workshop: Workshop) -> None:
    plan = workshop.create(run("echo 2 > version.txt"))
    workshop.open().execute(plan.plan_id)
    _write(workshop, plan, 1_000_000)
    workshop.open().rollback(plan.plan_id, workshop.groups(plan)[0].group_id, only=["app:big"])
    [size] = _sizes(workshop, plan, "before_rollback")
    assert 1_000_000 < size < 1_100_000


def test_what_many_processes_prune_bit_by_bit_is_freed(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.content.tally._COLLECT_AFTER_BYTES", 1_000_000)
    plan = workshop.create(run("echo 2 > version.txt"), policy={"max_checkpoints": 4})
    workshop.open().execute(plan.plan_id)
    for _ in range(10):
        _write(workshop, plan, 600_000)
        workshop.open().create_checkpoint(plan.plan_id)
    assert _content_bytes(workshop) < 5.2 * 600_000


def test_what_was_given_up_while_others_needed_it_is_freed_when_they_went(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.content.tally._COLLECT_AFTER_BYTES", 1_000_000)
    monkeypatch.setattr("holdfast.content.tally._COLLECT_AFTER_CHECKPOINTS", 4)
    plan = workshop.create(run("echo 2 > version.txt"), policy={"max_checkpoints": 4})
    workshop.open().execute(plan.plan_id)
    _write(workshop, plan, 1_500_000)
    little = workshop.sandbox(plan) / "little"
    for number in range(16):
        little.write_text(str(number))
        if number == 6:
            assert _content_bytes(workshop) > 1_500_000
            (workshop.sandbox(plan) / "big").unlink()
        workshop.open().create_checkpoint(plan.plan_id)
    assert _content_bytes(workshop) < 500_000


def test_what_was_pruned_by_hand_while_others_needed_it_is_freed_when_they_went(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = workshop.create(run("echo 2 > version.txt"), policy={"max_checkpoints": 8})
    workshop.open().execute(plan.plan_id)
    _write(workshop, plan, 1_500_000)
    workshop.open().create_checkpoint(plan.plan_id)
    little = workshop.sandbox(plan) / "little"
    little.write_text("little")
    workshop.open().create_checkpoint(plan.plan_id)
    workshop.open().prune(plan.plan_id, keep=2)
    assert _content_bytes(workshop) > 1_500_000
    (workshop.sandbox(plan) / "big").unlink()
    monkeypatch.setattr("holdfast.content.tally._COLLECT_AFTER_BYTES", 1_000_000)
    monkeypatch.setattr("holdfast.content.tally._COLLECT_AFTER_CHECKPOINTS", 4)
    for number in range(14):
        little.write_text(str(number))
        workshop.open().create_checkpoint(plan.plan_id)
    assert _content_bytes(workshop) < 500_000


def _killed_at(workshop: Workshop, part: type, moment: str, action: Callable[[Holdfast], object]) -> None:
    """Kill a process when it comes to that moment of that part of the service."""

    def act() -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(part, moment, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            action(workshop.open())

    workshop.close()
    assert killed_at(-1, act)


@pytest.mark.parametrize(("part", "moment"), [(GroupRecorder, "_record"), (Pruning, "prune_records")])
def test_what_was_stored_for_a_checkpoint_that_a_kill_kept_from_being_recorded_counts_with_the_next(
    workshop: Workshop, part: type, moment: str
) -> None:
    plan = workshop.create(run("echo 2 > version.txt"))
    workshop.open().execute(plan.plan_id)
    _write(workshop, plan, 1_000_000)
    _killed_at(workshop, part, moment, lambda opened: opened.create_checkpoint(plan.plan_id))
    for number in range(2):
        (workshop.sandbox(plan) / "little").write_text(str(number))
        workshop.open().create_checkpoint(plan.plan_id)
    first, second = _sizes(workshop, plan, "manual")
    assert 1_000_000 < first < 1_100_000
    assert second < 100_000


def test_what_was_pruned_by_a_process_that_was_killed_before_it_freed_it_is_freed_by_the_next(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.content.tally._COLLECT_AFTER_BYTES", 1_000_000)
    plan = workshop.create(run("echo 2 > version.txt"), policy={"max_checkpoints": 2})
    workshop.open().execute(plan.plan_id)
    _write(workshop, plan, 1_000_000)
    workshop.open().create_checkpoint(plan.plan_id)
    (workshop.sandbox(plan) / "big").unlink()
    _killed_at(workshop, Garbage, "forget", lambda opened: opened.create_checkpoint(plan.plan_id))
    assert _content_bytes(workshop) > 1_000_000
    (workshop.sandbox(plan) / "little").write_text("little")
    workshop.open().create_checkpoint(plan.plan_id)
    assert _content_bytes(workshop) < 500_000


@pytest.mark.parametrize(
    "give_up", [lambda opened, plan: opened.prune(plan, keep=2), lambda opened, plan: opened.delete(plan)]
)
def test_what_was_pruned_or_deleted_by_hand_and_not_freed_for_a_kill_is_freed_by_another_plan(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, give_up: Callable[[Holdfast, str], object]
) -> None:
    monkeypatch.setattr("holdfast.content.tally._COLLECT_AFTER_BYTES", 1_000_000)
    plan = workshop.create(run("echo 2 > version.txt"))
    other = workshop.create(run("echo 3 > version.txt"), policy={"max_checkpoints": 2})
    for each in (plan, other):
        workshop.open().execute(each.plan_id)
    _write(workshop, plan, 1_000_000)
    workshop.open().create_checkpoint(plan.plan_id)
    (workshop.sandbox(plan) / "big").unlink()
    workshop.open().create_checkpoint(plan.plan_id)
    _killed_at(workshop, Garbage, "collect", lambda opened: give_up(opened, plan.plan_id))
    assert _content_bytes(workshop) > 1_000_000
    (workshop.sandbox(other) / "little").write_text("little")
    workshop.open().create_checkpoint(other.plan_id)
    assert _content_bytes(workshop) < 500_000


def test_a_collection_in_vain_is_not_tried_again_at_once(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.content.tally._COLLECT_AFTER_BYTES", 1_000_000)
    plan = workshop.create(run("mkdir -p deep; echo 2 > deep/file"), policy={"max_checkpoints": 4})
    opened = workshop.open()
    opened.execute(plan.plan_id)
    first = opened.service.manager.reader.state(workshop.groups(plan)[0].states["data"])
    workshop.close()
    damage_objects(workshop.home / "objects.db", [first.root.content])
    collected: list[object] = []
    collect = CheckpointManager.collect
    monkeypatch.setattr(CheckpointManager, "collect", lambda *args: collected.append(args) or collect(*args))
    for _ in range(6):
        _write(workshop, plan, 400_000)
        workshop.open().create_checkpoint(plan.plan_id)
    assert len(collected) == 1


def test_a_damaged_line_of_the_catalogue_stops_neither_checkpoints_nor_rollbacks(workshop: Workshop) -> None:
    plan = workshop.create(run("echo 2 > version.txt"))
    workshop.open().execute(plan.plan_id)
    workshop.close()
    with closing(sqlite.module.connect(workshop.home / "objects.db")) as connection, connection:
        connection.execute("UPDATE snapshot SET record = 'x' || substr(record, 2)")
    _write(workshop, plan, 1000)
    workshop.open().create_checkpoint(plan.plan_id)
    workshop.close()
    workshop.open().rollback(plan.plan_id, workshop.groups(plan)[0].group_id)
    assert "big" not in files(workshop.sandbox(plan))


def test_content_of_other_plans_is_not_collected(workshop: Workshop) -> None:
    first, second = (workshop.create(run(f"echo {name} > {name}")) for name in ("one", "two"))
    for plan in (first, second):
        workshop.open().execute(plan.plan_id)
    opened = workshop.open()
    opened.service.garbage.collect()
    for plan in (first, second):
        for group in opened.store.groups.of(plan.plan_id):
            opened.rollback(plan.plan_id, group.group_id)


def _quota_plan(workshop: Workshop) -> Plan:
    return workshop.create(
        *[run(f"head -c 400000 /dev/urandom > f{number}; rm -f f{number - 1}") for number in range(6)]
    )


def test_a_quota_first_prunes_what_retention_can_spare(workshop: Workshop) -> None:
    plan = _quota_plan(workshop)
    opened = workshop.open(sandbox__checkpoint__max_bytes="1500000")
    assert opened.execute(plan.plan_id).succeeded
    assert opened.service.manager.objects.content_bytes() <= 1_500_000
    assert opened.store.checkpoints.count(plan.plan_id) < 14


def test_a_quota_that_cannot_be_kept_stops_the_plan_loudly(workshop: Workshop) -> None:
    plan = workshop.create(run("head -c 900000 /dev/urandom > big"), run("touch reached"))
    opened = workshop.open(sandbox__checkpoint__max_bytes="500000")
    with pytest.raises(QuotaError, match="max-bytes"):
        opened.execute(plan.plan_id)
    stopped = workshop.open().find_plan(plan.plan_id)
    assert stopped.state is PlanState.ERRORED
    assert "max-bytes" in (stopped.error or "")
    assert not (workshop.sandbox(plan) / "reached").exists()
    # With more room it goes on.
    assert workshop.open().execute(plan.plan_id).succeeded


def test_a_quota_never_stands_in_the_way_back(workshop: Workshop) -> None:
    plan = workshop.create(run("head -c 900000 /dev/urandom > big"))
    workshop.open().execute(plan.plan_id)
    unsaved = workshop.sandbox(plan) / "unsaved"
    unsaved.write_bytes(os.urandom(500_000))
    content = unsaved.read_bytes()
    opened = workshop.open(sandbox__checkpoint__max_bytes="300000")
    result = opened.rollback(plan.plan_id, workshop.groups(plan)[0].group_id)
    assert isinstance(result, RollbackResult)
    assert not unsaved.exists()
    assert result.left_group_id is not None
    opened.rollback(plan.plan_id, result.left_group_id)
    assert unsaved.read_bytes() == content


def _damage(home: Path, sql: str) -> None:
    # With the library that has the file open: the locks that two in one process have on a file undo each other.
    with sqlite.module.connect(home / "objects.db") as connection:
        connection.execute(sql)
    connection.close()


def test_verify_finds_nothing_where_nothing_is_wrong(workshop: Workshop) -> None:
    plan = workshop.create(run("head -c 5000000 /dev/urandom > big; ln -s big link; mkfifo fifo; touch empty"))
    opened = workshop.open()
    opened.execute(plan.plan_id)
    result = opened.verify(plan.plan_id)
    assert result.damaged == ()
    assert result.checkpoints == opened.store.checkpoints.count(plan.plan_id)
    assert result.objects > 5


def test_verify_does_not_call_damaged_what_another_process_prunes_meanwhile(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = workshop.create(*[run(f"head -c 9000 /dev/urandom > file; echo {number}") for number in range(6)])
    opened = workshop.open()
    opened.execute(plan.plan_id)
    bad_objects_of, pruned = Verifier.bad_objects_of, []

    def after_pruning(verifier: Verifier, state: str) -> frozenset[bytes]:
        if not pruned:
            pruned.append(workshop.open().prune(plan.plan_id, 2))
        return bad_objects_of(verifier, state)

    monkeypatch.setattr(Verifier, "bad_objects_of", after_pruning)
    assert opened.verify(plan.plan_id).damaged == ()
    assert pruned != [0]


@pytest.mark.parametrize(
    ("damage", "is_there"),
    [
        ("UPDATE object SET data = substr(data, 1, length(data) - 1) || x'00' WHERE size_bytes = 13", True),
        ("DELETE FROM object WHERE size_bytes = 13", False),
    ],
)
def test_verify_names_what_is_damaged_and_the_checkpoints_it_affects(
    workshop: Workshop, damage: str, is_there: bool
) -> None:
    plan = workshop.create(run("printf 'thirteen char' > precious"), run("rm precious"))
    other = workshop.create(run("echo other > other"))
    opened = workshop.open()
    for each in (plan, other):
        opened.execute(each.plan_id)
    _damage(workshop.home, damage)
    result = opened.verify()
    assert [found.is_there for found in result.damaged] == [is_there]
    affected = {(each.plan_id, each.metadata.step) for each in result.damaged[0].checkpoints}
    assert affected == {(plan.plan_id, "printf 'thirteen char' > precious"), (plan.plan_id, "rm precious")}
    assert opened.verify(other.plan_id).damaged == ()
    # And such a checkpoint is not restored, not even in part.
    before = files(workshop.sandbox(plan))
    with pytest.raises(ContentError):
        opened.rollback(plan.plan_id, result.damaged[0].checkpoints[0].checkpoint_id)
    assert files(workshop.sandbox(plan)) == before


@pytest.mark.parametrize("kind", ["state", "directory", "pieces"])
def test_verify_notices_damage_in_every_kind_of_object(workshop: Workshop, kind: str) -> None:
    plan = workshop.create(run("mkdir d; head -c 5000000 /dev/urandom > d/big"))
    opened = workshop.open()
    opened.execute(plan.plan_id)
    group = opened.store.groups.of(plan.plan_id)[-1]
    reader = opened.service.manager.reader
    state = reader.state(group.states["app"])
    folder = reader.find(state, b"d")
    big = reader.find(state, b"d/big")
    assert folder is not None
    assert big is not None
    digest = {"state": bytes.fromhex(group.states["app"]), "directory": folder.content, "pieces": big.content}[kind]
    _damage(workshop.home, f"DELETE FROM object WHERE digest = x'{digest.hex()}'")
    assert digest.hex() in {found.digest for found in workshop.open().verify(plan.plan_id).damaged}


def _folder_object(workshop: Workshop, plan: Plan) -> str:
    """The name of the object that lists what is in ``folder`` when it is there first."""
    opened = workshop.open()
    reader = opened.service.manager.reader
    states = [reader.state(group.states["app"]) for group in opened.store.groups.of(plan.plan_id)]
    return next(found.content.hex() for state in states if (found := reader.find(state, b"folder")) is not None)


def _harm_folder(workshop: Workshop, plan: Plan, harm: str) -> None:
    name = _folder_object(workshop, plan)
    if harm == "damaged":
        _damage(workshop.home, f"UPDATE object SET data = x'00' || 'rotten' WHERE digest = x'{name}'")
    else:
        _damage(workshop.home, f"DELETE FROM object WHERE digest = x'{name}'")


@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_damaged_content_of_one_plan_does_not_stop_another_from_being_pruned_or_deleted(
    workshop: Workshop, harm: str
) -> None:
    rotten = workshop.create(run("mkdir folder; head -c 300000 /dev/urandom > folder/precious"))
    sound = workshop.create(*[run(f"head -c 300000 /dev/urandom > f # {number}") for number in range(4)])
    opened = workshop.open()
    for plan in (rotten, sound):
        assert opened.execute(plan.plan_id).succeeded
    _harm_folder(workshop, rotten, harm)
    opened = workshop.open()
    before = opened.service.manager.objects.content_bytes()
    assert opened.prune(sound.plan_id, keep=2) > 0
    assert len(opened.store.groups.of(sound.plan_id)) == 2
    assert "checkpoint verify" in (opened.unfreed() or "")
    assert opened.verify(sound.plan_id).damaged == ()
    # What lies in the damaged folder is not known, so nothing may go.
    assert opened.service.manager.objects.content_bytes() >= before - 50_000
    opened.delete(sound.plan_id)
    assert [plan.plan_id for plan in opened.list_plans()] == [rotten.plan_id]
    assert "checkpoint verify" in (opened.unfreed() or "")
    # Once nothing needs the damaged folder any more, everything is freed.
    opened.delete(rotten.plan_id)
    assert opened.unfreed() is None
    assert opened.service.manager.objects.content_bytes() < 100_000


def test_what_lies_in_a_damaged_folder_is_still_there_when_the_folder_comes_back(workshop: Workshop) -> None:
    rotten = workshop.create(run("mkdir folder; echo precious > folder/file"))
    sound = workshop.create(run("echo other > other"))
    opened = workshop.open()
    for plan in (rotten, sound):
        opened.execute(plan.plan_id)
    name = _folder_object(workshop, rotten)
    opened = workshop.open()
    with sqlite.module.connect(workshop.home / "objects.db") as connection:
        row = connection.execute(f"SELECT * FROM object WHERE digest = x'{name}'").fetchone()
        connection.execute(f"DELETE FROM object WHERE digest = x'{name}'")
        connection.commit()
        opened.delete(sound.plan_id)
        connection.execute("INSERT INTO object VALUES (?, ?, ?)", row)
    connection.close()
    assert workshop.open().verify().damaged == ()


def test_content_is_freed_again_once_the_damaged_checkpoints_are_deleted(workshop: Workshop) -> None:
    plan = workshop.create(run("mkdir folder; head -c 300000 /dev/urandom > folder/big"), run("rm -r folder"))
    opened = workshop.open()
    opened.execute(plan.plan_id)
    _harm_folder(workshop, plan, "missing")
    opened = workshop.open()
    for affected in opened.verify(plan.plan_id).damaged[0].checkpoints:
        opened.delete_checkpoint(plan.plan_id, affected.checkpoint_id)
    assert opened.unfreed() is None
    assert opened.service.manager.objects.content_bytes() < 200_000
    assert opened.verify().damaged == ()


def test_a_quota_is_refused_loudly_where_damage_keeps_content_from_being_freed(workshop: Workshop) -> None:
    rotten = workshop.create(run("mkdir folder; echo precious > folder/file"))
    workshop.open().execute(rotten.plan_id)
    _harm_folder(workshop, rotten, "damaged")
    plan = _quota_plan(workshop)
    opened = workshop.open(sandbox__checkpoint__max_bytes="1500000")
    with pytest.raises(QuotaError, match="max-bytes") as refusal:
        opened.execute(plan.plan_id)
    assert "checkpoint verify" in refusal.value.hint
    assert workshop.open().find_plan(plan.plan_id).state is PlanState.ERRORED
    opened.delete(rotten.plan_id)
    assert opened.execute(plan.plan_id).succeeded


def test_a_plan_of_another_home_is_not_touched(workshop: Workshop, tmp_path: Path) -> None:
    """Records can be shared; the content of a plan is where it ran."""
    opened = workshop.open()
    plan = opened.execute(workshop.create(run("true")).plan_id).plan
    shutil.rmtree(workshop.sandbox(plan).parent)
    with opened.store.transaction():
        opened.store.save(plan.changed(store_id="elsewhere"))
    with pytest.raises(StateError, match="another machine"):
        opened.execute(plan.plan_id)


def _lose_content(workshop: Workshop) -> None:
    workshop.close()
    for file in workshop.home.glob("objects.db*"):
        file.unlink()


def test_plans_whose_content_is_lost_can_be_deleted(workshop: Workshop) -> None:
    opened = workshop.open()
    executed, bare, never_executed = (workshop.create(run("echo 1 > one")) for _ in range(3))
    for plan in (executed, bare):
        opened.execute(plan.plan_id)
    shutil.rmtree(workshop.home / "sandboxes" / bare.plan_id)
    _lose_content(workshop)
    opened = workshop.open()
    with pytest.raises(ContentError, match="content of plan"):
        opened.create_checkpoint(executed.plan_id)
    for plan in (executed, bare, never_executed):
        opened.delete(plan.plan_id)
    assert opened.list_plans() == []
    assert not list((workshop.home / "sandboxes").iterdir())


def test_a_plan_that_was_never_executed_needs_no_content(workshop: Workshop) -> None:
    plan = workshop.create(run("echo 1 > one"))
    _lose_content(workshop)
    opened = workshop.open()
    assert opened.execute(plan.plan_id).succeeded
    opened.service.garbage.collect()
    assert opened.verify(plan.plan_id).damaged == ()
    first = opened.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id
    opened.rollback(plan.plan_id, first)
    assert not (workshop.sandbox(plan) / "one").exists()


def test_a_plan_whose_content_is_lost_while_it_was_applied_is_not_deleted(workshop: Workshop) -> None:
    plan = workshop.create(run("echo 1 > one"))
    workshop.open().execute(plan.plan_id)
    opened = workshop.open()
    operation = Operation(
        operation_id=new_id(), plan_id=plan.plan_id, kind=OperationKind.APPLY, created_at=now(), data={}
    )
    with opened.store.transaction():
        opened.store.insert(operation)
    _lose_content(workshop)
    with pytest.raises(ContentError, match="content of plan"):
        workshop.open().delete(plan.plan_id)


def test_a_checkpoint_asked_for_with_a_label_is_never_pruned(workshop: Workshop) -> None:
    plan = workshop.create(run("echo 1 > one"), run("echo 2 > two"), policy={"max_checkpoints": 3})
    opened = workshop.open()
    with pytest.raises(StateError, match="no sandboxes yet"):
        opened.create_checkpoint(plan.plan_id)
    opened.execute(plan.plan_id)
    (workshop.sandbox(plan) / "mine").write_text("by hand")
    made = opened.create_checkpoint(plan.plan_id, "before lunch")
    with pytest.raises(UsageError, match="labelled"):
        opened.create_checkpoint(plan.plan_id, "before lunch")
    for _ in range(5):
        opened.create_checkpoint(plan.plan_id)
    (workshop.sandbox(plan) / "mine").unlink()
    result = opened.rollback(plan.plan_id, "before lunch")
    assert isinstance(result, RollbackResult)
    assert result.checkpoint == made.checkpoint
    assert files(workshop.sandbox(plan))["mine"] == "by hand"


def test_a_checkpoint_can_be_deleted_unless_something_needs_it(workshop: Workshop) -> None:
    plan = workshop.create(run("head -c 2000000 /dev/urandom > big"), run("rm big"))
    opened = workshop.open()
    opened.execute(plan.plan_id)
    views = opened.checkpoints(plan.plan_id)
    for needed in (views[0], views[-1]):
        with pytest.raises(StateError, match="is needed"):
            opened.delete_checkpoint(plan.plan_id, needed.checkpoint.checkpoint_id)
    holding = [view for view in views if view.group.step_index is not None][1:3]
    for view in holding:
        opened.delete_checkpoint(plan.plan_id, view.checkpoint.checkpoint_id)
    assert opened.service.manager.objects.content_bytes() < 1_000_000
    for view in opened.checkpoints(plan.plan_id):
        opened.rollback(plan.plan_id, view.checkpoint.checkpoint_id)
    assert not opened.service.history(opened.find_plan(plan.plan_id)).superseded_groups & {views[0].group.group_id}


def test_pruning_by_hand_keeps_the_first_and_the_last(workshop: Workshop) -> None:
    plan = workshop.create(*[run(f"echo {number} > f") for number in range(4)])
    opened = workshop.open()
    opened.execute(plan.plan_id)
    first, last = opened.checkpoints(plan.plan_id)[0], opened.checkpoints(plan.plan_id)[-1]
    assert opened.prune(plan.plan_id) == 0
    assert opened.prune(plan.plan_id, keep=3) > 0
    left = [view.group.group_id for view in opened.checkpoints(plan.plan_id)]
    assert (left[0], left[-1]) == (first.group.group_id, last.group.group_id)
    assert opened.apply(plan.plan_id)


def test_a_deleted_plan_leaves_nothing_behind(workshop: Workshop) -> None:
    plan = workshop.create(run("head -c 2000000 /dev/urandom > big"))
    other = workshop.create(run("echo other > other"))
    opened = workshop.open()
    for each in (plan, other):
        opened.execute(each.plan_id)
    opened.delete(plan.plan_id)
    with pytest.raises(NotFoundError):
        opened.find_plan(plan.plan_id)
    assert not (workshop.home / "sandboxes" / plan.plan_id).exists()
    assert opened.service.manager.objects.content_bytes() < 1_000_000
    assert opened.verify().damaged == ()
    assert opened.rollback(other.plan_id, opened.checkpoints(other.plan_id)[0].checkpoint.checkpoint_id)


@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_content_that_verify_found_damaged_is_stored_anew_by_the_next_checkpoint_of_any_plan_that_has_it(
    workshop: Workshop, harm: str
) -> None:
    (workshop.data / "shared").write_text("thirteen char")
    plans = [workshop.create(run(f"mkdir folder; echo {name} > folder/{name}")) for name in ("one", "two")]
    for plan in plans:
        assert workshop.open().execute(plan.plan_id).succeeded
    rotten = "UPDATE object SET data = x'00' || 'rotten'" if harm == "damaged" else "DELETE FROM object"
    workshop.close()
    _damage(workshop.home, f"{rotten} WHERE size_bytes = 13")
    # It is found for one plan, and the sandbox of the other has it.
    assert len(workshop.open().verify(plans[0].plan_id).damaged) == 1
    workshop.close()
    workshop.open().create_checkpoint(plans[1].plan_id)
    assert workshop.open().verify().damaged == ()
    for plan in plans:
        first = workshop.open().checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id
        (workshop.sandbox(plan, "data") / "shared").unlink()
        assert workshop.open().rollback(plan.plan_id, first)
        assert (workshop.sandbox(plan, "data") / "shared").read_text() == "thirteen char"


def test_content_that_keeps_others_from_being_freed_is_healed_by_a_checkpoint(workshop: Workshop) -> None:
    hurt = workshop.create(run("mkdir folder; echo precious > folder/file"))
    other = workshop.create(run("head -c 300000 /dev/urandom > big"))
    for plan in (hurt, other):
        workshop.open().execute(plan.plan_id)
    _harm_folder(workshop, hurt, "damaged")
    opened = workshop.open()
    opened.delete(other.plan_id)
    assert opened.unfreed() is not None
    opened.create_checkpoint(hurt.plan_id)
    opened.prune(hurt.plan_id)
    assert opened.unfreed() is None
    assert opened.service.manager.objects.content_bytes() < 200_000
    assert opened.verify().damaged == ()
