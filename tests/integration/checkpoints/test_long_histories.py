"""What is read of a history is what is asked for, and says the same as the whole history would."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.app import Holdfast
from holdfast.checkpoints.consequences import consequences_of
from holdfast.checkpoints.damage import get_sound_checkpoint
from holdfast.checkpoints.history import History
from holdfast.checkpoints.recorder import Occasion
from holdfast.checkpoints.references import resolve_checkpoint
from holdfast.checkpoints.retention import GroupFacts, retention
from holdfast.checkpoints.service import CheckpointService
from holdfast.db.lease import leased
from holdfast.db.store import Store, open_store
from holdfast.errors import DamagedRecordError, DatabaseError, NotFoundError
from holdfast.model import PROGRAM_TOOL, Checkpoint, CheckpointGroup, CheckpointRetentionPolicy, Plan, Step
from holdfast.names import display_ids
from holdfast.system.ids import id_text
from tests.integration.db.samples import a_checkpoint, a_decision, a_group, a_lease, a_run, saved_plan
from tests.support.workshop import Workshop, run


class _Undone(Exception):
    """Ends a transaction whose changes are not wanted."""


@contextmanager
def _undone(store: Store) -> Iterator[None]:
    """Nothing of what is changed meanwhile stays, so that the next example begins as this one did."""
    with suppress(_Undone), store.transaction():
        yield
        raise _Undone


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(None, tmp_path) as store:
        yield store


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, int, bool]]:
    """For each group after the first: how far back its parent is, how many checkpoints it has, if it has a label."""
    group = st.tuples(st.integers(1, 4), st.integers(0, 3), st.sampled_from([False, False, False, True]))
    return draw(st.lists(group, max_size=25))


def _save(store: Store, plan: Plan, history: list[tuple[int, int, bool]]) -> list[CheckpointGroup]:
    groups = [a_group(plan, 1)]
    for back, _, is_labelled in history:
        parent = groups[max(0, len(groups) - back)]
        label = f"label {len(groups)}" if is_labelled else None
        groups.append(a_group(plan, len(groups) + 1, parent_group_id=parent.group_id, label=label))
    for group, count in zip(groups, [1, *(count for _, count, _ in history)], strict=True):
        store.insert(group)
        for _ in range(count):
            store.insert(a_checkpoint(group, group.sequence))
    return groups


PROGRAM = Step(name="work", tool=PROGRAM_TOOL, args={"argv": ["true"]}, resource="data")
"""The first step of a plan whose history is thinned."""


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories(), st.integers(1, 20), st.booleans())
def test_pruning_removes_what_retention_says_of_the_whole_history(
    workshop: Workshop, history: list[tuple[int, int, bool]], limit: int, thins: bool
) -> None:
    service = workshop.open().service
    store = service.store
    plan = saved_plan(store, steps=(PROGRAM,)) if thins else saved_plan(store)
    with _undone(store):
        groups = _save(store, plan, history)
        counts = store.checkpoints.count_by_group(plan.plan_id)
        facts = [GroupFacts(each.group_id, each.sequence, each.label, counts.get(each.group_id, 0)) for each in groups]
        head = plan.changed(head_group_id=groups[-1].group_id)
        expected = retention(facts, limit, {groups[-1].group_id}, thins=thins)
        pruned = service.pruning.prune_records(
            head, a_lease(plan.plan_id), CheckpointRetentionPolicy(max_checkpoints=limit)
        )

        left = store.groups.of(plan.plan_id)
        assert [each.group_id for each in left] == list(expected.keep)
        assert {each.group_id for each in pruned} <= set(expected.remove)
        assert sum(each.count for each in pruned) == _count_of(facts, expected.remove)
        assert all(_parent_left(each, groups, {one.group_id for one in left}) for each in left)


def _count_of(facts: list[GroupFacts], group_ids: Collection[str]) -> int:
    return sum(each.checkpoints for each in facts if each.group_id in group_ids)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories(), histories(), st.integers(1, 20), st.sets(st.integers(0, 50)), st.booleans())
def test_pruning_at_each_of_many_steps_removes_what_retention_says_of_the_whole_history(
    workshop: Workshop,
    history: list[tuple[int, int, bool]],
    added: list[tuple[int, int, bool]],
    limit: int,
    needed: set[int],
    thins: bool,
) -> None:
    """What a process reads and notes ahead changes neither what is kept nor how it is connected."""
    service = workshop.open().service
    store, policy = service.store, CheckpointRetentionPolicy(max_checkpoints=limit)
    plan = saved_plan(store, steps=(PROGRAM,)) if thins else saved_plan(store)
    with _undone(store):
        groups = left = _save(store, plan, history)
        noted, gone = _given_up(service), 0
        for _, count, is_labelled in added:
            group = a_group(
                plan,
                groups[-1].sequence + 1,
                parent_group_id=groups[-1].group_id,
                label=f"label {len(groups)}" if is_labelled else None,
            )
            store.insert(group)
            for _ in range(count):
                store.insert(a_checkpoint(group, group.sequence))
            groups = [*groups, group]
            # Which groups are needed differs from step to step.
            also = {each.group_id for each in groups if (each.sequence + len(groups)) % 7 in needed}
            counts = store.checkpoints.count_by_group(plan.plan_id)
            facts = [
                GroupFacts(each.group_id, each.sequence, each.label, counts.get(each.group_id, 0))
                for each in (*left, group)
            ]
            expected = retention(facts, limit, {group.group_id, *also}, thins=thins)

            head = plan.changed(head_group_id=group.group_id)
            service.pruning.prune_records(head, a_lease(plan.plan_id), policy, also)

            left = store.groups.of(plan.plan_id)
            assert [each.group_id for each in left] == list(expected.keep)
            assert all(_parent_left(each, groups, {one.group_id for one in left}) for each in left)
            gone += _count_of(facts, expected.remove)
            assert _given_up(service) - noted >= gone


def _given_up(service: CheckpointService) -> int:
    """How many checkpoints the content store has noted as given up."""
    row = service.manager.objects.database.row("SELECT value FROM meta WHERE key = 'given_up_checkpoints'")
    return int(row[0]) if row else 0


def _parent_left(group: CheckpointGroup, before: list[CheckpointGroup], left: set[str]) -> bool:
    """Whether its parent is now the nearest group above it that is left."""
    parents = {each.group_id: each.parent_group_id for each in before}
    above = parents[group.group_id]
    while above is not None and above not in left:
        above = parents[above]
    return group.parent_group_id == above


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories(), st.data())
def test_the_groups_that_a_rollback_left_are_those_that_do_not_lead_to_the_head(
    store: Store, history: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    plan = saved_plan(store)
    groups = _save(store, plan, history)
    head = data.draw(st.sampled_from(groups))
    damaged = data.draw(st.integers(0, len(groups)), label="which is damaged, or none")
    if damaged < len(groups):
        store.execute("UPDATE checkpoint_group SET reason = 'x' WHERE group_id = ?", groups[damaged].group_id)
    sound = [each for number, each in enumerate(groups) if number != damaged]
    found = History(store, plan.changed(head_group_id=head.group_id)).superseded_groups
    assert found == _superseded(sound, head, groups)


def _superseded(sound: list[CheckpointGroup], head: CheckpointGroup, groups: list[CheckpointGroup]) -> set[str]:
    known, by_id = {each.group_id for each in sound}, {each.group_id: each for each in groups}
    line, at = [], head.group_id
    while at is not None and at in known:
        line.append(by_id[at])
        at = by_id[at].parent_group_id
    # What is before a damaged group counts as belonging to the line.
    oldest = 0 if at is None else min((each.sequence for each in line), default=len(groups) + 1)
    return {each.group_id for each in sound if each.sequence > oldest and each not in line}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.booleans(), max_size=20), st.sets(st.integers(1, 20)))
def test_a_rollback_marks_the_decisions_that_the_target_holds_otherwise_and_their_runs(
    store: Store, superseded: list[bool], held: set[int]
) -> None:
    plan = saved_plan(store)
    decisions = [a_decision(plan, number, is_superseded=each) for number, each in enumerate(superseded, 1)]
    for decision in decisions:
        store.insert(decision)
        store.insert(a_run(plan, decision.sequence, decision_id=decision.decision_id))
    target = a_group(plan, 1, active_decisions=tuple((number, number) for number in sorted(held)))
    found = consequences_of(History(store, plan), target)
    assert list(found.superseded) == [d for d in decisions if not d.is_superseded and d.sequence not in held]
    assert list(found.revived) == [d for d in decisions if d.is_superseded and d.sequence in held]
    marked = [d.decision_id for d in decisions if d.is_superseded == (d.sequence in held)]
    assert [run.decision_id for run in found.runs] == marked


def test_a_rollback_is_refused_if_the_number_of_a_decision_is_damaged(store: Store) -> None:
    plan = saved_plan(store)
    store.insert(a_decision(plan, 1))
    store.insert(a_decision(plan, 2))
    store.execute("UPDATE decision SET sequence = 'x' WHERE sequence = 2")
    with pytest.raises(DamagedRecordError):
        consequences_of(History(store, plan), a_group(plan, 1, active_decisions=((1, 1),)))


_IDS = st.lists(
    st.integers(0, 40).map(lambda number: id_text((1 << 127) + (number << 68) + number % 3)), min_size=1, unique=True
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_IDS, st.data())
def test_a_display_id_and_what_it_names_are_the_same_without_reading_all_ids_of_the_plan(
    workshop: Workshop, ids: list[str], data: st.DataObject
) -> None:
    opened = workshop.open()
    store = opened.store
    with _undone(store):
        plan, other = saved_plan(store), saved_plan(store)
        owners = data.draw(st.lists(st.sampled_from([plan, other]), min_size=len(ids), max_size=len(ids)))
        group_of = {each.plan_id: a_group(each, 1) for each in (plan, other)}
        for group in group_of.values():
            store.insert(group)
        for checkpoint_id, owner in zip(ids, owners, strict=True):
            store.insert(a_checkpoint(group_of[owner.plan_id], 1, checkpoint_id=checkpoint_id))
        own = [each for each, owner in zip(ids, owners, strict=True) if owner is plan]
        assert {each: opened.display_id(plan.plan_id, each) for each in own} == display_ids(own)
        checkpoints = store.checkpoints.of(plan.plan_id)
        for each in ids:
            for name in (each, each.lower(), f"cp_{each[:8]}", f"cp_{each[:12]}", f"cp_{each}", each[:12]):
                found = _named(partial(get_sound_checkpoint, store, plan.plan_id, name))
                assert found == _named(partial(resolve_checkpoint, name, checkpoints))


def _named(find: Callable[[], Checkpoint]) -> Checkpoint | type[Exception]:
    """The checkpoint, or why there is none."""
    try:
        return find()
    except NotFoundError as error:
        return type(error)


def test_a_lasting_id_holds_the_whole_time_and_is_longer_only_beside_one_of_the_same_moment(workshop: Workshop) -> None:
    opened = workshop.open()
    plan = saved_plan(opened.store)
    group = a_group(plan, 1)
    ids = [id_text((5 << 80) + number) for number in (1, 2)] + [id_text(6 << 80)]
    opened.store.insert(group)
    for each in ids:
        opened.store.insert(a_checkpoint(group, 1, checkpoint_id=each))
    assert [opened.lasting_id(plan.plan_id, each) for each in ids] == [
        f"cp_{ids[0]}", f"cp_{ids[1]}", f"cp_{ids[2][:10]}"
    ]  # fmt: skip
    assert opened.lasting_id(plan.plan_id, id_text(9)) == id_text(9)


def test_a_checkpoint_record_that_is_damaged_still_counts_for_the_limit(workshop: Workshop) -> None:
    plan = workshop.create(*[run(f"echo {number} > f") for number in range(4)], policy={"max_checkpoints": 6})
    opened = workshop.open()
    opened.execute(plan.plan_id)
    damaged = workshop.groups(plan)[-2]
    opened.store.execute("UPDATE checkpoint_group SET reason = 'x' WHERE group_id = ?", damaged.group_id)
    assert opened.prune(plan.plan_id, 4) == 2
    assert opened.store.checkpoints.count(plan.plan_id) == 4
    assert opened.store.has(CheckpointGroup, damaged.group_id)
    assert opened.store.has(Checkpoint, opened.find_plan(plan.plan_id).last_checkpoint_id or "")


def _with_checkpoints(workshop: Workshop, limit: int) -> tuple[Holdfast, Plan]:
    """A plan that has as many checkpoints as it may have, and the process that took them."""
    plan = workshop.create(*[run(f"echo {number} > f") for number in range(limit)], policy={"max_checkpoints": limit})
    opened = workshop.open()
    opened.execute(plan.plan_id)
    assert opened.store.checkpoints.count(plan.plan_id) == limit
    return opened, opened.find_plan(plan.plan_id)


def test_what_another_process_deleted_is_not_counted_when_the_next_checkpoint_prunes(workshop: Workshop) -> None:
    opened, plan = _with_checkpoints(workshop, 6)
    assert workshop.open().prune(plan.plan_id, 3) == 3
    opened.create_checkpoint(plan.plan_id)
    assert opened.store.checkpoints.count(plan.plan_id) == 4


def test_a_checkpoint_that_was_not_recorded_is_not_counted_when_the_next_one_prunes(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, plan = _with_checkpoints(workshop, 6)
    occasion = Occasion(("manual",), source="user", reason="asked for")
    service = opened.service

    def fails(_: object) -> None:
        raise DatabaseError("The disk is gone.")

    with leased(opened.store, plan.plan_id, "checkpoint create") as lease:
        plan = service.create_checkpoint(plan, lease, occasion)
        kept = [each.group_id for each in opened.store.groups.of(plan.plan_id)]
        with monkeypatch.context() as patched:
            patched.setattr(service.garbage, "note_given_up", fails)
            with pytest.raises(DatabaseError):
                service.create_checkpoint(plan, lease, occasion)
        assert [each.group_id for each in opened.store.groups.of(plan.plan_id)] == kept
        for _ in range(3):
            plan = service.create_checkpoint(plan, lease, occasion)
            assert opened.store.checkpoints.count(plan.plan_id) == 6
