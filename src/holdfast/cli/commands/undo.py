"""``holdfast undo`` and ``redo``: take back in the real folder what an agent did there, and bring it back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast import CallNumber, LastCall, NotFoundError, OnlyCall, PromptNumber, ToCheckpoint
from holdfast.cli.commands.plan.unapply import undo_apply
from holdfast.cli.completion import complete_checkpoint
from holdfast.cli.data import changes_data, plan_data
from holdfast.cli.invocation import Invocation, command, unless_declined, yes_option
from holdfast.cli.output import NOTHING_CHANGED, Next, Reply, Screen, counted, show_next
from holdfast.cli.screen.sessions import call_data, session_name, show_calls, show_changes
from holdfast.errors import UsageError
from holdfast.model import FileChange, Plan, PlanState

if TYPE_CHECKING:
    from holdfast import Call, Holdfast, Undo, UndoResult

Target = LastCall | CallNumber | PromptNumber | OnlyCall | ToCheckpoint

_session_option = click.option(
    "--session", metavar="ID", help="Which session, by the id of its plan or of the agent; by default the last one."
)
_force_option = click.option(
    "--force",
    is_flag=True,
    help="What was changed since and cannot be merged becomes what it was before; `redo` brings it back.",
)
_dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would change.")


@command(
    "undo",
    examples=(
        ("holdfast undo", "Take back the last call of an agent that changed something."),
        ("holdfast undo --only-call 7", "Take out call 7, and keep all that came after it."),
    ),
)
@yes_option
@_dry_run_option
@_force_option
@_session_option
@click.option("--call", "from_call", type=click.IntRange(1), metavar="N", help="Take back call N and all after it.")
@click.option("--only-call", type=click.IntRange(1), metavar="N", help="Take back call N alone.")
@click.option("--prompt", type=click.IntRange(1), metavar="N", help="Take back prompt N and all after it.")
@click.option("--exact", is_flag=True, help="With a checkpoint: also what you changed since. All becomes as it was.")
@click.option(
    "--only",
    metavar="PATH",
    multiple=True,
    help="With a checkpoint: restore only this file or folder. May be repeated.",
)
@click.argument("checkpoint", metavar="[CHECKPOINT_ID|PLAN_ID]", required=False, shell_complete=complete_checkpoint)
def undo(
    invocation: Invocation,
    yes: bool,
    dry_run: bool,
    force: bool,
    session: str | None,
    from_call: int | None,
    only_call: int | None,
    prompt: int | None,
    exact: bool,
    only: tuple[str, ...],
    checkpoint: str | None,
) -> Reply:
    """Take back in your folder what an agent did there, and keep what you changed since.

    Without arguments, the last call that changed something is taken back. With a checkpoint, everything that agents did
    after it. Text in which you changed other lines meanwhile is merged; what cannot be merged is listed, and nothing is
    changed. The present files are kept in a checkpoint first, so `holdfast redo` takes every undo back.

    If the last that changed your folder was the apply of a plan, or if you name a plan, its apply is undone.
    """
    target = _target(from_call, only_call, prompt, checkpoint, exact=exact, only=only)
    if not dry_run:
        invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        in_place = holdfast.in_place
        applied = _applied(holdfast, target, session)
        if applied is not None:
            return undo_apply(invocation, holdfast, applied, yes=yes, dry_run=dry_run)
        if dry_run:
            return _preview_reply(in_place.undo_preview(target, session=session, only=only, force=force), "undo")

        def question(found: Undo) -> str:
            return _question(invocation, found, "Undo")

        confirm = invocation.asking(question, yes)
        result = in_place.undo(target, session=session, only=only, force=force, confirm=confirm)
        done = unless_declined(result)
        talking = in_place.how_to_go_on(done)
        commands = [Next("take that back", "holdfast redo")]
        if talking is not None:
            commands.append(Next("conversation", talking))
        return _reply(holdfast, done, "Undone", commands)


@command(
    "redo",
    examples=(
        ("holdfast redo", "Bring back what the last undo took away."),
        ("holdfast redo --dry-run", "Show what would change."),
    ),
)
@yes_option
@_dry_run_option
@_force_option
@_session_option
def redo(invocation: Invocation, yes: bool, dry_run: bool, force: bool, session: str | None) -> Reply:
    """Bring back what the last undo took away, and keep what was changed since. Repeat it for the undo before that."""
    if not dry_run:
        invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        if dry_run:
            return _preview_reply(holdfast.in_place.redo_preview(session=session, force=force), "redo")

        def question(found: Undo) -> str:
            return _question(invocation, found, "Redo")

        confirm = invocation.asking(question, yes)
        result = holdfast.in_place.redo(session=session, force=force, confirm=confirm)
        done = unless_declined(result)
        first = min((call.number for call in done.calls), default=None)
        again = [] if first is None else [Next("take that back", f"holdfast undo --call {first}")]
        return _reply(holdfast, done, "Redone", again)


def _applied(holdfast: Holdfast, target: Target, session: str | None) -> str | None:
    """The plan whose apply is meant: the one that is named, or the last if it changed the folder after all calls."""
    if session is not None:
        return None
    if isinstance(target, ToCheckpoint):
        try:
            plan = holdfast.find_plan(target.reference)
        except NotFoundError:
            return None
        return None if plan.is_session else plan.plan_id
    if not isinstance(target, LastCall):
        return None
    plans = [plan for plan in holdfast.plans_newest_first() if plan.state is PlanState.APPLIED]
    last = max(plans, key=lambda plan: plan.updated_at, default=None)
    called = holdfast.in_place.last_changed_at()
    return None if last is None or (called is not None and called > last.updated_at) else last.plan_id


def _target(
    from_call: int | None,
    only_call: int | None,
    prompt: int | None,
    checkpoint: str | None,
    *,
    exact: bool,
    only: Sequence[str],
) -> Target:
    named: list[Target] = [
        *([CallNumber(from_call)] if from_call is not None else []),
        *([OnlyCall(only_call)] if only_call is not None else []),
        *([PromptNumber(prompt)] if prompt is not None else []),
        *([ToCheckpoint(checkpoint, is_exact=exact)] if checkpoint is not None else []),
    ]
    if len(named) > 1:
        raise UsageError(
            "A call, a prompt and a checkpoint exclude each other.",
            hint="Name one of them; see `holdfast undo --help`.",
        )
    if checkpoint is None and (exact or only):
        raise UsageError(
            "`--exact` and `--only` need a checkpoint.", hint="`holdfast log` lists them: `holdfast undo CHECKPOINT`."
        )
    if exact and only:
        raise UsageError("`--exact` and `--only` exclude each other.", hint="Leave one of them out.")
    return named[0] if named else LastCall()


def _question(invocation: Invocation, found: Undo, verb: str) -> str:
    _show(invocation.screen, found.plan, found.wish.calls, found.changes, has_other_commits=found.has_other_commits)
    files = counted(len(found.changes), "file")
    return f"{verb}: {files} will be restored or removed in {found.plan.resources[0].path}?"


def _show(
    screen: Screen, plan: Plan, calls: Sequence[Call], changes: Sequence[FileChange], *, has_other_commits: bool
) -> None:
    screen.line(("session ", "dim"), (plan.plan_id, "id"), f"  {session_name(plan)}")
    show_calls(screen, calls)
    show_changes(screen, changes)
    if has_other_commits:
        screen.line("  HEAD, branches or tags of the repository change as well; no commit is deleted.")
    if (Path(plan.resources[0].path) / ".git").is_file():
        screen.line(
            "  Git keeps what it knows of this folder elsewhere: HEAD, branches and the index stay as they are."
        )


def _preview_reply(found: Undo, verb: str) -> Reply:
    data = {**_data(found.plan, found.wish.calls, found.changes), "dry_run": True}

    def show(screen: Screen) -> None:
        _show(screen, found.plan, found.wish.calls, found.changes, has_other_commits=found.has_other_commits)
        screen.line(f"{counted(len(found.changes), 'file')} would be restored or removed.")
        screen.line(NOTHING_CHANGED)
        show_next(screen, [Next("do it", f"holdfast {verb}")])

    return Reply(data, show)


def _reply(holdfast: Holdfast, result: UndoResult, word: str, commands: Sequence[Next]) -> Reply:
    plan = result.plan
    kept = holdfast.lasting_id(plan.plan_id, result.kept_checkpoint_id)
    data = {
        **_data(plan, result.calls, result.changes),
        "checkpoint_id": result.checkpoint_id,
        "kept_checkpoint_id": result.kept_checkpoint_id,
        "dry_run": False,
    }

    def show(screen: Screen) -> None:
        _show(screen, plan, result.calls, result.changes, has_other_commits=result.has_other_commits)
        files = counted(len(result.changes), "file")
        screen.line((f"{word}. ", "good"), f"{files} of yours restored or removed; before, they were as in {kept}.")
        show_next(screen, commands)

    return Reply(data, show)


def _data(plan: Plan, calls: Sequence[Call], changes: Sequence[FileChange]) -> dict[str, Any]:
    return {**plan_data(plan), "calls": [call_data(each) for each in calls], "changes": changes_data(plan, changes)}
