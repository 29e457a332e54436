"""Replays a line of commits on top of another commit: path by path, and by lines where both sides changed a text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.git.index import as_entries, tree_of
from holdfast.git.line import Commit, NotCarried
from holdfast.git.merging import merge_texts
from holdfast.git.objects import read_objects
from holdfast.git.repository import GitRepository
from holdfast.git.run import run_git
from holdfast.git.trees import CommittedFolders, TreeEntry, write_changed_tree
from holdfast.git.work_tree import merges_by_lines
from holdfast.names import name_text
from holdfast.system.directories import ancestors, shown

_FILES = (0o100644, 0o100755)
_PERSON = re.compile(rb"(?P<name>.*?) ?<(?P<email>[^<>]*)> (?P<time>\d+) (?P<zone>[+-]\d{4})")
_LABELS = ("the branch", "before the commit", "the commit")


def replayed_trees(
    repository: GitRepository,
    base: str | None,
    onto: str | None,
    commits: Sequence[Commit],
    environment: Mapping[str, str],
) -> list[str | None]:
    """The tree of each commit on top of ``onto``; None for one of whose change nothing is left to do there."""
    if onto == base:
        return [commit.tree for commit in commits]
    paths = {path for commit in commits for path in commit.changes}
    replay = _Replay(repository, base, onto, paths, environment)
    trees: list[str | None] = []
    last = tree_of(repository, onto)
    for commit in commits:
        tree = replay.take(commit) if commit.changes else last
        trees.append(None if tree == last and commit.changes else tree)
        last = tree
    return trees


class _Replay:
    """The branch with the commits so far."""

    def __init__(
        self,
        repository: GitRepository,
        base: str | None,
        onto: str | None,
        paths: Iterable[bytes],
        environment: Mapping[str, str],
    ) -> None:
        self._repository, self._environment = repository, environment
        paths = list(paths)
        self._before = CommittedFolders.on_the_way_to(repository, onto, paths)
        self._base = CommittedFolders.on_the_way_to(repository, base, paths)
        self._changed: dict[bytes, TreeEntry | None] = {}

    def take(self, commit: Commit) -> str:
        """The tree with that commit."""
        changes = as_entries(commit.changes)
        # Removals first: a file may become a folder, and the other way round.
        for path, (old, new) in sorted(changes.items(), key=lambda each: each[1][1] is not None):
            present = self._present(path)
            if present == new:
                continue
            if new is not None and self._is_below_a_file(path):
                raise _does_not_fit(commit, path)
            self._changed[path] = new if present == old else self._merged(commit, path, old, present, new)
        return write_changed_tree(self._repository, self._before, self._changed, self._environment)

    def _present(self, path: bytes) -> TreeEntry | None:
        if path in self._changed:
            return self._changed[path]
        found = self._before.find(path)
        if found is not None and found.is_tree and found == self._base.find(path):
            return None  # a folder as the plan knew it; its files are in the change
        return found

    def _is_below_a_file(self, path: bytes) -> bool:
        above = (self._changed.get(each, self._before.find(each)) for each in ancestors(path) if each)
        return any(each is not None and not each.is_tree for each in above)

    def _merged(
        self, commit: Commit, path: bytes, old: TreeEntry | None, present: TreeEntry | None, new: TreeEntry | None
    ) -> TreeEntry:
        """Both changes in one text."""
        if old is None or present is None or new is None or not all(e.mode in _FILES for e in (old, present, new)):
            raise _does_not_fit(commit, path)
        mode = new.mode if present.mode == old.mode else present.mode
        sides = [old, present, new]
        if new.digest in (old.digest, present.digest):
            return TreeEntry(mode, present.digest)
        if present.digest == old.digest:
            return TreeEntry(mode, new.digest)
        if not merges_by_lines(self._repository, path):
            raise _does_not_fit(commit, path)
        digests = [each.digest.hex() for each in sides]
        texts = [content for _, content in read_objects(self._repository, digests, self._environment)]
        base, ours, theirs = texts
        merged = merge_texts(base, ours, theirs, labels=_LABELS)
        if merged is None or merged.conflicts:
            raise _does_not_fit(commit, path)
        return TreeEntry(mode, self._stored(merged.content))

    def _stored(self, content: bytes) -> bytes:
        args = ["hash-object", "-w", "--stdin"]
        answer = run_git(args, cwd=self._repository.root, input=content, env=self._environment).stdout
        return bytes.fromhex(answer.decode().strip())


def _does_not_fit(commit: Commit, path: bytes) -> NotCarried:
    return NotCarried(f"{commit.digest[:12]} conflicts with your branch in {name_text(shown(path))}")


# The commits


class Committer(msgspec.Struct, frozen=True):
    """The user, as git names them in a commit that they replay."""

    ident: bytes
    is_signed: bool

    @classmethod
    def of(cls, repository: GitRepository, *, is_signed: bool) -> Committer:
        return cls(run_git(["var", "GIT_COMMITTER_IDENT"], cwd=repository.root).stdout.strip(), is_signed)


def replayed(
    repository: GitRepository,
    commit: Commit,
    tree: str,
    parent: str | None,
    committer: Committer,
    environment: Mapping[str, str],
) -> str:
    """The commit made again, by the user: with its author, its date and its message, byte for byte."""
    if committer.is_signed:
        return _signed(repository, commit, tree, parent, environment)
    lines = [
        b"tree " + tree.encode(),
        *([b"parent " + parent.encode()] if parent else []),
        b"author " + commit.author,
        b"committer " + committer.ident,
        *([b"encoding " + commit.encoding] if commit.encoding else []),
    ]
    content = b"\n".join(lines) + b"\n\n" + commit.message
    args = ["hash-object", "-t", "commit", "-w", "--stdin"]
    return run_git(args, cwd=repository.root, input=content, env=environment).stdout.decode().strip()


def can_be_signed(commit: Commit) -> bool:
    """Whether git, which alone can sign, would make the commit again exactly: it rewrites what is unusual."""
    person = _PERSON.fullmatch(commit.author)
    if person is None or not person["name"] or not person["email"]:
        return False
    try:
        commit.message.decode(_encoding_of(commit))
        commit.author.decode()
    except (UnicodeDecodeError, LookupError):
        return False
    return all(each == each.strip(b" \t.,:;\"'\\<>") for each in (person["name"], person["email"]))


def _encoding_of(commit: Commit) -> str:
    return (commit.encoding or b"UTF-8").decode("ascii", errors="replace")


def _signed(
    repository: GitRepository, commit: Commit, tree: str, parent: str | None, environment: Mapping[str, str]
) -> str:
    person = _PERSON.fullmatch(commit.author)
    assert person is not None
    author = {
        "GIT_AUTHOR_NAME": os.fsdecode(person["name"]),
        "GIT_AUTHOR_EMAIL": os.fsdecode(person["email"]),
        "GIT_AUTHOR_DATE": os.fsdecode(b"@%s %s" % (person["time"], person["zone"])),
    }
    settings = ["-c", f"i18n.commitEncoding={_encoding_of(commit)}"]
    args = [*settings, "commit-tree", "-S", *(["-p", parent] if parent else []), "-F", "-", tree]
    made = run_git(args, cwd=repository.root, input=commit.message, env={**environment, **author})
    return made.stdout.decode().strip()
