"""``holdfast plan explain``: show one decision in full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.commands.plan.tree import checkpoint_data_of, marks
from holdfast.cli.completion import complete_decision
from holdfast.cli.data import decision_data, diff_data, left_out, plan_data
from holdfast.cli.invocation import Invocation, command, no_pager_option
from holdfast.cli.output import (
    Next,
    Reply,
    Row,
    Screen,
    counted,
    first_line,
    output_lines,
    show_facts,
    show_next,
    show_table,
)
from holdfast.cli.screen.diff import show_diff
from holdfast.cli.screen.plans import show_tail

if TYPE_CHECKING:
    from holdfast import DecisionCheckpoint, Explanation

_TAIL_LINES = 20
_MOST_DEPENDENTS = 20


@command(
    "explain",
    only_looks=True,
    examples=(
        ("holdfast plan explain 01M7H3WX8C", "One decision in full."),
        ("holdfast plan explain 01M7H3WX8C --format yaml", "The same for a program."),
    ),
)
@no_pager_option
@click.argument("decision", metavar="DECISION_ID", shell_complete=complete_decision)
def explain(invocation: Invocation, decision: str) -> Reply:
    """Explain one decision: its question, choice and reasons, the result and changes of its step, and its dependents.

    DECISION_ID is an id or a unique prefix of it; `holdfast plan tree` lists them.
    """
    with invocation.opened() as holdfast:
        found = holdfast.explain(decision)
        messages = left_out(holdfast)
    data = _explanation_data(found)
    return Reply(data, lambda screen: _show_explanation(screen, found), messages=messages, is_long=True)


def _explanation_data(found: Explanation) -> dict[str, Any]:
    run = found.run
    return {
        "plan_id": found.plan.plan_id,
        "plan": found.plan.name,
        **decision_data(found.decision),
        "parent": decision_data(found.parent) if found.parent else None,
        "step": found.step,
        "run": None if run is None else run.model_dump(exclude={"plan_id", "output"}),
        "output": run.output if run else "",
        "checkpoint_id": found.checkpoint.checkpoint.checkpoint_id if found.checkpoint else None,
        "checkpoint": checkpoint_data_of(found.checkpoint) if found.checkpoint else None,
        "changes": None if found.changes is None else diff_data(found.plan, found.changes, with_patch=False),
        "dependents": [decision_data(each) for each in found.dependents],
        "subplans": [plan_data(each) for each in found.subplans],
        "can_be_reverted": found.refusal is None,
        "refusal": found.refusal,
        "correctable_decision_id": found.correctable.decision_id if found.correctable else None,
    }


def _show_explanation(screen: Screen, found: Explanation) -> None:
    decision = found.decision
    remarks = marks(decision)
    screen.line(("Decision ", "strong"), (decision.decision_id, "id"), (f"  {remarks}" if remarks else "", "warn"))
    show_facts(screen, ((name, "\n".join(output_lines(value))) for name, value in _facts(found)))
    _show_output(screen, found)
    _show_changes(screen, found)
    _show_dependents(screen, found)
    show_next(screen, _next_after(found))


def _facts(found: Explanation) -> Iterator[tuple[str, str]]:
    decision = found.decision
    yield "plan", f"{found.plan.plan_id}  {found.plan.name}"
    yield "type", decision.type.value
    yield "question", decision.question
    yield "choice", decision.chosen
    if decision.alternatives:
        yield "alternatives", ", ".join(map(first_line, decision.alternatives))
    if decision.rationale:
        yield "rationale", decision.rationale
    if decision.confidence is not None:
        yield "confidence", f"{decision.confidence:g}"
    if found.parent is not None:
        yield "follows from", f"{found.parent.decision_id}  {first_line(found.parent.chosen)}"
    if found.step is not None:
        ended = f"{first_line(found.step)}, {_ending(found)}"
        index = decision.step_index
        if found.plan.is_session:
            yield "call", ended
        else:
            yield ("validation", ended) if index is None else ("step", f"{index + 1} {ended}")
    yield "attempt", str(decision.attempt)
    yield "checkpoint", _checkpoint_text(found.checkpoint)


def _ending(found: Explanation) -> str:
    run = found.run
    if run is None:
        return "not run yet"
    undone = ", undone since" if run.is_superseded else ""
    return f"{run.status}{f': {first_line(run.error)}' if run.error else ''}{undone}"


def _checkpoint_text(checkpoint: DecisionCheckpoint | None) -> str:
    if checkpoint is None:
        return "none"
    return ", ".join(filter(None, (checkpoint.display_id, checkpoint.checkpoint.metadata.reason)))


def _show_output(screen: Screen, found: Explanation) -> None:
    if found.run is None or not found.run.output.strip():
        return
    screen.line()
    whose = "its" if found.plan.is_session else "its step's"
    screen.line((f"The end of {whose} output", "strong"))
    show_tail(screen, found.run.output, _TAIL_LINES)


def _show_changes(screen: Screen, found: Explanation) -> None:
    if found.decision.step_index is None:
        return
    screen.line()
    screen.line(("What it changed", "strong"))
    if found.changes is None:
        screen.line("Not recorded: a checkpoint is missing, of the decision or of the end of its step.")
    else:
        show_diff(screen, found.plan, found.changes, "stat")


def _show_dependents(screen: Screen, found: Explanation) -> None:
    screen.line()
    screen.line(("What depends on it", "strong"))
    if not found.dependents and not found.subplans:
        screen.line("Nothing.")
    rows: list[Row] = [
        [(each.decision_id, "id"), first_line(each.chosen)] for each in found.dependents[:_MOST_DEPENDENTS]
    ]
    show_table(screen, rows, flexible=1)
    if len(found.dependents) > _MOST_DEPENDENTS:
        screen.line((f"and {counted(len(found.dependents) - _MOST_DEPENDENTS, 'more decision')}", "dim"))
    for subplan in found.subplans:
        screen.line((subplan.plan_id, "id"), "  subplan ", subplan.name, f", {subplan.state}")
    screen.line()


def _next_after(found: Explanation) -> list[Next]:
    commands = [Next("all decisions", f"holdfast plan tree {found.plan.plan_id}")]
    if found.plan.is_session:
        commands.append(Next("undo calls", "holdfast undo"))
    elif found.correctable is not None:
        correct = "holdfast plan correct --dry-run --mode revert --guidance TEXT"
        purpose = "correct it" if found.correctable == found.decision else "correct what spawned it"
        commands.append(Next(purpose, f"{correct} {found.correctable.decision_id}"))
    return commands
