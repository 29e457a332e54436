"""Makes a commit of a plan's files, which no branch names yet; also what it would change, and why it is refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import ConflictError, SandboxError
from holdfast.git.branches import BranchMove, refuse_a_locked_branch
from holdfast.git.complaints import Cause
from holdfast.git.index import changes_between, staged, temporary_index
from holdfast.git.repository import GitRepository
from holdfast.git.run import GitFailed, run_git
from holdfast.git.work_tree import behind_symlinks
from holdfast.names import name_text
from holdfast.system.directories import shown

# With another `i18n.commitEncoding` git would not convert the message, but only label it with that encoding.
_IN_UTF_8 = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "i18n.commitEncoding", "GIT_CONFIG_VALUE_0": "UTF-8"}


@dataclass(frozen=True)
class CommitDraft:
    """A commit to be made: on top of ``parent``, and different from it in these paths only."""

    repository: GitRepository
    parent: str | None
    paths: tuple[bytes, ...]
    work_tree: Callable[[], AbstractContextManager[Path]]
    """Makes a temporary folder with the new content of the paths, and the files of attributes that apply to it."""
    message: str = ""


def make_commit(draft: CommitDraft) -> str | None:
    """Make the commit and return its hash, or None if it would change nothing; no branch names it yet."""
    repository = draft.repository
    with _refusals_explained(repository):
        with temporary_index(repository) as environment:
            tree = _write_tree(draft, environment)
        changed = changes_between(repository, draft.parent, tree)
        if beside := changed.keys() - draft.paths:
            raise _reaches_too_far(repository, beside)
        if not changed:
            return None
        signing = ["-S"] if _is_signed(repository) else []
        parents = ["-p", draft.parent] if draft.parent else []
        message = draft.message.encode(errors="replace")
        args = ["commit-tree", *signing, *parents, "-F", "-", tree]
        return run_git(args, cwd=repository.root, input=message, env=_IN_UTF_8).stdout.decode().strip()


def _reaches_too_far(repository: GitRepository, beside: Collection[bytes]) -> ConflictError:
    listed = "\n  ".join(name_text(shown(path)) for path in sorted(beside))
    return ConflictError(
        f"The commit would change more of {repository.root} than the plan did; nothing was changed:\n  {listed}",
        hint="Bring the change into the files without a commit: `--no-commit`.",
        paths=tuple(shown(path) for path in sorted(beside)),
    )


def changed_by(draft: CommitDraft) -> set[bytes]:
    """The paths in which the commit would differ from its parent; nothing is written to the repository."""
    with _refusals_explained(draft.repository), temporary_index(draft.repository) as environment:
        _fill_index(draft, environment, only_look=True)
        return staged(draft.repository, draft.parent, environment)


def would_be_made(draft: CommitDraft) -> bool:
    """Whether the commit would change anything; refused if it would change more than its paths."""
    changed = changed_by(draft)
    beside = changed.difference(draft.paths)
    if beside:
        raise _reaches_too_far(draft.repository, beside)
    return bool(changed)


def refuse_an_impossible_commit(draft: CommitDraft, ref: str | None, *, is_checked_out: bool) -> None:
    """Refuse, as far as it can be known before, a commit that git would refuse to make or to name."""
    move = BranchMove(draft.repository, ref, draft.parent, draft.parent, is_checked_out=is_checked_out)
    try:
        refuse_a_locked_branch(move)
        with _refusals_explained(draft.repository):
            for person in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
                run_git(["var", person], cwd=draft.repository.root)
    except (ConflictError, SandboxError):
        if changed_by(draft):  # otherwise no commit is made
            raise


# What git says if it cannot make a commit


@contextmanager
def _refusals_explained(repository: GitRepository) -> Iterator[None]:
    """Turn git's error into one that says what a person can do about it."""
    try:
        yield
    except GitFailed as failure:
        raise SandboxError(
            f"Git could not make the commit in {repository.root}: {failure.complaint}. Nothing was changed.",
            hint=_way_out(repository, failure.complaint),
        ) from failure


def _way_out(repository: GitRepository, complaint: str) -> str:
    if Cause.NOT_WRITTEN.is_in(complaint):
        return f"Check who may write to {repository.common_dir / 'objects'} and the space on its disk, then try again."
    if Cause.NO_IDENTITY.is_in(complaint):
        return "Set your name with `git config --global user.name` and `user.email`, or use `--no-commit`."
    if Cause.FILTER.is_in(complaint):
        return "Make that filter of your git settings work, then try again, or use `--no-commit`."
    if _is_signed(repository):
        return "Your `commit.gpgsign` asks for a signature; make signing work, then try again."
    return "Remove that cause and try again, or use `--no-commit`."


def _is_signed(repository: GitRepository) -> bool:
    return repository.is_set("commit.gpgsign")


# The index that the commit is made from


def _write_tree(draft: CommitDraft, environment: Mapping[str, str]) -> str:
    _fill_index(draft, environment)
    # A partial clone would fetch missing objects; all objects that are not in the parent were stored just now.
    return run_git(["write-tree", "--missing-ok"], cwd=draft.repository.root, env=environment).stdout.decode().strip()


def _fill_index(draft: CommitDraft, environment: Mapping[str, str], *, only_look: bool = False) -> None:
    """Fill the index that the environment names; with ``only_look`` no object is stored."""
    root = draft.repository.root
    run_git(["read-tree", draft.parent] if draft.parent else ["read-tree", "--empty"], cwd=root, env=environment)
    with draft.work_tree() as work_tree:
        there = {**environment, "GIT_WORK_TREE": str(work_tree)}
        for how, some in _by_what_git_can_hold(work_tree, draft.paths):
            if not some:
                continue
            listed = b"".join(path + b"\0" for path in some)
            options = ["--info-only"] if only_look else []
            run_git(["update-index", *options, *how, "-z", "--stdin"], cwd=work_tree, input=listed, env=there)


def _by_what_git_can_hold(work_tree: Path, paths: Sequence[bytes]) -> Iterator[tuple[list[str], list[bytes]]]:
    """The paths, with the options that bring them into an index; first the paths that git cannot hold.

    They are gone, became a folder or a fifo, or lie behind a symlink that replaced a folder.
    """
    hidden = behind_symlinks(work_tree, paths)
    held = [path for path in paths if path not in hidden and _is_file_or_symlink(work_tree / os.fsdecode(path))]
    yield ["--force-remove"], sorted(set(paths).difference(held))
    yield ["--add", "--replace"], held


def _is_file_or_symlink(path: Path) -> bool:
    return path.is_symlink() or path.is_file()
