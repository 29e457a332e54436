from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.cli.output import PlainScreen, Row, cell_width, plain_text
from holdfast.cli.screen.bar import Bar, bar_line
from holdfast.system.progress import Work, Working

HALF_WAY = Working(
    Work.COPYING, "app", 12_340, 48_000, 310_000_000, 1_200_000_000, seconds=3.0, seconds_left=8.2, is_over=False
)  # fmt: skip


def drawn(working: Working, width: int) -> str:
    return plain_text(bar_line(working, width))


def length_of_bar(line: str) -> int:
    return sum(line.count(character) for character in "━╸─")


@pytest.mark.parametrize("width", [57, 77, 117, 197])  # a screen of 60, 80, 120, 200, without the spinner
def test_the_line_fits_and_says_what_is_done_how_far_and_how_long(width: int) -> None:
    line = drawn(HALF_WAY, width)
    assert cell_width(line) <= width
    assert line.startswith("copying app  ━")
    assert "12,340 / 48,000 files" in line
    assert line.endswith("8 s left")
    assert 6 <= length_of_bar(line) <= 40


def test_what_does_not_fit_is_dropped_bytes_first() -> None:
    assert "310 MB / 1.2 GB" in drawn(HALF_WAY, 80)
    assert "MB" not in drawn(HALF_WAY, 60)
    assert drawn(HALF_WAY, 45).endswith("25 %     8 s left")
    assert drawn(HALF_WAY, 30).endswith("25 %")
    assert drawn(HALF_WAY, 24) == "copying app  ━━╸────────"


@pytest.mark.parametrize("name", ["app", "a-resource-with-a-very-long-name-of-its-own", "数据数据数据数据数据数据数据"])
def test_no_width_and_no_name_make_the_line_too_wide(name: str) -> None:
    for width in range(3, 130):
        assert cell_width(drawn(HALF_WAY._replace(what=name), width)) <= width


def test_the_bar_grows_with_the_work_and_nothing_else_moves() -> None:
    lines = [
        drawn(
            HALF_WAY._replace(
                files_done=480 * n, bytes_done=12_000_000 * n, seconds_left=None if n < 5 else (100 - n) * 1.5
            ),
            100,
        )
        for n in range(101)
    ]
    done = [line.count("━") for line in lines]
    assert done == sorted(done)
    assert (done[0], done[100]) == (0, length_of_bar(lines[100]))
    assert len({(len(line), length_of_bar(line), line.index("files")) for line in lines}) == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.1, "1 s left"), (59.0, "59 s left"), (89, "1 min left"), (59 * 60, "59 min left"), (4800, "1 h 20 left")],
)
def test_the_time_left_is_said_as_exactly_as_it_is_known(seconds: float, text: str) -> None:
    assert drawn(HALF_WAY._replace(seconds_left=seconds), 100).endswith(f" {text}")


def test_bytes_that_nobody_counted_are_not_shown() -> None:
    assert "B" not in drawn(HALF_WAY._replace(bytes_total=None), 120)


def test_a_name_with_control_characters_is_no_danger() -> None:
    assert "\x1b" not in drawn(HALF_WAY._replace(what="a\x1b[2Jb"), 120)


class Shown(PlainScreen):
    """Remembers what it would show."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str | None] = []

    def live(self, draw: Callable[[int], Row] | None) -> None:
        self.lines.append(None if draw is None else plain_text(draw(80)))


def test_a_bar_is_shown_only_of_what_lasts_and_goes_away_in_the_end() -> None:
    screen = Shown()
    bar = Bar(screen)
    for seconds in (0.0, 0.2, 0.4):
        bar(HALF_WAY._replace(seconds=seconds))
    bar(HALF_WAY._replace(seconds=0.45, is_over=True))
    assert screen.lines == []
    bar(HALF_WAY._replace(seconds=0.6))
    bar(HALF_WAY._replace(seconds=0.7, is_over=True))
    assert screen.lines == [drawn(HALF_WAY, 80), None]
