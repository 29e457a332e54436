from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.docs.pages import ROOT, all_pages, blocks
from tools.docs.session import Mismatch, Session

TUTORIAL = ROOT / "docs" / "tutorial.md"
TYPED = [page for page in all_pages() if any(block.is_session for block in blocks(page.read_text()))]


@pytest.mark.timeout(300)
def test_the_tutorial_typed_line_by_line_gives_what_it_says(session: Session) -> None:
    assert session.type_page(TUTORIAL) > 30


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_block_with_commands_is_typed_by_the_tests_or_says_that_it_is_not(page: Path) -> None:
    """A prompt in any other block would look as if it had been tried."""
    others = [block for block in blocks(page.read_text()) if block.words[:1] != ("console",)]
    assert [block.line for block in others if re.search(r"^\$ ", block.text, re.MULTILINE)] == []


def test_a_page_that_says_something_else_than_what_happens_is_found(session: Session, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo Good day\nHello\n```\n")

    with pytest.raises(Mismatch, match=r"page\.md:2: not what the page says"):
        session.type_page(page)


def test_an_id_of_a_page_stands_for_the_same_id_wherever_it_is_used(session: Session, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ echo cp_01M7H3WX8C done\ncp_01AAAAAAAA done\n$ echo cp_01AAAAAAAA\ncp_01AAAAAAAA\n"
        "$ echo cp_01ZZZZZZZZ\ncp_01AAAAAAAA\n```\n"
    )

    with pytest.raises(Mismatch, match="stood for cp_01M7H3WX8C before, and for cp_01ZZZZZZZZ here"):
        session.type_page(page)


def test_lines_that_are_left_out_and_files_that_are_shown_count_as_such(session: Session, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```text list.txt\none\ntwo\nthree\n```\n\n```console\n$ cat list.txt\none\n…\nthr…\n```\n")

    assert session.type_page(page) == 1


# Last, so that another process does these while the tutorial is typed.
@pytest.mark.parametrize("page", [page for page in TYPED if page != TUTORIAL], ids=lambda page: page.name)
def test_everything_typed_as_the_page_says_answers_what_the_page_says(page: Path, session: Session) -> None:
    assert session.type_page(page) > 0
