"""``holdfast plan prune``: delete plans that are no longer needed."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.data import unfreed
from holdfast.cli.invocation import Invocation, command, unless_declined, yes_option
from holdfast.cli.output import NOTHING_CHANGED, Reply, Screen, counted
from holdfast.cli.screen.deletion import deletion_data, exit_code_of, preview_data, show_deleted, show_deletion
from holdfast.errors import UsageError
from holdfast.model import PlanState

if TYPE_CHECKING:
    from holdfast import DeletionPreview, Holdfast

_AGE = re.compile(r"(?P<number>\d{1,5})\s*(?P<unit>[mhdw])\Z")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Age(click.ParamType[timedelta]):
    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        found = _AGE.match(value)
        if found is None:
            self.fail(f"{value!r} is not an age like 30m, 12h, 7d or 2w.", param, ctx)
        return timedelta(**{_UNITS[found["unit"]]: int(found["number"])})


@command(
    "prune",
    examples=(
        ("holdfast plan prune --applied --older-than 7d --keep 20 --dry-run", "Show which plans would be deleted."),
        ("holdfast plan prune --state cancelled --state errored --yes", "Delete plans that were given up."),
    ),
)
@click.option("--applied", is_flag=True, help="Plans that were applied; the default unless --state is given.")
@click.option(
    "--state",
    "states",
    type=click.Choice([each.value for each in PlanState]),
    multiple=True,
    help="Plans in this state instead. May be repeated.",
)
@click.option("--older-than", type=Age(), metavar="AGE", help="Only plans unchanged for so long: 30m, 12h, 7d or 2w.")
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    metavar="N",
    help="Keep the N newest plans of these states in each project.",
)
@click.option("--all", "everywhere", is_flag=True, help="Plans of all projects, not only of this one.")
@click.option("--dry-run", is_flag=True, help="Only show which plans would be deleted.")
@yes_option
def prune(
    invocation: Invocation,
    applied: bool,
    states: tuple[str, ...],
    older_than: timedelta | None,
    keep: int | None,
    everywhere: bool,
    dry_run: bool,
    yes: bool,
) -> Reply:
    """Delete plans that are no longer needed, with their sandboxes, their checkpoints and their saved content.

    An applied plan that is deleted can no longer be unapplied. Plans that a process works on, or in which something was
    cut short, always stay. If it is killed, run it again.
    """
    if not (applied or states or older_than is not None or keep is not None):
        raise UsageError(
            "Say which plans are to be deleted; nothing was changed.",
            hint="For example `holdfast plan prune --applied --older-than 7d --dry-run`.",
        )
    if not dry_run:
        invocation.refuse_to_guess(yes)
    chosen = {*map(PlanState, states), *((PlanState.APPLIED,) if applied or not states else ())}
    with invocation.opened() as holdfast:
        plans = holdfast.plans_to_prune(chosen, older_than=older_than, keep=keep or 0, everywhere=everywhere)
        if not plans:
            return _nothing_reply(dry_run)
        ids = [plan.plan_id for plan in plans]
        if dry_run:
            return _preview_reply(holdfast, ids)

        def question(preview: DeletionPreview) -> str:
            show_deletion(invocation.screen, preview)
            return f"Delete {_counts(preview)} for good?"

        result = unless_declined(holdfast.delete_plans(ids, confirm=invocation.asking(question, yes)))
        data = {"dry_run": False, **deletion_data(result)}
        return Reply(data, lambda screen: show_deleted(screen, result), exit_code_of(result), unfreed(holdfast))


def _counts(preview: DeletionPreview) -> str:
    checkpoints = counted(sum(preview.checkpoints.values()), "checkpoint")
    return f"{counted(len(preview.ids), 'plan')} with {checkpoints}"


_NOTHING: dict[str, Any] = {"deleted": [], "failed": [], "freed_bytes": 0}


def _nothing_reply(dry_run: bool) -> Reply:
    data = {"dry_run": dry_run, "plans": [], "damaged_plans": [], "checkpoints": 0, **_NOTHING}
    return Reply(data, lambda screen: screen.line(f"There is no such plan. {NOTHING_CHANGED}"))


def _preview_reply(holdfast: Holdfast, ids: list[str]) -> Reply:
    """The reply of a dry run: what the question would show is taken from the question, and the answer is no."""
    seen: list[DeletionPreview] = []

    def look(preview: DeletionPreview) -> bool:
        seen.append(preview)
        return False

    holdfast.delete_plans(ids, confirm=look)
    (preview,) = seen

    def show(screen: Screen) -> None:
        show_deletion(screen, preview)
        screen.line(f"{_counts(preview)} would be deleted. {NOTHING_CHANGED}")

    return Reply({"dry_run": True, **preview_data(preview), **_NOTHING}, show)
