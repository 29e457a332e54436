"""``holdfast plan diff``: show what a plan changed."""

from __future__ import annotations

import click

from holdfast.cli.completion import complete_checkpoint, complete_plan
from holdfast.cli.data import diff_data, names_data
from holdfast.cli.invocation import Invocation, WithPaths, command, no_pager_option
from holdfast.cli.output import Reply, Screen, show_sentence
from holdfast.cli.screen.diff import DiffStyle, show_diff
from holdfast.names import name_text


@command(
    "diff",
    only_looks=True,
    cls=WithPaths,
    examples=(
        ("holdfast plan diff --patch latest -- src", "The lines that the newest plan changed in src."),
        ("holdfast plan diff latest cp_01M7H3WX8C cp_01M7H3WX9K", "What changed between two checkpoints."),
    ),
)
@click.option("--patch", "-p", "style", flag_value="patch", help="Show the changed lines.")
@click.option("--stat", "style", flag_value="stat", default=True, help="Show files and counts of lines; the default.")
@click.option("--name-only", "style", flag_value="names", help="Show only the names of the files.")
@click.option(
    "--attempt", "attempts", type=int, nargs=2, metavar="A B", help="Compare the results of two attempts instead."
)
@click.option("--ignored", "with_ignored", is_flag=True, help="Show files that git ignores, too.")
@no_pager_option
@click.argument("plan", metavar="[PLAN_ID]", default="latest", shell_complete=complete_plan)
@click.argument("old", metavar="[FROM]", required=False, shell_complete=complete_checkpoint)
@click.argument("new", metavar="[TO]", required=False, shell_complete=complete_checkpoint)
def diff(
    invocation: Invocation,
    style: DiffStyle,
    attempts: tuple[int, int] | None,
    with_ignored: bool,
    plan: str,
    old: str | None,
    new: str | None,
    paths: tuple[str, ...],
) -> Reply:
    """Show what a plan changed so far, or since checkpoint FROM, or between the checkpoints FROM and TO.

    Files that git ignores are only counted, unless you ask for them with --ignored. Every correction begins a new
    attempt; `--attempt 1 2` shows how their results differ. Paths after `--` choose files and folders: PATH, or
    RESOURCE:PATH.
    """
    if attempts and old is not None:
        raise click.UsageError("--attempt compares attempts, and takes no checkpoints.")
    with invocation.opened() as holdfast:
        found = holdfast.find_plan(plan)
        if attempts:
            ends = [holdfast.result_of_attempt(found.plan_id, each).checkpoint_id for each in attempts]
        else:
            ends = [
                holdfast.checkpoint(each, found.plan_id).checkpoint.checkpoint_id
                for each in (old, new)
                if each is not None
            ]
        differing = holdfast.diff(found.plan_id, *ends, with_ignored=with_ignored, paths=paths)
        applied = holdfast.applied_parts(found)
    ignored = [each for each in differing if each.is_ignored]
    files = differing if with_ignored else [each for each in differing if not each.is_ignored]
    data = {
        "plan_id": found.plan_id,
        "attempts": attempts,
        "from_checkpoint_id": ends[0] if ends else None,
        "to_checkpoint_id": ends[1] if len(ends) > 1 else None,
        "paths": paths,
        "applied_parts": applied,
        "files": diff_data(found, files, with_patch=style == "patch"),
        "files_changed": len(files),
        "ignored_files": names_data(found, ignored),
        "added_lines": sum(each.added_lines for each in files),
        "removed_lines": sum(each.removed_lines for each in files),
    }
    folded = 0 if with_ignored else len(ignored)

    def show(screen: Screen) -> None:
        show_diff(screen, found, files, style, folded, paths)
        # A program may read the names or the patch, which is not the place for a remark.
        if applied and (style == "stat" or screen.width is not None):
            show_sentence(screen, ("applied in part: ", "dim"), ", ".join(map(name_text, applied)))

    return Reply(data, show, is_long=True)
