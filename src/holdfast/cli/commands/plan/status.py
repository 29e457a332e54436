"""``holdfast plan status``: show the state of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from holdfast import Confinement
from holdfast.cli.completion import complete_plan
from holdfast.cli.data import (
    PENDING,
    current_run,
    has_failed,
    left_out,
    status_data,
    steps_data,
    switched_off,
    validation_data,
)
from holdfast.cli.invocation import Invocation, command
from holdfast.cli.output import (
    Next,
    Reply,
    Row,
    Screen,
    Span,
    counted,
    first_line,
    seconds_text,
    show_facts,
    show_next,
    show_plan,
    show_table,
    time_text,
)
from holdfast.cli.screen.plans import (
    FINISHED_LATER,
    RUN_WORDS,
    after_interrupted_program,
    going_on_with,
    left_out_texts,
    show_conflicts,
    show_tail,
    state_spans,
    step_word,
    undo_commands,
)
from holdfast.model import Decision, Plan, PlanState, RunStatus, View
from holdfast.names import name_text

if TYPE_CHECKING:
    from holdfast import Holdfast, PlanStatus

_STATUS_TAIL_LINES = 4
_MOST_STEPS = 40
_PENDING = ("-", "dim")
_SUBPLAN_WORDS = {
    PlanState.QUEUED: _PENDING,
    PlanState.PROCESSING: RUN_WORDS[RunStatus.RUNNING],
    PlanState.COMPLETE: RUN_WORDS[RunStatus.SUCCEEDED],
    PlanState.APPLIED: RUN_WORDS[RunStatus.SUCCEEDED],
    PlanState.ERRORED: RUN_WORDS[RunStatus.FAILED],
    PlanState.CANCELLED: RUN_WORDS[RunStatus.INTERRUPTED],
    PlanState.CONSTRAINED: RUN_WORDS[RunStatus.CONSTRAINED],
}
_CUT_SHORT = ("cut short", "warn")


@command(
    "status",
    only_looks=True,
    examples=(
        ("holdfast plan status", "How the newest plan is."),
        ("holdfast plan status 01M7H3WWVB --format json", "How this plan is, for a program."),
    ),
)
@click.option(
    "--all", "with_all_steps", is_flag=True, help=f"Show all steps, even if there are more than {_MOST_STEPS}."
)
@click.argument("plan", metavar="[PLAN_ID]", default="latest", shell_complete=complete_plan)
def status(invocation: Invocation, with_all_steps: bool, plan: str) -> Reply:
    """Show the state of a plan: its steps, resources, subplans and conflicts, and the commands to run next.

    Of a long plan the steps around the next one are shown. The formats for programs always have all steps.
    """
    if invocation.is_for_programs:
        return _reply_for_programs(invocation, plan)
    with invocation.opened() as holdfast:
        found = holdfast.status(plan, steps=None if with_all_steps else _MOST_STEPS)
        spawned = _steps_with_subplans(holdfast, found)
        last = _display_id(holdfast, found.plan)
        messages = (*switched_off(found.plan), *left_out(holdfast))
    return Reply({}, lambda screen: show_status(screen, found, spawned, last), messages=messages)


def _reply_for_programs(invocation: Invocation, plan: str) -> Reply:
    with invocation.opened() as holdfast:
        found = holdfast.status(plan)
        decisions = holdfast.decisions(found.plan.plan_id)
        messages = (*switched_off(found.plan), *left_out(holdfast))
    return Reply(status_data(found, decisions), lambda _: None, messages=messages)


def _steps_with_subplans(holdfast: Holdfast, status: PlanStatus) -> dict[str, int | None]:
    """For each decision that spawned subplans the index of its step."""
    spawning = {each.spawn_decision_id for each in status.subplans if each.spawn_decision_id is not None}
    found = (holdfast.store.find(Decision, each, sound_only=True) for each in spawning)
    return {each.decision_id: each.step_index for each in found if each is not None}


def _display_id(holdfast: Holdfast, plan: Plan) -> str | None:
    if plan.last_checkpoint_id is None:
        return None
    return holdfast.display_id(plan.plan_id, plan.last_checkpoint_id)


def show_status(screen: Screen, status: PlanStatus, spawned: Mapping[str, int | None], last: str | None) -> None:
    plan, shown = status.plan, status.steps
    show_plan(screen, plan.plan_id, plan.name)
    attempt = f", attempt {plan.attempt}" if plan.attempt > 1 else ""
    screen.line(*state_spans(plan), attempt, *_failed_program(status))
    show_facts(screen, _facts(status, last))
    if plan.steps:
        screen.line()
    if shown.start:
        screen.line((f"  … {counted(shown.start, 'step')} before", "dim"))
    show_table(screen, list(_step_rows(status, spawned)), flexible=2)
    if status.conflicts:
        screen.line()
        screen.line(("Conflicts to resolve in the sandbox:", "bad"))
        show_conflicts(screen, status.conflicts)
    failed = current_run(plan, status.runs)
    if failed is not None and failed.output.strip():
        screen.line()
        screen.line(("The end of its output:", "dim"))
        show_tail(screen, failed.output, _STATUS_TAIL_LINES)
    screen.line()
    show_next(screen, [*_next_after_status(status), *_see_all_steps(status)])


def _failed_program(status: PlanStatus) -> list[Span]:
    run = status.program_run
    return ["; ", (first_line(run.error), "bad")] if run is not None and run.error and has_failed(run) else []


def _facts(status: PlanStatus, last: str | None) -> Iterable[tuple[str, str]]:
    plan = status.plan
    if plan.error:
        yield "error", first_line(plan.error)
    if plan.guidance:
        yield "guidance", first_line(plan.guidance)
    if status.holder is not None:
        holder = status.holder
        yield "in use by", f"{holder.command} (process {holder.pid} on {holder.host})"
    for kind in status.cut_short:
        end = "finishes" if kind in FINISHED_LATER else "undoes"
        yield "cut short", f"the {kind.noun}; the next command that changes the plan {end} it first"
    if status.interrupted:
        yield "interrupted", "its process is dead; `plan resume` continues safely, or says what to choose"
    yield from _facts_of_result(status, last)
    if not plan.is_session:
        yield "confinement", _confinement_text(status)
    yield "created", time_text(plan.created_at)
    yield from _facts_of_resources(plan)


def _facts_of_resources(plan: Plan) -> Iterable[tuple[str, str]]:
    for resource in plan.resources:
        if resource.is_in_place:
            yield resource.name, f"{name_text(resource.path)}, in place"
            continue
        yield resource.name, f"{resource.strategy} of {name_text(resource.path)}"
        yield "sandbox", name_text(resource.sandbox_path)
        if resource.view is View.OWN_PATH:
            yield "seen at", "the sandbox's own path, not the real folder's"
        for text in left_out_texts(resource):
            yield "left out", text


def _facts_of_result(status: PlanStatus, last: str | None) -> Iterable[tuple[str, str]]:
    if status.applied_parts:
        yield "applied", f"in part: {', '.join(map(name_text, status.applied_parts))}"
    if last is not None:
        yield "checkpoint", f"{last} is the last of {status.checkpoints}"


def _confinement_text(status: PlanStatus) -> str:
    if status.confinement is not Confinement.ON:
        return f"{status.confinement}: steps can write wherever you can, and no rollback undoes that"
    allowed = ", ".join(name_text(str(path)) for path in status.outside_of_rollback)
    return f"on; outside of rollback: {allowed}" if allowed else "on"


def _step_rows(status: PlanStatus, spawned: Mapping[str, int | None]) -> Iterable[Row]:
    plan, runs, shown = status.plan, status.runs, status.steps
    for step in steps_data(plan, runs, shown):
        yield [(f"{step['index'] + 1:>3}", "dim"), _step_word(status, step), step["name"], _took(step)]
        for subplan in status.subplans:
            if not subplan.is_superseded and spawned.get(subplan.spawn_decision_id or "") == step["index"]:
                yield ["", _subplan_word(status, subplan.state), f"  {subplan.name}", ("", "dim")]
    if shown.stop < len(plan.steps):
        yield [("", "dim"), ("…", "dim"), (f"{counted(len(plan.steps) - shown.stop, 'step')} after", "dim"), ""]
    for check in validation_data(plan, runs):
        yield [("  =", "dim"), _step_word(status, check), check["command"], _took(check)]


def _step_word(status: PlanStatus, step: Mapping[str, Any]) -> Span:
    """The state in a word; what is recorded as running does so only while a process has the plan."""
    state = step["state"]
    if state == PENDING:
        return _PENDING
    return _CUT_SHORT if state == RunStatus.RUNNING and status.holder is None else step_word(state, step["exit_code"])


def _subplan_word(status: PlanStatus, state: PlanState) -> Span:
    return _CUT_SHORT if state is PlanState.PROCESSING and status.holder is None else _SUBPLAN_WORDS[state]


def _see_all_steps(status: PlanStatus) -> list[Next]:
    is_whole = len(status.steps) == len(status.plan.steps)
    return [] if is_whole else [Next("all steps", f"holdfast plan status --all {status.plan.plan_id}")]


def _took(step: Mapping[str, Any]) -> Span:
    seconds = step["duration_seconds"]
    return ("" if seconds is None else seconds_text(seconds), "dim")


def _next_after_status(status: PlanStatus) -> list[Next]:
    plan_id = status.plan.plan_id
    if status.plan.is_session:
        return [Next("timeline", f"holdfast log {plan_id}"), *undo_commands(status.plan)]
    if status.holder is not None:
        stopping = [Next("stop", f"holdfast plan cancel {status.root_id}")] if status.holder.can_be_stopped else []
        return [Next("timeline", f"holdfast log {plan_id}"), *stopping]
    verb = "resume" if status.interrupted or status.plan.state is PlanState.CONSTRAINED else "execute"
    if plan_id != status.root_id:
        return [Next("the whole plan", f"holdfast plan status {status.root_id}")]
    going_on = Next("continue" if status.plan.head_group_id else "run it", f"holdfast plan {verb} {plan_id}")
    looking = Next("see changes", f"holdfast plan diff {plan_id}")
    going_back = Next("roll back", f"holdfast checkpoint list {plan_id}")
    correcting = Next("correct", f"holdfast plan tree {plan_id}")
    if status.cut_short:
        return [Next("see first", f"holdfast plan resume --dry-run {plan_id}"), going_on]
    if status.plan.state is PlanState.COMPLETE:
        going_on_here = [going_on_with(status.plan)] if status.program_run is not None else []
        applying = Next("apply the rest" if status.applied_parts else "apply", f"holdfast plan apply {plan_id}")
        undoing = [Next("undo apply", f"holdfast plan unapply {plan_id}")] if status.applied_parts else []
        return [looking, going_back, *going_on_here, correcting, applying, *undoing]
    if status.plan.state is PlanState.APPLIED:
        return [looking, Next("undo apply", f"holdfast plan unapply {plan_id}")]
    keeping = _instead_of_running_it(status)
    return [going_on, *keeping, going_back, correcting] if status.checkpoints else [going_on]


def _instead_of_running_it(status: PlanStatus) -> list[Next]:
    """What can be done with the work of a program, besides running it again."""
    if _can_keep_work(status):
        return after_interrupted_program(status.plan)
    return [going_on_with(status.plan)] if any(step.is_program for step in status.plan.steps) else []


def _can_keep_work(status: PlanStatus) -> bool:
    """Whether a program was interrupted and its work can be kept."""
    run = current_run(status.plan, status.runs)
    step = status.plan.interrupted_step(run)
    return run is not None and not run.is_superseded and step is not None and step.is_program
