"""What the commit of a plan's result says."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from holdfast.model import Decision, DecisionType, Plan, is_within

_UNSAID = (DecisionType.PROMPT_DEFINITION, DecisionType.TOOL_INVOCATION)
"""Decisions that say no more than the plan's name and its steps."""


def commit_message(plan: Plan, decisions: Iterable[Decision]) -> str:
    """The plan's name, its steps, the decisions in force, and which plan it was."""
    parts = [_title(plan), *(["\n".join(f"- {step.name}" for step in plan.steps)] if plan.steps else [])]
    in_force = [
        f"- {_one_line(each.question)} {_one_line(each.chosen)}"
        for each in decisions
        if not each.is_superseded and is_within(each.sequence, plan.active_decisions) and each.type not in _UNSAID
    ]
    if in_force:
        parts.append("\n".join(["Decisions:", *in_force]))
    # The one character that git does not take.
    return "\n\n".join([*parts, f"Holdfast-Plan: {plan.plan_id}\n"]).replace("\0", "")


def _title(plan: Plan) -> str:
    """Never a bare command line: a plan of ``holdfast run`` that nobody named is called after its command."""
    first = plan.steps[0] if plan.steps else None
    if first is None or not first.is_program or plan.name != first.name:
        return plan.name
    return f"Changes made by {_one_line(PurePath(first.args['argv'][0]).name) or 'a program'}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
