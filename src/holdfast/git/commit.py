"""Bringing a plan's files into the user's repository: the commit is made first, index and branch move last."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.errors import ConflictError, SandboxError, UsageError
from holdfast.git.repository import GitRepository
from holdfast.git.run import GitFailed, complaint_of, run_git
from holdfast.names import name_text
from holdfast.system.directories import join, shown, split, with_ancestors
from holdfast.system.trees import make_folders, sync_directory, temporary_folder

_LOCK_MARK = b"holdfast apply "
# Git leaves objects to the operating system, and after a power cut a branch could name a commit that is not there.
_DURABLE = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsync", "GIT_CONFIG_VALUE_0": "all"}
# The shared part of a split index would be left in the user's repository, even if the index itself is ours.
_WHOLE = {"GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_1": "core.splitIndex", "GIT_CONFIG_VALUE_1": "false"}
# Where the user's commits are to be in another one, git would only say that this is, too.
_IN_UTF_8 = {"GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_1": "i18n.commitEncoding", "GIT_CONFIG_VALUE_1": "UTF-8"}
_PACKED_LOCK = "packed-refs.lock"
_REPOSITORY = b".git"
_SKIPPED = b"S"
_HERE = b"./"
_LOCK_EXISTS = "': File exists"
_LOCKED = f".lock{_LOCK_EXISTS}"
_NOT_WRITTEN = ("insufficient permission", "unable to create temporary file", "unable to write", "No space left")
_NOBODY = ("ident name", "auto-detect", "no email was given", "no name was given")
_GRACE_SECONDS = 0.3
"""Another git that is alive keeps such a lock for less."""


def ignored_among(
    repository: GitRepository, rules: Mapping[bytes, bytes], folders: Collection[bytes], paths: Sequence[bytes]
) -> set[bytes]:
    """Those of the paths that these rules ignore and that the repository does not track; ``folders`` are no files."""
    with temporary_folder() as work_tree:
        make_folders(work_tree, [*folders, *(split(name)[0] for name in rules)])
        for name, text in rules.items():
            (work_tree / os.fsdecode(name)).write_bytes(text)
        return _check_ignore(repository, work_tree, paths)


def _check_ignore(repository: GitRepository, work_tree: Path, paths: Sequence[bytes]) -> set[bytes]:
    if not paths:
        return set()
    # Not the sandbox's own repository: a step may have written its config, and config can start programs.
    environment = {"GIT_DIR": str(repository.git_dir), "GIT_WORK_TREE": str(work_tree)}
    # A name that begins with a colon would be read as a pattern, which GIT_LITERAL_PATHSPECS does not prevent here.
    listed = b"\0".join(_HERE + path for path in paths)
    answer = run_git(["check-ignore", "-z", "--stdin"], cwd=work_tree, input=listed, env=environment, check=False)
    if answer.returncode > 1:
        raise SandboxError(
            f"git check-ignore failed in {repository.root}: {complaint_of(answer)}.",
            hint="Run `git status` there to see why.",
        )
    return {path.removeprefix(_HERE) for path in answer.stdout.split(b"\0") if path}


def _behind_symlinks(work_tree: Path, paths: Iterable[bytes]) -> set[bytes]:
    """Those of the paths that lead through a symlink there; git refuses to look at them, and holds none of them."""
    behind: set[bytes] = set()
    for folder in sorted(with_ancestors(split(path)[0] for path in paths) - {b""}):
        if split(folder)[0] in behind or (work_tree / os.fsdecode(folder)).is_symlink():
            behind.add(folder)
    return {path for path in paths if split(path)[0] in behind}


def texts_in(work_tree: Path, names: Collection[bytes]) -> dict[bytes, bytes]:
    """Those of these files of rules or attributes that are there; git follows no symlink to one."""
    found = {}
    for name in set(names) - _behind_symlinks(work_tree, names):
        path = work_tree / os.fsdecode(name)
        with suppress(FileNotFoundError):  # removed meanwhile
            if path.is_file() and not path.is_symlink():
                found[name] = path.read_bytes()
    return found


def inside_submodules(repository: GitRepository, paths: Collection[bytes]) -> set[bytes]:
    roots = repository.submodules()
    return {path for path in paths if any(path == root or path.startswith(root + b"/") for root in roots)}


def repositories_around(tree: Path, paths: Collection[bytes]) -> set[bytes]:
    """Folders in a work tree that some of the paths lie in, or are, and that are repositories of their own there."""
    marks = {join(folder, _REPOSITORY) for folder in with_ancestors(paths) - {b""}}
    marks -= _behind_symlinks(tree, marks)
    return {split(mark)[0] for mark in marks if os.path.lexists(tree / os.fsdecode(mark))}


def merges_by_lines(repository: GitRepository, path: bytes) -> bool:
    """Whether git would; not where the attributes forbid it, say that it is no text, or name a program that merges."""
    args = ["check-attr", "-z", "merge", "--", os.fsdecode(path)]
    value = run_git(args, cwd=repository.root).stdout.split(b"\0")[-2]
    return value in (b"unspecified", b"set", b"text")


def not_as_committed(repository: GitRepository, paths: Collection[bytes]) -> set[bytes]:
    """What is at these paths, in files or index, and is not what HEAD says, or where git was told not to look.

    A file that is to lie where a folder was makes git forget everything below it, and the other way round. Where git
    does not look and nothing is, a sparse checkout left a file out, and there is no work of anybody.
    """
    wanted = set(paths)
    if not wanted:
        return set()
    entries = [line for line in run_git(["ls-files", "-v", "-z"], cwd=repository.root).stdout.split(b"\0") if line]
    unwatched = {entry[2:] for entry in entries if entry[:1] == _SKIPPED or entry[:1].islower()}
    left_out = {entry[2:] for entry in entries if entry[:1] == _SKIPPED and entry[2:] in wanted}
    left_out = {path for path in left_out if not os.path.lexists(repository.root / os.fsdecode(path))}
    return _in_the_way_of(paths, repository.uncommitted() | unwatched - left_out)


def _in_the_way_of(paths: Collection[bytes], found: Iterable[bytes]) -> set[bytes]:
    """Those that are one of the paths, lie below one, or have one below them."""
    wanted, above = set(paths), with_ancestors(paths)
    return {each for each in found if each in above or not wanted.isdisjoint(with_ancestors([each]))}


def refuse_a_branch_used_elsewhere(repository: GitRepository, ref: str | None, *, way_out: str) -> None:
    """A branch that moves under another work tree would leave that one's files behind its HEAD."""
    listed = run_git(["worktree", "list", "--porcelain", "-z"], cwd=repository.root).stdout.split(b"\0\0")
    for block in listed:
        facts = dict(line.partition(b" ")[::2] for line in block.split(b"\0"))
        place = Path(os.fsdecode(facts.get(b"worktree", b"")))
        # git names the work tree of a submodule by its git directory.
        is_ours = place.resolve() in (repository.root, repository.git_dir.resolve())
        is_there = b"prunable" not in facts and not is_ours
        if ref is not None and is_there and facts.get(b"branch") == os.fsencode(ref):
            raise ConflictError(
                f"The branch {branch_name(ref)} is checked out in {place} as well; nothing was changed.",
                hint=f"Check out another branch in one of them, {way_out}",
            )


def branch_name(ref: str) -> str:
    return ref.removeprefix("refs/heads/")


# The commit


@dataclass(frozen=True)
class CommitDraft:
    """A commit to be made: on top of ``parent``, and different from it in these paths only."""

    repository: GitRepository
    parent: str | None
    paths: tuple[bytes, ...]
    shown: Callable[[], AbstractContextManager[Path]]
    """A folder, for a moment, with what is to be at the paths and the attributes that hold for it."""
    message: str = ""


def make_commit(draft: CommitDraft) -> str | None:
    """Make it; None if it would change nothing. Nothing in the repository names it yet."""
    repository = draft.repository
    with _refusals_told(repository):
        with _temporary_index(repository) as environment:
            tree = _write_tree(draft, environment)
            beside = _staged(repository, draft.parent, environment).difference(draft.paths)
        if beside:
            raise _reaches_too_far(repository, beside)
        if tree == _tree_of(repository, draft.parent):
            return None
        signing = ["-S"] if _is_signed(repository) else []
        parents = ["-p", draft.parent] if draft.parent else []
        message = draft.message.encode(errors="replace")
        args = ["commit-tree", *signing, *parents, "-F", "-", tree]
        return run_git(args, cwd=repository.root, input=message, env=_DURABLE | _IN_UTF_8).stdout.decode().strip()


def _reaches_too_far(repository: GitRepository, beside: Collection[bytes]) -> ConflictError:
    listed = "\n  ".join(name_text(shown(path)) for path in sorted(beside))
    return ConflictError(
        f"The commit would change more of {repository.root} than the plan did; nothing was changed:\n  {listed}",
        hint="Bring the change into the files without a commit: `--no-commit`.",
        paths=tuple(shown(path) for path in sorted(beside)),
    )


def changed_by(draft: CommitDraft) -> set[bytes]:
    """The paths in which it would differ from its parent; the repository gets no object of it."""
    with _refusals_told(draft.repository), _temporary_index(draft.repository) as environment:
        _fill_index(draft, environment, only_look=True)
        return _staged(draft.repository, draft.parent, environment)


def would_be_made(draft: CommitDraft) -> bool:
    """Whether it would change anything; refused if that is more than its paths."""
    changed = changed_by(draft)
    if changed.difference(draft.paths):
        raise _reaches_too_far(draft.repository, changed.difference(draft.paths))
    return bool(changed)


def _is_signed(repository: GitRepository) -> bool:
    return repository.is_set("commit.gpgsign")


@contextmanager
def _refusals_told(repository: GitRepository) -> Iterator[None]:
    """Turn what git says when it cannot make a commit into what a person can do about it."""
    try:
        yield
    except GitFailed as failure:
        raise SandboxError(
            f"Git could not make the commit in {repository.root}: {failure.complaint}. Nothing was changed.",
            hint=_way_out(repository, failure.complaint),
        ) from failure


def _way_out(repository: GitRepository, complaint: str) -> str:
    if any(words in complaint for words in _NOT_WRITTEN):
        return f"Check who may write to {repository.common_dir / 'objects'} and the space on its disk, then try again."
    if any(words in complaint for words in _NOBODY):
        return "Set your name with `git config --global user.name` and `user.email`, or use `--no-commit`."
    if "filter" in complaint:
        return "Make that filter of your git settings work, then try again, or use `--no-commit`."
    if _is_signed(repository):
        return "Your `commit.gpgsign` asks for a signature; make signing work, then try again."
    return "Remove that cause and try again, or use `--no-commit`."


def _staged(repository: GitRepository, commit: str | None, environment: Mapping[str, str] | None = None) -> set[bytes]:
    """The paths in which the index differs from a commit."""
    args = ["diff-index", "--cached", "-z", "--name-only", "--no-renames", commit or _tree_of(repository, None)]
    return {path for path in run_git(args, cwd=repository.root, env=environment).stdout.split(b"\0") if path}


def _write_tree(draft: CommitDraft, environment: Mapping[str, str]) -> str:
    _fill_index(draft, environment)
    # In a partial clone what is missing would be fetched; all that is not in the parent was stored just now.
    return run_git(["write-tree", "--missing-ok"], cwd=draft.repository.root, env=environment).stdout.decode().strip()


def _fill_index(draft: CommitDraft, environment: Mapping[str, str], *, only_look: bool = False) -> None:
    """Make the index that the environment names the draft's; only to look at it, nothing else is written."""
    root = draft.repository.root
    run_git(["read-tree", draft.parent] if draft.parent else ["read-tree", "--empty"], cwd=root, env=environment)
    with draft.shown() as work_tree:
        there = {**environment, "GIT_WORK_TREE": str(work_tree)}
        for how, some in _by_what_git_can_hold(work_tree, draft.paths):
            listed = b"".join(path + b"\0" for path in some)
            options = ["--info-only"] if only_look else []
            run_git(["update-index", *options, *how, "-z", "--stdin"], cwd=work_tree, input=listed, env=there)


def _by_what_git_can_hold(work_tree: Path, paths: Sequence[bytes]) -> Iterator[tuple[list[str], list[bytes]]]:
    """The paths with the way to bring them into an index; first go those that hold nothing for git.

    They are gone, or became a folder or a fifo, or lie behind a symlink that took the place of a folder.
    """
    hidden = _behind_symlinks(work_tree, paths)
    held = [path for path in paths if path not in hidden and _is_file_or_symlink(work_tree / os.fsdecode(path))]
    yield ["--force-remove"], sorted(set(paths).difference(held))
    yield ["--add", "--replace"], held


def _is_file_or_symlink(path: Path) -> bool:
    return path.is_symlink() or path.is_file()


def _tree_of(repository: GitRepository, commit: str | None) -> str:
    if commit is None:
        return run_git(["hash-object", "-t", "tree", "--stdin"], cwd=repository.root).stdout.decode().strip()
    return run_git(["rev-parse", f"{commit}^{{tree}}"], cwd=repository.root).stdout.decode().strip()


def changed_between(repository: GitRepository, old: str | None, new: str | None) -> set[bytes]:
    return set(_tree_changes(repository, old, new))


def _tree_changes(repository: GitRepository, old: str | None, new: str | None) -> dict[bytes, tuple[bytes, bytes]]:
    """Every path that differs between two commits: its old and its new ``mode digest``."""
    ends = [each or _tree_of(repository, None) for each in (old, new)]
    args = ["diff-tree", "-r", "-z", "--no-renames", *ends]
    words = run_git(args, cwd=repository.root).stdout.split(b"\0")
    changes = {}
    for facts, path in zip(words[::2], words[1::2], strict=False):
        old_mode, new_mode, old_digest, new_digest, _ = facts.removeprefix(b":").split(b" ")
        changes[path] = (old_mode + b" " + old_digest, new_mode + b" " + new_digest)
    return changes


@contextmanager
def _temporary_index(repository: GitRepository, *, copied: bool = False) -> Iterator[dict[str, str]]:
    with temporary_folder() as folder:
        index = folder / "index"
        if copied and repository.index_path.exists():
            shutil.copyfile(repository.index_path, index)
        places = {"GIT_DIR": str(repository.git_dir), "GIT_WORK_TREE": str(repository.root)}
        yield {**_DURABLE, **_WHOLE, **places, "GIT_INDEX_FILE": str(index)}


@contextmanager
def index_locked(repository: GitRepository, token: str) -> Iterator[None]:
    """Keep every other git away from the index, by git's own lock; ours is known by the token in it."""
    lock_index(repository, token)
    try:
        yield
    finally:
        release_index(repository, token)


def lock_index(repository: GitRepository, token: str) -> None:
    """The lock appears with the token in it: one without would be nobody's after a crash, and stay for ever."""
    prepared = _prepared_lock(repository, token)
    with prepared.open("wb") as file:
        file.write(_LOCK_MARK + token.encode())
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(prepared, repository.index_lock)
    except FileExistsError as error:
        raise _index_is_locked(repository) from error
    finally:
        prepared.unlink()


def _index_is_locked(repository: GitRepository) -> ConflictError:
    return ConflictError(
        f"Another git command is at work in {name_text(str(repository.root))}: "
        f"{name_text(str(repository.index_lock))} exists.",
        hint="Wait for it to end; if none is running, remove that file. Then run the command again.",
    )


def holds_index(repository: GitRepository, token: str) -> bool:
    try:
        return repository.index_lock.read_bytes() == _LOCK_MARK + token.encode()
    except FileNotFoundError:
        return False


def _prepared_lock(repository: GitRepository, token: str) -> Path:
    return repository.git_dir / f"index.holdfast-{token}"


def _next_index(repository: GitRepository, token: str) -> Path:
    """The next index, until it takes the place of the present one."""
    return repository.git_dir / f"index.holdfast-{token}.next"


def release_index(repository: GitRepository, token: str) -> None:
    """Remove the lock, if it is the one with this token, and what was on its way into its place or the index's."""
    for unfinished in (_prepared_lock(repository, token), _next_index(repository, token)):
        unfinished.unlink(missing_ok=True)
    if holds_index(repository, token):
        repository.index_lock.unlink()


# The branch and the index


@dataclass(frozen=True)
class BranchMove:
    """A branch, or a detached HEAD, that goes from one commit to another; None stands for a branch not born yet."""

    repository: GitRepository
    ref: str | None
    """The branch's full name; None for a detached HEAD."""
    old: str | None
    new: str | None
    is_checked_out: bool = True
    """The index goes with it; a branch that is not checked out is only a name."""

    @property
    def reversed(self) -> BranchMove:
        return replace(self, old=self.new, new=self.old)

    def is_where(self, commit: str | None) -> bool:
        """Whether the branch, and HEAD with it if it is checked out, is there."""
        if self.is_checked_out:
            return self.repository.branch() == self.ref and self.repository.head() == commit
        return self.repository.commit_of(self.ref or "HEAD") == commit


def check_unmoved(move: BranchMove) -> None:
    """Refuse if somebody moved the branch, or staged something in the paths concerned, before the index was locked."""
    repository = move.repository
    staged = set()
    if move.is_checked_out:
        staged = _in_the_way_of(_tree_changes(repository, move.old, move.new), _staged(repository, move.old))
    if staged or not move.is_where(move.old):
        raise ConflictError(
            f"Somebody else changed the repository {repository.root} meanwhile; nothing was changed.",
            hint="Run the command again.",
        )


def refuse_a_locked_branch(move: BranchMove) -> None:
    """Refuse while a lock of another git forbids to move the branch, or to change the index with it."""
    repository = move.repository
    if move.is_checked_out and repository.index_lock.exists():
        raise _index_is_locked(repository)
    is_deletion = move.old is not None and move.new is None
    locks = [lock for lock in _lock_files(move) if lock.exists() and (is_deletion or lock.name != _PACKED_LOCK)]
    for lock in locks:
        raise _moved(repository, f"Unable to create '{lock}{_LOCK_EXISTS}")


def refuse_an_impossible_commit(draft: CommitDraft, ref: str | None, *, is_checked_out: bool) -> None:
    """Refuse what git would refuse when the commit is made and named, as far as that shows before."""
    move = BranchMove(draft.repository, ref, draft.parent, draft.parent, is_checked_out=is_checked_out)
    try:
        refuse_a_locked_branch(move)
        with _refusals_told(draft.repository):
            for person in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
                run_git(["var", person], cwd=draft.repository.root)
    except (ConflictError, SandboxError):
        if changed_by(draft):  # otherwise there will be none
            raise


def new_index(move: BranchMove) -> bytes:
    """The index with everything the commits differ in as in the new one, and everything else as it is."""
    return _changed_index(
        move, {path: new for path, (_, new) in _tree_changes(move.repository, move.old, move.new).items()}
    )


def take_out_of_index(move: BranchMove, token: str) -> None:
    """Let go what the index holds of the new commit, path by path; whatever else is in it is somebody's work."""
    changes = _tree_changes(move.repository, move.old, move.new)
    listed = run_git(["ls-files", "-s", "-z"], cwd=move.repository.root).stdout.split(b"\0")
    present = {path: facts.rpartition(b" ")[0] for facts, _, path in (line.partition(b"\t") for line in listed)}
    ours = {path: old for path, (old, new) in changes.items() if present.get(path, _gone(new)) == new}
    if ours:
        with index_locked(move.repository, token):
            replace_index(move.repository, _changed_index(move, ours), token)


def _gone(entry: bytes) -> bytes:
    return b"000000 " + b"0" * (len(entry) - len(b"000000 "))


def _changed_index(move: BranchMove, entries: Mapping[bytes, bytes]) -> bytes:
    root = move.repository.root
    # Removals first: a file may have become a directory.
    lines = sorted(
        (entry + b"\t" + path + b"\0" for path, entry in entries.items()), key=lambda line: not line.startswith(b"0")
    )
    with _temporary_index(move.repository, copied=True) as environment:
        run_git(["update-index", "-z", "--index-info"], cwd=root, input=b"".join(lines), env=environment)
        # The files are there already: what is not was left out of the work tree by a sparse checkout, and stays so.
        there = [path for path, entry in entries.items() if entry != _gone(entry)]
        left_out = [path + b"\0" for path in there if not os.path.lexists(root / os.fsdecode(path))]
        if left_out:
            args = ["update-index", "--skip-worktree", "-z", "--stdin"]
            run_git(args, cwd=root, input=b"".join(left_out), env=environment)
        run_git(["update-index", "-q", "--refresh"], cwd=root, env=environment, check=False)
        return Path(environment["GIT_INDEX_FILE"]).read_bytes()


def _mode_for_index(repository: GitRepository) -> int:
    """That of the present one; if there is none, that of a file that every repository has, shared or not."""
    present = repository.index_path if repository.index_path.exists() else repository.git_dir / "HEAD"
    return stat.S_IMODE(present.stat().st_mode)


def replace_index(repository: GitRepository, content: bytes, token: str) -> None:
    """Put a whole new index in the place of the old; to be called with it locked."""
    replacement = _next_index(repository, token)
    descriptor = os.open(replacement, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, _mode_for_index(repository))
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    replacement.replace(repository.index_path)
    sync_directory(repository.git_dir)


def move_branch(move: BranchMove, reason: str) -> None:
    """Move it, if it still is where it was."""
    repository, started = move.repository, time.time() - _GRACE_SECONDS
    if move.is_checked_out and repository.branch() != move.ref:
        raise _moved(repository, "another branch is checked out now")
    # By way of HEAD, so that its log tells of it too; a branch can only be deleted by its own name.
    name = "HEAD" if move.is_checked_out and move.new else move.ref or "HEAD"
    nothing = "0" * len(move.new or move.old or "")
    args = [name, move.new, move.old or nothing] if move.new else ["-d", name, move.old or nothing]
    try:
        run_git(["update-ref", "-m", reason, *args], cwd=repository.root, env=_DURABLE)
    except GitFailed as failure:
        raise _moved(repository, failure.complaint) from failure
    place = (repository.common_dir / move.ref).parent if move.ref else repository.git_dir
    if place.is_dir():
        sync_directory(place)
    remove_stale_locks(move, started)  # git has ended: whatever it could not remove, nobody else will


def _moved(repository: GitRepository, reason: str) -> ConflictError:
    if_none = "if none is running, remove that file. Then" if _LOCKED in reason else "then"
    return ConflictError(
        f"A branch of {repository.root} could not be moved; nothing was changed: {reason}.",
        hint=f"Wait for other git commands there to end; {if_none} run the command again.",
    )


def remove_stale_locks(move: BranchMove, since: float) -> None:
    """Remove the locks of a git that was killed while it moved the branch for us; nobody else would, ever.

    One is ours if it is not older than the operation and holds one of its commits, or the beginning of one.
    """
    ours = [f"{commit}\n".encode() for commit in (move.old, move.new) if commit]
    found = {lock: lock.stat() for lock in _lock_files(move) if lock.exists()}
    if found:
        time.sleep(_GRACE_SECONDS)
    for lock, status in found.items():
        with suppress(FileNotFoundError):
            is_still_there = lock.stat().st_ino == status.st_ino and status.st_mtime >= since
            content = lock.read_bytes()
            if is_still_there and (lock.name == _PACKED_LOCK or any(each.startswith(content) for each in ours)):
                lock.unlink()


def _lock_files(move: BranchMove) -> list[Path]:
    repository = move.repository
    locks = [repository.git_dir / "HEAD.lock"] if move.is_checked_out else []
    if move.ref is not None:
        locks.append(repository.common_dir / f"{move.ref}.lock")
    if None in (move.old, move.new):  # a branch is deleted from the packed ones too
        locks.append(repository.common_dir / _PACKED_LOCK)
    return locks


def move_branch_back(move: BranchMove, reason: str) -> None:
    """Undo ``move_branch``, if it happened; also if another branch was checked out since."""
    name = move.ref or ("HEAD" if move.repository.branch() is None else None)
    if name is None or move.old == move.new or move.repository.commit_of(name) != move.new:
        return
    is_checked_out = move.is_checked_out and move.repository.branch() == move.ref
    move_branch(replace(move.reversed, is_checked_out=is_checked_out), reason)


# A branch of its own


def refuse_branch_name(repository: GitRepository, name: str) -> None:
    """Refuse a name that git would not take for a new branch."""
    answer = run_git(["check-ref-format", "--branch", name], cwd=repository.root, check=False)
    if answer.returncode != 0 or answer.stdout.decode(errors="surrogateescape").strip() != name:
        raise UsageError(f"{name!r} is no name for a branch.", hint="See `git help check-ref-format` for the rules.")
    # One that is checked out has no commit yet, perhaps, and then none of the branches.
    names = [*repository.branches(), branch_name(repository.branch() or "")]
    taken = next((each for each in names if each and _cannot_both_be(each, name)), None)
    if taken is not None:
        reason = "already" if taken == name else f"already, and git can have no {name} beside it"
        raise ConflictError(
            f"There is a branch {taken} in {repository.root} {reason}; nothing was changed.",
            hint="Choose another name.",
        )
    refuse_a_branch_used_elsewhere(repository, f"refs/heads/{name}", way_out="or choose another name.")


def _cannot_both_be(one: str, other: str) -> bool:
    """Two names of branches, of which one may be a folder of branches for the other."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
