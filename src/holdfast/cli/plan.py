"""``holdfast plan``: make plans, run them, look at them, go back, correct, apply."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.invocation import Invocation, OrderedGroup, command, with_common_options
from holdfast.cli.output import Next, Reply, Screen, counted, name_text, show_next

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.correct import CorrectionPreview
    from holdfast.model import Plan
    from holdfast.rollback import RollbackPreview

_PLAN_FILE_ENDINGS = (".yaml", ".yml")
_FILE = click.Path(path_type=Path)


@click.group("plan", cls=OrderedGroup)
@with_common_options
def group() -> None:
    """Make plans, run them, go back, correct, apply.

    PLAN_ID is a plan's id, a unique beginning of it, or `latest`: the newest plan of this project.
    """


_yes = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


@command(group, "create", short_help="Make a plan from a file, without running it.")
@click.argument("file", type=_FILE)
def create(invocation: Invocation, file: Path) -> Reply:
    """Make a plan from a plan file, without running it; see `holdfast plan schema` for the format."""
    from holdfast.cli.records import plan_data, resources_data, steps_data, switched_off

    with invocation.opened() as holdfast:
        plan = holdfast.create_plan(file)
    commands = [Next("run it", f"holdfast plan execute {plan.plan_id}")]
    data = {**plan_data(plan), "resources": resources_data(plan), "steps": steps_data(plan, ())}

    def show(screen: Screen) -> None:
        screen.line(("Plan ", "strong"), (plan.plan_id, "id"), "  ", plan.name)
        resources = ", ".join(resource.name for resource in plan.resources)
        screen.line(f"{counted(len(plan.steps), 'step')} on {resources}; nothing has run yet.")
        show_next(screen, commands)

    return Reply({**data, "next_commands": [each.command for each in commands]}, show, messages=switched_off(plan))


@command(group, "execute", short_help="Run a plan, or go on with it.")
@click.argument("plan", metavar="PLAN_ID|FILE")
def execute(invocation: Invocation, plan: str) -> Reply:
    """Run a plan, or go on with it where it stopped; with a plan file, make the plan first.

    All work is done in private sandboxes. Ctrl-C stops the step under way; execute goes on from there.
    """
    from holdfast.cli.execution import run_plan

    with invocation.opened() as holdfast:
        is_file = plan.endswith(_PLAN_FILE_ENDINGS) or os.path.isfile(plan)
        wanted = holdfast.create_plan(Path(plan)) if is_file else holdfast.find_plan(plan)
        return run_plan(invocation, holdfast, wanted)


@command(group, "resume", short_help="Go on after a crash, a kill, a failure or a cancel.")
@click.option("--dry-run", is_flag=True, help="Only say from where.")
@click.argument("plan", metavar="PLAN_ID")
def resume(invocation: Invocation, dry_run: bool, plan: str) -> Reply:
    """Go on after a crash, a kill, a failure or a cancel, from the last checkpoint.

    A step that did not come to its end starts again from the state before it.
    """
    from holdfast.cli.execution import run_plan
    from holdfast.cli.plan_text import resume_reply

    with invocation.opened() as holdfast:
        preview = holdfast.resume_preview(plan)
        if dry_run:
            return resume_reply(holdfast, preview)
        return run_plan(invocation, holdfast, preview.plan)


@command(group, "cancel", short_help="Stop a plan; it can go on later.")
@click.argument("plan", metavar="PLAN_ID")
def cancel(invocation: Invocation, plan: str) -> Reply:
    """Stop a plan, also one that runs in another terminal. Sandboxes and checkpoints stay, and it can go on later."""
    from holdfast.cli.records import plan_data

    with invocation.opened() as holdfast:
        stopped = holdfast.cancel(plan)
    commands = [
        Next("go on", f"holdfast plan resume {stopped.plan_id}"),
        Next("go back", f"holdfast checkpoint list {stopped.plan_id}"),
    ]

    def show(screen: Screen) -> None:
        done = f"{stopped.next_step} of {counted(len(stopped.steps), 'step')} done"
        screen.line(f"Cancelled, {done}; its sandboxes and checkpoints are kept.")
        show_next(screen, commands)

    return Reply({**plan_data(stopped), "next_commands": [each.command for each in commands]}, show)


@command(group, "delete", short_help="Forget a plan, its sandboxes and its checkpoints.")
@_yes
@click.argument("plan", metavar="PLAN_ID")
def delete(invocation: Invocation, yes: bool, plan: str) -> Reply:
    """Forget a plan: its sandboxes, its records, and all saved content that no other plan needs."""
    from holdfast.cli.records import plan_data

    invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        found = holdfast.find_plan(plan)
        kept = counted(holdfast.store.checkpoint_count(found.plan_id), "checkpoint")
        if not yes and not invocation.ask(f"Delete plan {found.plan_id} ({found.name}) with its {kept} for good?"):
            raise _declined()
        holdfast.delete(found.plan_id)
    return Reply(plan_data(found), lambda screen: screen.line(f"Deleted, with its {kept}."))


@command(group, "status", short_help="Where a plan stands.")
@click.argument("plan", metavar="[PLAN_ID]", default="latest")
def status(invocation: Invocation, plan: str) -> Reply:
    """Where a plan stands: its steps, its resources, the decisions that can be corrected."""
    from holdfast.cli.plan_text import show_status
    from holdfast.cli.records import status_data, switched_off

    with invocation.opened() as holdfast:
        found = holdfast.status(plan)
        decisions = holdfast.decisions(found.plan.plan_id)
        last = _display_id(holdfast, found.plan) if not invocation.is_for_programs else None
    data = status_data(found, decisions)
    return Reply(data, lambda screen: show_status(screen, found, decisions, last), messages=switched_off(found.plan))


def _display_id(holdfast: Holdfast, plan: Plan) -> str | None:
    from holdfast.policy import display_ids

    if plan.last_checkpoint_id is None:
        return None
    listed = [each.checkpoint_id for each in holdfast.store.checkpoints_of(plan.plan_id)]
    return display_ids([*listed, plan.last_checkpoint_id])[plan.last_checkpoint_id]


@command(group, "list", short_help="The plans of this project, newest first.")
@click.option("--all", "everywhere", is_flag=True, help="Of all projects.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the N newest.")
def list_plans(invocation: Invocation, everywhere: bool, limit: int | None) -> Reply:
    """The plans of this project, newest first."""
    from holdfast.cli.plan_text import show_plans
    from holdfast.cli.records import plan_data
    from holdfast.model import Project

    with invocation.opened() as holdfast:
        plans = holdfast.list_plans(everywhere=everywhere, limit=limit)
        projects = {
            each: project.root
            for each in {plan.project_id for plan in plans}
            if (project := holdfast.store.find(Project, each))
        }
    data = [{**plan_data(plan), "steps": len(plan.steps), "project": projects.get(plan.project_id)} for plan in plans]
    return Reply(
        {"plans": data}, lambda screen: show_plans(screen, plans, projects if everywhere else {}, holdfast.project_root)
    )


@command(group, "rollback", short_help="Go back to a checkpoint.")
@_yes
@click.argument("plan", metavar="PLAN_ID")
@click.argument("checkpoint", metavar="CHECKPOINT_ID")
def rollback(invocation: Invocation, yes: bool, plan: str, checkpoint: str) -> Reply:
    """Take a plan back to a checkpoint: its files exactly as they were, its position, its decisions.

    CHECKPOINT_ID is an id, a display id (cp_...), a unique beginning, or a label. The state that is left gets a
    checkpoint of its own, so a rollback can be rolled back.
    """
    from holdfast.cli.plan_text import rollback_reply
    from holdfast.model import RollbackResult

    invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:

        def confirm(preview: RollbackPreview) -> bool:
            if yes:
                return True
            files = counted(preview.files, "file")
            where = f"{preview.group.triggers[0]}, {preview.group.step or 'no step'}"
            return invocation.ask(
                f"Go back to {checkpoint} ({where}): {files} will be restored or removed in the sandboxes and "
                f"{counted(preview.decisions, 'decision')} superseded. Go back?"
            )

        result = holdfast.rollback(plan, checkpoint, confirm=confirm)
        if not isinstance(result, RollbackResult):
            raise _declined()
        return rollback_reply(holdfast, result)


def _declined() -> Exception:
    from holdfast.errors import StateError

    return StateError("You said no; nothing was changed.")


@command(group, "correct", short_help="Undo a decision and go on differently.")
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
    "--with", "steps_file", type=_FILE, metavar="FILE", help="A file with steps to go on with instead of the old ones."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be undone.")
@_yes
@click.argument("decision", metavar="DECISION_ID")
def correct(
    invocation: Invocation,
    mode: str,
    guidance: str,
    steps_file: Path | None,
    dry_run: bool,
    yes: bool,
    decision: str,
) -> Reply:
    """Undo a decision and all that followed from it, and go on from there with your guidance.

    The decisions of a plan are in `holdfast plan status`. What is undone is kept in a checkpoint.
    """
    from holdfast.cli.execution import run_plan
    from holdfast.model import Plan

    if not guidance.strip():
        raise click.BadParameter("say what to do instead.", param_hint="--guidance")
    if mode == "revert" and not dry_run:
        invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        if dry_run:
            return _correction_preview(holdfast, decision, guidance, mode, steps_file)

        def confirm(preview: CorrectionPreview) -> bool:
            from holdfast.cli.plan_text import correction_question

            return yes or invocation.ask(correction_question(preview))

        corrected = holdfast.correct(decision, guidance=guidance, mode=mode, steps_file=steps_file, confirm=confirm)
        if not isinstance(corrected, Plan):
            raise _declined()
        return run_plan(invocation, holdfast, corrected)


def _correction_preview(holdfast: Holdfast, reference: str, guidance: str, mode: str, steps_file: Path | None) -> Reply:
    from holdfast.cli.plan_text import correction_reply
    from holdfast.model import Plan

    plan = holdfast.store.get(Plan, holdfast.find_decision(reference).plan_id)
    if mode == "append":
        return correction_reply(plan, _appended(holdfast, reference, plan, steps_file), mode)
    seen: list[CorrectionPreview] = []

    def look(preview: CorrectionPreview) -> bool:
        seen.append(preview)
        return False

    holdfast.correct(reference, guidance=guidance, mode=mode, steps_file=steps_file, confirm=look)
    return correction_reply(plan, seen[0], mode)


def _appended(holdfast: Holdfast, reference: str, plan: Plan, steps_file: Path | None) -> CorrectionPreview:
    """Nothing is undone, so the new steps are all there is to say."""
    from holdfast.correct import CorrectionPreview
    from holdfast.errors import UsageError
    from holdfast.planfile import load_steps_file

    if steps_file is None:
        raise UsageError("Appending needs new steps.", hint="Give them with `--with FILE`.")
    names = [resource.name for resource in plan.resources]
    steps = load_steps_file(steps_file, resources=names, check_step=holdfast.tools.problems)
    return CorrectionPreview(
        decision=holdfast.find_decision(reference),
        checkpoint=None,
        files=(),
        superseded=(),
        resumes_at=plan.next_step,
        steps=(*plan.steps, *steps),
    )


@command(group, "diff", short_help="What a plan changed.")
@click.option("--patch", "-p", "style", flag_value="patch", help="With the changed lines.")
@click.option("--stat", "style", flag_value="stat", default=True, help="Files and counts of lines; the default.")
@click.option("--name-only", "style", flag_value="names", help="Only the names of the files.")
@click.argument("plan", metavar="PLAN_ID")
@click.argument("old", metavar="[FROM]", required=False)
@click.argument("new", metavar="[TO]", required=False)
def diff(invocation: Invocation, style: str, plan: str, old: str | None, new: str | None) -> Reply:
    """What a plan changed so far, or since checkpoint FROM, or between the checkpoints FROM and TO."""
    from holdfast.cli.plan_text import show_diff
    from holdfast.cli.records import diff_data

    with invocation.opened() as holdfast:
        found = holdfast.find_plan(plan)
        ends = [
            holdfast.checkpoint(each, found.plan_id).checkpoint.checkpoint_id if each else None for each in (old, new)
        ]
        files = holdfast.diff(found.plan_id, *ends)
    data = {
        "plan_id": found.plan_id,
        "from_checkpoint_id": ends[0],
        "to_checkpoint_id": ends[1],
        "files": diff_data(found, files, with_patch=style == "patch"),
        "files_changed": len(files),
        "added_lines": sum(each.added_lines for each in files),
        "removed_lines": sum(each.removed_lines for each in files),
    }
    return Reply(data, lambda screen: show_diff(screen, found, files, style))


@command(group, "apply", short_help="Bring a plan's result into your files.")
@_yes
@click.option("--no-commit", is_flag=True, help="In git repositories change the files, but commit nothing.")
@click.argument("plan", metavar="PLAN_ID")
def apply(invocation: Invocation, yes: bool, no_commit: bool, plan: str) -> Reply:
    """Bring the result of a complete plan into the real files: of all resources, or of none.

    Refuses if you changed the same files meanwhile. In a git repository the result becomes one commit.
    """
    from holdfast.apply import ApplyResult
    from holdfast.cli.plan_text import apply_reply, show_changes

    invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:

        def confirm(plan: Plan) -> bool:
            from holdfast.cli.execution import changes_of

            if yes:
                return True
            changes = changes_of(holdfast, plan)
            show_changes(invocation.screen, plan, changes)
            places = ", ".join(name_text(resource.path) for resource in plan.resources)
            return invocation.ask(f"Bring {counted(len(changes), 'changed file')} into {places}?")

        result = holdfast.apply(plan, commit=not no_commit, confirm=confirm)
        if not isinstance(result, ApplyResult):
            raise _declined()
    return apply_reply(result)


@command(group, "schema", short_help="The JSON Schema of plan files.")
def schema(invocation: Invocation) -> Reply:  # noqa: ARG001 - every command gets it
    """The JSON Schema of plan files, for editors: holdfast plan schema > plan.schema.json."""
    from holdfast.planfile import plan_file_schema

    found: dict[str, Any] = plan_file_schema()
    return Reply({"schema": found}, lambda screen: screen.line(json.dumps(found, indent=2)))
