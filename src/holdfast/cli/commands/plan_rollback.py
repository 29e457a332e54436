"""``holdfast plan rollback`` and ``holdfast plan correct``: going back in a plan, and going on differently."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.completion import complete_checkpoint, complete_decision, complete_plan
from holdfast.cli.invocation import FileOrInput, Invocation, command, declined, yes_option
from holdfast.cli.output import Reply

if TYPE_CHECKING:
    from holdfast.decisions.correct import CorrectionPreview
    from holdfast.rollback.rollback import RollbackPreview


def add_commands(group: click.Group) -> None:
    command(group, "rollback", short_help="Go back to a checkpoint, or restore single files of it.")(_rollback)
    command(group, "correct", short_help="Undo a decision and go on differently.")(_correct)


@yes_option
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.option(
    "--only",
    metavar="PATH",
    multiple=True,
    help="Restore only this file or folder, PATH or RESOURCE:PATH; everything else stays. May be repeated.",
)
@click.option(
    "--without-keeping",
    "is_unkept",
    is_flag=True,
    help="Take no checkpoint of the state that is left: for a full disk. What no checkpoint holds is lost.",
)
@click.argument("plan", metavar="PLAN_ID", shell_complete=complete_plan)
@click.argument("checkpoint", metavar="CHECKPOINT_ID", shell_complete=complete_checkpoint)
def _rollback(
    invocation: Invocation,
    yes: bool,
    dry_run: bool,
    only: tuple[str, ...],
    is_unkept: bool,
    plan: str,
    checkpoint: str,
) -> Reply:
    """Take a plan back to a checkpoint: its files exactly as they were, its position, its decisions.

    CHECKPOINT_ID is an id, a display id (cp_...), a unique beginning, or a label. The state that is left gets a
    checkpoint of its own, so a rollback can be rolled back. If the disk has no room for that, --without-keeping goes
    back all the same: what changed since the last checkpoint is lost, and the question names it.

    With --only single files or folders are restored into the sandbox, relative to the resource's root; one that the
    checkpoint does not have is removed. The plan stays at its step, and its decisions stay.
    """
    from holdfast.cli.screen.rollback_text import (
        OutsideHeard,
        rollback_preview_reply,
        rollback_question,
        rollback_reply,
    )
    from holdfast.model import RollbackResult

    if not dry_run:
        invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        if dry_run:
            preview = holdfast.rollback_preview(plan, checkpoint, only=only, keeps_present=not is_unkept)
            return rollback_preview_reply(invocation, preview, checkpoint)

        def confirm(preview: RollbackPreview) -> bool:
            return yes or invocation.ask(rollback_question(preview, checkpoint))

        # The result tells what this rollback did; this is for one that was cut short and is finished first.
        listener = OutsideHeard(invocation)
        result = holdfast.rollback(
            plan, checkpoint, only=only, keeps_present=not is_unkept, confirm=confirm, listener=listener
        )
        if not isinstance(result, RollbackResult):
            raise declined()
        return rollback_reply(invocation, holdfast, result)


@click.option(
    "--mode",
    type=click.Choice(["revert", "append"]),
    required=True,
    help="revert: undo the decision and all that followed. append: undo nothing, add steps at the end.",
)
@click.option(
    "--guidance", metavar="TEXT", required=True, help="What to do instead; steps see it as HOLDFAST_GUIDANCE."
)
@click.option(
    "--with",
    "steps_file",
    type=FileOrInput(),
    metavar="FILE",
    help="A file with steps to go on with instead of the old ones; - is standard input.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be undone.")
@yes_option
@click.argument("decision", metavar="DECISION_ID", shell_complete=complete_decision)
def _correct(
    invocation: Invocation,
    mode: str,
    guidance: str,
    steps_file: Path | None,
    dry_run: bool,
    yes: bool,
    decision: str,
) -> Reply:
    """Undo a decision and all that followed from it, and go on from there with your guidance.

    The decisions of a plan are in `holdfast plan tree`. What is undone is kept in a checkpoint.
    """
    from holdfast.cli.screen.execution import run_plan
    from holdfast.cli.screen.rollback_text import OutsideHeard, correction_question, correction_reply
    from holdfast.model import Plan

    if not guidance.strip():
        raise click.BadParameter("say what to do instead.", param_hint="--guidance")
    # Appending nothing is refused whatever the answer would be.
    if not dry_run and (mode == "revert" or steps_file is not None):
        invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        if dry_run:
            preview = holdfast.correction_preview(decision, mode=mode, steps_file=steps_file)
            return correction_reply(preview, mode, guidance, steps_file)
        seen: list[CorrectionPreview] = []

        def confirm(preview: CorrectionPreview) -> bool:
            seen.append(preview)
            return yes or invocation.ask(correction_question(preview))

        outside = OutsideHeard(invocation)
        corrected = holdfast.correct(
            decision, guidance=guidance, mode=mode, steps_file=steps_file, confirm=confirm, listener=outside
        )
        if not isinstance(corrected, Plan):
            raise declined()
        reply = run_plan(invocation, holdfast, corrected)
        # Nothing was seen if this very correction had been cut short, and was only finished now.
        impact = outside.in_place_of_expected(seen[0].impact).model_dump() if seen else None
        set_aside = [*outside.set_aside, *reply.data["set_aside"]]
        return replace(reply, data={**reply.data, "impact": impact, "set_aside": set_aside})
