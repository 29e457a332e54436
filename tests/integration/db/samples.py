"""Records to store, each of which refers to what exists."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from holdfast.db.store import Store
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    CheckpointMetadata,
    Decision,
    DecisionType,
    Lease,
    Operation,
    OperationKind,
    Phase,
    Plan,
    Project,
    Resource,
    ResourceType,
    Revision,
    Step,
    StepRun,
    now,
)
from holdfast.system.ids import new_id


def a_plan(project: Project, **fields: Any) -> Plan:
    steps = (Step(name="look", tool="shell", args={"command": "ls", "then": [1, None, {"x": 0.5}]}, resource="app"),)
    resources = (Resource(name="app", type=ResourceType.GIT, path="/src/app", sandbox_path="/sandboxes/app"),)
    defaults = {"plan_id": new_id(), "name": "a plan", "resources": resources, "steps": steps, "store_id": "content"}
    at = now()
    return Plan(**{**defaults, "project_id": project.project_id, "created_at": at, "updated_at": at, **fields})


def saved_plan(store: Store, root: str = "/src/app", **fields: Any) -> Plan:
    plan = a_plan(store.plans.project_for(root), **fields)
    with store.transaction():
        store.insert(plan)
        store.insert(Revision(plan_id=plan.plan_id, revision=plan.revision, steps=plan.steps))
    return plan


def a_decision(plan: Plan, sequence: int, **fields: Any) -> Decision:
    defaults = {"decision_id": new_id(), "type": DecisionType.STRATEGY_CHOICE, "question": "Which?", "chosen": "this"}
    return Decision(**{**defaults, "plan_id": plan.plan_id, "sequence": sequence, "created_at": now(), **fields})


def a_group(plan: Plan, sequence: int, **fields: Any) -> CheckpointGroup:
    defaults = {
        "group_id": new_id(),
        "plan_id": plan.plan_id,
        "sequence": sequence,
        "triggers": ("on_decision",),
        "phase": Phase.EXECUTE,
        "attempt": 1,
        "revision": 1,
        "last_completed_step": -1,
        "active_decisions": ((1, 3), (7, 7)),
        "states": {"app": "aa" * 32},
        "created_at": now(),
    }
    return CheckpointGroup(**{**defaults, **fields})


def a_checkpoint(group: CheckpointGroup, sequence: int, **fields: Any) -> Checkpoint:
    metadata = CheckpointMetadata(
        reason="before the step",
        source="shell",
        phase=Phase.EXECUTE,
        step_index=0,
        step="look",
        state_hash="aa" * 32,
        label=None,
        triggers=group.triggers,
    )
    defaults = {
        "checkpoint_id": new_id(),
        "plan_id": group.plan_id,
        "group_id": group.group_id,
        "sequence": sequence,
        "sandbox_ref": "app",
        "resource_id": "app",
        "checkpoint_type": "pre_execute",
        "filesystem_path": "/sandboxes/app",
        "size_bytes": 1 << 40,
        "metadata": metadata,
        "created_at": now(),
    }
    return Checkpoint(**{**defaults, **fields})


def a_run(plan: Plan, sequence: int = 1, **fields: Any) -> StepRun:
    defaults = {
        "run_id": new_id(),
        "sequence": sequence,
        "step_index": 0,
        "step": "look",
        "attempt": 1,
        "started_at": now(),
    }
    return StepRun(**{**defaults, "plan_id": plan.plan_id, **fields})


def a_lease(plan_id: str, **fields: Any) -> Lease:
    at = now()
    defaults = {
        "token": 0,
        "owner": "me",
        "host": "here",
        "pid": os.getpid(),
        "process_started_at": 1.5,
        "boot_id": "this one",
        "pid_namespace": "ours",
        "command": "plan execute",
        "acquired_at": at,
        "heartbeat_at": at,
    }
    return Lease(**{**defaults, "plan_id": plan_id, **fields})


def an_operation(plan: Plan, **fields: Any) -> Operation:
    defaults = {"operation_id": new_id(), "kind": OperationKind.ROLLBACK, "data": {}, "created_at": now()}
    return Operation(**{**defaults, "plan_id": plan.plan_id, **fields})


@contextmanager
def interrupted(store: Store) -> Iterator[None]:
    """A transaction that everything is ready for, and that ends by an interrupt."""
    with suppress(KeyboardInterrupt), store.transaction():
        yield
        raise KeyboardInterrupt
