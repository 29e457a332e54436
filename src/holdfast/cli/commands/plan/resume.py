"""``holdfast plan resume``: continue after a crash, a kill, a failure, a cancel or a conflict."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from holdfast import AfterInterruption, Choices
from holdfast.cli.commands.plan.execute import run_plan
from holdfast.cli.completion import complete_plan
from holdfast.cli.invocation import Invocation, command, yes_option
from holdfast.cli.output import NOTHING_CHANGED, Next, Reply, Screen, show_facts, show_next, show_plan
from holdfast.cli.screen.plans import FINISHED_LATER, after_interrupted_program
from holdfast.model import PlanState

if TYPE_CHECKING:
    from holdfast import Holdfast, ResumePreview


@command(
    "resume",
    examples=(
        ("holdfast plan resume --dry-run latest", "Show where the newest plan would continue."),
        ("holdfast plan resume --resolved latest", "Go on after you edited the files in conflict."),
    ),
)
@yes_option
@click.option("--dry-run", is_flag=True, help="Only show where it would continue.")
@click.option(
    "--rerun", is_flag=True, help="Run an interrupted step with effects outside the sandboxes again, or a program."
)
@click.option(
    "--skip",
    is_flag=True,
    help="Count an interrupted step with effects outside the sandboxes, or an interrupted program, as done.",
)
@click.option("--resolved", is_flag=True, help="Accept the files in conflict as they are now in the sandbox.")
@click.argument("plan", metavar="PLAN_ID", shell_complete=complete_plan)
def resume(
    invocation: Invocation, yes: bool, dry_run: bool, rerun: bool, skip: bool, resolved: bool, plan: str
) -> Reply:
    """Continue after a crash, a kill, a failure, a cancel or a conflict, from the last checkpoint.

    An interrupted step starts again from the state before it. A step with effects outside the sandboxes is not repeated
    unless you say so: choose --rerun or --skip. For a program that `holdfast run` started, --skip keeps its work: the
    files as it left them are the result; `plan keep` makes an earlier moment the result. Such a program starts from its
    beginning if you continue: you are asked before, unless you say --yes or --rerun.
    """
    if rerun and skip:
        raise click.UsageError("--rerun and --skip do not go together.")
    with invocation.opened() as holdfast:
        interrupted = AfterInterruption.RERUN if rerun else AfterInterruption.SKIP if skip else None
        choices = Choices(interrupted, resolved)
        preview = holdfast.resume_preview(plan, choices=choices, is_dry_run=dry_run)
        if dry_run:
            return _preview_reply(holdfast, preview)
        return run_plan(invocation, holdfast, preview.plan, choices, yes=yes or rerun)


def _preview_reply(holdfast: Holdfast, preview: ResumePreview) -> Reply:
    """The reply of a dry run: where the plan would continue."""
    plan = preview.plan
    step = None if preview.step_index is None else preview.steps[preview.step_index]
    before = holdfast.find_group(preview.group_id)
    back = holdfast.checkpoints_at(before)[0].checkpoint_id if before is not None else None
    data = {
        "plan_id": plan.plan_id,
        "step_index": preview.step_index,
        "step": step.name if step else None,
        "skipped": preview.skipped,
        "checkpoint_id": back,
        "operations": list(preview.operations),
        "subplans": list(preview.subplans),
        "made_anew": list(preview.made_anew),
    }

    def show(screen: Screen) -> None:
        show_plan(screen, plan.plan_id, plan.name)
        show_facts(screen, _resume_facts(preview, back))
        screen.line(NOTHING_CHANGED)
        commands = [Next("continue", f"holdfast plan resume {_options(preview.choices)}{plan.plan_id}")]
        if preview.can_skip:
            commands += after_interrupted_program(plan)
        show_next(screen, commands)

    return Reply(data, show)


def _resume_facts(preview: ResumePreview, back: str | None) -> Iterable[tuple[str, str]]:
    for operation in preview.operations:
        end = "finished" if operation in FINISHED_LATER else "undone"
        yield "first", f"the {operation.noun} that was cut short is {end}"
    if preview.made_anew:
        yield "re-creates", f"{', '.join(preview.made_anew)}, from the last checkpoint: the sandbox is missing"
    if back is not None:
        why = "the work of later steps is lost" if preview.is_lost else "the step was interrupted"
        yield "restores", f"the sandboxes to {back}: {why}"
    if preview.skipped is not None:
        files = "the files are those of the last checkpoint" if preview.made_anew else "the files stay as it left them"
        yield "skips", f"{preview.skipped}, which counts as done; {files}"
    yield _going_on(preview)
    if preview.subplans:
        yield "with", f"{', '.join(preview.subplans)}; the other subplans are done"


def _going_on(preview: ResumePreview) -> tuple[str, str]:
    if preview.runs_nothing:
        is_done = preview.is_result or preview.plan.state is PlanState.COMPLETE
        return "then", "nothing: the plan is complete" if is_done else "waits: resolve the conflicts there first"
    if preview.step_index is None:
        return "continues", "all steps are done; the result is checked again"
    return "continues", f"{preview.step_index + 1} {preview.steps[preview.step_index].name}"


def _options(choices: Choices) -> str:
    """The choices as options of the command."""
    interrupted = f"--{choices.interrupted_step} " if choices.interrupted_step is not None else ""
    return interrupted + ("--resolved " if choices.conflicts_are_resolved else "")
