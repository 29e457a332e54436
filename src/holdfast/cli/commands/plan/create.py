"""``holdfast plan create``: create a plan from a file."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.data import plan_data, resources_data, steps_data, switched_off
from holdfast.cli.invocation import FileOrInput, Invocation, command, exclude_option, include_option
from holdfast.cli.output import Next, Reply, Screen, counted, show_next, show_plan


@command(
    "create",
    examples=(
        ("holdfast plan create plan.yaml", "Check a plan file and make a plan of it."),
        ("holdfast plan create --include .env plan.yaml", "Also copy a file that git ignores."),
    ),
)
@include_option
@exclude_option
@click.argument("file", type=FileOrInput())
def create(invocation: Invocation, include: tuple[str, ...], exclude: tuple[str, ...], file: Path) -> Reply:
    """Create a plan from a plan file, without running it; see `holdfast plan schema` for the format.

    FILE may be a pipe, or - for standard input; its paths are then relative to the current folder.
    """
    with invocation.opened() as holdfast:
        plan = holdfast.create_plan(file, include=include, exclude=exclude)
    commands = [Next("run it", f"holdfast plan execute {plan.plan_id}")]
    data = {**plan_data(plan), "resources": resources_data(plan), "steps": steps_data(plan, ())}

    def show(screen: Screen) -> None:
        show_plan(screen, plan.plan_id, plan.name)
        resources = ", ".join(resource.name for resource in plan.resources)
        screen.line(f"{counted(len(plan.steps), 'step')} on {resources}; nothing has run yet.")
        show_next(screen, commands)

    return Reply({**data, "next_commands": [each.command for each in commands]}, show, messages=switched_off(plan))
