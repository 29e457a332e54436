"""``holdfast plan apply``: bring a plan's result into the real files."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from holdfast.cli.completion import complete_plan
from holdfast.cli.data import changes_data, file_label, plan_data
from holdfast.cli.invocation import Invocation, command, unless_declined, yes_option
from holdfast.cli.output import NOTHING_CHANGED, Next, Reply, Row, Screen, counted, show_next, show_sentence, show_table
from holdfast.cli.screen.listeners import RepairListener
from holdfast.model import FileChange, Plan
from holdfast.names import name_text

if TYPE_CHECKING:
    from holdfast import ApplyPreview, ApplyResult, ApplyWishes

_MOST_FILES_SHOWN = 30
_MOST_COMMITS_SHOWN = 20
_SIGNS = {
    "added": ("A", "good"),
    "removed": ("D", "bad"),
    "changed": ("M", "warn"),
    "merged": ("M", "warn"),
}
_REMARKS = {"merged": " (merged with your change)"}


@command(
    "apply",
    examples=(
        ("holdfast plan apply --dry-run latest", "Show what would change."),
        ("holdfast plan apply --branch polite latest", "Commit the result on a new branch."),
    ),
)
@yes_option
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--no-commit", is_flag=True, help="In git repositories, change the files but commit nothing.")
@click.option("--branch", metavar="NAME", help="Commit the result to a new branch, and change nothing else.")
@click.option(
    "--commits",
    type=click.Choice(["keep", "squash"]),
    help="Carry over the commits that were made in the sandbox, or make one of all; by default keep, if they fit.",
)
@click.option(
    "--message",
    "-m",
    multiple=True,
    metavar="TEXT",
    help="Message of the one commit, or of that with what was not committed; each use is a paragraph.",
)
@click.option(
    "--only",
    metavar="PATH",
    multiple=True,
    help="Apply only this file or folder, PATH or RESOURCE:PATH; the rest stays for a later apply. May be repeated.",
)
@click.option(
    "--include-ignored", multiple=True, metavar="PATTERN", help="Files ignored by git whose changes are applied, too."
)
@click.argument("plan", metavar="PLAN_ID", shell_complete=complete_plan)
def apply(
    invocation: Invocation,
    yes: bool,
    dry_run: bool,
    no_commit: bool,
    branch: str | None,
    commits: Literal["keep", "squash"] | None,
    message: tuple[str, ...],
    only: tuple[str, ...],
    include_ignored: tuple[str, ...],
    plan: str,
) -> Reply:
    """Bring the result of a complete plan into the real files: of all resources, or of none.

    If you changed other lines of the same file meanwhile, both changes are kept; if you changed the same lines, apply
    refuses. In a git repository the commits that were made in the sandbox come onto your branch, and all else becomes
    one commit; changes of files that git ignores stay in the sandbox, unless a pattern names them. `holdfast plan
    unapply` undoes it.
    """
    wishes: ApplyWishes = {
        "commit": not no_commit,
        "branch": branch,
        "include_ignored": include_ignored,
        "commits": commits,
        "message": "\n\n".join(message) if message else None,
        "only": only,
    }
    if not dry_run:
        invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        if dry_run:
            return _preview_reply(holdfast.apply_preview(plan, **wishes), wishes)

        def question(preview: ApplyPreview) -> str:
            show_changes(invocation.screen, preview.plan, preview.changes)
            for name, carried in preview.carried.items():
                _show_commits(invocation.screen, name, [(each.digest, each.title) for each in carried.kept])
            _show_not_kept(invocation.screen, preview.not_carried, "would become one")
            _show_rest(invocation.screen, preview.rest)
            return f"{_question(preview)}?"

        result = holdfast.apply(
            plan, confirm=invocation.asking(question, yes), listener=RepairListener(invocation), **wishes
        )
    return _reply(unless_declined(result))


def _question(preview: ApplyPreview) -> str:
    files = counted(len(preview.changes), "changed file")
    if preview.carried:
        files += f" and {counted(sum(len(each.kept) for each in preview.carried.values()), 'commit')} of the sandbox"
    places = ", ".join(name_text(resource.path) for resource in preview.plan.resources)
    if preview.options.branch is not None:
        return f"Commit {files} on the new branch {preview.options.branch} of {places}"
    return f"Bring {files} into {places}"


def show_changes(
    screen: Screen, plan: Plan, changes: Sequence[FileChange], signs: Mapping[str, tuple[str, str]] = _SIGNS
) -> None:
    rows: list[Row] = [
        [signs[each.action], name_text(file_label(plan, each.resource, each.file)) + _REMARKS.get(each.action, "")]
        for each in changes[:_MOST_FILES_SHOWN]
    ]
    show_table(screen, rows)
    if len(changes) > _MOST_FILES_SHOWN:
        screen.line((f"and {len(changes) - _MOST_FILES_SHOWN} more", "dim"))


def _show_left_out(screen: Screen, left_out: Sequence[str]) -> None:
    if left_out:
        named = ", ".join(name_text(path) for path in left_out[:3])
        more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
        screen.line(("left in the sandbox, because git ignores it  ", "dim"), named + more)


def common_data(plan: Plan, changes: Sequence[FileChange], commands: Sequence[Next]) -> dict[str, Any]:
    return {
        **plan_data(plan),
        "changes": changes_data(plan, changes),
        "files_changed": len(changes),
        "next_commands": [each.command for each in commands],
    }


def _reply(result: ApplyResult) -> Reply:
    plan = result.plan
    commands = [Next("undo", f"holdfast plan unapply {plan.plan_id}")]
    if result.rest:
        commands.insert(0, Next("apply the rest", f"holdfast plan apply {plan.plan_id}"))
    if result.branch is not None and result.commits:
        commands.insert(0, Next("merge it", f"git merge {result.branch}"))
    data = {
        **common_data(plan, result.changes, commands),
        "commits": result.commits,
        "kept_commits": {name: commits_data(each) for name, each in result.kept_commits.items()},
        "not_kept": result.not_kept,
        "rest": changes_data(plan, result.rest),
        "branch": result.branch,
        "left_out": result.left_out,
    }

    def show(screen: Screen) -> None:
        show_changes(screen, plan, result.changes)
        files = counted(len(result.changes), "file")
        if result.branch is None:
            screen.line(("Applied. ", "good"), f"{files} of yours changed.")
        else:
            screen.line(("Applied. ", "good"), f"{files} on the branch {result.branch}; your own files are untouched.")
        for name, commit in result.commits.items():
            kept = result.kept_commits.get(name, ())
            _show_commits(screen, name, kept)
            if not kept or commit != kept[-1][0]:
                what = "  of what was not committed" if kept else ""
                screen.line((f"{name}  ", "dim"), f"commit {commit[:12]}{what}")
        _show_not_kept(screen, result.not_kept, "became one")
        _show_rest(screen, result.rest)
        _show_left_out(screen, result.left_out)
        show_next(screen, commands)

    return Reply(data, show)


def _show_rest(screen: Screen, rest: Sequence[FileChange]) -> None:
    if rest:
        screen.line((f"{counted(len(rest), 'file')} of the result not applied yet", "dim"))


def commits_data(commits: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"commit": digest, "title": title} for digest, title in commits]


def _show_commits(screen: Screen, name: str, commits: Sequence[tuple[str, str]]) -> None:
    for digest, title in commits[:_MOST_COMMITS_SHOWN]:
        screen.line((f"{name}  ", "dim"), f"commit {digest[:12]}  {name_text(title)}")
    if len(commits) > _MOST_COMMITS_SHOWN:
        screen.line((f"{name}  and {counted(len(commits) - _MOST_COMMITS_SHOWN, 'more commit')}", "dim"))


def _show_not_kept(screen: Screen, not_kept: Mapping[str, str], how: str) -> None:
    for name, reason in not_kept.items():
        show_sentence(screen, (f"{name}  ", "dim"), f"the commits of the sandbox {how}: {reason}")


def _preview_reply(preview: ApplyPreview, wishes: ApplyWishes) -> Reply:
    plan, options = preview.plan, preview.options
    commits = {
        name: _draft_data(preview, name, draft.parent, draft.message) for name, draft in preview.commits().items()
    }
    commands = [Next("apply", f"holdfast plan apply{_options_text(wishes)} {plan.plan_id}")]
    data = {
        **common_data(plan, preview.changes, commands),
        "dry_run": True,
        "commits": commits,
        "not_kept": preview.not_carried,
        "rest": changes_data(plan, preview.rest),
        "branch": options.branch,
        "left_out": preview.left_out,
    }

    def show(screen: Screen) -> None:
        show_changes(screen, plan, preview.changes)
        screen.line(f"{counted(len(preview.changes), 'file')} would change.")
        for name, draft in commits.items():
            _show_draft(screen, name, draft)
        _show_not_kept(screen, preview.not_carried, "would become one")
        _show_rest(screen, preview.rest)
        _show_left_out(screen, preview.left_out)
        screen.line(NOTHING_CHANGED)
        show_next(screen, commands)

    return Reply(data, show)


def _options_text(wishes: ApplyWishes) -> str:
    """The options with which a dry run was asked for."""
    words = ["--no-commit"] if not wishes["commit"] else []
    for option, value in (
        ("--branch", wishes["branch"]),
        ("--commits", wishes["commits"]),
        ("--message", wishes["message"]),
        *(("--only", path) for path in wishes["only"]),
        *(("--include-ignored", pattern) for pattern in wishes["include_ignored"]),
    ):
        words += [option, shlex.quote(value)] if value else []
    return "".join(f" {word}" for word in words)


def _draft_data(preview: ApplyPreview, name: str, parent: str | None, message: str) -> dict[str, Any]:
    carried = preview.carried.get(name)
    kept = [(commit.digest, commit.title) for commit in carried.kept] if carried else []
    return {
        "branch": preview.branch_of(name),
        "parent": parent,
        "kept": commits_data(kept),
        "message": message if carried is None or carried.is_topped else None,
    }


def _show_draft(screen: Screen, name: str, draft: Mapping[str, Any]) -> None:
    where = f"on {draft['branch']}" if draft["branch"] else "on a detached HEAD"
    kept = [(each["commit"], each["title"]) for each in draft["kept"]]
    if kept:
        screen.line((f"{name}  ", "dim"), f"would be kept {where}:")
        _show_commits(screen, name, kept)
    if draft["message"] is None:
        return
    screen.line((f"{name}  ", "dim"), f"would be a commit{' after them' if kept else ''} {where}:")
    for line in str(draft["message"]).rstrip("\n").split("\n"):
        screen.line(f"    {name_text(line)}" if line else "")
