"""``holdfast plan list``: list the plans of a project."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.cli.data import has_failed, left_out, plan_data, program_data
from holdfast.cli.invocation import Invocation, command, limit_option, no_pager_option
from holdfast.cli.output import (
    Next,
    Reply,
    Row,
    Screen,
    Span,
    fits,
    plain_text,
    show_long_table,
    show_messages,
    show_next,
    show_older,
)
from holdfast.cli.screen.plans import state_span
from holdfast.model import Plan, StepRun
from holdfast.names import name_text

if TYPE_CHECKING:
    from holdfast import Holdfast

_COLUMNS = ("plan", "state", "steps", "name", "created")
_NAME = _COLUMNS.index("name")


@command(
    "list",
    only_looks=True,
    examples=(
        ("holdfast plan list", "The plans of this project."),
        ("holdfast plan list --all --limit 5", "The five newest of all projects."),
    ),
)
@click.option("--all", "everywhere", is_flag=True, help="List the plans of all projects.")
@limit_option("plans")
@no_pager_option
def list_plans(invocation: Invocation, everywhere: bool, asked: int | None) -> Reply:
    """List the plans of this project, newest first."""
    holdfast, limit = invocation.open(), invocation.limit(asked)
    listed = _listed(holdfast, holdfast.plans_newest_first(everywhere=everywhere, limit=limit))
    if invocation.is_for_programs:
        data = {"plans": [_data(each) for each in listed]}
        return Reply(data, lambda _: None, messages=left_out(holdfast))

    def show(screen: Screen) -> None:
        root = None if everywhere else str(holdfast.project_root)
        shown = show_plans(screen, listed, root, holdfast.short_plan_ids)
        if asked is None and shown == limit:
            show_older(screen, holdfast.count_plans(everywhere=everywhere) - shown, "plan")
        show_messages(screen, left_out(holdfast))

    return Reply({}, show, is_long=True)


class Listed(NamedTuple):
    plan: Plan
    is_interrupted: bool
    """Its state is processing, but its process is dead."""
    project: str | None
    """The folder of its project; None if the record of the project is damaged."""
    program_run: StepRun | None = None
    """How its last program ended."""


def _listed(holdfast: Holdfast, plans: Iterable[Plan]) -> Iterator[Listed]:
    roots: dict[str, str | None] = {}
    for plan in plans:
        if plan.project_id not in roots:
            roots[plan.project_id] = holdfast.project_roots([plan]).get(plan.project_id)
        yield Listed(plan, holdfast.is_interrupted(plan), roots[plan.project_id], holdfast.program_run(plan))


def _data(listed: Listed) -> dict[str, Any]:
    plan = listed.plan
    return {
        **plan_data(plan),
        **program_data(listed.program_run),
        "interrupted": listed.is_interrupted,
        "steps": len(plan.steps),
        "project": listed.project,
    }


def show_plans(
    screen: Screen, listed: Iterator[Listed], root: str | None, short_ids: Callable[[list[str]], Mapping[str, str]]
) -> int:
    """Show the plans of a project, or of all if ``root`` is None, as a table; how many there are.

    If their ids have no room, ``short_ids`` gives beginnings of them that are enough for every command.
    """

    def narrower(rows: Sequence[Row]) -> list[Row]:
        ids = [plain_text(row[:1]) for row in rows]
        shorter = short_ids(ids)
        return [[(shorter[each], "id"), *row[1:]] for each, row in zip(ids, rows, strict=True)]

    first = next(listed, None)
    if first is None:
        _show_none(screen, root)
        return 0
    rows = map(_row, chain([first], listed))
    if root is not None:
        own = (row[:-1] for row in rows)
        return show_long_table(screen, own, _COLUMNS, flexible=_NAME, fewest=_NAME + 1, narrower=narrower)
    if screen.width is None:
        return show_long_table(screen, rows, (*_COLUMNS, "project"), flexible=_NAME, fewest=_NAME + 1)
    return _show_by_project(screen, list(rows), narrower)


def _show_by_project(screen: Screen, rows: Sequence[Row], narrower: Callable[[Sequence[Row]], Sequence[Row]]) -> int:
    """Below a line for each project, if the column of the projects does not fit."""
    header = (*_COLUMNS, "project")
    if not fits([_COLUMNS, *(row[:-1] for row in rows)], screen.width, _NAME):
        rows = narrower(rows)
    if fits([header, *rows], screen.width, _NAME):
        return show_long_table(screen, rows, header, flexible=_NAME, fewest=len(header))
    for number, project in enumerate(dict.fromkeys(row[-1] for row in rows)):
        if number:
            screen.line()
        screen.line((project[0], "strong"))
        own = [row[:-1] for row in rows if row[-1] == project]
        show_long_table(
            screen, own, _COLUMNS, flexible=_NAME, fewest=_NAME + 1, is_headed=False, narrower=lambda narrow: narrow
        )
    return len(rows)


def _show_none(screen: Screen, root: str | None) -> None:
    """``root``: the project, None for all projects."""
    screen.line(f"There are no plans in {name_text(root)}." if root else "There are no plans in any project.")
    commands = [Next("create one", "holdfast plan create FILE"), Next("see all", "holdfast plan list --all")]
    show_next(screen, commands if root else commands[:1])


def _state(listed: Listed) -> Span:
    if listed.is_interrupted:
        return ("interrupted", "warn")
    word, style = state_span(listed.plan)
    run = listed.program_run
    return (f"{word}, exit {run.exit_code}", "warn") if run is not None and has_failed(run) else (word, style)


def _row(listed: Listed) -> Row:
    plan = listed.plan
    return [
        (plan.plan_id, "id"),
        _state(listed),
        "session" if plan.is_session else f"{plan.next_step}/{len(plan.steps)}",
        plan.name,
        (f"{plan.created_at.astimezone():%Y-%m-%d %H:%M}", "dim"),
        (name_text(listed.project or ""), "dim"),
    ]
