"""``holdfast plan tree``: show the decisions of a plan as a tree."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, tee, zip_longest
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.completion import complete_plan
from holdfast.cli.data import decision_data, left_out, plan_data
from holdfast.cli.invocation import Invocation, command, no_pager_option
from holdfast.cli.output import (
    NARROWEST,
    Next,
    Reply,
    Screen,
    Span,
    first_line,
    plain_text,
    shortened,
    show_messages,
    show_next,
    show_plan,
)
from holdfast.cli.screen.plans import state_span
from holdfast.model import Decision

if TYPE_CHECKING:
    from holdfast import DecisionCheckpoint, DecisionNode, DecisionTree


@command(
    "tree",
    only_looks=True,
    examples=(
        ("holdfast plan tree", "The decisions of the newest plan."),
        ("holdfast plan tree --all 01M7H3WWVB", "Also those that were undone."),
    ),
)
@click.option("--all", "with_superseded", is_flag=True, help="Include superseded decisions.")
@no_pager_option
@click.argument("plan", metavar="[PLAN_ID]", default="latest", shell_complete=complete_plan)
def tree(invocation: Invocation, with_superseded: bool, plan: str) -> Reply:
    """Show the decisions that led to a plan's present state as a tree, with their checkpoints.

    Subplans are drawn below the decision that spawned them.
    """
    holdfast = invocation.open()
    found = holdfast.decision_tree(plan, with_superseded=with_superseded)
    if invocation.is_for_programs:
        return Reply(_tree_data(found), lambda _: None, messages=left_out(holdfast))

    def show(screen: Screen) -> None:
        _show_tree(screen, found, with_superseded)
        show_messages(screen, left_out(holdfast))

    return Reply({}, show, is_long=True)


def _tree_data(tree: DecisionTree) -> dict[str, Any]:
    return {
        **plan_data(tree.plan),
        "parent_plan_id": tree.plan.parent_plan_id,
        "superseded_decisions": tree.superseded,
        "decisions": [_node_data(node) for node in tree.roots],
    }


def _node_data(node: DecisionNode) -> dict[str, Any]:
    return {
        **decision_data(node.decision),
        "step": node.step,
        **({} if node.call_number is None else {"call": node.call_number}),
        "checkpoints": [checkpoint_data_of(each) for each in node.checkpoints],
        "children": [_node_data(each) for each in node.children],
        "subplans": [_tree_data(each) for each in node.subplans],
    }


def checkpoint_data_of(each: DecisionCheckpoint) -> dict[str, Any]:
    checkpoint = each.checkpoint
    return {
        "checkpoint_id": checkpoint.checkpoint_id,
        "display_id": each.display_id,
        "group_id": checkpoint.group_id,
        "triggers": checkpoint.metadata.triggers,
        "superseded": each.is_superseded,
    }


def _show_tree(screen: Screen, tree: DecisionTree, with_superseded: bool) -> None:
    plan = tree.plan
    show_plan(screen, plan.plan_id, plan.name, ", ", state_span(plan))
    for node in tree.roots:
        _draw(screen, node, "", "")
        _draw_below(screen, node, "")
    screen.line()
    hidden = 0 if with_superseded else tree.superseded
    commands = [Next("explain one", "holdfast plan explain DECISION_ID")]
    if hidden:
        commands.append(Next(f"{hidden} more", f"holdfast plan tree --all {plan.plan_id}"))
    show_next(screen, commands)


def _draw(screen: Screen, node: DecisionNode, first: str, others: str) -> None:
    room = None if screen.width is None else max(NARROWEST, screen.width - len(first))
    screen.line((first, "dim"), *_head(node, room))
    for line in _id_lines(node, room):
        screen.line((others, "dim"), *line)


def _draw_below(screen: Screen, node: DecisionNode, indent: str) -> None:
    """Draw subplans first: their work is part of the decision, and what follows from it came later."""
    has_children = next(iter(node.children), None) is not None if node.subplans else False
    for number, subplan in enumerate(node.subplans, 1):
        branch, rest = _branch(indent, is_last=number == len(node.subplans) and not has_children)
        screen.line((branch, "dim"), *_subplan_spans(subplan))
        _draw_nodes(screen, subplan.roots, rest)
    _draw_nodes(screen, node.children, indent)


def _draw_nodes(screen: Screen, nodes: Iterable[DecisionNode], indent: str) -> None:
    """Draw them while they are read."""
    present, ahead = tee(nodes)
    for node, following in zip_longest(present, islice(ahead, 1, None)):
        branch, rest = _branch(indent, is_last=following is None)
        _draw(screen, node, branch, rest)
        _draw_below(screen, node, rest)


def _branch(indent: str, *, is_last: bool) -> tuple[str, str]:
    """The text before the first line of a branch, and before its other lines."""
    return (f"{indent}└─ ", f"{indent}   ") if is_last else (f"{indent}├─ ", f"{indent}│  ")


def _head(node: DecisionNode, room: int | None) -> list[Span]:
    decision = node.decision
    remarks = marks(decision)
    head: list[Span] = [(decision.type.value, "strong"), (f" ({remarks})" if remarks else "", "warn")]
    text = f"  {first_line(decision.question)} → {first_line(decision.chosen)}"
    return [*head, text if room is None else shortened(text, max(NARROWEST, room - len(plain_text(head))))]


def _id_lines(node: DecisionNode, room: int | None) -> list[list[Span]]:
    """Lines with the unbroken ids; then the step, if there is room for it."""
    decision = node.decision
    lines = [decision.decision_id]
    for each in node.checkpoints:
        if room is not None and len(f"{lines[-1]}  {each.display_id}") > room:
            lines.append(each.display_id)
        else:
            lines[-1] += f"  {each.display_id}"
    step = "" if node.step is None else f"  {_where(node)} {first_line(node.step)}"
    if node.call_number is not None:
        step = f"  call {node.call_number}"  # what it does is in the line above
    left = None if room is None else room - len(lines[-1])
    shown = step if left is None else shortened(step, left) if left >= NARROWEST else ""
    spans: list[list[Span]] = [[(line, "id")] for line in lines]
    spans[-1].append((shown, "dim"))
    return spans


def _where(node: DecisionNode) -> str:
    index = node.decision.step_index
    return "validation" if index is None else f"step {index + 1}"


def marks(decision: Decision) -> str:
    possible = [("correction", decision.is_correction), ("superseded", decision.is_superseded)]
    return ", ".join(word for word, is_so in possible if is_so)


def _subplan_spans(tree: DecisionTree) -> list[Span]:
    return [("subplan ", "strong"), (tree.plan.plan_id, "id"), "  ", tree.plan.name, ", ", state_span(tree.plan)]
