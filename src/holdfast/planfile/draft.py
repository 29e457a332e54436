"""The draft of a plan, made from a plan file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.checkpoints.triggers import parse_triggers
from holdfast.model import (
    SHELL_TOOL,
    SUBPLANS_TOOL,
    Compensation,
    DecisionSpec,
    Policy,
    Step,
    Subplan,
    Trigger,
)
from holdfast.planfile.format import DecisionEntry, PlanFile, PolicyEntry, StepEntry
from holdfast.planfile.unstored import LONGEST_DERIVED_NAME, PlanDraft, ResourceDraft, shortened


def draft_of(plan_file: PlanFile, folders: Mapping[str, Path], source_file: Path | None, defaults: Policy) -> PlanDraft:
    default_resource = next(iter(plan_file.resources))
    return PlanDraft(
        name=plan_file.name,
        resources=tuple(
            ResourceDraft(name=name, type=entry.type, path=folders[name]) for name, entry in plan_file.resources.items()
        ),
        policy=_policy(plan_file.policy, defaults),
        validation=tuple(plan_file.validation),
        steps=tuple(steps_of(plan_file.steps, default_resource)),
        source_file=source_file,
    )


def _policy(entry: PolicyEntry, defaults: Policy) -> Policy:
    given: dict[str, Any] = {key: getattr(entry, key) for key in entry.model_fields_set}
    if entry.auto_create_on is not None:
        triggers: tuple[Trigger, ...] = parse_triggers(entry.auto_create_on)
        given["auto_create_on"] = triggers
    return defaults.model_copy(update=given)


def steps_of(entries: Iterable[StepEntry], default_resource: str) -> Iterator[Step]:
    for entry in entries:
        tool, args = _call(entry)
        yield Step(
            name=entry.name or _derived_name(entry),
            tool=tool,
            args=args,
            resource=entry.resource or default_resource,
            writes=entry.writes,
            checkpointable=entry.checkpointable,
            side_effects=entry.side_effects,
            idempotent=entry.idempotent,
            timeout_seconds=entry.timeout,
            retries=entry.retries,
            decision=_decision(entry.decision) if entry.decision else None,
            compensate=Compensation(tool=entry.compensate.tool, args=entry.compensate.args)
            if entry.compensate
            else None,
            subplans=tuple(
                Subplan(name=subplan.name, steps=tuple(steps_of(subplan.steps, default_resource)))
                for subplan in entry.subplans or ()
            ),
            parallel=entry.parallel,
            merge=entry.merge,
        )


def _call(entry: StepEntry) -> tuple[str, dict[str, Any]]:
    if entry.run is not None:
        return SHELL_TOOL, {"command": entry.run}
    return entry.tool or SUBPLANS_TOOL, entry.args


def _derived_name(entry: StepEntry) -> str:
    if entry.run is not None:
        name = next(line for line in entry.run.splitlines() if line.strip())
    elif entry.subplans:
        name = ", ".join(subplan.name for subplan in entry.subplans)
    else:
        path = entry.args.get("path")
        name = f"{entry.tool} {path}" if isinstance(path, str) else str(entry.tool)
    return shortened(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", name), LONGEST_DERIVED_NAME)


def _decision(entry: DecisionEntry) -> DecisionSpec:
    return DecisionSpec(
        type=entry.type,
        question=entry.question,
        chosen=entry.chosen,
        alternatives=tuple(entry.alternatives),
        rationale=entry.rationale,
        confidence=entry.confidence,
    )
