"""Checkpoints with damaged records: they can be named, shown and deleted, but not used for anything else."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.checkpoints.line import group_named
from holdfast.checkpoints.references import MomentReference, moment_reference, resolve_checkpoint
from holdfast.db.store import Store
from holdfast.errors import AmbiguousError, CheckpointNotFoundError, DamagedRecordError, NotFoundError
from holdfast.model import Checkpoint, CheckpointGroup, DamagedCheckpoint, Plan, now
from holdfast.names import DISPLAY_PREFIX, SHORTEST_DISPLAY
from holdfast.system.ids import is_id


def get_sound_checkpoint(store: Store, plan_id: str, reference: str) -> Checkpoint:
    """The checkpoint that the reference names; refused if its record is damaged, or if it may name a damaged one."""
    only = _only_one(store, plan_id, reference)
    if only is not None:
        return only
    moment = moment_reference(reference, now().astimezone())
    if moment is not None:
        return _at_moment(store, store.get(Plan, plan_id), reference, moment)
    damaged = damaged_fitting(store, plan_id, reference)
    try:
        found = resolve_checkpoint(reference, store.checkpoints.of(plan_id))
    except AmbiguousError:
        raise
    except NotFoundError:
        if not damaged:
            raise
        raise _unusable(damaged[0]) from None
    for each in damaged:
        if each.checkpoint_id == found.checkpoint_id:
            raise _unusable(each)  # the checkpoint's own record is sound, that of its group is not
    if damaged and found.checkpoint_id != _id_prefix(reference):
        raise _ambiguous(reference, found, damaged)
    return found


def _only_one(store: Store, plan_id: str, reference: str) -> Checkpoint | None:
    """The sound checkpoint whose id or display id this is, found without reading the others; None if in doubt."""
    prefix, wanted = _id_prefix(reference), reference.strip()
    if not is_id(prefix) and (prefix == wanted.upper() or len(prefix) < SHORTEST_DISPLAY):
        return None  # it may be a label, or fit several checkpoints
    ids = store.checkpoints.ids_with(plan_id, prefix)
    found = store.find(Checkpoint, ids[0], sound_only=True) if len(ids) == 1 else None
    if found is None or store.find(CheckpointGroup, found.group_id, sound_only=True) is None:
        return None
    return found


def _at_moment(store: Store, plan: Plan, reference: str, moment: MomentReference) -> Checkpoint:
    """The first checkpoint of that moment; earlier versions allowed labels that look like moments."""
    group, labelled = group_named(store, plan, moment), store.groups.with_label(plan.plan_id, reference)
    if labelled is not None and group is not None and labelled.group_id != group.group_id:
        found = [_first_sound(store, each).checkpoint_id for each in (group, labelled)]
        raise AmbiguousError(
            f'"{reference}" is a moment and also the label of another checkpoint of this plan',
            hint=f"Say which one: {found[0]} is the moment, {found[1]} has the label.",
        )
    found_group = group or labelled
    if found_group is None:
        raise _no_such_moment(store, plan, reference)
    return _first_sound(store, found_group)


def _first_sound(store: Store, group: CheckpointGroup) -> Checkpoint:
    sound = store.checkpoints.of_group(group.group_id)
    if sound:
        return sound[0]
    raise DamagedRecordError(
        f"The records of all checkpoints of moment {group.group_id} are damaged.",
        hint=f"Use another moment (`holdfast log {group.plan_id}`).",
    )


def _no_such_moment(store: Store, plan: Plan, reference: str) -> CheckpointNotFoundError:
    if plan.head_group_id is None:
        return CheckpointNotFoundError(
            f'this plan has no moment "{reference}"', hint="The plan has no checkpoints yet."
        )
    first = store.groups.first(plan.plan_id)
    began = f"{first.created_at.astimezone():%Y-%m-%d %H:%M:%S}"
    return CheckpointNotFoundError(
        f'this plan has no moment "{reference}": its first one, `start`, is of {began}',
        hint=f"See its moments with `holdfast log {plan.plan_id}`.",
    )


def damaged_fitting(store: Store, plan_id: str, reference: str) -> list[DamagedCheckpoint]:
    """The damaged checkpoints that the reference may name: by their id, a prefix of it, or the id of their group."""
    prefix = _id_prefix(reference)
    found = store.damaged.checkpoints(plan_id) if prefix else []
    exact = [each for each in found if each.checkpoint_id == prefix]
    return exact or [each for each in found if each.checkpoint_id.startswith(prefix) or each.group_id == prefix]


def find_damaged_checkpoint(store: Store, plan_id: str, reference: str) -> DamagedCheckpoint | None:
    """The checkpoint that the reference names, if its record or that of its group is damaged."""
    try:
        get_sound_checkpoint(store, plan_id, reference)
    except DamagedRecordError:
        return damaged_fitting(store, plan_id, reference)[0]
    return None


def _id_prefix(reference: str) -> str:
    return reference.strip().upper().removeprefix(DISPLAY_PREFIX.upper())


def _unusable(damaged: DamagedCheckpoint) -> DamagedRecordError:
    return DamagedRecordError(
        f"Checkpoint {damaged.checkpoint_id} cannot be used: {damaged.problem}",
        hint=f"Use another one (`holdfast checkpoint list {damaged.plan_id}`). "
        f"`holdfast checkpoint delete {damaged.plan_id} {damaged.checkpoint_id}` removes it.",
    )


def _ambiguous(reference: str, found: Checkpoint, damaged: Sequence[DamagedCheckpoint]) -> AmbiguousError:
    others = ", ".join(each.checkpoint_id for each in damaged)
    return AmbiguousError(
        f'"{reference}" also fits checkpoints whose records are damaged: {others}',
        hint=f"Say which one: {found.checkpoint_id}, {others}.",
    )
