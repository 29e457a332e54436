"""Changed files as text: names, counts of lines, or patches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from holdfast.cli.data import file_label
from holdfast.cli.output import Row, Screen, Span, counted, output_lines, table_rows
from holdfast.model import Plan
from holdfast.names import name_text

if TYPE_CHECKING:
    from holdfast import FileDiff

DiffStyle = Literal["names", "stat", "patch"]
MOST_FILES_SHOWN = 30
_SIGNS = {"added": ("A", "good"), "removed": ("D", "bad"), "changed": ("M", "warn"), "restored": ("restored", "good")}


def show_diff(
    screen: Screen,
    plan: Plan,
    files: Sequence[FileDiff],
    style: DiffStyle,
    folded: int = 0,
    paths: Sequence[str] = (),
) -> None:
    """``folded``: how many ignored files differ besides these; they are told in one line of the counts.

    ``paths``: what was asked about, if not everything was.
    """
    if style == "names":
        for each in files:
            screen.line(name_text(file_label(plan, each.resource, each.path)))
    elif not files and not folded:
        screen.line(f"Nothing changed at {', '.join(map(name_text, paths))}." if paths else "Nothing changed.")
    elif style == "patch":
        for row in (row for each in files for row in patch_rows(plan, each, is_exact=screen.width is None)):
            show_patch_row(screen, row)
    else:
        for row in stat_rows(plan, files, screen.width):
            screen.line(*row)
        screen.line((totals_text(files), "dim"))
    # A program may read the names or the patch, which is not the place for a remark.
    if folded and (style == "stat" or screen.width is not None):
        screen.line((f"{folded_text(folded)}; `--ignored` shows them.", "dim"))


def folded_text(count: int) -> str:
    return f"and {counted(count, 'ignored file')}"


def show_patch_row(screen: Screen, row: Row) -> None:
    """Print a line of a patch; without a terminal with every space, because `git apply` may read it."""
    if screen.width is not None:
        screen.line(*row)
        return
    screen.part(*row)
    screen.line()


def stat_rows(plan: Plan, files: Sequence[FileDiff], width: int | None) -> list[list[Span]]:
    """The files with counts of their lines, in aligned columns."""
    return table_rows([_stat_row(plan, each) for each in files], width, flexible=1)


def totals_text(files: Sequence[FileDiff]) -> str:
    added, removed = (sum(getattr(each, name) for each in files) for name in ("added_lines", "removed_lines"))
    return f"{counted(len(files), 'file')}, {counted(added, 'line')} added, {removed} removed"


def _stat_row(plan: Plan, each: FileDiff) -> Row:
    lines: Span = ("binary", "dim") if each.is_binary else f"+{each.added_lines} -{each.removed_lines}"
    return [_SIGNS[each.status], name_text(file_label(plan, each.resource, each.path)), lines, (each.note, "dim")]


def patch_rows(plan: Plan, each: FileDiff, *, is_exact: bool) -> Iterator[list[Span]]:
    """The unified text of one file. ``is_exact``: with every character, also those that a terminal would obey."""
    label = name_text(file_label(plan, each.resource, each.path))
    note = f" ({each.note})" if each.note else ""
    if each.is_binary or not each.patch:
        yield [(f"{each.status} {label}{note}{': binary' if each.is_binary else ''}", "strong")]
        return
    yield [(f"--- {'/dev/null' if each.status == 'added' else f'a/{label}'}", "strong")]
    yield [(f"+++ {'/dev/null' if each.status == 'removed' else f'b/{label}'}", "strong")]
    for line in each.patch[2:]:
        yield [line if is_exact else _patch_span(output_lines(line)[0])]


def _patch_span(line: str) -> Span:
    styles = {"+": "good", "-": "bad", "@": "id", "\\": "dim"}
    return (line, styles[line[0]]) if line and line[0] in styles else line
