"""The documentation as a site of plain HTML pages with a navigation: ``python -m tools.docs.site [FOLDER]``."""

from __future__ import annotations

import html
import itertools
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tools.docs.pages import DOCS, ROOT

SITE = ROOT / "site"
CONTENTS = DOCS / "README.md"
"""The page that lists all pages, in order, under headings: the navigation is made from it."""


@dataclass(frozen=True)
class Chapter:
    title: str
    pages: tuple[tuple[str, Path], ...]


def build(target: Path = SITE) -> list[Path]:
    """Make the site anew in ``target``; its pages."""
    shutil.rmtree(target, ignore_errors=True)
    chapters = navigation()
    sources = [CONTENTS, *(source for chapter in chapters for _, source in chapter.pages)]
    written = []
    for source in sources:
        place = target / _place(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(_page(source, chapters, sources))
        written.append(place)
    shutil.copytree(DOCS / "img", target / "docs" / "img")
    shutil.copy(ROOT / "LICENSE", target)
    (target / "style.css").write_text((Path(__file__).parent / "style.css").read_text())
    (target / "index.html").write_text('<!doctype html><meta http-equiv="refresh" content="0; url=README.html">\n')
    return written


def navigation() -> list[Chapter]:
    """What the list of all pages says: under each heading, links to pages."""
    chapters: list[Chapter] = []
    for line in CONTENTS.read_text().splitlines():
        if line.startswith("## "):
            chapters.append(Chapter(line.removeprefix("## "), ()))
        elif chapters and (link := re.match(r"- \[([^\]]+)\]\(([^)]+\.md)\)", line)):
            page = (link[1], (DOCS / link[2]).resolve())
            chapters[-1] = Chapter(chapters[-1].title, (*chapters[-1].pages, page))
    return chapters


def anchor(heading: str) -> str:
    """The name of a heading in links, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def parsed(source: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(source.read_text())


def headings(tokens: Sequence[Token]) -> list[tuple[Token, str]]:
    """The opening token of each heading, and its text."""
    return [
        (token, "".join(child.content for child in following.children or ()))
        for token, following in itertools.pairwise(tokens)
        if token.type == "heading_open"
    ]


def _place(source: Path) -> Path:
    return source.relative_to(ROOT).with_suffix(".html")


def _page(source: Path, chapters: Sequence[Chapter], sources: Sequence[Path]) -> str:
    tokens = parsed(source)
    for token, text in headings(tokens):
        token.attrSet("id", anchor(text))
    for token in tokens:
        for child in token.children or ():
            if child.type == "link_open":
                child.attrSet("href", _target(source, str(child.attrGet("href")), sources))
    title = next((text for _, text in headings(tokens)), source.stem)
    body = MarkdownIt("commonmark").enable("table").renderer.render(tokens, MarkdownIt().options, {})
    root = relpath(".", _place(source).parent)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)} - Holdfast</title>
<link rel="stylesheet" href="{root}/style.css">
</head>
<body>
<nav>
{_menu(source, chapters)}
</nav>
<main>
{body}</main>
</body>
</html>
"""


def _target(source: Path, href: str, sources: Sequence[Path]) -> str:
    """A link to another page becomes one to its HTML; one to any other file of the project stays what it is."""
    path, mark, fragment = href.partition("#")
    if path.endswith(".md") and "://" not in path and (source.parent / path).resolve() in sources:
        return path.removesuffix(".md") + ".html" + mark + fragment
    return href


def _menu(source: Path, chapters: Sequence[Chapter]) -> str:
    lines = []
    for chapter in chapters:
        lines.append(f"<h2>{html.escape(chapter.title)}</h2>\n<ul>")
        for title, page in chapter.pages:
            here = ' aria-current="page"' if page == source else ""
            link = relpath(_place(page), _place(source).parent)
            lines.append(f'<li><a href="{link}"{here}>{html.escape(title)}</a></li>')
        lines.append("</ul>")
    return "\n".join(lines)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else SITE
    sys.stdout.write(f"{len(build(folder))} pages in {folder}\n")
