"""Answers questions about a user's repository; git writes nothing into it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.errors import SandboxError
from holdfast.git.complaints import Cause
from holdfast.git.head import head_of, is_certainly_commit
from holdfast.git.run import GitFailed, complaint_of, run_git
from holdfast.system.directories import ancestors

_IN_PROGRESS = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick or revert",
    "BISECT_LOG": "bisect",
}
_SUBMODULE_MODE, _SPARSE_INDEX = (0o160000).to_bytes(4), b"sdir"
"""As an index file has them: the mode of a submodule, and the extension that says that folders are left folded."""
_WITHOUT_FLAGS = (2).to_bytes(4)
"""The version of an index file in which no file has a mark of its own, such as that it is left out."""
_OTHERS = ("ls-files", "--others", "--exclude-standard", "--directory", "-z")
_PRIVATE_REFS = ("refs/stash", "refs/heads/holdfast/", "refs/bisect/", "refs/worktree/", "refs/rewritten/")


class GitRepository(msgspec.Struct, frozen=True):
    root: Path
    git_dir: Path
    common_dir: Path
    hashes: str
    """How its objects are named."""

    @classmethod
    def at(cls, path: Path) -> GitRepository:
        """The repository whose root is ``path``, or a symlink to it; any other path is refused with the reason."""
        path = path.resolve()
        key = _what_decides(path)
        if key is None or key not in _FOUND:
            top, git_dir, common_dir, hashes = _answers(path)
            if top.resolve() != path:
                raise SandboxError(
                    f"{path} lies inside the git repository {top}, it is not its root.",
                    hint="Name the root in the plan file, or give the resource the type `directory`.",
                )
            found = cls(path, git_dir, (path / common_dir).resolve(), hashes)
            if key is None:
                return found
            _FOUND[key] = found
        return _FOUND[key]

    def _items(self, *arguments: str) -> list[bytes]:
        output: bytes = run_git(list(arguments), cwd=self.root).stdout
        return [item for item in output.split(b"\0") if item]

    def _word(self, *arguments: str) -> str | None:
        """The one word that git answers; None if it says that there is no such thing."""
        answer = run_git(list(arguments), cwd=self.root, check=False)
        if answer.returncode > 1:  # git could not find out
            raise GitFailed(arguments[0], complaint_of(answer))
        return answer.stdout.decode(errors="surrogateescape").strip() or None if answer.returncode == 0 else None

    def operation_in_progress(self) -> str | None:
        return next((name for file, name in _IN_PROGRESS.items() if (self.git_dir / file).exists()), None)

    def head(self) -> str | None:
        """The commit checked out, or None in a repository without one."""
        found = head_of(self.git_dir, self.common_dir)
        if found is not None and (
            (self.common_dir, found.commit) in _COMMITS or is_certainly_commit(self.common_dir, found.commit)
        ):
            return found.commit
        commit = self.commit_of("HEAD")
        if commit is not None:
            _COMMITS.add((self.common_dir, commit))
        return commit

    def commit_of(self, ref: str) -> str | None:
        return self._word("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")

    def branch(self) -> str | None:
        """The full name of the branch checked out, or None when HEAD is detached."""
        found = head_of(self.git_dir, self.common_dir)
        return self._word("symbolic-ref", "--quiet", "HEAD") if found is None else found.ref

    def branches(self) -> list[str]:
        """The names of all branches that have a commit, without ``refs/heads/``."""
        listed = run_git(["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/"], cwd=self.root).stdout
        return [os.fsdecode(line) for line in listed.splitlines()]

    def has_ancestor(self, commit: str) -> bool:
        """Whether HEAD is that commit or one of its descendants."""
        return run_git(["merge-base", "--is-ancestor", commit, "HEAD"], cwd=self.root, check=False).returncode == 0

    def count_of_commits(self, old: str | None, new: str) -> int:
        """How many commits the second one has that the first one has not."""
        counted = run_git(["rev-list", "--count", new, *([f"^{old}"] if old else [])], cwd=self.root).stdout
        return int(counted)

    def settings(self) -> list[tuple[str, str | None]]:
        """The settings of the repository, and after them those of this work tree alone."""
        items = self._items("config", "--local", "--includes", "--list", "-z")
        # Git creates that file with the first setting, and fails if it is asked to list settings before.
        if (self.git_dir / "config.worktree").exists() and self.is_set("extensions.worktreeConfig"):
            items += self._items("config", "--worktree", "--includes", "--list", "-z")
        pairs = []
        for item in items:
            key, separator, value = item.decode(errors="surrogateescape").partition("\n")
            pairs.append((key, value if separator else None))
        return pairs

    def packed_refs(self) -> bytes:
        lines = run_git(["for-each-ref", "--format=%(objectname) %(refname)"], cwd=self.root).stdout.splitlines()
        kept = [line for line in lines if not line.split(b" ", 1)[1].startswith(tuple(map(str.encode, _PRIVATE_REFS)))]
        return b"".join(line + b"\n" for line in kept)

    def index_files(self) -> list[Path]:
        return [self.git_dir / "index", *self.git_dir.glob("sharedindex.*")]

    def ignored_paths(self) -> set[bytes]:
        """Files that git ignores, and folders in which it ignores everything; none of them lies in another."""
        listed = {path.rstrip(b"/") for path in self._items(*_OTHERS, "--ignored")}
        return {path for path in listed if listed.isdisjoint(ancestors(path))}

    def untracked_paths(self) -> list[bytes]:
        """Files that git neither tracks nor ignores, and folders in which it tracks nothing."""
        return [path.rstrip(b"/") for path in self._items(*_OTHERS)]

    def may_leave_out_files(self) -> bool:
        """Whether the index may list files that a sparse checkout left out: its oldest version cannot say so."""
        return any(_version_of(file) not in (None, _WITHOUT_FLAGS) for file in self.index_files())

    def submodules(self) -> list[bytes]:
        if not any(map(_may_hold_submodules, self.index_files())):
            return []
        entries = self._items("ls-files", "--stage", "-z")
        return [entry.split(b"\t", 1)[1] for entry in entries if entry.startswith(b"160000 ")]

    def has_other_work_trees(self) -> bool:
        """Whether it may have linked work trees; git makes that folder with the first one."""
        return os.path.lexists(self.common_dir / "worktrees")

    def work_trees_inside(self) -> list[bytes]:
        """The paths of linked work trees that lie in this one."""
        found = (line.removeprefix(b"worktree ") for line in self._items("worktree", "list", "--porcelain", "-z"))
        inside = os.fsencode(self.root) + b"/"
        return [place.removeprefix(inside) for place in found if place.startswith(inside)]

    def uncommitted(self, below: Sequence[str] = ()) -> set[bytes]:
        """Paths at which files or index differ from HEAD, with untracked files; of all, or of these and below them."""
        options = ("--porcelain=v1", "-z", "--untracked-files=all", "--no-renames")
        entries = self._items("--literal-pathspecs", "status", *options, "--", *below)
        return {entry[3:].rstrip(b"/") for entry in entries}

    def is_set(self, key: str) -> bool:
        return self._word("config", "--type=bool", "--get", key) == "true"

    @property
    def index_path(self) -> Path:
        """The file itself: if it is reached through a symlink, git locks and replaces what that leads to."""
        return Path(os.path.realpath(self.git_dir / "index"))

    @property
    def without_index(self) -> dict[str, str]:
        """The environment for a git that would read the whole index for nothing."""
        return {"GIT_INDEX_FILE": str(self.git_dir / "no-index")}

    @property
    def index_lock(self) -> Path:
        path = self.index_path
        return path.with_name(f"{path.name}.lock")


_FOUND: dict[tuple[object, ...], GitRepository] = {}
"""What git was asked once in this process, by all that decides the answer."""

_COMMITS: set[tuple[Path, str]] = set()
"""What git said once in this process to be a commit of the repository that is kept there."""


def _what_decides(path: Path) -> tuple[object, ...] | None:
    """What git's answer about that folder depends on; None if it is not an ordinary repository."""
    try:
        folder, config = os.lstat(path / ".git"), os.lstat(path / ".git" / "config")
    except OSError:
        return None
    settings = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("GIT_")))
    return path, folder.st_ino, config.st_ino, config.st_ctime_ns, config.st_size, settings


def _answers(path: Path) -> tuple[Path, Path, Path, str]:
    """Of the work tree around a folder: its root, its git directory, the one shared with others, and its hashes."""
    questions = ("--show-toplevel", "--absolute-git-dir", "--git-common-dir", "--show-object-format")
    answer = run_git(["rev-parse", "--is-bare-repository", *questions], cwd=path, check=False)
    is_bare, *lines = answer.stdout.split(b"\n")[:-1] or [b""]
    if is_bare == b"true":
        raise SandboxError(f"{path} is a bare repository: it has no files to work on.", hint="Use a clone of it.")
    if answer.returncode != 0:
        raise _not_a_repository(path, complaint_of(answer))
    if len(lines) != len(questions):  # a name contains a line break
        lines = [run_git(["rev-parse", question], cwd=path).stdout[:-1] for question in questions]
    top, git_dir, common_dir = (Path(os.fsdecode(line)) for line in lines[:-1])
    return top, git_dir, common_dir, lines[-1].decode()


def _version_of(index: Path) -> bytes | None:
    try:
        with index.open("rb") as file:
            return file.read(8)[4:]
    except FileNotFoundError:
        return None


def _may_hold_submodules(index: Path) -> bool:
    """Whether an index file may list a submodule; the whole list takes long in a large repository."""
    try:
        content = index.read_bytes()
    except FileNotFoundError:
        return False
    return _SUBMODULE_MODE in content or _SPARSE_INDEX in content


def _not_a_repository(path: Path, complaint: str) -> SandboxError:
    if Cause.OTHER_OWNER.is_in(complaint):
        return SandboxError(
            f"Git refuses {path}: it belongs to another user.",
            hint=f"Trust it with `git config --global --add safe.directory {path}`.",
        )
    return SandboxError(
        f"{path} is not a git repository.", hint="Run `git init` in it, or give the resource the type `directory`."
    )
