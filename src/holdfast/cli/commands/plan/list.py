"""``holdfast plan list``: list the plans of a project."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import click

from holdfast.cli.data import left_out, plan_data
from holdfast.cli.invocation import Invocation, command, limit_option
from holdfast.cli.output import Next, Reply, Row, Screen, fits, show_next, show_older, show_table
from holdfast.cli.screen.plans import state_span
from holdfast.model import Plan
from holdfast.names import name_text

_PLAN_COLUMNS = ("plan", "state", "steps", "name", "created")
_PLAN_NAME = _PLAN_COLUMNS.index("name")


@command("list", only_looks=True)
@click.option("--all", "everywhere", is_flag=True, help="List the plans of all projects.")
@limit_option("plans")
def list_plans(invocation: Invocation, everywhere: bool, asked: int | None) -> Reply:
    """List the plans of this project, newest first."""
    with invocation.opened() as holdfast:
        limit = invocation.limit(asked)
        plans = holdfast.list_plans(everywhere=everywhere, limit=limit)
        is_cut = asked is None and len(plans) == limit
        older = holdfast.count_plans(everywhere=everywhere) - len(plans) if is_cut else 0
        interrupted = {plan.plan_id for plan in plans if holdfast.is_interrupted(plan)}
        projects = holdfast.project_roots(plans)
        messages = left_out(holdfast)
    data = [
        {
            **plan_data(plan),
            "interrupted": plan.plan_id in interrupted,
            "steps": len(plan.steps),
            "project": projects.get(plan.project_id),
        }
        for plan in plans
    ]

    def show(screen: Screen) -> None:
        show_plans(screen, plans, projects, None if everywhere else holdfast.project_root, interrupted)
        show_older(screen, older, "plan")

    return Reply({"plans": data}, show, messages=messages, is_long=True)


def show_plans(
    screen: Screen, plans: Sequence[Plan], projects: Mapping[str, str], root: Path | None, interrupted: Collection[str]
) -> None:
    """``root``: the project, None for all projects; ``interrupted``: plans in processing whose process is dead."""
    if not plans:
        screen.line(f"There are no plans in {name_text(str(root))}." if root else "There are no plans in any project.")
        commands = [Next("create one", "holdfast plan create FILE"), Next("see all", "holdfast plan list --all")]
        show_next(screen, commands if root else commands[:1])
        return
    if root is not None:
        _show_plan_table(screen, [_plan_row(plan, interrupted) for plan in plans], [*_PLAN_COLUMNS])
        return
    rows = [[*_plan_row(plan, interrupted), (name_text(projects.get(plan.project_id, "")), "dim")] for plan in plans]
    if fits([[*_PLAN_COLUMNS, "project"], *rows], screen.width, _PLAN_NAME):
        show_table(screen, rows, flexible=_PLAN_NAME, header=[*_PLAN_COLUMNS, "project"])
        return
    for number, project in enumerate(dict.fromkeys(plan.project_id for plan in plans)):
        if number:
            screen.line()
        screen.line((name_text(projects.get(project, "")), "strong"))
        listed = [_plan_row(plan, interrupted) for plan in plans if plan.project_id == project]
        _show_plan_table(screen, listed, [])


def _show_plan_table(screen: Screen, rows: Sequence[Row], header: Sequence[str]) -> None:
    kept = slice(None) if fits([*rows, _PLAN_COLUMNS], screen.width, _PLAN_NAME) else slice(_PLAN_NAME + 1)
    show_table(screen, [row[kept] for row in rows], flexible=_PLAN_NAME, header=header[kept])


def _plan_row(plan: Plan, interrupted: Collection[str]) -> Row:
    return [
        (plan.plan_id, "id"),
        ("interrupted", "warn") if plan.plan_id in interrupted else state_span(plan),
        f"{plan.next_step}/{len(plan.steps)}",
        plan.name,
        (f"{plan.created_at.astimezone():%Y-%m-%d %H:%M}", "dim"),
    ]
