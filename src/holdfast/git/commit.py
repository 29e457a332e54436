"""Makes a commit of a plan's files, which no branch names yet; also what it would change, and why it is refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import msgspec

from holdfast.errors import ConflictError, SandboxError
from holdfast.git.branches import BranchMove, refuse_a_locked_branch
from holdfast.git.complaints import Cause
from holdfast.git.index import Changes, changes_between, compared, note_changes, temporary_index
from holdfast.git.index_content import IndexEntry, index_of, meaning_of
from holdfast.git.objects import objects_elsewhere
from holdfast.git.repository import GitRepository
from holdfast.git.run import GitFailed, run_git
from holdfast.git.settings import SIGNED, is_person_known, is_signed
from holdfast.git.trees import CommittedFolders, TreeEntry, write_changed_tree
from holdfast.git.work_tree import attributes_for, behind_symlinks
from holdfast.names import name_text
from holdfast.system.directories import shown

# With another `i18n.commitEncoding` git would not convert the message, but only label it with that encoding.
_IN_UTF_8 = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "i18n.commitEncoding", "GIT_CONFIG_VALUE_0": "UTF-8"}


class CommitDraft(msgspec.Struct, frozen=True):
    """A commit to be made: on top of ``parent``, and different from it in these paths only."""

    repository: GitRepository
    parent: str | None
    paths: tuple[bytes, ...]
    work_tree: Callable[[], AbstractContextManager[Path]]
    """Makes a temporary folder with the new content of the paths, and the files of attributes that apply to it."""
    message: str = ""
    committed: CommittedFolders | None = None
    """The folders of the parent on the way to the paths, if they are known."""


def make_commit(draft: CommitDraft) -> str | None:
    """Make the commit and return its hash, or None if it would change nothing; no branch names it yet."""
    repository = draft.repository
    with refusals_explained(repository):
        before = folders_before(draft)
        entries, tree = write_tree(draft, before, {})
        if before.root is not None and tree == before.root.digest.hex():
            return None
        commit = commit_of_tree(draft, tree, draft.parent)
        if not before.are_replaced_by(entries):
            note_changes(repository, draft.parent, commit, _changes(before, entries))
        changed = changes_between(repository, draft.parent, commit)
    refuse_more(draft, changed)
    return commit if changed else None


def commit_of_tree(draft: CommitDraft, tree: str, parent: str | None) -> str:
    """A commit with the draft's message."""
    signing = ["-S"] if is_signed(draft.repository) else []
    parents = ["-p", parent] if parent else []
    message = draft.message.encode(errors="replace")
    args = ["commit-tree", *signing, *parents, "-F", "-", tree]
    return run_git(args, cwd=draft.repository.root, input=message, env=_IN_UTF_8).stdout.decode().strip()


def refuse_more(draft: CommitDraft, changed: Collection[bytes]) -> None:
    """Refuse what would change more than the paths of the draft."""
    if beside := set(changed).difference(draft.paths):
        raise _reaches_too_far(draft.repository, beside)


def _changes(before: CommittedFolders, entries: Mapping[bytes, TreeEntry | None]) -> Changes:
    """What a tree changes in which these entries, and nothing beside them, are other ones than before."""
    pairs = ((path, before.find(path), entry) for path, entry in entries.items())
    return {path: (_told(before, old), _told(before, new)) for path, old, new in pairs if old != new}


def _told(before: CommittedFolders, entry: TreeEntry | None) -> bytes:
    """As git tells it."""
    mode, digest = (0, bytes(before.digest_bytes)) if entry is None else (entry.mode, entry.digest)
    return b"%06o %s" % (mode, digest.hex().encode())


def _reaches_too_far(repository: GitRepository, beside: Collection[bytes]) -> ConflictError:
    listed = "\n  ".join(name_text(shown(path)) for path in sorted(beside))
    return ConflictError(
        f"The commit would change more of {repository.root} than the plan did; nothing was changed:\n  {listed}",
        hint="Bring the change into the files without a commit: `--no-commit`.",
        paths=tuple(shown(path) for path in sorted(beside)),
    )


def changed_by(draft: CommitDraft) -> set[bytes]:
    """The paths in which the commit would differ from its parent; nothing is written to the repository."""
    repository = draft.repository
    with refusals_explained(repository), objects_elsewhere(repository) as environment:
        _, tree = write_tree(draft, folders_before(draft), environment)
        return set(compared(repository, draft.parent, tree, environment))


def would_be_made(draft: CommitDraft) -> bool:
    """Whether the commit would change anything; refused if it would change more than its paths."""
    changed = changed_by(draft)
    refuse_more(draft, changed)
    return bool(changed)


def refuse_an_impossible_commit(draft: CommitDraft, ref: str | None, *, is_checked_out: bool) -> None:
    """Refuse, as far as it can be known before, a commit that git would refuse to make or to name."""
    move = BranchMove(draft.repository, ref, draft.parent, draft.parent, is_checked_out=is_checked_out)
    try:
        refuse_a_locked_branch(move)
        with refusals_explained(draft.repository):
            for person in () if is_person_known(draft.repository) else ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
                run_git(["var", person], cwd=draft.repository.root)
    except (ConflictError, SandboxError):
        if changed_by(draft):  # otherwise no commit is made
            raise


# What git says if it cannot make a commit


@contextmanager
def refusals_explained(repository: GitRepository) -> Iterator[None]:
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
    if repository.is_set(SIGNED):
        return "Your `commit.gpgsign` asks for a signature; make signing work, then try again."
    return "Remove that cause and try again, or use `--no-commit`."


# The tree that the commit is of


def folders_before(draft: CommitDraft, environment: Mapping[str, str] | None = None) -> CommittedFolders:
    """The folders of the parent on the way to the paths, as a git with this environment finds them."""
    return draft.committed or CommittedFolders.on_the_way_to(draft.repository, draft.parent, draft.paths, environment)


def write_tree(
    draft: CommitDraft, before: CommittedFolders, environment: Mapping[str, str]
) -> tuple[Mapping[bytes, TreeEntry | None], str]:
    """What the paths become, and the tree that has them so."""
    with draft.work_tree() as work_tree:
        hidden = behind_symlinks(work_tree, draft.paths)
        held = [path for path in draft.paths if path not in hidden and _can_be_held(work_tree / os.fsdecode(path))]
        entries: dict[bytes, TreeEntry | None] = dict.fromkeys(draft.paths)
        attributes = attributes_for(held).difference(entries)
        index = _index_of(before, {*held, *attributes})
        entries |= _store_files(draft.repository, index, work_tree, held, environment)
    return entries, write_changed_tree(draft.repository, before, entries, environment)


def _can_be_held(path: Path) -> bool:
    """Whether git can hold what is there: it may be gone, or have become a folder or a fifo."""
    return path.is_symlink() or path.is_file()


def _index_of(before: CommittedFolders, paths: Iterable[bytes]) -> bytes:
    """An index with the committed ones of these files.

    The line endings in a committed file, and attributes that a sparse checkout left out, decide on what git makes of
    the new one.
    """
    found = ((path, before.find(path)) for path in paths)
    known = ((path, entry) for path, entry in found if entry is not None and not entry.is_tree)
    return index_of((IndexEntry(path, entry.mode, entry.digest, (0, 0)) for path, entry in known), before.digest_bytes)


def _store_files(
    repository: GitRepository, index: bytes, work_tree: Path, paths: Sequence[bytes], environment: Mapping[str, str]
) -> dict[bytes, TreeEntry]:
    if not paths:
        return {}
    with temporary_index(repository, index) as with_index:
        there = {**with_index, **environment, "GIT_WORK_TREE": str(work_tree)}
        listed = b"".join(path + b"\0" for path in paths)
        # For a look git need not store them, and is not as strict about line endings and encodings.
        how = ["--info-only"] if environment else []
        # The index is temporary, and must list the files, not the folders that a sparse checkout left out.
        args = ["-c", "core.fsync=all,-index", "-c", "index.sparse=false", "update-index", *how]
        run_git([*args, "--add", "--replace", "-z", "--stdin"], cwd=work_tree, input=listed, env=there)
        made = meaning_of(Path(with_index["GIT_INDEX_FILE"]).read_bytes())
    assert made is not None
    found = {entry.path: TreeEntry(entry.mode, entry.digest) for entry in made.entries}
    if refused := [path for path in paths if path not in found]:
        raise _forbidden_names(repository, refused)
    return {path: found[path] for path in paths}


def _forbidden_names(repository: GitRepository, refused: Sequence[bytes]) -> ConflictError:
    listed = "\n  ".join(name_text(shown(path)) for path in sorted(refused))
    return ConflictError(
        f"Git allows no commit with these names in {repository.root}; nothing was changed:\n  {listed}",
        hint="Bring them into the files without a commit: `--no-commit`. Or rename or remove them in the plan.",
        paths=tuple(shown(path) for path in sorted(refused)),
    )
