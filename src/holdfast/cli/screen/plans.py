"""What several commands show of a plan: state, conflicts, output of a step, changed files, next commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.output import Next, Screen, Span, counted, output_lines, wrapped
from holdfast.cli.screen.diff import folded_text
from holdfast.cli.screen.sessions import session_name
from holdfast.model import Conflict, FileChange, OperationKind, Plan, PlanState, Resource, RunStatus
from holdfast.names import name_text

if TYPE_CHECKING:
    from holdfast import ExecutionResult, Holdfast

_STATE_STYLES = {
    PlanState.COMPLETE: "good",
    PlanState.APPLIED: "good",
    PlanState.ERRORED: "bad",
    PlanState.CANCELLED: "warn",
    PlanState.PROCESSING: "warn",
    PlanState.CONSTRAINED: "bad",
}
RUN_WORDS: Mapping[str, tuple[str, str]] = {
    RunStatus.SUCCEEDED: ("ok", "good"),
    RunStatus.FAILED: ("failed", "bad"),
    RunStatus.INTERRUPTED: ("stopped", "warn"),
    RunStatus.RUNNING: ("running", "warn"),
    RunStatus.CONSTRAINED: ("conflict", "bad"),
}
"""The result of a step's run as a word and its style."""
_MOST_LEFT_OUT = 5
FINISHED_LATER = (OperationKind.ROLLBACK, OperationKind.RESTORE_PATHS)
"""Operations that are finished if they were cut short; the others are undone."""


def step_word(status: str, exit_code: int | None) -> tuple[str, str]:
    """How a step ended, in a word; a program counts as done also if it ended with an error."""
    is_error = status == RunStatus.SUCCEEDED and exit_code not in (None, 0)
    return (f"exit {exit_code}", "bad") if is_error else RUN_WORDS[status]


def state_span(plan: Plan) -> tuple[str, str]:
    return (plan.state.value, _STATE_STYLES.get(plan.state, "strong"))


def state_spans(plan: Plan) -> list[Span]:
    """How far the plan is, or whether the session goes on."""
    if plan.is_session:
        who = f"session of {session_name(plan)}"
        if plan.session is None or not plan.session.agent:
            return [who]  # it never ends
        return [f"{who}, ", ("going on", "warn") if plan.state is PlanState.PROCESSING else ("ended", "good")]
    return [f"{plan.phase} / ", state_span(plan), f", {steps_text(plan)}"]


def steps_text(plan: Plan) -> str:
    """How many steps are done; a moment that a person kept as the result may be before the end of the first."""
    if not plan.steps:
        return "kept from before the end of its first step"
    return f"{plan.next_step} of {counted(len(plan.steps), 'step')} done"


def show_conflicts(screen: Screen, conflicts: Sequence[tuple[Plan, Conflict]]) -> None:
    for plan, each in conflicts:
        place = Path(plan.resource(each.resource).sandbox_path) / each.path
        marked = "; both versions are in it, between marks" if each.is_marked else ""
        screen.line(("  ", "dim"), name_text(str(place)))
        for line in wrapped(f"{each.subplan}: {each.reason}{marked}", screen.width and screen.width - 4):
            screen.line("    ", line)
        for kept in each.kept:
            screen.line(("    kept ", "dim"), (name_text(kept), "dim"))


def show_tail(screen: Screen, output: str, most_lines: int) -> None:
    if not output.strip():
        return
    lines = output_lines(output)
    if len(lines) > most_lines:
        screen.line((f"  … {len(lines) - most_lines} lines before", "dim"))
    for line in lines[-most_lines:]:
        screen.line(("  | ", "dim"), line)


def changes_text(changes: Sequence[FileChange]) -> str:
    """What a plan changed in its sandboxes; what git ignores is only counted."""
    ignored = sum(each.is_ignored for each in changes)
    changes = [each for each in changes if not each.is_ignored]
    if not changes:
        return f"Only {counted(ignored, 'ignored file')} changed." if ignored else "No file changed."
    also = f", {folded_text(ignored)}" if ignored else ""
    counts = {action: sum(each.action == action for each in changes) for action in ("changed", "added", "removed")}
    parts = ", ".join(f"{count} {action}" for action, count in counts.items() if count)
    return f"{counted(len(changes), 'file')}: {parts}{also}; your own files are untouched."


def show_pruned(screen: Screen, result: ExecutionResult) -> None:
    """A line about the checkpoints that were pruned during an execution, if there were any."""
    if result.pruned:
        how = "Thinned out in between" if result.plan.steps[0].is_program else "Pruned, the oldest first"
        limit = f"at most {result.plan.policy.max_checkpoints} are kept."
        screen.line((f"{how}: {counted(result.pruned, 'checkpoint')}; {limit}", "dim"))


def left_out_texts(resource: Resource) -> list[str]:
    """What the sandbox of a resource does not have, and why; a long list is cut."""
    named = [f"{name_text(each.path)}: {each.reason}" for each in resource.left_out[:_MOST_LEFT_OUT]]
    count = len(resource.left_out)
    return [*named, f"{count} in all; see `plan status --format json`"] if count > _MOST_LEFT_OUT else named


def going_on_with(plan: Plan) -> Next:
    return Next("go on with", f"holdfast run --in {plan.plan_id} -- COMMAND")


def after_interrupted_program(plan: Plan) -> list[Next]:
    """What can be done with the work of a program that was interrupted, besides running it again."""
    return [
        Next("keep its work", f"holdfast plan resume --skip {plan.plan_id}"),
        Next("keep a moment", f"holdfast plan keep {plan.plan_id} CHECKPOINT"),
        going_on_with(plan),
    ]


def back_to(plan: Plan, checkpoint: str) -> Next:
    """How to go back to that checkpoint."""
    if plan.is_session:
        return Next("go back", f"holdfast undo {checkpoint}")
    return Next("roll back", f"holdfast plan rollback {plan.plan_id} {checkpoint}")


def undo_commands(plan: Plan) -> list[Next]:
    return [
        Next("undo last", f"holdfast undo --session {plan.plan_id}"),
        Next("go back", "holdfast undo CHECKPOINT"),
        Next("calls", f"holdfast plan tree {plan.plan_id}"),
    ]


def commands_below_checkpoints(holdfast: Holdfast, plan: Plan, *, has_checkpoints: bool) -> list[Next]:
    if plan.is_session:
        showing = Next("show one", f"holdfast checkpoint show --plan {plan.plan_id} CHECKPOINT")
        return [showing, *undo_commands(plan)]
    if not has_checkpoints:
        return [Next("run it", f"holdfast plan execute {holdfast.root_of(plan).plan_id}")]
    showing = Next("show one", f"holdfast checkpoint show --plan {plan.plan_id} CHECKPOINT")
    return [showing, back_to(plan, "CHECKPOINT")] if holdfast.can_roll_back(plan) else [showing]
