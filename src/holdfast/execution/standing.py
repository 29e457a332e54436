"""Standing: where a plan would go on, and why; and the refusals that only a person's choice can lift.

It is computed once for each preview or execution, which then ask it instead of the records.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from holdfast.checkpoints.consequences import consequences_of
from holdfast.checkpoints.history import History
from holdfast.checkpoints.missing import missing_sandboxes, recorded_states
from holdfast.checkpoints.service import CheckpointService
from holdfast.errors import StateError
from holdfast.model import CheckpointGroup, Plan, PlanState, Resource, RunStatus, SideEffect, Step, StepRun
from holdfast.rollback.compensation import effects_outside
from holdfast.tools import Toolbox


class AfterInterruption(StrEnum):
    """What to do with an interrupted step that may already have had effects outside of the sandboxes."""

    RERUN = "rerun"
    SKIP = "skip"


class Choices(msgspec.Struct, frozen=True):
    """What a person chose before the plan goes on."""

    interrupted_step: AfterInterruption | None = None
    conflicts_are_resolved: bool = False
    """Even if a file in conflict is still as the merge left it."""


class Standing(msgspec.Struct, frozen=True):
    """Where a plan would go on."""

    plan: Plan
    history: History
    run: StepRun | None
    """The unfinished run of the next step, which is undone, skipped or continued."""
    is_divided: bool
    """The subplans of that run continue; otherwise its step starts again."""
    subplans: tuple[Plan, ...]
    """The subplans that continue, in their order; empty if the run had not spawned them yet."""
    missing: tuple[Resource, ...]
    """Resources whose sandboxes are missing."""
    recorded: Mapping[str, str]
    """The states from which missing sandboxes are re-created; empty if none is missing."""
    lost_since: CheckpointGroup | None
    """The last group, if a missing sandbox held work of steps that this group does not hold."""

    def skips(self, tools: Toolbox, choices: Choices) -> bool:
        """Whether the interrupted step counts as done, because a person chose so."""
        return choices.interrupted_step is AfterInterruption.SKIP and _may_count_as_done(self.plan, self.run, tools)


def standing_of(plan: Plan, service: CheckpointService) -> Standing:
    history = service.history(plan)
    run, missing = history.unfinished_run, tuple(missing_sandboxes(plan))
    is_divided = _continues_subplans(plan, run)
    subplans = tuple(history.spawned_by(run)) if run is not None and is_divided else ()
    states = recorded_states(history) if missing else None
    return Standing(
        plan=plan,
        history=history,
        run=run,
        is_divided=is_divided,
        subplans=subplans,
        missing=missing,
        recorded=(states or history.head.states) if missing else {},
        lost_since=history.head if missing and states is None else None,
    )


def _continues_subplans(plan: Plan, run: StepRun | None) -> bool:
    if run is None or run.step_index >= len(plan.steps) or run.status is RunStatus.FAILED:
        return False
    return bool(plan.steps[run.step_index].subplans)


# Refusals


def refuse_to_repeat(standing: Standing, service: CheckpointService, tools: Toolbox, choices: Choices) -> None:
    """Refuse to repeat effects outside of the sandboxes, also of subplans that continue, without a person's choice."""
    plan, run = standing.plan, standing.run
    if standing.lost_since is not None:
        _refuse_to_lose(standing, standing.lost_since, service, tools, choices)
        return
    step = plan.interrupted_step(run)
    if standing.is_divided:
        for subplan in standing.subplans:
            if subplan.state is not PlanState.COMPLETE:
                refuse_to_repeat(standing_of(subplan, service), service, tools, choices)
    elif run is not None and step is not None and choices.interrupted_step is None and _cannot_repeat(step, tools):
        root_id = service.store.plans.root_of(plan).plan_id
        where = "" if plan.parent_plan_id is None else f" of subplan {plan.name}"
        raise StateError(
            f"Step {run.step_index + 1} ({run.step}){where} was interrupted, and what it does outside of the sandboxes "
            "may have happened already.",
            hint=f"`holdfast plan resume --rerun {root_id}` runs it again, "
            f"`holdfast plan resume --skip {root_id}` goes on after it.",
        )


def _refuse_to_lose(
    standing: Standing, head: CheckpointGroup, service: CheckpointService, tools: Toolbox, choices: Choices
) -> None:
    """Refuse to run finished steps again for a missing sandbox if that repeats effects outside, or ignores a skip."""
    plan = standing.plan
    undone = consequences_of(standing.history, head)
    effects = effects_outside(plan, service, tools, undone).side_effects_not_undone
    repeated = [each for each in effects if _is_repeated(each, service, tools)]
    is_skip = choices.interrupted_step is AfterInterruption.SKIP
    if choices.interrupted_step is AfterInterruption.RERUN or not (repeated or is_skip):
        return
    gone = ", ".join(resource.name for resource in standing.missing)
    listed = ", ".join(f"step {each.step_index + 1} ({each.step})" for each in repeated)
    outside = f" What these did outside of the sandboxes would happen again: {listed}." if repeated else ""
    back = standing.history.position_at(head)
    raise StateError(
        f"The sandbox of {gone} is gone, with all that steps did in it since the last checkpoint: nothing can be "
        f"skipped, and resuming runs the plan again from step {back.next_step + 1} "
        f"({back.steps[back.next_step].name}).{outside}",
        hint=f"`holdfast plan resume --rerun {service.store.plans.root_of(plan).plan_id}` does so.",
    )


def _is_repeated(effect: SideEffect, service: CheckpointService, tools: Toolbox) -> bool:
    """Whether running the step again may repeat the effect; a step that failed is tried again in any case."""
    run = service.store.get(StepRun, effect.run_id)
    step = service.store.get(Plan, run.plan_id).steps[run.step_index]
    return run.status is not RunStatus.FAILED and _cannot_repeat(step, tools)


def _cannot_repeat(step: Step, tools: Toolbox) -> bool:
    """Whether running the step again would repeat an effect outside of the sandboxes."""
    declared = tools.declaration_for(step)
    return declared.side_effects and not declared.idempotent


def refuse_to_skip_nothing(standing: Standing, service: CheckpointService, tools: Toolbox, choices: Choices) -> None:
    """Refuse a skip if no interrupted step can be skipped: the step that the person means would run."""
    is_skip = choices.interrupted_step is AfterInterruption.SKIP
    if is_skip and not _can_skip(standing.plan, standing.run, service, tools):
        raise StateError(
            "There is nothing to skip: neither a step with effects outside of the sandboxes nor a program was "
            "interrupted.",
            hint=f"`holdfast plan resume {standing.plan.plan_id}` goes on; to leave a step out, correct its decision.",
        )


def _can_skip(plan: Plan, run: StepRun | None, service: CheckpointService, tools: Toolbox) -> bool:
    below = (each for each in service.store.plans.below(plan.plan_id) if not each.is_superseded)
    return _may_count_as_done(plan, run, tools) or any(
        _can_skip(each, service.history(each).unfinished_run, service, tools) for each in below
    )


def _may_count_as_done(plan: Plan, run: StepRun | None, tools: Toolbox) -> bool:
    """Whether a person may count the interrupted step as done."""
    step = plan.interrupted_step(run)
    return step is not None and (step.is_program or _cannot_repeat(step, tools))
