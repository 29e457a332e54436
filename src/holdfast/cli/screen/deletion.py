"""What is shown of several plans that are about to be deleted, and of those that were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.cli.data import plan_data
from holdfast.cli.output import Row, Screen, counted, show_table, wrapped
from holdfast.cli.screen.plans import state_span
from holdfast.names import bytes_text

if TYPE_CHECKING:
    from holdfast import DeletedPlans, DeletionPreview

_MOST_SHOWN = 30


def show_deletion(screen: Screen, preview: DeletionPreview) -> None:
    """The plans by name, each on a line."""
    rows: list[Row] = [
        [
            (plan.plan_id, "id"),
            state_span(plan),
            plan.name,
            (f"{preview.checkpoints[plan.plan_id]}", "dim"),
            (f"{plan.updated_at.astimezone():%Y-%m-%d}", "dim"),
        ]
        for plan in preview.plans
    ]
    rows += [[(each, "id"), ("damaged", "bad"), "", "", ""] for each in preview.damaged]
    show_table(screen, rows[:_MOST_SHOWN], flexible=2, header=("plan", "state", "name", "checkpoints", "changed"))
    if len(rows) > _MOST_SHOWN:
        screen.line((f"and {len(rows) - _MOST_SHOWN} more", "dim"))


def preview_data(preview: DeletionPreview) -> dict[str, Any]:
    return {
        "plans": [{**plan_data(each), "checkpoints": preview.checkpoints[each.plan_id]} for each in preview.plans],
        "damaged_plans": list(preview.damaged),
        "checkpoints": sum(preview.checkpoints.values()),
    }


def deletion_data(result: DeletedPlans) -> dict[str, Any]:
    failed = [
        {"plan_id": plan_id, "error": {"type": type(error).__name__, "message": error.message, "hint": error.hint}}
        for plan_id, error in result.failed.items()
    ]
    return {
        **preview_data(result.preview),
        "deleted": list(result.deleted),
        "failed": failed,
        "freed_bytes": result.freed_bytes,
    }


def show_deleted(screen: Screen, result: DeletedPlans) -> None:
    for plan_id, error in result.failed.items():
        screen.line((f"plan {plan_id} is still there: ", "bad"))
        for line in wrapped(f"{error.message} {error.hint}".strip(), screen.width and screen.width - 2):
            screen.line("  ", line)
    deleted = [each for each in result.preview.ids if each not in result.failed]
    checkpoints = counted(sum(result.preview.checkpoints.get(each, 0) for each in deleted), "checkpoint")
    text = f"Deleted {counted(len(deleted), 'plan')} with {checkpoints} and their sandboxes; "
    if result.freed_bytes is None:
        text += "their saved content is being freed by a process in the background."
    else:
        text += f"{bytes_text(result.freed_bytes)} of saved content freed."
    for line in wrapped(text, screen.width):
        screen.line(line)


def exit_code_of(result: DeletedPlans) -> int:
    """That of the first plan that could not be deleted."""
    return next((error.exit_code for error in result.failed.values()), 0)
