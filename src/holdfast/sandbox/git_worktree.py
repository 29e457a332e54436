"""Strategy ``git_worktree``: the sandbox of a repository is a work tree of its own, on a branch of its own.

It has its own ``.git`` directory, which borrows the user's objects and copies their refs, config, hooks and index. So
the user's repository is not written to at all, a plan may commit, stash, tag or configure as it likes, and HEAD, branch
and index are files of the sandbox, which every snapshot holds like any other file.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import SandboxError
from holdfast.git.index_stats import Earlier, carried_over
from holdfast.git.repository import GitRepository
from holdfast.git.run import run_git
from holdfast.model import Resource, Strategy
from holdfast.sandbox.borrowed import Lender, remove_places
from holdfast.sandbox.bulk import CopySink
from holdfast.sandbox.ignored import Selection, select, wishes_of
from holdfast.sandbox.listing import ListedTree
from holdfast.sandbox.making import Filled, filled, made_whole
from holdfast.sandbox.spares import Spares, git_index_of_spare, note_git_index
from holdfast.system.directories import Descent, split
from holdfast.system.once import once
from holdfast.system.trees import remove_tree

_BRANCH = "holdfast/{plan_id}"
_COPIED = ("info/exclude", "info/attributes", "shallow", "hooks")
_COPIED_OF_WORK_TREE = ("info/sparse-checkout",)
_OWN_KEYS = ("core.bare", "core.worktree", "core.fsmonitor", "extensions.worktreeconfig", "extensions.refstorage")
# This module writes refs as files, whatever format the user's settings choose for new repositories.
_REFS_IN_FILES = {"GIT_DEFAULT_REF_FORMAT": "files"}
_OWN_CONFIG = {"core.bare": "false", "gc.auto": "0", "maintenance.auto": "false"}


class GitWorktreeSandbox:
    strategy = Strategy.GIT_WORKTREE

    def __init__(self, plan_id: str, resource: Resource) -> None:
        self.resource = resource
        self.branch = _BRANCH.format(plan_id=plan_id)

    @property
    def path(self) -> Path:
        return Path(self.resource.sandbox_path)

    def check(self) -> None:
        repository = GitRepository.at(Path(self.resource.path))
        busy = repository.operation_in_progress()
        if busy:
            raise SandboxError(
                f"A {busy} is in progress in {repository.root}.", hint=f"Finish or abort the {busy} first."
            )
        wishes_of(repository)

    def size_bytes(self) -> int:
        return self._tree.size(skip=self._skip).size_bytes

    def create(self, sink: CopySink | None = None, spares: Spares | None = None) -> Resource:
        self.check()
        repository = GitRepository.at(Path(self.resource.path))
        with made_whole(self.path) as unfinished:
            copied = filled(self.resource, self._tree, unfinished, lambda: self._skip, sink, spares)
            lender = Lender.of(self.resource, repository.common_dir)
            lender.make_places()
            _borrow(repository, unfinished, self.branch, lender)
            self._carry_index_over(repository, unfinished, copied)
            _borrow_inside(repository, unfinished, lender, copied.not_byte_for_byte)
            base = {"commit": repository.head() or "", "branch": repository.branch() or ""}
        left_out = (*self._selection.left_out, *copied.left_out)
        return self.resource.model_copy(update={"base": base, "left_out": left_out})

    def _carry_index_over(self, repository: GitRepository, unfinished: Path, copied: Filled) -> None:
        original, before = _index_of(repository), None
        if copied.differing is not None and original is not None:
            carried = git_index_of_spare(self.path, original.content)
            before = None if carried is None else Earlier(carried, copied.differing)
        carried = _carried_over(repository, unfinished, original, copied.not_byte_for_byte, before)
        if carried is not None and original is not None:
            note_git_index(self.path, original.content, carried)

    @once
    def _tree(self) -> ListedTree:
        return ListedTree(GitRepository.at(Path(self.resource.path)).root)

    @once
    def _selection(self) -> Selection:
        """Decided once, so that what is copied is what was found to fit on the disk."""
        return select(GitRepository.at(Path(self.resource.path)), self.resource.copy_rules, self._tree)

    @property
    def _skip(self) -> Collection[bytes]:
        """What is not copied; the objects are borrowed."""
        return {b".git", *self._selection.skip}

    def remove(self) -> None:
        remove_tree(self.path)
        remove_places(self.resource)

    def hides(self, path: bytes) -> bool:
        # In submodules and nested repositories too: git itself never tracks such a path.
        return b".git" in path.split(b"/")

    def keeps_index_at(self, path: bytes) -> bool:
        folder, name = split(path)
        return name == b"index" and self.hides(folder)


def _borrow(repository: GitRepository, work_tree: Path, branch: str | None, lender: Lender) -> None:
    """Give ``work_tree`` a repository of its own that sees all the user's commits and refs."""
    git_dir = work_tree / ".git"
    args = ["init", "--quiet", "--template=", f"--object-format={repository.hashes}"]
    run_git(args, cwd=work_tree, env=_REFS_IN_FILES)
    for probe in git_dir.glob("t??????"):
        probe.unlink()  # a test file of git for symlinks, left behind if git could not remove it
    (git_dir / "objects" / "info").mkdir(exist_ok=True)
    alternates = lender.alternates(repository.common_dir / "objects")
    (git_dir / "objects" / "info" / "alternates").write_bytes(alternates)
    (git_dir / "config").unlink()  # git tests modes on it, and may leave it with another mode
    (git_dir / "config").write_bytes(_config(repository))
    (git_dir / "packed-refs").write_bytes(repository.packed_refs())
    _set_head(git_dir, repository.head(), branch)
    for name in _COPIED:
        _copy_if_there(repository.common_dir / name, git_dir / name)
    for name in _COPIED_OF_WORK_TREE:
        _copy_if_there(repository.git_dir / name, git_dir / name)
    for index in repository.index_files():
        _copy_if_there(index, git_dir / index.name)


class _Index(NamedTuple):
    content: bytes
    found: os.stat_result


def _index_of(repository: GitRepository) -> _Index | None:
    try:
        with repository.index_path.open("rb") as file:
            return _Index(file.read(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return None


def _carried_over(
    repository: GitRepository,
    work_tree: Path,
    original: _Index | None,
    inexact: Collection[bytes],
    earlier: Earlier | None = None,
) -> bytes | None:
    """Give the copied index the stat data of the copied files; returns it if it has that of all.

    ``inexact``: files that are not exact copies.
    """
    if original is None:
        return None
    content, written_at = original.content, original.found.st_mtime_ns // 10**9  # `st_mtime` may be rounded up
    with Descent(repository.root, opens_up=False) as real, Descent(work_tree) as copy:
        carried = carried_over(content, written_at, real.open(b""), copy.open(b""), inexact, earlier)
    if carried is not None:
        index = work_tree / ".git" / "index"
        index.unlink(missing_ok=True)  # it may be read-only, as the original
        index.write_bytes(carried.content)
        index.chmod(stat.S_IMODE(original.found.st_mode))
        if carried.is_complete:
            return carried.content
    # Without this, programs that read the index would take files for changed that are not.
    run_git(["update-index", "-q", "--refresh"], cwd=work_tree, check=False)
    return None


def _borrow_inside(repository: GitRepository, work_tree: Path, lender: Lender, inexact: Collection[bytes]) -> None:
    """Give submodules and linked work trees their own repositories: their ``.git`` is a file that names the user's."""
    for path in [*repository.submodules(), *repository.work_trees_inside()]:
        place = work_tree / os.fsdecode(path)
        link = place / ".git"
        if link.is_file():
            link.unlink()
            inner = GitRepository.at(repository.root / os.fsdecode(path))
            inside = {each.removeprefix(path + b"/") for each in inexact if each.startswith(path + b"/")}
            _borrow(inner, place, None, lender)
            _carried_over(inner, place, _index_of(inner), inside)
            _borrow_inside(inner, place, lender, inside)


def _set_head(git_dir: Path, commit: str | None, branch: str | None) -> None:
    if branch is None:
        (git_dir / "HEAD").write_text(f"{commit}\n")
        return
    (git_dir / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
    if commit is not None:
        reference = git_dir / "refs" / "heads" / branch
        reference.parent.mkdir(parents=True, exist_ok=True)
        reference.write_text(f"{commit}\n")


def _config(repository: GitRepository) -> bytes:
    """The user's settings for this repository, written out in full, without those that fit only their work tree."""
    lines = []
    for key, value in [*repository.settings(), *_OWN_CONFIG.items()]:
        section, _, rest = key.partition(".")
        if section.startswith("include") or (key in _OWN_KEYS and key not in _OWN_CONFIG):
            continue
        subsection, _, name = rest.rpartition(".")
        head = f'[{section} "{_escaped(subsection)}"]' if subsection else f"[{section}]"
        lines.append(f"{head}\n\t{name}" + ("" if value is None else f' = "{_escaped(value)}"'))
    return "\n".join(lines).encode(errors="surrogateescape") + b"\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")


def _copy_if_there(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    elif source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
