"""What is shown of many plans that are deleted."""

from __future__ import annotations

import io
from collections.abc import Callable

from holdfast import DeletedPlans, DeletionPreview
from holdfast.cli.output import PlainScreen, Screen
from holdfast.cli.screen.deletion import deletion_data, exit_code_of, show_deleted, show_deletion
from holdfast.errors import ConflictError, ContentError, HoldfastError
from tests.unit.cli.test_layout import plan


def shown(show: Callable[[Screen], None]) -> list[str]:
    stream = io.StringIO()
    show(PlainScreen(stream, 80))
    return stream.getvalue().splitlines()


def a_preview(count: int, damaged: tuple[str, ...] = ()) -> DeletionPreview:
    plans = tuple(plan(f"plan {number}") for number in range(count))
    return DeletionPreview(plans, damaged, {each.plan_id: 3 for each in plans})


def test_of_very_many_plans_some_are_listed_and_the_others_counted() -> None:
    lines = shown(lambda screen: show_deletion(screen, a_preview(40)))
    assert (len(lines), lines[-1]) == (32, "and 10 more")


def test_a_damaged_plan_is_listed_by_its_id() -> None:
    lines = shown(lambda screen: show_deletion(screen, a_preview(1, ("01M7S6FZXX9TAMAXMBYNRVMRY4",))))
    assert lines[-1].split() == ["01M7S6FZXX9TAMAXMBYNRVMRY4", "damaged"]


def test_what_failed_is_named_with_its_reason_and_the_first_gives_the_exit_code() -> None:
    preview = a_preview(3)
    first, second, _ = (each.plan_id for each in preview.plans)
    failed: dict[str, HoldfastError] = {
        first: ContentError("Its content is gone.", hint="Restore it."),
        second: ConflictError("It is in use."),
    }
    result = DeletedPlans(preview, failed, freed_bytes=None)
    lines = shown(lambda screen: show_deleted(screen, result))

    assert lines[:4] == [
        f"plan {first} is still there:", "  Its content is gone. Restore it.",
        f"plan {second} is still there:", "  It is in use.",
    ]  # fmt: skip
    assert " ".join(lines[4:]) == (
        "Deleted 1 plan with 3 checkpoints and their sandboxes; their saved content is being freed by a process in the "
        "background."
    )
    assert exit_code_of(result) == ContentError.exit_code
    assert [each["plan_id"] for each in deletion_data(result)["failed"]] == [first, second]
    assert exit_code_of(DeletedPlans(preview, {}, 0)) == 0
