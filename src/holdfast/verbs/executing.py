"""Executing a plan, from the lock to the result, also on a disk that becomes full."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, nullcontext, suppress

import msgspec

from holdfast.errors import HoldfastError
from holdfast.events import Listener
from holdfast.execution.beginning import with_all_sandboxes
from holdfast.execution.executor import AfterInterruption, Choices, ExecutionResult, PlanExecutor
from holdfast.execution.preflight import check_plan, check_space, programs_to_start, refuse_what_is_gone
from holdfast.execution.view import refuse_without_same_path
from holdfast.locking import Locking
from holdfast.model import Lease, Plan, PlanState, Step
from holdfast.parts import Outfit, Parts
from holdfast.recovery import undo_changes_of_dead_processes
from holdfast.sandbox.protocol import Sandbox, sandbox_for
from holdfast.system.reserve import full_disk
from holdfast.system.stopping import Stopped, stoppable

_DONE = (PlanState.COMPLETE, PlanState.APPLIED)


def execute_plan(
    reference: str,
    parts: Parts,
    locking: Locking,
    listener: Listener | None,
    cancelled: threading.Event,
    choices: Choices | None,
    outfit: Outfit,
    before_programs: Callable[[Plan, Sequence[Step]], None] | None,
) -> ExecutionResult:
    tell = listener or (lambda _: None)
    recovered = locking.recovered(locking.EXECUTE, reference, on_stop_request=cancelled.set, listener=listener)
    # The reserve is given up until the lease is released, which takes space as well.
    with ExitStack() as given_up, recovered as (plan, lease):
        if plan.state not in _DONE:
            _check_programs(plan, choices or Choices(), parts, before_programs)
        sandboxes = {resource.name: sandbox_for(plan, resource) for resource in plan.resources}
        executor = PlanExecutor(
            parts.service,
            parts.step_runner(outfit),
            sandboxes=sandboxes,
            choices=choices,
            listener=listener,
            cancelled=cancelled,
        )
        try:
            # A plan that is done can no longer be stopped.
            with nullcontext() if plan.state in _DONE else stoppable(cancelled):
                plan, made = _begun(plan, lease, parts, tell, sandboxes.values())
        except Stopped:
            return executor.record_stopped_at_start(plan, lease)
        if plan.state in _DONE:
            return ExecutionResult(plan, was_done=True, made_anew=made)
        if plan.head_group_id is None:
            undo_changes_of_dead_processes(plan, parts.service, tell)
        pruned = parts.service.pruning.pruned(plan.plan_id)
        try:
            result = executor.execute(plan, lease)
        except (HoldfastError, OSError) as error:
            full = full_disk(error, parts.home)
            if full is None:
                raise
            given_up.enter_context(parts.reserve.given_up())
            parts.service.garbage.give_up_spares()
            hint = ""
            with suppress(HoldfastError):
                hint = locking.way_out(plan)
            with suppress(HoldfastError):  # then the next command finds it interrupted
                executor.record_error(plan, lease, f"{full.message} {hint}".strip())
            raise full from error
        pruned = parts.service.pruning.pruned(plan.plan_id) - pruned
        return msgspec.structs.replace(result, made_anew=(*made, *result.made_anew), pruned=pruned)


def _check_programs(
    plan: Plan,
    choices: Choices,
    parts: Parts,
    before_programs: Callable[[Plan, Sequence[Step]], None] | None,
) -> None:
    is_skipped = choices.interrupted_step is AfterInterruption.SKIP
    programs = programs_to_start(plan, is_skipped=is_skipped)
    refuse_what_is_gone(plan, programs, parts.environment, parts.asked_paths)
    if programs and before_programs is not None:
        before_programs(plan, programs)


def _begun(
    plan: Plan, lease: Lease, parts: Parts, listener: Listener, sandboxes: Collection[Sandbox]
) -> tuple[Plan, tuple[str, ...]]:
    """The plan with all its sandboxes, and the resources whose sandboxes were made again; a new plan is checked."""
    plan, made = with_all_sandboxes(plan, lease, parts.service, listener)
    if plan.head_group_id is None:
        check_plan(plan, parts.tools, parts.home)
        refuse_without_same_path(parts.settings.view)
        check_space(sandboxes, parts.home)
    return plan, made
