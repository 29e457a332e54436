"""``holdfast mark``: give the present moment of a running plan a name."""

from __future__ import annotations

import os

import click

from holdfast import mark as mark_present
from holdfast.cli.invocation import Invocation, command
from holdfast.cli.output import Reply, Screen


@command(
    "mark",
    examples=(
        ('holdfast mark "tests green"', "A program of a plan gives the present moment a name."),
        ('holdfast mark "tests green" --format json', "The same, with the id of the checkpoint for a program."),
    ),
)
@click.argument("text", metavar="TEXT")
def mark(_: Invocation, text: str) -> Reply:
    """From inside of a sandbox: take a checkpoint of the plan that this program belongs to, with TEXT as its label.

    For agents, scripts and steps that know when something is worth keeping. Everything that the step runs is paused for
    that moment. A checkpoint with a label is never pruned; several can have the same one. From outside, use `holdfast
    checkpoint create --label TEXT PLAN_ID`, also while the plan runs.
    """
    checkpoint_id = mark_present(text)
    plan_id = os.environ["HOLDFAST_PLAN_ID"]

    def show(screen: Screen) -> None:
        screen.line(("Checkpoint ", "strong"), (checkpoint_id, "id"), f"  {text}")

    return Reply({"plan_id": plan_id, "checkpoint_id": checkpoint_id, "label": text}, show)
