"""A checkpoint that a person asks for."""

from __future__ import annotations

from holdfast.checkpoints.recorder import Occasion
from holdfast.checkpoints.references import refuse_label
from holdfast.checkpoints.service import CheckpointService
from holdfast.errors import StateError, UsageError
from holdfast.model import Lease, Moment, Plan

ASKED_BY_PERSON = "asked for by a person"


def take_manual_checkpoint(plan: Plan, lease: Lease, service: CheckpointService, label: str | None) -> Plan:
    """Take a checkpoint of the sandboxes as they are now. Refused if there are none, or if the label is in use."""
    if plan.head_group_id is None:
        raise StateError(
            f"Plan {plan.plan_id} has no sandboxes yet.", hint=f"Run `holdfast plan execute {plan.plan_id}`."
        )
    service.sandboxes.refuse_missing(plan)
    if label is not None:
        refuse_label(label)
        refuse_label_in_use(plan, service, label)
    occasion = Occasion((Moment.MANUAL,), source="user", reason=ASKED_BY_PERSON, label=label)
    return service.create_checkpoint(plan, lease, occasion)


def refuse_label_in_use(plan: Plan, service: CheckpointService, label: str) -> None:
    if service.store.groups.has_label(plan.plan_id, label):
        raise UsageError(f"There is a checkpoint labelled {label!r} already.", hint="Choose another label.")
