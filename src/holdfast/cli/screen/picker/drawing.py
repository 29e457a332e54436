"""The screen of the picker as lines: the moments, and beside or below them the difference, the menu or the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.cli.output import Row, Span, cell_width, plain_text
from holdfast.cli.screen.picker.raw_terminal import fitted

_BESIDE_FROM = 110
"""With so many columns the difference is beside the moments, otherwise below."""
_FEWEST_LINES = 8
"""With fewer lines there is no room for a second pane."""


class Layout(NamedTuple):
    """How the screen is divided; one line at the top and one at the bottom are for the plan and the keys."""

    columns: int
    lines: int

    @property
    def is_beside(self) -> bool:
        return self.columns >= _BESIDE_FROM

    @property
    def body(self) -> int:
        return max(1, self.lines - 2)

    @property
    def list_lines(self) -> int:
        if self.is_beside or self.lines < _FEWEST_LINES:
            return self.body
        return max(3, self.body * 2 // 5)

    @property
    def list_columns(self) -> int:
        return self.columns // 2 if self.is_beside else self.columns

    @property
    def pane_lines(self) -> int:
        return self.body if self.is_beside else max(0, self.body - self.list_lines - 1)

    @property
    def dialog_lines(self) -> int:
        """For the menu and the files, which take the place of the moments if there is no other."""
        return self.pane_lines or self.list_lines

    @property
    def pane_columns(self) -> int:
        return self.columns - self.list_columns - 3 if self.is_beside else self.columns


class LazyRows:
    """Lines that are made when they are first seen."""

    def __init__(self, rows: Iterator[list[Span]]) -> None:
        self._rows, self._made = rows, list[list[Span]]()

    def made_up_to(self, count: int) -> bool:
        """Make one more of the first lines if not all of them are made; whether they are all there."""
        if len(self._made) >= count:
            return True
        following = next(self._rows, None)
        if following is None:
            return True
        self._made.append(following)
        return False

    def seen(self, first: int, count: int) -> list[list[Span]]:
        return self._made[first : first + count]

    def __len__(self) -> int:
        return len(self._made)


def drawn(layout: Layout, header: Row, moments: Sequence[Row], pane: Sequence[Row], keys: str) -> list[Row]:
    """All lines of the screen."""
    rows: list[Row] = [header]
    above = [*moments, *([[]] * (layout.list_lines - len(moments)))][: layout.list_lines]
    beside = [*pane, *([[]] * (layout.pane_lines - len(pane)))][: layout.pane_lines]
    if layout.is_beside:
        rows += [
            [*_padded(one, layout.list_columns), (" │ ", "dim"), *other]
            for one, other in zip(above, beside, strict=True)
        ]
    else:
        rows += above
        if layout.pane_lines:
            rows += [[("─" * layout.columns, "dim")], *beside]
    rows.append([(keys, "dim")])
    return rows[: layout.lines]


def chosen(row: Row, columns: int) -> Row:
    """The row as it shows that it is chosen."""
    return [(text, f"{style} chosen") for text, style in _padded(row, columns)]


def _padded(row: Row, columns: int) -> list[tuple[str, str]]:
    spans = fitted(row, columns)
    return [*spans, (" " * (columns - cell_width(plain_text(spans))), "plain")]
