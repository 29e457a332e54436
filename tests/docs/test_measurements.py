from __future__ import annotations

from pathlib import Path

from benchmarks.compare import write
from benchmarks.measuring import GIT, SNAPSHOT, WHOLE, Measured, Work
from benchmarks.report import BEGIN, END

from tools.docs.pages import DOCS, ROOT

Table = dict[str, dict[str, str]]


def table_in(text: str) -> Table:
    """The cells of the first table, by row and column."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    return {row[0]: dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[2:]}


def shown_in_front(page: Path) -> Table:
    return table_in(page.read_text().partition(BEGIN)[2].partition(END)[0])


def test_the_readme_says_what_the_page_of_measurements_says() -> None:
    measured = (DOCS / "performance.md").read_text().partition("### 10,000 files")[2].partition("###")[0]
    whole, part = table_in(measured), shown_in_front(ROOT / "README.md")

    assert part.keys() >= {Work.NOTHING, Work.TEN, Work.ROLLBACK}
    for row, cells in part.items():
        assert cells.keys() == {GIT, SNAPSHOT, WHOLE}
        assert cells == {column: whole[row][column] for column in cells}


def test_measuring_anew_writes_both(tmp_path: Path) -> None:
    pages = (tmp_path / "docs" / "performance.md", tmp_path / "README.md")
    for page in pages:
        page.parent.mkdir(exist_ok=True)
        page.write_text(f"Before\n\n{BEGIN}\n\n| old |\n\n{END}\n\nAfter\n")
    measured = Measured(files=10_000, rounds=1)
    for number, peer in enumerate((GIT, SNAPSHOT, WHOLE), start=1):
        for work in (Work.TEN, Work.ROLLBACK):
            measured.add(work, peer, number / 1000)

    write(tmp_path / "docs", "the report", [measured])

    assert "the report" in pages[0].read_text()
    assert shown_in_front(pages[1])[Work.ROLLBACK] == {GIT: "1.00", SNAPSHOT: "2.00", WHOLE: "3.00"}
    assert pages[1].read_text().startswith("Before\n")
    assert pages[1].read_text().endswith("After\n")
