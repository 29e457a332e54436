"""The result of an execution, and the commands to run next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.cli.data import (
    changes_with_ignored,
    conflicts_data,
    plan_data,
    program_data,
    resources_data,
    steps_data,
    switched_off,
)
from holdfast.cli.output import Next, Reply, Screen, output_lines, show_next, show_sentence, wrapped
from holdfast.cli.screen.listeners import own_path_messages
from holdfast.cli.screen.plans import after_interrupted_program, changes_text, show_conflicts, show_pruned, show_tail
from holdfast.errors import EXIT_INTERRUPTED, EXIT_STEP_FAILED, ConflictError
from holdfast.model import CheckpointGroup, Plan, PlanState, SideEffect, StepRun

if TYPE_CHECKING:
    from holdfast import ExecutionResult, Holdfast

TAIL_LINES = 20
_TAIL_LINES_SHOWN = 10
_NOT_KEPT = "no checkpoint contains the files as they were when it failed; they are still in the sandboxes."


def outcome_reply(holdfast: Holdfast, result: ExecutionResult, *, is_for_programs: bool) -> Reply:
    reply = _reply(holdfast, result)
    if not is_for_programs:
        return reply
    steps = steps_data(result.plan, holdfast.runs(result.plan.plan_id))
    # For people the progress has said it, before the first step.
    messages = (*reply.messages, *own_path_messages(result))
    return reply._replace(data={**reply.data, "steps": steps}, messages=messages)


def _reply(holdfast: Holdfast, result: ExecutionResult) -> Reply:
    match result.plan.state:
        case PlanState.COMPLETE | PlanState.APPLIED:
            return _succeeded(holdfast, result)
        case PlanState.CANCELLED:
            return _stopped(result)
        case PlanState.CONSTRAINED:
            return _constrained(holdfast, result)
        case _:
            return _failed(holdfast, result)


def _execution_data(result: ExecutionResult, commands: list[Next]) -> dict[str, Any]:
    plan = result.plan
    return {
        **plan_data(plan),
        "resources": resources_data(plan),
        "steps": [],  # set only for programs: a long plan has many
        "failed_step": None,
        "output_tail": None,
        "failure_checkpoint_id": None,
        "restored_checkpoint_id": None,
        "side_effects_not_undone": _dumped(each.side_effects_not_undone for each in result.effects),
        "compensated": _dumped(each.compensated for each in result.effects),
        "set_aside": result.set_aside,
        "made_anew": result.made_anew,
        "pruned_checkpoints": result.pruned,
        "next_commands": [each.command for each in commands],
    }


def _dumped(effects: Iterable[Sequence[SideEffect]]) -> list[dict[str, Any]]:
    return [each.model_dump() for found in effects for each in found]


def _succeeded(holdfast: Holdfast, result: ExecutionResult) -> Reply:
    plan, was_done = result.plan, result.was_done
    changes = holdfast.changes(plan)
    commands = [Next("see changes", f"holdfast plan diff {plan.plan_id}")]
    if plan.state is PlanState.COMPLETE:
        commands.append(Next("apply", f"holdfast plan apply {plan.plan_id}"))
    run = result.program_run
    data = {**_execution_data(result, commands), **program_data(run), **changes_with_ignored(plan, changes)}

    def show(screen: Screen) -> None:
        if not was_done:
            screen.line()
            show_sentence(screen, _how_it_ended(run), changes_text(changes))
        show_pruned(screen, result)
        show_next(screen, commands)

    messages = _was_done(result) if was_done else switched_off(plan)
    return Reply(data, show, (run.exit_code or 0) if run is not None else 0, messages=messages)


def _how_it_ended(run: StepRun | None) -> tuple[str, str]:
    """``run``: that of the last program."""
    if run is None or not run.error:
        return ("Complete. ", "good")
    return (f"Complete, but {run.error.rstrip('.')}. ", "warn")


def _was_done(result: ExecutionResult) -> tuple[str, ...]:
    already = f"Plan {result.plan.plan_id} is {result.plan.state} already; nothing was run."
    gone = ", ".join(result.made_anew)
    return (already, f"The sandbox of {gone} was missing and has been re-created.") if gone else (already,)


def _stopped(result: ExecutionResult) -> Reply:
    plan = result.plan
    commands = [
        Next("continue", f"holdfast plan execute {plan.plan_id}"),
        *(after_interrupted_program(plan) if _was_program(result.failed_run, plan) else ()),
        Next("status", f"holdfast plan status {plan.plan_id}"),
    ]
    data = {**_execution_data(result, commands), **_failed_step_data(result.failed_run, plan)}

    divided = not plan.is_finished and bool(plan.steps[plan.next_step].subplans)
    how = "runs the subplans that are not done" if divided else "runs that step again from its start"

    def show(screen: Screen) -> None:
        screen.line()
        show_sentence(screen, ("Stopped ", "warn"), f"at step {plan.next_step + 1}; continuing {how}.")
        show_pruned(screen, result)
        show_next(screen, commands)

    return Reply(data, show, EXIT_INTERRUPTED)


def _was_program(run: StepRun | None, plan: Plan) -> bool:
    step = plan.interrupted_step(run)
    return step is not None and step.is_program


def _constrained(holdfast: Holdfast, result: ExecutionResult) -> Reply:
    plan = result.plan
    conflicts = holdfast.conflicts(plan)
    commands = [
        Next("continue", f"holdfast plan resume {plan.plan_id}"),
        Next("status", f"holdfast plan status {plan.plan_id}"),
        Next("roll back", f"holdfast checkpoint list {plan.plan_id}"),
    ]
    data = {
        **_execution_data(result, commands),
        **_failed_step_data(result.failed_run, plan),
        "conflicts": conflicts_data(conflicts),
    }

    def show(screen: Screen) -> None:
        screen.line()
        where = "Resolve these conflicts in the sandbox, then continue; nothing was lost:"
        show_sentence(screen, ("Constrained. ", "bad"), where)
        show_conflicts(screen, conflicts)
        screen.line()
        show_pruned(screen, result)
        show_next(screen, commands)

    return Reply(data, show, ConflictError.exit_code)


def _failed(holdfast: Holdfast, result: ExecutionResult) -> Reply:
    plan, run = result.plan, result.failed_run
    before, failed = holdfast.find_group(run.group_before_id if run else None), result.failure_group
    places = _places(holdfast, {"before": before, "kept": failed, "restored": result.returned_to})
    named = {name: holdfast.lasting_id(plan.plan_id, found) for name, found in places.items() if found is not None}
    # If the failed step changed no file, the cause is an earlier step.
    left_a_trace = before is not None and failed is not None and before.states != failed.states
    commands = _after_failure(plan, _correctable(holdfast, plan, run), named if left_a_trace else {})
    kept, restored = places["kept"], places["restored"]
    if kept is None and restored is None:
        commands.insert(1, Next("keep files", f"holdfast checkpoint create {plan.plan_id}"))
    data = {
        **_execution_data(result, commands),
        **_failed_step_data(run, plan),
        "failure_checkpoint_id": kept,
        "restored_checkpoint_id": restored,
    }

    def show(screen: Screen) -> None:
        screen.line()
        error = plan.error or "failed"
        for line in wrapped(error[:1].upper() + error[1:], screen.width):
            screen.line((line, "bad"))
        if run is not None:
            show_tail(screen, run.output, _TAIL_LINES_SHOWN)
        screen.line()
        if kept is not None:
            screen.line(("kept      ", "dim"), (named["kept"], "id"), "  the files when it failed")
        elif restored is None:
            show_sentence(screen, ("Not kept: ", "warn"), _NOT_KEPT)
        if restored is not None:
            where = f"before step {plan.next_step + 1} ({plan.steps[plan.next_step].name})"
            screen.line(("restored  ", "dim"), (named["restored"], "id"), f"  {where}")
        show_pruned(screen, result)
        screen.line()
        show_next(screen, commands)

    return Reply(data, show, EXIT_STEP_FAILED)


def _places(holdfast: Holdfast, groups: Mapping[str, CheckpointGroup | None]) -> dict[str, str | None]:
    """A checkpoint id of each of these groups."""
    rows = {name: holdfast.checkpoints_at(group) if group else [] for name, group in groups.items()}
    return {name: found[0].checkpoint_id if found else None for name, found in rows.items()}


def _failed_step_data(run: StepRun | None, plan: Plan) -> dict[str, Any]:
    if run is None:
        return {}
    is_step = run.step_index < len(plan.steps)
    return {
        "failed_step": {
            "index": run.step_index if is_step else None,
            "name": run.step,
            "exit_code": run.exit_code,
            "error": run.error,
            "decision_id": run.decision_id,
        },
        "output_tail": "\n".join(output_lines(run.output, last=TAIL_LINES)),
    }


def _correctable(holdfast: Holdfast, plan: Plan, run: StepRun | None) -> str | None:
    """The id of the failed step's decision, if it can be reverted."""
    if run is None or run.decision_id is None or run.step_index >= len(plan.steps):
        return None
    return run.decision_id if holdfast.can_be_reverted(plan, run.decision_id) else None


def _after_failure(plan: Plan, correctable: str | None, places: dict[str, str]) -> list[Next]:
    """``places``: the checkpoints before and after the failed step; empty if it changed nothing."""
    plan_id = plan.plan_id
    commands = [Next("status", f"holdfast plan status {plan_id}")]
    if places:
        commands.append(Next("what it did", f"holdfast plan diff {plan_id} {places['before']} {places['kept']}"))
        purpose, target = ("failed state", "kept") if "restored" in places else ("roll back", "before")
        going_back = [Next(purpose, f"holdfast plan rollback {plan_id} {places[target]}")]
    else:
        going_back = [Next("roll back", f"holdfast checkpoint list {plan_id}")]
    if correctable is not None:
        guidance = '"what to do instead"'
        correcting = f"holdfast plan correct --mode revert --guidance {guidance} {correctable}"
        going_back.append(Next("correct", correcting))
    if plan.policy.rollback_enabled:
        commands += going_back
    return [*commands, Next("try again", f"holdfast plan execute {plan_id}")]
