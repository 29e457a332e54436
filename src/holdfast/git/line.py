"""A line of commits: those that a branch has on top of another commit, each with one parent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from holdfast.git.index import Changes, compared
from holdfast.git.objects import read_objects
from holdfast.git.repository import GitRepository
from holdfast.git.run import run_git

_MOST = 1000
_SUBMODULE = b"160000 "
_MAIN_HEADERS = re.compile(rb"tree (?P<tree>\w+)\n(?:parent \w+\n)*author (?P<author>[^\n]*)\ncommitter [^\n]*\n")
_ENCODING = re.compile(rb"^encoding ([^\n]+)$", re.MULTILINE)


class NotCarried(Exception):
    """The commits cannot come onto the branch one by one; says why, as the end of a sentence."""


class Commit(msgspec.Struct, frozen=True):
    digest: str
    parent: str | None
    tree: str
    author: bytes
    """Name, address and date, as the commit has them."""
    encoding: bytes | None
    """That of the message, if it is not UTF-8."""
    message: bytes
    changes: Changes
    """In which paths it differs from its parent."""

    @property
    def title(self) -> str:
        """The first line of its message, as text."""
        first = next((line for line in self.message.split(b"\n") if line.strip()), b"")
        try:
            return first.decode((self.encoding or b"utf-8").decode("ascii", errors="replace"), errors="replace").strip()
        except LookupError:  # an encoding that only git knows
            return first.decode(errors="replace").strip()


def refuse_unless_line(repository: GitRepository, base: str | None, tip: str, environment: Mapping[str, str]) -> None:
    """``NotCarried`` if the commits from ``base`` to ``tip`` are no line, or too many."""
    listed = _listed(repository, base, tip, environment)
    if len(listed) > _MOST:
        raise NotCarried(f"they are more than {_MOST}")
    for digest, *parents in listed:
        if len(parents) > 1:
            raise NotCarried(f"{digest[:12]} is a merge")
    if not listed or next(iter(listed[-1][1:]), None) != base:
        raise NotCarried("the sandbox is no longer on top of the commit that it began with")


def line_of_commits(
    repository: GitRepository, base: str | None, tip: str, environment: Mapping[str, str]
) -> list[Commit]:
    """The commits from ``base`` to ``tip``, which are a line; the oldest first."""
    listed = _listed(repository, base, tip, environment)[::-1]
    contents = read_objects(repository, [digest for digest, *_ in listed], environment)
    return [
        _commit(repository, digest, parents, content, environment)
        for (digest, *parents), (_, content) in zip(listed, contents, strict=True)
    ]


def _listed(repository: GitRepository, base: str | None, tip: str, environment: Mapping[str, str]) -> list[list[str]]:
    """Each commit with its parents, the newest first."""
    args = ["rev-list", "--topo-order", "--parents", f"--max-count={_MOST + 1}", tip, *([f"^{base}"] if base else [])]
    listed = run_git(args, cwd=repository.root, env=environment).stdout.decode()
    return [line.split() for line in listed.splitlines()]


def _commit(
    repository: GitRepository, digest: str, parents: Sequence[str], content: bytes, environment: Mapping[str, str]
) -> Commit:
    headers, _, message = content.partition(b"\n\n")
    known = _MAIN_HEADERS.match(headers + b"\n")
    assert known is not None, "git has looked at its form"
    encoding = _ENCODING.search(headers)
    parent = parents[0] if parents else None
    changes = compared(repository, parent, digest, environment)
    if any(side.startswith(_SUBMODULE) for pair in changes.values() for side in pair):
        raise NotCarried(f"{digest[:12]} changes a submodule")
    return Commit(
        digest,
        parent,
        known["tree"].decode(),
        known["author"],
        encoding[1] if encoding else None,
        message,
        changes,
    )
