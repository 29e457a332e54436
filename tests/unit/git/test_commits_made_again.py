"""Commits as values: what they are called, and which of them git would make again as they are, with a signature."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import SandboxError
from holdfast.git.line import Commit
from holdfast.git.objects import read_objects
from holdfast.git.replay import can_be_signed
from holdfast.git.repository import GitRepository
from tests.support.repositories import make_repository

AUTHOR = b"Ada Example <ada@example.org> 981173106 +0700"


def commit(message: bytes = b"a title\n", author: bytes = AUTHOR, encoding: bytes | None = None) -> Commit:
    return Commit("1" * 40, None, "2" * 40, author, encoding, message, {})


@pytest.mark.parametrize(
    ("message", "encoding", "title"),
    [
        (b"one\n\ntwo", None, "one"),
        (b"\n  \n  one  \ntwo", None, "one"),
        (b"", None, ""),
        (b"caf\xe9", b"ISO-8859-1", "caf\xe9"),
        (b"caf\xe9", None, "caf\ufffd"),
        (b"caf\xc3\xa9", b"only-git-knows", "caf\xe9"),
        (b"caf\xc3\xa9", b"\xff", "caf\xe9"),
    ],
)
def test_a_title_is_the_first_line_with_text_in_it(message: bytes, encoding: bytes | None, title: str) -> None:
    assert commit(message, encoding=encoding).title == title


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (commit(), True),
        (commit(author=b"A. B. Example <a.b@example.org> 1 -0000"), True),
        (commit(author=b"Ada Jr. <ada@example.org> 1 +0000"), False),
        (commit(author=b" <ada@example.org> 1 +0000"), False),
        (commit(author=b"Ada <> 1 +0000"), False),
        (commit(author=b"Ada <ada@example.org> 1"), False),
        (commit(author=b"Ad\xe9 <ada@example.org> 1 +0000"), False),
        (commit(b"caf\xe9"), False),
        (commit(b"caf\xe9", encoding=b"ISO-8859-1"), True),
        (commit(b"x", encoding=b"only-git-knows"), False),
    ],
)
def test_git_signs_what_it_would_write_as_it_is(made: Commit, expected: bool) -> None:
    assert can_be_signed(made) is expected


def test_an_object_that_is_missing_is_said(tmp_path: Path) -> None:
    repository = GitRepository.at(make_repository(tmp_path / "app"))
    with pytest.raises(SandboxError, match="Git cannot read 111111111111"):
        list(read_objects(repository, ["1" * 40], {}))
