"""``holdfast plan tree`` and ``holdfast plan explain``: the decisions of a plan, and one of them in full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.completion import complete_decision, complete_plan
from holdfast.cli.invocation import Invocation, command
from holdfast.cli.output import (
    NARROWEST,
    Next,
    Reply,
    Row,
    Screen,
    Span,
    counted,
    first_line,
    output_lines,
    plain_text,
    shortened,
    show_facts,
    show_next,
    show_plan,
    show_table,
)

if TYPE_CHECKING:
    from holdfast.decisions.explain import DecisionCheckpoint, DecisionNode, DecisionTree, Explanation
    from holdfast.model import Decision

_TAIL_LINES = 20
_MOST_DEPENDENTS = 20


def add_commands(group: click.Group) -> None:
    command(group, "tree", short_help="The decisions of a plan as a tree.")(_tree)
    command(group, "explain", short_help="One decision: why, what it changed, what depends on it.")(_explain)


@click.option("--all", "with_superseded", is_flag=True, help="With the decisions that are superseded.")
@click.argument("plan", metavar="[PLAN_ID]", default="latest", shell_complete=complete_plan)
def _tree(invocation: Invocation, with_superseded: bool, plan: str) -> Reply:
    """The decisions that led to where a plan is, each below the one it came from, with their checkpoints.

    Subplans are drawn below the decision that spawned them.
    """
    from holdfast.cli.records import left_out

    with invocation.opened() as holdfast:
        found = holdfast.decision_tree(plan, with_superseded=with_superseded)
        messages = left_out(holdfast)
    data = _tree_data(found)
    return Reply(data, lambda screen: _show_tree(screen, found, with_superseded), messages=messages, is_long=True)


@click.argument("decision", metavar="DECISION_ID", shell_complete=complete_decision)
def _explain(invocation: Invocation, decision: str) -> Reply:
    """One decision: question, choice and reasons, how its step went and what it changed, and what depends on it.

    DECISION_ID is an id or a unique beginning of it; `holdfast plan tree` lists them.
    """
    from holdfast.cli.records import left_out

    with invocation.opened() as holdfast:
        found = holdfast.explain(decision)
        messages = left_out(holdfast)
    data = _explanation_data(found)
    return Reply(data, lambda screen: _show_explanation(screen, found), messages=messages, is_long=True)


# plan tree


def _tree_data(tree: DecisionTree) -> dict[str, Any]:
    from holdfast.cli.records import plan_data

    return {
        **plan_data(tree.plan),
        "parent_plan_id": tree.plan.parent_plan_id,
        "superseded_decisions": tree.superseded,
        "decisions": [_node_data(node) for node in tree.roots],
    }


def _node_data(node: DecisionNode) -> dict[str, Any]:
    from holdfast.cli.records import decision_data

    return {
        **decision_data(node.decision),
        "step": node.step,
        "checkpoints": [_checkpoint_data(each) for each in node.checkpoints],
        "children": [_node_data(each) for each in node.children],
        "subplans": [_tree_data(each) for each in node.subplans],
    }


def _checkpoint_data(each: DecisionCheckpoint) -> dict[str, Any]:
    checkpoint = each.checkpoint
    return {
        "checkpoint_id": checkpoint.checkpoint_id,
        "display_id": each.display_id,
        "group_id": checkpoint.group_id,
        "triggers": checkpoint.metadata.triggers,
        "superseded": each.is_superseded,
    }


def _show_tree(screen: Screen, tree: DecisionTree, with_superseded: bool) -> None:
    from holdfast.cli.screen.plan_text import state_span

    plan = tree.plan
    show_plan(screen, plan.plan_id, plan.name, ", ", state_span(plan))
    for node in tree.roots:
        _draw(screen, node, "", "")
        _draw_below(screen, node, "")
    screen.line()
    hidden = 0 if with_superseded else tree.superseded
    commands = [Next("one in full", "holdfast plan explain DECISION_ID")]
    if hidden:
        commands.append(Next(f"{hidden} more", f"holdfast plan tree --all {plan.plan_id}"))
    show_next(screen, commands)


def _draw(screen: Screen, node: DecisionNode, first: str, others: str) -> None:
    room = None if screen.width is None else max(NARROWEST, screen.width - len(first))
    screen.line((first, "dim"), *_head(node, room))
    for line in _id_lines(node, room):
        screen.line((others, "dim"), *line)


def _draw_below(screen: Screen, node: DecisionNode, indent: str) -> None:
    """Subplans first: what they did is a part of the decision, what follows from it came later."""
    count = len(node.subplans) + len(node.children)
    for number, subplan in enumerate(node.subplans, 1):
        branch, rest = _branch(indent, is_last=number == count)
        screen.line((branch, "dim"), *_subplan_spans(subplan))
        _draw_nodes(screen, subplan.roots, rest)
    _draw_nodes(screen, node.children, indent)


def _draw_nodes(screen: Screen, nodes: Sequence[DecisionNode], indent: str) -> None:
    for number, node in enumerate(nodes, 1):
        branch, rest = _branch(indent, is_last=number == len(nodes))
        _draw(screen, node, branch, rest)
        _draw_below(screen, node, rest)


def _branch(indent: str, *, is_last: bool) -> tuple[str, str]:
    """What stands before the first line of something below, and before its others."""
    return (f"{indent}└─ ", f"{indent}   ") if is_last else (f"{indent}├─ ", f"{indent}│  ")


def _head(node: DecisionNode, room: int | None) -> list[Span]:
    decision = node.decision
    marks = _marks(decision)
    head: list[Span] = [(decision.type.value, "strong"), (f" ({marks})" if marks else "", "warn")]
    text = f"  {first_line(decision.question)} → {first_line(decision.chosen)}"
    return [*head, text if room is None else shortened(text, max(NARROWEST, room - len(plain_text(head))))]


def _id_lines(node: DecisionNode, room: int | None) -> list[list[Span]]:
    """The ids, none of them broken; then its step, if there is still room to say it."""
    decision = node.decision
    lines = [decision.decision_id]
    for each in node.checkpoints:
        if room is not None and len(f"{lines[-1]}  {each.display_id}") > room:
            lines.append(each.display_id)
        else:
            lines[-1] += f"  {each.display_id}"
    step = "" if node.step is None else f"  {_where(decision)} {first_line(node.step)}"
    left = None if room is None else room - len(lines[-1])
    shown = step if left is None else shortened(step, left) if left >= NARROWEST else ""
    spans: list[list[Span]] = [[(line, "id")] for line in lines]
    spans[-1].append((shown, "dim"))
    return spans


def _where(decision: Decision) -> str:
    return "validation" if decision.step_index is None else f"step {decision.step_index + 1}"


def _marks(decision: Decision) -> str:
    marks = [("correction", decision.is_correction), ("superseded", decision.is_superseded)]
    return ", ".join(word for word, is_so in marks if is_so)


def _subplan_spans(tree: DecisionTree) -> list[Span]:
    from holdfast.cli.screen.plan_text import state_span

    return [("subplan ", "strong"), (tree.plan.plan_id, "id"), "  ", tree.plan.name, ", ", state_span(tree.plan)]


# plan explain


def _explanation_data(found: Explanation) -> dict[str, Any]:
    from holdfast.cli.records import decision_data, diff_data, plan_data

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
        "checkpoint": _checkpoint_data(found.checkpoint) if found.checkpoint else None,
        "changes": None if found.changes is None else diff_data(found.plan, found.changes, with_patch=False),
        "dependents": [decision_data(each) for each in found.dependents],
        "subplans": [plan_data(each) for each in found.subplans],
        "can_be_reverted": found.refusal is None,
        "refusal": found.refusal,
        "correctable_decision_id": found.correctable.decision_id if found.correctable else None,
    }


def _show_explanation(screen: Screen, found: Explanation) -> None:
    decision = found.decision
    marks = _marks(decision)
    screen.line(("Decision ", "strong"), (decision.decision_id, "id"), (f"  {marks}" if marks else "", "warn"))
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
        name, _, number = _where(decision).partition(" ")
        yield name, f"{number} {first_line(found.step)}, {_ending(found)}".strip()
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
    return f"{checkpoint.display_id}, {checkpoint.checkpoint.metadata.reason}"


def _show_output(screen: Screen, found: Explanation) -> None:
    if found.run is None or not found.run.output.strip():
        return
    from holdfast.cli.screen.execution import show_tail

    screen.line()
    screen.line(("The end of what its step printed", "strong"))
    show_tail(screen, found.run.output, _TAIL_LINES)


def _show_changes(screen: Screen, found: Explanation) -> None:
    from holdfast.cli.screen.plan_text import show_diff

    if found.decision.step_index is None:
        return
    screen.line()
    screen.line(("What it changed", "strong"))
    if found.changes is None:
        screen.line("That is not recorded: there is no checkpoint of the moment, or none of the end of its step.")
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
    commands = [Next("all of them", f"holdfast plan tree {found.plan.plan_id}")]
    if found.correctable is not None:
        correct = "holdfast plan correct --dry-run --mode revert --guidance TEXT"
        purpose = "correct it" if found.correctable == found.decision else "correct what spawned it"
        commands.append(Next(purpose, f"{correct} {found.correctable.decision_id}"))
    return commands
