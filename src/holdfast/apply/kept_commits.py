"""Which commits of a sandbox apply carries over, or why it makes one commit of them.

They are carried if they are a line from the commit that the sandbox began with, if each fits onto the branch as it is
now, and if the branch then is exactly what one commit of the plan's result would have made of it. What the plan changed
and did not commit becomes one more commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.apply.git_view import FilesForGit
from holdfast.git.carried import CarriedCommits, refuse_to_carry_in_vain
from holdfast.git.commit import CommitDraft, folders_before, write_tree
from holdfast.git.head import git_head
from holdfast.git.index import compared, tree_of
from holdfast.git.line import Commit, NotCarried, line_of_commits, refuse_unless_line
from holdfast.git.objects import borrowed, objects_elsewhere
from holdfast.git.replay import replayed_trees
from holdfast.git.run import GitFailed, run_git
from holdfast.git.trees import CommittedFolders
from holdfast.model import Resource
from holdfast.names import name_text
from holdfast.system.directories import shown

_UNFILTERED = (b"unspecified", b"unset")


class PlanFiles(msgspec.Struct, frozen=True):
    """What a plan left in its sandbox, as far as it is asked for."""

    at: Callable[[Collection[bytes]], FilesForGit]
    """These paths as they are at the end of the plan."""
    ignored: Callable[[Collection[bytes]], set[bytes]]
    """Those of these paths that git ignores."""


def kept_or_why_not(draft: CommitDraft, resource: Resource, files: PlanFiles) -> CarriedCommits | str:
    """The commits of the sandbox on top of the draft's parent; or why they are not kept, as the end of a sentence."""
    head = git_head(Path(resource.sandbox_path))
    if head is None or head.commit is None:
        return "HEAD of the sandbox names no commit"
    lender = Path(resource.sandbox_path) / ".git" / "objects"
    try:
        return _carried(draft, resource.base["commit"] or None, head.commit, lender, files)
    except NotCarried as reason:
        return str(reason)
    except GitFailed as failure:
        if failure.is_of_system:
            raise
        return f"git cannot use them: {failure.message}"


def _carried(draft: CommitDraft, base: str | None, tip: str, lender: Path, files: PlanFiles) -> CarriedCommits:
    repository = draft.repository
    with objects_elsewhere(repository, lender) as environment:
        refuse_unless_line(repository, base, tip, environment)
    with borrowed(repository, lender, tip, base) as environment:
        commits = line_of_commits(repository, base, tip, environment)
        touched = {path for commit in commits for path in commit.changes}
        _refuse_ignored(touched.difference(draft.paths), files)
        _refuse_filtered(draft, touched, files)
        trees = replayed_trees(repository, base, draft.parent, commits, environment)
        _, target = write_tree(draft, folders_before(draft), environment)
        last = next((tree for tree in reversed(trees) if tree is not None), None)
        missing = compared(repository, last or tree_of(repository, draft.parent), target, environment)
        _refuse_another_result(draft, commits, missing, files, environment)
        found = CarriedCommits(lender, base, tuple(commits), tuple(trees), target, is_topped=bool(missing))
        refuse_to_carry_in_vain(draft, found, environment)
    return found


def _refuse_ignored(paths: Collection[bytes], files: PlanFiles) -> None:
    ignored = files.ignored(paths) if paths else set()
    if ignored:
        raise NotCarried(f"they contain {_named(ignored)}, which git ignores")


def _refuse_filtered(draft: CommitDraft, paths: Collection[bytes], files: PlanFiles) -> None:
    """What a filter keeps beside the repository, as for large files, does not come with a commit."""
    if not paths:
        return
    with files.at(paths).as_work_tree() as work_tree:
        there = {"GIT_DIR": str(draft.repository.git_dir), "GIT_WORK_TREE": str(work_tree)}
        asked = b"".join(path + b"\0" for path in sorted(paths))
        args = ["check-attr", "-z", "--stdin", "filter"]
        words = run_git(args, cwd=work_tree, input=asked, env=there).stdout.split(b"\0")
    filtered = {path for path, value in zip(words[::3], words[2::3], strict=False) if value not in _UNFILTERED}
    if filtered:
        raise NotCarried(f"they contain {_named(filtered)}, which a filter of git makes")


def _refuse_another_result(
    draft: CommitDraft,
    commits: Sequence[Commit],
    missing: Collection[bytes],
    files: PlanFiles,
    environment: Mapping[str, str],
) -> None:
    """What the commits lack of the result must be what the plan did not commit."""
    if not missing:
        return
    first, last = commits[0], commits[-1]
    paths = {*draft.paths, *(path for commit in commits for path in commit.changes)}
    _refuse_not_checked_out(draft, first.parent, set(missing).difference(draft.paths), files)
    result = CommitDraft(draft.repository, last.digest, tuple(sorted(paths)), files.at(paths).as_work_tree)
    _, tree = write_tree(result, folders_before(result, environment), environment)
    uncommitted = compared(draft.repository, last.digest, tree, environment)
    others = set(missing).difference(uncommitted)
    if of_user := others.difference(draft.paths):
        raise NotCarried(f"they contain {_named(of_user)}, which was not committed when the plan began")
    if others:
        raise NotCarried(f"with them {_named(others)} would be another file than the plan's result")


def _refuse_not_checked_out(draft: CommitDraft, base: str | None, paths: Collection[bytes], files: PlanFiles) -> None:
    """What a sparse checkout left out of the files was not taken back: no file of it was ever there."""
    if not paths:
        return
    before, there = CommittedFolders.on_the_way_to(draft.repository, base, paths), files.at(paths).entries
    absent = {path for path in paths if path not in there and before.find(path) is not None}
    if absent:
        raise NotCarried(f"they change {_named(absent)}, which is not checked out")


def _named(paths: Iterable[bytes]) -> str:
    first, *others = sorted(paths)
    return name_text(shown(first)) + (f" and {len(others)} more" if others else "")
