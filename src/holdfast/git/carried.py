"""The commits of a sandbox on top of a branch of the user: as they would be, and made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.errors import ConflictError
from holdfast.git.commit import CommitDraft, commit_of_tree, folders_before, refusals_explained, refuse_more, write_tree
from holdfast.git.index import changes_between
from holdfast.git.line import Commit, NotCarried
from holdfast.git.objects import borrowed, bring_objects
from holdfast.git.replay import Committer, can_be_signed, replayed, replayed_trees
from holdfast.git.settings import is_signed


class Made(NamedTuple):
    tip: str | None
    """The last commit, which the branch goes to; None if there is nothing to commit."""
    kept: tuple[tuple[str, str], ...] = ()
    """Hash and title of each commit that comes from the sandbox."""


class CarriedCommits(msgspec.Struct, frozen=True):
    """A line of commits, and what becomes of it on top of the parent of a draft."""

    lender: Path
    """The folder with the objects of the sandbox's repository."""
    base: str | None
    """The commit that the line begins after."""
    commits: tuple[Commit, ...]
    """The oldest first."""
    trees: tuple[str | None, ...]
    """That of each commit; None for one of whose change nothing is left to do."""
    target: str
    """The tree of the draft, which the branch has in the end."""
    is_topped: bool
    """It takes one more commit to come to that tree."""

    @property
    def kept(self) -> tuple[Commit, ...]:
        return tuple(commit for commit, tree in zip(self.commits, self.trees, strict=True) if tree is not None)

    def make(self, draft: CommitDraft) -> Made:
        """Make the commits, and one more of what the draft changes besides; no branch names them yet."""
        repository, signs = draft.repository, is_signed(draft.repository)
        with refusals_explained(repository):
            _, tree = write_tree(draft, folders_before(draft), {})
            with borrowed(repository, self.lender, self.commits[-1].digest, self.base) as environment:
                trees = replayed_trees(repository, self.base, draft.parent, self.commits, environment)
                if tree != self.target or tuple(trees) != self.trees:
                    raise _changed_meanwhile(draft)
                made = _line(draft, self, environment, signs=signs, is_new=signs)
                if made:
                    bring_objects(repository, made[-1], draft.parent, environment)
            tip = made[-1] if made else draft.parent
            if self.is_topped:
                tip = commit_of_tree(draft, tree, tip)
            changed = changes_between(repository, draft.parent, tip)
        refuse_more(draft, changed)
        kept = tuple((digest, commit.title) for digest, commit in zip(made, self.kept, strict=True))
        return Made(tip if tip != draft.parent else None, kept)


def refuse_to_carry_in_vain(draft: CommitDraft, carried: CarriedCommits, environment: Mapping[str, str]) -> None:
    """``NotCarried`` if making the commits would fail; they are made, without signatures, in a temporary folder."""
    signs = is_signed(draft.repository)
    unusual = next((each for each in carried.kept if signs and not can_be_signed(each)), None)
    if unusual is not None:
        raise NotCarried(f"git would not sign {unusual.digest[:12]} as it is")
    _line(draft, carried, environment, signs=False, is_new=signs)


def _line(
    draft: CommitDraft, carried: CarriedCommits, environment: Mapping[str, str], *, signs: bool, is_new: bool
) -> list[str]:
    """The commits on top of the draft's parent; if they were made there, and ``is_new`` is off, they themselves."""
    if draft.parent == carried.base and not is_new:
        return [commit.digest for commit in carried.commits]
    committer = Committer.of(draft.repository, is_signed=signs)
    made: list[str] = []
    for commit, tree in zip(carried.commits, carried.trees, strict=True):
        if tree is not None:
            parent = made[-1] if made else draft.parent
            made.append(replayed(draft.repository, commit, tree, parent, committer, environment))
    return made


def _changed_meanwhile(draft: CommitDraft) -> ConflictError:
    return ConflictError(
        f"Something else changed the sandbox or settings of {draft.repository.root} meanwhile; nothing was changed.",
        hint="Run the command again.",
    )
