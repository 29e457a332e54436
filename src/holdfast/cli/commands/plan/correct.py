"""``holdfast plan correct``: undo a decision and continue differently."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.commands.plan.execute import run_plan
from holdfast.cli.completion import complete_decision
from holdfast.cli.data import decision_data, file_label, plan_data
from holdfast.cli.invocation import FileOrInput, Invocation, command, unless_declined, yes_option
from holdfast.cli.output import (
    NOTHING_CHANGED,
    Next,
    Reply,
    Row,
    Screen,
    counted,
    first_line,
    shortened,
    show_next,
    show_table,
)
from holdfast.cli.screen.diff import MOST_FILES_SHOWN
from holdfast.cli.screen.listeners import RepairListener, effect_lines, effects_sentence
from holdfast.model import CorrectionMode
from holdfast.names import name_text

if TYPE_CHECKING:
    from holdfast import CorrectionPreview


@command(
    "correct",
    examples=(
        (
            'holdfast plan correct --mode revert --guidance "keep the sources" --with new.yaml 01M7H3WX8C',
            "Undo the decision, and go on with other steps.",
        ),
        (
            'holdfast plan correct --mode append --guidance "add tests" --with more.yaml 01M7H3WX8C',
            "Undo nothing, and add steps at the end.",
        ),
    ),
)
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in CorrectionMode]),
    required=True,
    help="revert: undo the decision and everything that followed. append: undo nothing, add steps at the end.",
)
@click.option(
    "--guidance", metavar="TEXT", required=True, help="What to do instead; steps find it in HOLDFAST_GUIDANCE."
)
@click.option(
    "--with",
    "steps_file",
    type=FileOrInput(),
    metavar="FILE",
    help="A file with the steps to continue with, instead of the old ones; - is standard input.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be undone.")
@yes_option
@click.argument("decision", metavar="DECISION_ID", shell_complete=complete_decision)
def correct(
    invocation: Invocation,
    mode: str,
    guidance: str,
    steps_file: Path | None,
    dry_run: bool,
    yes: bool,
    decision: str,
) -> Reply:
    """Undo a decision and everything that followed from it, and continue from there with your guidance.

    `holdfast plan tree` lists the decisions of a plan. What is undone is kept in a checkpoint.
    """
    if not guidance.strip():
        raise click.BadParameter("say what to do instead.", param_hint="--guidance")
    how = CorrectionMode(mode)
    # Appending without steps is refused anyway, with a better message.
    if not dry_run and (how is CorrectionMode.REVERT or steps_file is not None):
        invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        if dry_run:
            preview = holdfast.correction_preview(decision, mode=how, steps_file=steps_file)
            return _preview_reply(preview, how, guidance, steps_file)
        outside = RepairListener(invocation)
        answer = holdfast.correct(
            decision,
            guidance=guidance,
            mode=how,
            steps_file=steps_file,
            confirm=invocation.asking(_question, yes),
            listener=outside,
        )
        corrected = unless_declined(answer)
        reply = run_plan(invocation, holdfast, corrected.plan, yes=True)
        impact = corrected.impact.model_dump() if corrected.impact else None
        set_aside = [*outside.set_aside, *reply.data["set_aside"]]
        return reply._replace(data={**reply.data, "impact": impact, "set_aside": set_aside})


def _question(preview: CorrectionPreview) -> str:
    if preview.checkpoint is None:
        new = preview.steps[len(preview.plan.steps) :]
        named = ", ".join(shortened(first_line(step.name), 30) for step in new[:3]) + (", …" if len(new) > 3 else "")
        return f"Undo nothing, and add {counted(len(new), 'step')} at the end: {named}. Continue?"
    subplans = f"{counted(len(preview.subplans), 'subplan')} invalidated, " if preview.subplans else ""
    return (
        f"Undo “{shortened(first_line(preview.decision.chosen), 60)}” and everything that followed from it: "
        f"{counted(len(preview.superseded), 'decision')} superseded, {subplans}"
        f"{counted(len(preview.files), 'file')} restored or removed in the sandboxes. "
        f"{effects_sentence(preview.impact)}Continue?"
    )


def _preview_reply(preview: CorrectionPreview, mode: CorrectionMode, guidance: str, steps_file: Path | None) -> Reply:
    """The reply of a dry run."""
    steps = ["--with", str(steps_file)] if steps_file else []
    said = shlex.join(["--mode", mode, "--guidance", guidance, *steps, preview.decision.decision_id])
    commands = [Next("do it", f"holdfast plan correct {said}")]
    data = {
        **plan_data(preview.plan),
        "dry_run": True,
        "mode": mode.value,
        "decision": decision_data(preview.decision),
        "checkpoint_id": preview.checkpoint.checkpoint_id if preview.checkpoint else None,
        "superseded_decisions": [decision_data(each) for each in preview.superseded],
        "subplans_invalidated": [plan_data(each) for each in preview.subplans],
        "files": [f"{each.resource}: {each.file}" for each in preview.files],
        "impact": preview.impact.model_dump(),
        "resumes_at_step": preview.resumes_at,
        "steps": [{"index": index, "name": step.name, "tool": step.tool} for index, step in enumerate(preview.steps)],
        "next_commands": [each.command for each in commands],
    }

    def show(screen: Screen) -> None:
        _show_correction(screen, preview)
        show_next(screen, commands)

    return Reply(data, show)


def _show_correction(screen: Screen, preview: CorrectionPreview) -> None:
    screen.line(("Decision ", "strong"), (preview.decision.decision_id, "id"))
    show_table(screen, [[first_line(preview.decision.chosen)]], flexible=0, indent="  ")
    if preview.checkpoint is not None:
        _show_undone(screen, preview)
    screen.line(("Would run", "strong"))
    steps = list(enumerate(preview.steps, 1))[preview.resumes_at :]
    show_table(screen, [[(f"{number:>2}", "dim"), step.name] for number, step in steps], flexible=1, indent="  ")
    screen.line(NOTHING_CHANGED)


def _show_undone(screen: Screen, preview: CorrectionPreview) -> None:
    is_undone = preview.decision.is_superseded
    screen.line(("Would be undone", "strong"), " (its step is rolled back already)" if is_undone else "")
    rows: list[Row] = [[(each.decision_id, "id"), first_line(each.chosen)] for each in preview.superseded]
    show_table(screen, rows, flexible=1, indent="  ")
    for subplan in preview.subplans:
        screen.line("  ", (subplan.plan_id, "id"), "  subplan ", subplan.name)
    for each in preview.files[:MOST_FILES_SHOWN]:
        screen.line("  ", name_text(file_label(preview.plan, each.resource, each.file)))
    if len(preview.files) > MOST_FILES_SHOWN:
        screen.line(f"  and {counted(len(preview.files) - MOST_FILES_SHOWN, 'more file')}")
    for line in effect_lines(preview.impact):
        screen.line("  ", (line, "warn"))
