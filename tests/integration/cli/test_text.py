"""Numbers, names and tables as people read them."""

from __future__ import annotations

import io

import pytest

from holdfast.cli.output import (
    PlainScreen,
    Row,
    cell_width,
    first_line,
    output_lines,
    seconds_text,
    shortened,
    table_rows,
)
from holdfast.names import bytes_text, name_text, valid_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (9.94, "9.9 s"), (42.4, "42 s"), (100, "1 min 40 s"), (3599.7, "1 h 00 min"), (7260, "2 h 01 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (12_345, "12 kB"),
        (999_600, "1.0 MB"),
        (3.2e9, "3.2 GB"),
        (5e13, "50 TB"),
    ],
)
def test_sizes(size: int, text: str) -> None:
    assert bytes_text(size) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain.txt", "plain.txt"),
        ("caf\udce9", "caf\\xe9"),
        ("two\nlines\t", "two\\nlines\\t"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\ud800", "\\ud800"),
        ("grüße", "grüße"),
    ],
)
def test_names_do_nothing_to_a_terminal(name: str, text: str) -> None:
    assert name_text(name) == text
    valid_text(name).encode()


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        ("a\nb\n\n", ["a", "b"]),
        ("10%\r50%\r100%\n", ["100%"]),
        ("\x1b[1;31mred\x1b[0m \x1b]0;title\x07end", ["red end"]),
        ("a\tb\x08\x00", ["a       b"]),
        ("dos\r\nlines\r\n", ["dos", "lines"]),
        ("", [""]),
    ],
)
def test_what_a_program_printed(output: str, lines: list[str]) -> None:
    assert output_lines(output) == lines


def test_the_first_line_says_whether_there_are_more() -> None:
    assert (first_line("one"), first_line("one\ntwo"), first_line("\n  one\n")) == ("one", "one …", "one")


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdef", 5, "abcd…"),
        ("日本語日本語", 7, "日本語…"),
        ("é" * 4, 3, "éé…"),
        ("e\u0301x", 2, "e\u0301x"),
    ],
)
def test_texts_are_cut_to_a_width(text: str, width: int, expected: str) -> None:
    assert shortened(text, width) == expected
    assert cell_width(shortened(text, width)) <= width


def test_the_flexible_column_of_a_table_gives_way() -> None:
    rows: list[Row] = [["id-1", "a rather long name of something", "end"], ["id-22", "short", ("x", "dim")]]
    assert [
        len("".join(span if isinstance(span, str) else span[0] for span in row)) for row in table_rows(rows, 30, 1)
    ] == [
        30,
        28,
    ]
    assert "a rather long name of something  " in table_rows(rows, None, 1)[0]


def test_a_line_that_was_begun_is_ended() -> None:
    stream = io.StringIO()
    screen = PlainScreen(stream)
    screen.part("begun ")
    screen.close()
    screen.close()
    assert stream.getvalue() == "begun \n"
