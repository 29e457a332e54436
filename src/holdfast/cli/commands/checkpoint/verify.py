"""``holdfast checkpoint verify``: read all saved content and check it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.completion import complete_plan
from holdfast.cli.invocation import Invocation, command
from holdfast.cli.output import Reply, Screen, counted, show_table
from holdfast.errors import ContentError

if TYPE_CHECKING:
    from holdfast import VerifyResult


@command(
    "verify",
    only_looks=True,
    examples=(
        ("holdfast checkpoint verify", "Check the content of all plans."),
        ("holdfast checkpoint verify latest", "Check that of the newest plan."),
    ),
)
@click.argument("plan", metavar="[PLAN_ID]", required=False, shell_complete=complete_plan)
def verify(invocation: Invocation, plan: str | None) -> Reply:
    """Read all content that the checkpoints of a plan need and check every digest; without a plan, of all plans.

    It also checks the structure of objects.db, which holds all content. Exit code 7 if something is damaged or missing.
    """
    with invocation.opened() as holdfast:
        result = holdfast.verify(plan)
    data = {
        "checkpoints": result.checkpoints,
        "objects": result.objects,
        "structure": list(result.structure),
        "damaged": [
            {
                "object": each.digest,
                "problem": "damaged" if each.is_there else "missing",
                "checkpoints": [
                    {"plan_id": affected.plan_id, "checkpoint_id": affected.checkpoint_id}
                    for affected in each.checkpoints
                ],
            }
            for each in result.damaged
        ],
    }
    exit_code = 0 if result.is_sound else ContentError.exit_code
    return Reply(data, lambda screen: _show_verified(screen, result), exit_code=exit_code)


def _show_verified(screen: Screen, result: VerifyResult) -> None:
    if result.structure:
        screen.line(("the structure of objects.db is damaged", "bad"), "; copy it, then restore it from a backup:")
        for line in result.structure:
            screen.line("  ", line)
    for each in result.damaged:
        problem = "is damaged" if each.is_there else "is missing"
        screen.line(
            (f"object {each.digest[:16]} {problem}", "bad"), f"; {counted(len(each.checkpoints), 'checkpoint')}:"
        )
        rows = [[found.plan_id, found.checkpoint_id, found.metadata.reason] for found in each.checkpoints]
        show_table(screen, rows, indent="  ", flexible=2)
    read = f"{counted(result.objects, 'object')} of {counted(result.checkpoints, 'checkpoint')}"
    problems = len(result.damaged) + bool(result.structure)
    screen.line(f"{read} read back; {counted(problems, 'problem')}.")
