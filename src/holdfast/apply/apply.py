"""Applying a plan: its result comes into the real files of all its resources, or of none.

Everything that could refuse is found first. Then the commits are made, the real content about to be replaced is stored,
the operation is journaled, the files are changed, and last, for git, index and branch.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.apply.options import ApplyOptions
from holdfast.apply.preview import ApplyPreview, ResourceChange, preview_apply, result_group
from holdfast.apply.real_change import RealChange
from holdfast.apply.real_files import change_real_files
from holdfast.checkpoints.missing import recreate_missing
from holdfast.checkpoints.recorder import Occasion
from holdfast.checkpoints.service import CheckpointService
from holdfast.db.journal import ApplyEntry
from holdfast.git.branches import BranchMove
from holdfast.git.commit import make_commit
from holdfast.model import FileChange, Lease, Moment, Phase, Plan, PlanState


class ApplyResult(msgspec.Struct, frozen=True):
    plan: Plan
    changes: tuple[FileChange, ...]
    commits: dict[str, str] = msgspec.field(default_factory=dict)
    """By resource the commit that the branch is at."""
    kept_commits: dict[str, tuple[tuple[str, str], ...]] = msgspec.field(default_factory=dict)
    """By resource hash and title of each commit that came from the sandbox, the oldest first."""
    not_kept: dict[str, str] = msgspec.field(default_factory=dict)
    """By resource why there were commits in the sandbox that were not kept."""
    left_out: tuple[str, ...] = ()
    branch: str | None = None
    """The branch that the result was left on, if it was not brought into the files."""
    rest: tuple[FileChange, ...] = ()
    """What stays for a later apply, if only a part was applied."""


def apply_plan(
    plan: Plan,
    lease: Lease,
    service: CheckpointService,
    options: ApplyOptions,
    confirm: Callable[[ApplyPreview], bool] | None,
) -> ApplyResult | None:
    """Apply it, unless ``confirm`` says no; that is asked only after everything that could refuse has been found."""
    if plan.state is PlanState.COMPLETE:
        plan, _ = recreate_missing(plan, lease, service)
    preview = preview_apply(plan, service, options)
    if confirm is not None and not confirm(preview):
        return None
    # The comparison and the answer may have taken long. Not every write is reported, so after an answer all is scanned.
    result_group(plan, service, thorough=confirm is not None)
    commits, kept = _make_commits(preview)
    occasion = Occasion((Moment.PRE_APPLY,), source="apply", reason="before the result goes into the real files")
    plan = service.create_checkpoint(plan.changed(phase=Phase.APPLY), lease, occasion)
    changes = [_real_change(each, commits.get(each.resource.name), options) for each in preview.resources]
    plan = change_real_files(plan, lease, service, ApplyEntry, changes, part=preview.part)
    return ApplyResult(
        plan, preview.changes, commits, kept, preview.not_carried, preview.left_out, options.branch, preview.rest
    )


def _make_commits(preview: ApplyPreview) -> tuple[dict[str, str], dict[str, tuple[tuple[str, str], ...]]]:
    """By resource the last commit, and those that come from the sandbox; no branch names them yet."""
    tips, kept = {}, {}
    for each in preview.resources:
        if each.commit is None:
            continue
        if each.carried is None:
            tip = make_commit(each.commit)
        else:
            tip, kept[each.resource.name] = each.carried.make(each.commit)
        if tip is not None:
            tips[each.resource.name] = tip
    return tips, kept


def _real_change(each: ResourceChange, commit: str | None, options: ApplyOptions) -> RealChange:
    move = None
    if each.commit is not None and commit is not None:
        is_new = options.branch is not None
        old = None if is_new else each.commit.parent
        move = BranchMove(each.commit.repository, each.ref, old, commit, is_checked_out=not is_new)
    return (
        RealChange(each.resource, branch=move)
        if options.branch is not None
        else msgspec.structs.replace(each, branch=move)
    )
