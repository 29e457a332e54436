"""Bringing a plan's files into the user's repository: the commit is made first, index and branch move last."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import ConflictError, SandboxError
from holdfast.sandbox.git import run_git
from holdfast.sandbox.repository import GitRepository

_LOCK_MARK = b"holdfast apply "


def ignored_among(repository: GitRepository, work_tree: Path, paths: Sequence[bytes]) -> set[bytes]:
    """Those of the paths that the rules in ``work_tree`` ignore and that the repository does not track."""
    if not paths:
        return set()
    # Not the sandbox's own repository: a step may have written its config, and config can start programs.
    environment = {"GIT_DIR": str(repository.git_dir), "GIT_WORK_TREE": str(work_tree)}
    answer = run_git(
        ["check-ignore", "-z", "--stdin"], cwd=work_tree, input=b"\0".join(paths), env=environment, check=False
    )
    if answer.returncode > 1:
        raise SandboxError(f"git check-ignore failed in {work_tree}.", hint="Run `git status` there to see why.")
    return {path for path in answer.stdout.split(b"\0") if path}


def inside_submodules(repository: GitRepository, paths: Collection[bytes]) -> list[bytes]:
    roots = repository.submodules()
    return [path for path in paths if any(path == root or path.startswith(root + b"/") for root in roots)]


def make_commit(repository: GitRepository, work_tree: Path, paths: Sequence[bytes], message: str) -> str | None:
    """A commit on top of HEAD in which these paths are as in ``work_tree``; None if that changes nothing.

    Nothing in the repository names it yet.
    """
    head = repository.head()
    with _temporary_index(repository) as environment:
        run_git(["read-tree", head] if head else ["read-tree", "--empty"], cwd=repository.root, env=environment)
        for how, some in _by_what_git_can_hold(work_tree, paths):
            run_git(
                ["update-index", *how, "-z", "--stdin"],
                cwd=work_tree,
                input=b"".join(path + b"\0" for path in some),
                env={**environment, "GIT_WORK_TREE": str(work_tree)},
            )
        tree = run_git(["write-tree"], cwd=repository.root, env=environment).stdout.decode().strip()
    if head and tree == _tree_of(repository, head):
        return None
    signing = ["-S"] if repository.is_set("commit.gpgsign") else []
    parents = ["-p", head] if head else []
    answer = run_git(
        ["commit-tree", *signing, *parents, "-F", "-", tree], cwd=repository.root, input=message.encode(), check=False
    )
    if answer.returncode != 0:
        said = answer.stderr.decode(errors="replace").strip().splitlines() or ["unknown"]
        raise SandboxError(
            f"Git could not make the commit: {said[-1].removeprefix('fatal: ')}.",
            hint="Set your name with `git config --global user.name` and `user.email`, or use `--no-commit`.",
        )
    return answer.stdout.decode().strip()


def _by_what_git_can_hold(work_tree: Path, paths: Sequence[bytes]) -> Iterator[tuple[list[str], list[bytes]]]:
    """The paths with the way to bring them into an index; what became a fifo is no longer there for git."""
    fifos = [path for path in paths if (work_tree / os.fsdecode(path)).is_fifo()]
    yield ["--force-remove"], fifos
    yield ["--add", "--remove", "--replace"], [path for path in paths if path not in set(fifos)]


def _tree_of(repository: GitRepository, commit: str) -> str:
    return run_git(["rev-parse", f"{commit}^{{tree}}"], cwd=repository.root).stdout.decode().strip()


@contextmanager
def _temporary_index(repository: GitRepository, *, copied: bool = False) -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        index = Path(folder) / "index"
        if copied and repository.index_path.exists():
            shutil.copyfile(repository.index_path, index)
        yield {"GIT_DIR": str(repository.git_dir), "GIT_WORK_TREE": str(repository.root), "GIT_INDEX_FILE": str(index)}


@contextmanager
def index_locked(repository: GitRepository, token: str) -> Iterator[None]:
    """Keep every other git away from the index, by git's own lock; ours is known by the token in it."""
    try:
        _lock_index(repository, token)
    except FileExistsError as error:
        raise ConflictError(
            f"Another git command is at work in {repository.root}: {repository.index_lock} exists.",
            hint="Wait for it to end; if none is running, remove that file. Then apply again.",
        ) from error
    try:
        yield
    finally:
        release_index(repository, token)


def _lock_index(repository: GitRepository, token: str) -> None:
    """The lock appears with the token in it: one without would be nobody's after a crash, and stay for ever."""
    prepared = _prepared_lock(repository, token)
    prepared.write_bytes(_LOCK_MARK + token.encode())
    try:
        os.link(prepared, repository.index_lock)
    finally:
        prepared.unlink()


def _prepared_lock(repository: GitRepository, token: str) -> Path:
    return repository.git_dir / f"index.holdfast-{token}"


def release_index(repository: GitRepository, token: str) -> None:
    """Remove the lock, if it is the one with this token."""
    _prepared_lock(repository, token).unlink(missing_ok=True)
    try:
        if repository.index_lock.read_bytes() == _LOCK_MARK + token.encode():
            repository.index_lock.unlink()
    except FileNotFoundError:
        pass


def update_index(repository: GitRepository, commit: str, paths: Sequence[bytes]) -> None:
    """Make the index hold these paths as in the commit, and everything else as it did; to be called with it locked."""
    listed = run_git(["ls-tree", "-r", "-z", commit], cwd=repository.root).stdout.split(b"\0")
    wanted = {entry.split(b"\t", 1)[1]: entry.split(b"\t", 1)[0] for entry in listed if entry}
    nothing = b"0 " + b"0" * len(commit)
    lines = []
    for path in paths:
        if path in wanted:
            mode, _, digest = wanted[path].split(b" ")
            lines.append(mode + b" " + digest + b"\t" + path)
        else:
            lines.append(nothing + b"\t" + path)
    with _temporary_index(repository, copied=True) as environment:
        # Removals first: a file may have become a directory.
        lines.sort(key=lambda line: not line.startswith(b"0 "))
        entries = b"".join(line + b"\0" for line in lines)
        run_git(["update-index", "-z", "--index-info"], cwd=repository.root, input=entries, env=environment)
        run_git(["update-index", "-q", "--refresh"], cwd=repository.root, env=environment, check=False)
        new = Path(environment["GIT_INDEX_FILE"]).read_bytes()
    replacement = repository.git_dir / "index.holdfast"
    descriptor = os.open(replacement, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(new)
        file.flush()
        os.fsync(file.fileno())
    replacement.replace(repository.index_path)


def move_head(repository: GitRepository, new: str, old: str | None, reason: str) -> None:
    """Move the branch that is checked out, or a detached HEAD, if it still is where it was."""
    expected = old or "0" * len(new)
    answer = run_git(["update-ref", "-m", reason, "HEAD", new, expected], cwd=repository.root, check=False)
    if answer.returncode != 0:
        raise ConflictError(
            f"The branch checked out in {repository.root} moved while the plan was being applied.", hint="Apply again."
        )


def move_head_back(repository: GitRepository, new: str, old: str | None, reason: str) -> None:
    """Undo ``move_head``, if it happened."""
    if repository.head() != new:
        return
    if old is None:
        run_git(["update-ref", "-d", repository.branch() or "HEAD", new], cwd=repository.root)
    else:
        run_git(["update-ref", "-m", reason, "HEAD", old, new], cwd=repository.root)
