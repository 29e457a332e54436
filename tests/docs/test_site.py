from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.docs import site, terminal
from tools.docs.pages import DOCS, ROOT, all_pages


def anchors(source: Path) -> set[str]:
    return {site.anchor(text) for _, text in site.headings(site.parsed(source))}


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_something_that_is_there(page: Path) -> None:
    tokens = [child for token in site.parsed(page) for child in token.children or ()]
    targets = [
        str(token.attrGet("href") or token.attrGet("src")) for token in tokens if token.type in ("link_open", "image")
    ]
    broken = []
    for target in targets:
        if "://" in target:
            continue
        path, _, fragment = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (fragment and fragment not in anchors(file)):
            broken.append(target)

    assert broken == []


def test_the_list_of_all_pages_has_all_pages() -> None:
    listed = {page for chapter in site.navigation() for _, page in chapter.pages}

    assert set(all_pages()) - {site.CONTENTS} == listed


def test_the_site_has_every_page_with_the_navigation_and_links_that_work(tmp_path: Path) -> None:
    pages = site.build(tmp_path / "site")

    assert len(pages) == len(all_pages())
    for page in pages:
        text = page.read_text()
        assert "<nav>" in text
        # What is not part of the documentation, such as the licence or a folder, stays in the repository.
        links = [
            link
            for link in re.findall(r'(?:href|src)="([^"#:]+)[^"]*"', text)
            if link.endswith((".html", ".css", ".svg"))
        ]
        assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_picture_of_the_terminal_shows_a_run_and_fetches_nothing() -> None:
    picture = terminal.PICTURE.read_text().replace("&#160;", " ")

    assert "holdfast plan rollback --yes latest cp_" in picture
    assert "back at step 2: tidy up" in picture
    assert re.findall(r"https?://(?!www\.w3\.org/)", picture) == []


def test_lines_that_were_only_for_the_moment_are_not_left_on_the_screen() -> None:
    printed = "one\r\n\x1b[?25lworking\r\x1b[2Kworking on\r\n\x1b[?25h\r\x1b[1A\x1b[2Kdone\r\n"

    assert terminal._left_on_screen(printed) == ["one", "done", ""]


def test_a_heading_is_linked_as_github_does_it() -> None:
    assert site.anchor("3. What lies where") == "3-what-lies-where"
    assert site.anchor("`--only`: single paths") == "--only-single-paths"
    assert (DOCS / "README.md") == site.CONTENTS
