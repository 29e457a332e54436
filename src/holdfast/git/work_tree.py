"""Answers questions about files of a repository: which of them git ignores, merges, tracks and finds changed."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.git.index import MOST_ASKED_FOR, index_entries
from holdfast.git.index_file import IndexFile
from holdfast.git.patterns import check_ignore
from holdfast.git.plain_paths import are_as_committed
from holdfast.git.repository import GitRepository
from holdfast.git.run import run_git
from holdfast.git.trees import CommittedFolders
from holdfast.system.directories import join, split, with_ancestors
from holdfast.system.trees import make_folders, temporary_folder

_REPOSITORY = b".git"
_ATTRIBUTES = b".gitattributes"
_RULES = b".gitignore"
_SKIPPED = b"S"
_SUBMODULE_MODE = 0o160000


def attributes_for(paths: Iterable[bytes]) -> set[bytes]:
    """The files that may say what git makes of these paths."""
    return _on_the_way_to(paths, _ATTRIBUTES)


def rules_for(paths: Iterable[bytes]) -> set[bytes]:
    """The files that may say that git ignores these paths."""
    return _on_the_way_to(paths, _RULES)


def _on_the_way_to(paths: Iterable[bytes], name: bytes) -> set[bytes]:
    return {join(folder, name) for folder in with_ancestors(split(path)[0] for path in paths)}


def ignored_among(
    repository: GitRepository, rules: Mapping[bytes, bytes], folders: Collection[bytes], paths: Sequence[bytes]
) -> set[bytes]:
    """The paths that these rules ignore and the repository does not track; ``folders`` are those that are folders."""
    with temporary_folder() as work_tree:
        make_folders(work_tree, [*folders, *(split(name)[0] for name in rules)])
        for name, text in rules.items():
            (work_tree / os.fsdecode(name)).write_bytes(text)
        # Not the sandbox's own repository: a step may have changed its config, which can start programs.
        environment = {"GIT_DIR": str(repository.git_dir), "GIT_WORK_TREE": str(work_tree)}
        # Git needs the whole index only for rules that are not among the files.
        found = check_ignore(paths, with_index=repository.may_leave_out_files(), cwd=work_tree, env=environment)
        return found - with_ancestors(index_entries(repository, found))


def behind_symlinks(work_tree: Path, paths: Iterable[bytes]) -> set[bytes]:
    """The paths that lead through a symlink in the work tree; git refuses to read them, and tracks none of them."""
    behind: set[bytes] = set()
    for folder in sorted(with_ancestors(split(path)[0] for path in paths) - {b""}):
        if split(folder)[0] in behind or (work_tree / os.fsdecode(folder)).is_symlink():
            behind.add(folder)
    return {path for path in paths if split(path)[0] in behind}


def texts_in(work_tree: Path, names: Collection[bytes]) -> dict[bytes, bytes]:
    """The content of the files of rules or attributes that exist; git follows no symlink to one."""
    found = {}
    for name in set(names) - behind_symlinks(work_tree, names):
        path = work_tree / os.fsdecode(name)
        with suppress(FileNotFoundError):  # removed meanwhile
            if path.is_file() and not path.is_symlink():
                found[name] = path.read_bytes()
    return found


def inside_submodules(repository: GitRepository, paths: Collection[bytes]) -> set[bytes]:
    head = repository.head()
    index = None if head is None else IndexFile.read(repository.index_path, len(head) // 2)
    roots = repository.submodules() if index is None else _submodules_around(index, paths)
    return {path for path in paths if any(path == root or path.startswith(root + b"/") for root in roots)}


def _submodules_around(index: IndexFile, paths: Collection[bytes]) -> set[bytes]:
    """Those that one of these paths is, or lies in."""
    return {path for path in with_ancestors(paths) - {b""} if index.find_mode(path) == _SUBMODULE_MODE}


def repositories_around(tree: Path, paths: Collection[bytes]) -> set[bytes]:
    """The paths, and the folders they lie in, that are repositories of their own in the work tree."""
    marks = {join(folder, _REPOSITORY) for folder in with_ancestors(paths) - {b""}}
    marks -= behind_symlinks(tree, marks)
    return {split(mark)[0] for mark in marks if os.path.lexists(tree / os.fsdecode(mark))}


def merges_by_lines(repository: GitRepository, path: bytes) -> bool:
    """Whether git merges that file by lines: its attributes neither forbid it nor name a program that merges."""
    args = ["check-attr", "-z", "merge", "--", os.fsdecode(path)]
    value = run_git(args, cwd=repository.root).stdout.split(b"\0")[-2]
    return value in (b"unspecified", b"set", b"text")


def not_as_committed(
    repository: GitRepository, paths: Collection[bytes], committed: CommittedFolders | None = None
) -> set[bytes]:
    """The paths that differ from HEAD in files or index, or that git was told not to check, and that are in the way.

    A file that replaces a folder makes git forget everything below it, and the other way round. If git was told not to
    check a path and no file is there, a sparse checkout left it out, and there is no work of the user. With the folders
    of HEAD on the way to the paths, git is only asked about what is not plain.
    """
    wanted = set(paths)
    if not wanted or (committed is not None and are_as_committed(repository, committed, wanted)):
        return set()
    below = sorted(map(os.fsdecode, wanted)) if len(wanted) <= MOST_ASKED_FOR else []
    entries = _tagged(repository, below)
    if below and not _are_folders(repository, _ways_to(wanted), _ways_to(entry[2:] for entry in entries)):
        below, entries = [], _tagged(repository, [])
    unwatched = {entry[2:] for entry in entries if entry[:1] == _SKIPPED or entry[:1].islower()}
    left_out = {entry[2:] for entry in entries if entry[:1] == _SKIPPED and entry[2:] in wanted}
    left_out = {path for path in left_out if not os.path.lexists(repository.root / os.fsdecode(path))}
    return in_the_way_of(paths, repository.uncommitted(below) | unwatched - left_out)


def _tagged(repository: GitRepository, below: Sequence[str]) -> list[bytes]:
    """What the index lists of these paths, or of all: a letter for what git does with it, a space and the path."""
    args = ["--literal-pathspecs", "ls-files", "-v", "-z", "--", *below]
    return [line for line in run_git(args, cwd=repository.root).stdout.split(b"\0") if line]


def _ways_to(paths: Iterable[bytes]) -> set[bytes]:
    return with_ancestors(split(path)[0] for path in paths) - {b""}


def _are_folders(repository: GitRepository, paths: Collection[bytes], in_index: Collection[bytes]) -> bool:
    """Whether each of these is a folder, or nothing, in the files, in HEAD and in the index.

    ``in_index`` are folders of the index. If HEAD has something else there, what is in them is not committed.
    """
    if any(os.path.lexists(place := repository.root / os.fsdecode(path)) and not _is_folder(place) for path in paths):
        return False
    asked = b"".join(place + path + b"\0" for path in set(paths).difference(in_index) for place in (b"HEAD:", b":0:"))
    if not asked:
        return True
    answer = run_git(["cat-file", "-z", "--batch-check=%(objecttype)"], cwd=repository.root, input=asked).stdout
    return b"blob" not in answer.split(b"\n")


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def in_the_way_of(paths: Collection[bytes], found: Iterable[bytes]) -> set[bytes]:
    """The found paths that are one of ``paths``, lie below one, or have one below them."""
    wanted, above = set(paths), with_ancestors(paths)
    return {each for each in found if each in above or not wanted.isdisjoint(with_ancestors([each]))}
