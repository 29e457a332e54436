"""What a command prints, in the four formats: lines for people, one envelope for programs."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from enum import Enum, StrEnum
from itertools import islice, zip_longest
from pathlib import PurePath
from typing import Any, NamedTuple, Protocol, TextIO, TypeVar

from holdfast.cli.streams import ReaderGone, is_broken
from holdfast.names import valid_text

Span = str | tuple[str, str]
"""Text, or text and its style: ``strong``, ``dim``, ``good``, ``bad``, ``warn``, ``id``."""
Row = Sequence[Span]
T = TypeVar("T")

NOTHING_CHANGED = "Nothing was changed."
NARROWEST = 20
"""Text gets at least this many columns, whatever is printed beside it."""
_NARROWEST_NAME = 12
_BLOCK = 200
"""So many rows of a long table are read before the first is printed."""
_ENOUGH = 30
"""If a flexible column would become narrower than this, a table leaves out other columns instead."""


class Format(StrEnum):
    RICH = "rich"
    PLAIN = "plain"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_for_programs(self) -> bool:
        return self in (Format.JSON, Format.YAML)


class Screen(Protocol):
    """Where text for people goes."""

    @property
    def width(self) -> int | None:
        """How many columns there are; None if there is no limit."""

    @property
    def is_live(self) -> bool:
        """Whether a line that is shown can be removed again."""

    def line(self, *spans: Span) -> None: ...

    def part(self, *spans: Span) -> None:
        """The beginning of a line that ``line`` will end."""

    def panel(self, title: str, rows: Sequence[Row], *, flexible: int | None = None) -> None: ...

    def busy(self, text: str) -> None:
        """Show what is going on until the next output, if the screen is live."""

    def live(self, draw: Callable[[int], Row] | None) -> None:
        """Show a line, drawn for a number of columns, in place of what ``busy`` shows; with None, remove it."""

    def paged(self, *, with_pager: bool) -> AbstractContextManager[None]:
        """Send what is written meanwhile through a pager, on a terminal; it ends early if the reader has gone."""

    def close(self) -> None:
        """End the line, and remove what ``busy`` and ``live`` show."""


class Reply(NamedTuple):
    """The result of a command: the same facts as data and as text."""

    data: Mapping[str, Any]
    show: Callable[[Screen], None]
    exit_code: int = 0
    messages: tuple[str, ...] = ()
    shows_messages: bool = False
    """``show`` prints the messages itself."""
    is_long: bool = False
    """On a terminal it goes through a pager if it does not fit."""


class Next(NamedTuple):
    """A command that the user can run next, and its purpose in a word or two."""

    purpose: str
    command: str


# Text


_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_WORD = re.compile(r"(?:`[^`]*`|[^ `]|`)+")


def output_lines(output: str, last: int | None = None) -> list[str]:
    """The output of a program as lines without control characters; of a line that was overwritten, its last form."""
    lines = _ESCAPE_SEQUENCE.sub("", valid_text(output)).rstrip().split("\n")
    chosen = lines if last is None else lines[-last:]
    return [_CONTROL.sub("", _last_form(line).expandtabs()) for line in chosen]


def first_line(text: str) -> str:
    """The first line of a text, with an ellipsis if more lines follow."""
    first, *rest = output_lines(text.strip())
    return f"{first} …" if rest else first


def _last_form(line: str) -> str:
    return line.rstrip("\r").rpartition("\r")[2]


def cell_width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shortened(text: str, width: int) -> str:
    """The beginning of a text that is too wide, with an ellipsis."""
    if cell_width(text) <= width:
        return text
    return _beginning(text, width - 1) + "…"


def wrapped(text: str, width: int | None, *, breaking: bool = False) -> list[str]:
    """Lines of whole words.

    A word wider than the line, such as a path or a command in backquotes, stays whole: the terminal folds it, and it
    can be copied. ``breaking`` breaks it, for places that the terminal cannot fold.
    """
    if width is None or cell_width(text) <= width:
        return [text]
    lines, line = [], ""
    for word in _WORD.findall(text):
        if line and cell_width(word) <= width < cell_width(line) + 1 + cell_width(word):
            lines.append(line)
            line = ""
        line = f"{line} {word}" if line else word
        while breaking and cell_width(line) > width:
            cut = max(1, len(_beginning(line, width)))
            cut = line.rfind("/", 1, cut) + 1 or cut
            lines.append(line[:cut])
            line = line[cut:]
    return [*lines, line] if line else lines


def _beginning(text: str, width: int) -> str:
    end, used = 0, 0
    while end < len(text) and (used := used + _character_width(text[end])) <= width:
        end += 1
    return text[:end]


def table_rows(rows: Sequence[Row], width: int | None, flexible: int | None = None) -> list[list[Span]]:
    """Rows with aligned columns; if they are wider than the screen, the flexible column is shortened."""
    widths = _limited(_column_widths(rows), width, flexible)
    return [_aligned(row, widths, flexible) for row in rows]


def _column_widths(rows: Sequence[Row], least: Sequence[int] = ()) -> list[int]:
    columns = max((len(row) for row in rows), default=0)
    found = [max((cell_width(_text(row[i])) for row in rows if i < len(row)), default=0) for i in range(columns)]
    return [max(pair) for pair in zip_longest(found, least, fillvalue=0)]


def _limited(widths: Sequence[int], width: int | None, flexible: int | None) -> list[int]:
    excess = 0 if width is None else sum(widths) + 2 * (len(widths) - 1) - width
    if flexible is None or excess <= 0:
        return [*widths]
    return [*widths[:flexible], max(_NARROWEST_NAME, widths[flexible] - excess), *widths[flexible + 1 :]]


def _aligned(row: Row, widths: Sequence[int], flexible: int | None) -> list[Span]:
    spans: list[Span] = []
    for index, span in enumerate(row):
        text = _text(span)
        if index == flexible:
            text = shortened(text, widths[index])
        is_last = index == len(row) - 1
        padding = "" if is_last else " " * (widths[index] - cell_width(text) + 2)
        spans.append((text + padding, span[1]) if isinstance(span, tuple) else text + padding)
    return spans


def folded_row(row: Sequence[Span], width: int) -> list[list[Span]]:
    """An aligned row as lines that fit: a last column that is too long continues on the lines below."""
    *before, last = row
    indent = cell_width(plain_text(before))
    first, *others = wrapped(_text(last), max(NARROWEST, width - indent), breaking=True)
    style = last[1] if isinstance(last, tuple) else "plain"
    lines: list[list[Span]] = [[*before, (first, style)]]
    return lines + [[" " * indent, (each, style)] for each in others]


def _text(span: Span) -> str:
    return span[0] if isinstance(span, tuple) else span


def plain_text(spans: Sequence[Span]) -> str:
    return "".join(map(_text, spans))


def counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def seconds_text(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def time_text(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


# For people


class PlainScreen:
    """Text without styles or a live display."""

    is_live = False

    def __init__(self, stream: TextIO | None = None, width: int | None = None) -> None:
        self.stream, self.width = stream or sys.stdout, width
        self._is_within_line = self._stops_without_reader = False

    def line(self, *spans: Span) -> None:
        self._write(plain_text(spans).rstrip() + "\n")
        self._is_within_line = False
        if self._stops_without_reader and is_broken(self.stream):
            raise ReaderGone

    def part(self, *spans: Span) -> None:
        self._write(plain_text(spans))
        self._is_within_line = True

    def panel(self, title: str, rows: Sequence[Row], *, flexible: int | None = None) -> None:
        self.line(title)
        for row in table_rows(rows, self.width, flexible):
            self.line("  ", *row)
        self.line()

    def busy(self, text: str) -> None:
        """Show nothing: written text cannot be removed."""

    def live(self, draw: Callable[[int], Row] | None) -> None:
        """Show nothing, as ``busy``."""

    @contextmanager
    def paged(self, *, with_pager: bool) -> Iterator[None]:  # noqa: ARG002 - there is no terminal to page on
        self._stops_without_reader = True
        with suppress(ReaderGone):
            yield
        self._stops_without_reader = False

    def close(self) -> None:
        if self._is_within_line:
            self.line()

    def _write(self, text: str) -> None:
        write_text(self.stream, text)


def write_text(stream: TextIO, text: str) -> None:
    """Write and flush; characters that the stream's encoding lacks are escaped."""
    text = valid_text(text)
    try:
        stream.write(text)
        stream.flush()
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()


def screen_for(chosen: Format | None, environment: Mapping[str, str], *, is_for_errors: bool = False) -> Screen:
    """A screen with colour and a live display on a terminal; otherwise one of plain text."""
    stream = sys.stderr if is_for_errors else sys.stdout
    if chosen is Format.PLAIN or not _is_terminal(stream):
        return PlainScreen(stream)
    from holdfast.cli.screen.terminal import TerminalScreen

    return TerminalScreen(with_colour=not environment.get("NO_COLOR"), is_for_errors=is_for_errors)


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def can_ask() -> bool:
    return _is_terminal(sys.stdin)


def show_plan(screen: Screen, plan_id: str, name: str, *after: Span) -> None:
    """Print the line that every answer about a plan begins with."""
    beginning = f"Plan {plan_id}  "
    if screen.width is not None:
        name = shortened(name, max(_NARROWEST_NAME, screen.width - len(beginning) - cell_width(plain_text(after))))
    screen.line(("Plan ", "strong"), (plan_id, "id"), "  ", name, *after)


def show_sentence(screen: Screen, first: tuple[str, str], text: str) -> None:
    """Print a styled first word and the text after it, in lines of whole words."""
    beginning, *others = wrapped(first[0] + text, screen.width)
    screen.line(first, beginning.removeprefix(first[0]))
    for line in others:
        screen.line(line)


def show_facts(screen: Screen, facts: Iterable[tuple[str, str]]) -> None:
    """Print names and their values, one below the other; a long value continues on the next lines."""
    found = list(facts)
    indent = max((len(name) for name, _ in found), default=0) + 2
    room = None if screen.width is None else max(NARROWEST, screen.width - indent)
    for name, value in found:
        label = name
        for line in (each for said in value.split("\n") for each in wrapped(said, room)):
            screen.line((f"{label:<{indent}}", "dim"), line)
            label = ""


def show_envelope(screen: Screen, started: datetime, seconds: float, messages: Sequence[str]) -> None:
    """Print what the envelope holds besides the data: timing and messages."""
    timing = f"started {time_text(started)}, took {seconds_text(seconds)}"
    show_facts(screen, [("timing", timing), ("messages", " ".join(messages))])
    screen.line()


def show_messages(screen: Screen, messages: Sequence[str]) -> None:
    for message in messages:
        screen.line((message, "warn"))


def show_next(screen: Screen, commands: Sequence[Next]) -> None:
    width = max((len(each.purpose) for each in commands), default=0)
    for each in commands:
        screen.line((f"{each.purpose:<{width}}  ", "dim"), each.command)


def show_older(screen: Screen, count: int, word: str) -> None:
    """Print that there are more entries than a terminal shows by default, if there are."""
    if count:
        screen.line((f"… {counted(count, f'older {word}')}; --limit all lists them.", "dim"))


def show_table(
    screen: Screen, rows: Sequence[Row], *, flexible: int | None = None, indent: str = "", header: Sequence[str] = ()
) -> None:
    heading: list[Row] = [[(name, "dim") for name in header]] if header else []
    width = None if screen.width is None else screen.width - len(indent)
    for row in table_rows([*heading, *rows], width, flexible):
        screen.line(indent, *row)


def show_long_table(
    screen: Screen,
    rows: Iterable[Row],
    header: Sequence[str],
    *,
    flexible: int,
    fewest: int,
    is_headed: bool = True,
    narrower: Callable[[Sequence[Row]], Sequence[Row]] | None = None,
) -> int:
    """Print a table block by block, while its rows are read; how many it has. A later block may have wider columns.

    ``fewest``: so many columns are printed if all of them do not fit. ``narrower`` says the same in narrower rows,
    which are printed then; only if they leave no room for the flexible column are there fewer columns.
    """
    columns = count = 0
    widths: list[int] = []
    heading: list[Row] = [[(name, "dim") for name in header]] if is_headed else []
    narrowed: Callable[[Sequence[Row]], Sequence[Row]] = list
    for block in blocks(rows):
        if not columns:
            has_room = fits([header, *block], screen.width, flexible)
            if not has_room and narrower is not None:
                narrowed = narrower
                has_room = fits([header, *narrowed(block)], screen.width, flexible, _NARROWEST_NAME)
            columns = len(header) if has_room else fewest
        shown = [row[:columns] for row in (*heading, *narrowed(block))]
        widths, heading = _column_widths(shown, widths), []
        for row in shown:
            screen.line(*_aligned(row, _limited(widths, screen.width, flexible), flexible))
        count += len(block)
    return count


def blocks(items: Iterable[T]) -> Iterator[list[T]]:
    """The items in lists; what is printed of one list is aligned."""
    left = iter(items)
    while some := list(islice(left, _BLOCK)):
        yield some


def fits(rows: Sequence[Row], width: int | None, flexible: int, enough: int = _ENOUGH) -> bool:
    """Whether a table has room without making its flexible column narrower than ``enough``."""
    longest = max((cell_width(_text(row[flexible])) for row in rows), default=0)
    needed = [[*row[:flexible], "x" * min(longest, enough), *row[flexible + 1 :]] for row in rows]
    return width is None or all(cell_width(plain_text(row)) <= width for row in table_rows(needed, None))


# For programs


def envelope(
    command: str, exit_code: int, data: Mapping[str, Any], messages: Sequence[str], started: datetime, seconds: float
) -> dict[str, Any]:
    return {
        "command": command,
        "status": "ok" if exit_code == 0 else "error",
        "exit_code": exit_code,
        "data": as_data(data),
        "timing": {"started": as_data(started), "duration_ms": round(seconds * 1000, 1)},
        "messages": [valid_text(message) for message in messages],
    }


def as_data(value: Any) -> Any:
    """The value as JSON can hold it: times as ISO 8601 in UTC, text without lone surrogates (see ``valid_text``)."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Enum):
        return as_data(value.value)
    if isinstance(value, str | PurePath):
        return valid_text(str(value))
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {valid_text(str(key)): as_data(each) for key, each in value.items()}
    return [as_data(each) for each in value]


def write_envelope(chosen: Format, content: Mapping[str, Any]) -> None:
    """Write exactly one document to standard output, always in UTF-8."""
    if chosen is Format.YAML:
        import yaml

        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    else:
        import json

        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()
