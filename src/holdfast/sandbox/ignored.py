"""Which files that git ignores or does not track are copied into a sandbox: decided from what is there.

Tracked files are always copied. Of the others everything is copied that is not excluded, as long as what git ignores
stays within the limit; beyond it, the largest ignored folders and files are left out. What is included is copied in any
case, and does not count.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import SandboxError
from holdfast.git.patterns import matching
from holdfast.git.repository import GitRepository
from holdfast.model import CopyLimit, CopyRules, Unheld
from holdfast.names import NOT_IN_A_NAME, bytes_text
from holdfast.sandbox.listing import ListedTree
from holdfast.sandbox.sizing import Found, Size, size_of, tree_at
from holdfast.system.directories import join, split, with_ancestors

WISHES = ".worktreeinclude"
"""The file at the root of a repository whose patterns name ignored files that every copy of it needs."""
_MOST_NAMED = 20
_SPECIAL = re.compile(rb"[\\*?\[]")
_UNSHOWN = re.compile(rf"{NOT_IN_A_NAME.pattern}|[\udc80-\udcff]")


@dataclass(frozen=True)
class Selection:
    skip: frozenset[bytes]
    """What is not copied; nothing that lies in such a folder is."""
    left_out: tuple[Unheld, ...]


def select(repository: GitRepository, rules: CopyRules, tree: ListedTree) -> Selection:
    """Decide for a repository as it is now; ``tree`` is its work tree."""
    root = os.fsencode(repository.root)
    ignored = _ignored_in(repository)
    include, exclude = wishes_of(repository) + _lines(rules.include), _lines(rules.exclude)
    if not include and not exclude:
        # A tree of too many files is left out in any case.
        sizes = {path: tree.size(path, most_files=rules.limit.files) for path in ignored}
        return _within_limit(sizes, rules.limit)
    others = _untracked(repository, root, ignored) if exclude else []
    return _chosen({path: list(tree_at(root, path)) for path in ignored}, others, include, exclude, rules)


def wishes_of(repository: GitRepository) -> bytes:
    """The patterns in the repository's own file; a file that cannot be read is refused, because they are promises."""
    place = repository.root / WISHES
    try:
        return _read(place)
    except FileNotFoundError:
        if not place.is_symlink():
            return b""
        raise _unreadable(place, "the symlink leads nowhere") from None
    except OSError as error:
        raise _unreadable(place, error.strerror or str(error)) from error


def _read(place: Path) -> bytes:
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not stop us
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read() + b"\n"
    finally:
        os.close(descriptor)


def _unreadable(place: Path, reason: str) -> SandboxError:
    return SandboxError(
        f"{place} cannot be read: {reason}.",
        hint="It names ignored files that every sandbox needs: repair it, or move it away.",
    )


def _lines(patterns: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(pattern) + b"\n" for pattern in patterns)


def _ignored_in(repository: GitRepository) -> set[bytes]:
    """What git ignores in a repository and in its submodules."""
    found = repository.ignored_paths()
    for path in repository.submodules():
        place = repository.root / os.fsdecode(path)
        if (place / ".git").is_file():
            found |= {join(path, each) for each in _ignored_in(GitRepository.at(place))}
    return found


def _untracked(repository: GitRepository, root: bytes, ignored: Collection[bytes]) -> list[Found]:
    paths = [path for path in repository.untracked_paths() if path not in ignored]
    return [each for path in paths for each in tree_at(root, path, skip=ignored)]


def _within_limit(sizes: Mapping[bytes, Size], limit: CopyLimit) -> Selection:
    """The decision if there are no patterns: an entry is copied as a whole or not at all."""
    dropped = over_limit(sizes, limit)
    return Selection(frozenset(dropped), _too_large(dropped))


def over_limit(sizes: Mapping[bytes, Size], limit: CopyLimit) -> dict[bytes, Size]:
    """What to leave out so that the rest is within the limit: the largest first, then what has the most files."""
    dropped: dict[bytes, Size] = {}
    for most, measure in ((limit.size_bytes, _space), (limit.files, _files)):
        kept = {path: measure(size) for path, size in sizes.items() if path not in dropped}
        total = sum(each[0] for each in kept.values())
        for path in sorted(kept, key=lambda path: (kept[path], path), reverse=True):
            if most is None or total <= most:
                break
            total -= kept[path][0]
            dropped[path] = sizes[path]
    return dropped


def _space(size: Size) -> tuple[int, int]:
    return size.size_bytes, size.files


def _files(size: Size) -> tuple[int, int]:
    return size.files, size.size_bytes


def _chosen(
    ignored: Mapping[bytes, Sequence[Found]], others: Sequence[Found], include: bytes, exclude: bytes, rules: CopyRules
) -> Selection:
    """The decision with patterns, which may divide an entry."""
    inside = [each for found in ignored.values() for each in found]
    included = _matched(include, inside)
    excluded = _matched(exclude, [*inside, *others]) - included
    decided = included | excluded
    rest = {path: _size_without(decided, found) for path, found in ignored.items()}
    dropped = over_limit(rest, rules.limit)
    too_much = {each.path for path in dropped for each in ignored[path] if each.path not in included}
    skip = _topmost([*inside, *others], excluded | too_much)
    sizes = _sizes_below(skip, [*inside, *others])
    left_out = (*_too_large(dropped), *_excluded({path: sizes[path] for path in skip if path not in too_much}))
    return Selection(frozenset(skip), left_out)


def _size_without(decided: Collection[bytes], found: Sequence[Found]) -> Size:
    """The size of the other files; of a folder in which all is decided nothing counts, not even its own space."""
    return size_of(each for each in found if not each.is_folder and each.path not in decided)


def _matched(patterns: bytes, found: Sequence[Found]) -> set[bytes]:
    """The files that match; a folder is left out if it holds nothing else, and made if something in it is copied."""
    return matching(patterns, [each.path for each in found if not each.is_folder]) if patterns.strip() else set()


def _topmost(found: Sequence[Found], unwanted: Collection[bytes]) -> set[bytes]:
    """The unwanted entries, or in place of them the folders that hold nothing else."""
    files = [each.path for each in found if not each.is_folder]
    needed = with_ancestors(path for path in files if path not in unwanted)
    emptied = with_ancestors(path for path in files if path in unwanted)
    skip, gone = set[bytes](), set[bytes]()
    for each in found:
        is_below = split(each.path)[0] in gone
        if is_below or (each.path not in needed and (each.path in emptied or each.path in unwanted)):
            gone.add(each.path)
        if each.path in gone and not is_below:
            skip.add(each.path)
    return skip


def _sizes_below(skip: Collection[bytes], found: Sequence[Found]) -> dict[bytes, Size]:
    sizes, below = {path: Size() for path in skip}, {path: path for path in skip}
    for each in found:
        top = below.get(each.path) or below.get(split(each.path)[0])
        if top is not None:
            below[each.path] = top
            sizes[top].add(each)
    return sizes


def _sum(sizes: Iterable[Size]) -> Size:
    total = Size()
    for size in sizes:
        total.add_all(size)
    return total


# What is said about it


def _too_large(dropped: Mapping[bytes, Size]) -> tuple[Unheld, ...]:
    def reason(path: bytes, size: Size) -> str:
        return f"git ignores it, and it has {_text(size)}; a new plan with `--include {_pattern_for(path)}` gets it"

    named, others = _largest(dropped)
    left_out = [Unheld(path=_shown(path), reason=reason(path, size)) for path, size in named]
    if others:
        rest = f"{len(others)} more paths that git ignores, with {_text(_sum(others))}"
        left_out.append(Unheld(path=".", reason=rest))
    return tuple(left_out)


def _excluded(sizes: Mapping[bytes, Size]) -> tuple[Unheld, ...]:
    named, others = _largest(sizes)
    left_out = [Unheld(path=_shown(path), reason=f"excluded, with {_text(size)}") for path, size in named]
    if others:
        left_out.append(Unheld(path=".", reason=f"{len(others)} more paths are excluded, with {_text(_sum(others))}"))
    return tuple(left_out)


def _largest(sizes: Mapping[bytes, Size]) -> tuple[list[tuple[bytes, Size]], list[Size]]:
    ordered = sorted(sizes.items(), key=lambda each: (-each[1].size_bytes, each[0]))
    return ordered[:_MOST_NAMED], [size for _, size in ordered[_MOST_NAMED:]]


def _text(size: Size) -> str:
    more = "more than " if size.is_least else ""
    return f"{more}{bytes_text(size.size_bytes)} in {size.files:,} {'file' if size.files == 1 else 'files'}"


def _shown(path: bytes) -> str:
    return path.decode(errors="backslashreplace")


def _pattern_for(path: bytes) -> str:
    """The pattern that matches just this path, as a shell takes it; a byte that cannot be shown is a ``?`` in it."""
    literal = os.fsdecode(_SPECIAL.sub(rb"\\\g<0>", path))
    shown = _UNSHOWN.sub(lambda found: "?" * len(os.fsencode(found[0])), literal)
    return shlex.quote("/" + re.sub(" $", r"\\ ", shown))
