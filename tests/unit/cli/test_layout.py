"""What is said fits the screen it is said on, and is cut or broken only where it must be."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from holdfast.cli.commands.plan.list import Listed, show_plans
from holdfast.cli.main import _complain, _Failure
from holdfast.cli.output import (
    PlainScreen,
    Row,
    Screen,
    Span,
    cell_width,
    fits,
    folded_row,
    plain_text,
    show_facts,
    show_long_table,
    show_plan,
    show_sentence,
    table_rows,
    wrapped,
)
from holdfast.model import Plan, PlanState
from holdfast.names import name_text, short_ids
from holdfast.system.ids import new_id

WIDTHS = [60, 80, 120, 200]
LONG = "a plan with quite a long name that says everything about what it is going to do in this repository of the shop"


def shown_on(width: int | None, show: Callable[[Screen], None]) -> list[str]:
    stream = io.StringIO()
    show(PlainScreen(stream, width))
    return stream.getvalue().splitlines()


def widest(lines: list[str]) -> int:
    return max(map(cell_width, lines))


def plan(name: str, project: str = "p", state: PlanState = PlanState.COMPLETE) -> Plan:
    at = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    return Plan(
        plan_id=new_id(), project_id=project, name=name, state=state, resources=(), created_at=at, updated_at=at
    )


# Text


@pytest.mark.parametrize("width", WIDTHS)
def test_long_text_becomes_lines_of_whole_words(width: int) -> None:
    lines = wrapped(LONG, width)
    assert widest(lines) <= width
    assert " ".join(lines) == LONG


def test_a_command_in_backquotes_stays_in_one_piece() -> None:
    command = "`holdfast plan execute 01M7HA7PCK32WX6JS0XMYNJK29`"
    assert wrapped(f"Run {command}, then look.", 57) == [f"Run {command},", "then look."]
    assert wrapped(f"Then run {command}.", 55) == ["Then run", f"{command}."]
    assert wrapped(f"Run {command}, then look.", 30) == [f"Run {command},", "then look."]


def test_a_backquote_without_its_other_half_is_a_letter_like_any_other() -> None:
    assert wrapped("one ` two three", 8) == ["one `", "two", "three"]


def test_what_is_wider_than_a_line_is_broken_only_if_asked_for() -> None:
    path = "/a/rather/long/path"
    assert wrapped(f"in {path}", 20) == ["in", path]
    assert wrapped(f"in {path}", 10) == [f"in {path}"]
    assert wrapped(f"in {path}", 10, breaking=True) == ["in /a/", "rather/", "long/path"]
    assert wrapped("x" * 12, 10, breaking=True) == ["x" * 10, "xx"]
    assert wrapped("日本語", 3, breaking=True) == ["日", "本", "語"]
    assert wrapped("日本", 1, breaking=True) == ["日", "本"]


@pytest.mark.parametrize("text", ["  indented", "two  spaces", ""])
def test_what_fits_stays_as_it_is(text: str) -> None:
    assert (wrapped(text, 20), wrapped(text, None)) == ([text], [text])


@pytest.mark.parametrize(("text", "width"), [("e\u0301", 1), ("a\u200db", 2), ("☕\ufe0f", 2), ("日", 2)])
def test_marks_and_joiners_take_no_room(text: str, width: int) -> None:
    assert cell_width(text) == width


def test_a_name_cannot_turn_the_direction_of_writing() -> None:
    assert name_text("gpj\u202eexe.txt\u2066") == "gpj\\u202eexe.txt\\u2066"


# Lines


@pytest.mark.parametrize("width", WIDTHS)
def test_the_line_about_a_plan_is_one_line(width: int) -> None:
    state: Span = ("constrained", "bad")
    bare = shown_on(width, lambda screen: show_plan(screen, "0" * 26, LONG))
    with_state = shown_on(width, lambda screen: show_plan(screen, "0" * 26, LONG, ", ", state))
    assert (len(bare), len(with_state)) == (1, 1)
    assert widest(bare + with_state) <= width
    assert with_state[0].endswith(", constrained")
    assert shown_on(None, lambda screen: show_plan(screen, "0" * 26, LONG))[0].endswith(LONG)


@pytest.mark.parametrize("width", WIDTHS)
def test_facts_go_on_below_where_they_began(width: int) -> None:
    lines = shown_on(width, lambda screen: show_facts(screen, [("a", LONG), ("longer name", "two\nlines")]))
    assert widest(lines) <= width
    assert {line[:13] for line in lines} == {"a            ", " " * 13, "longer name  "}
    assert lines[-2:] == ["longer name  two", "             lines"]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_sentence_fits(width: int) -> None:
    lines = shown_on(width, lambda screen: show_sentence(screen, ("Complete. ", "good"), LONG))
    assert widest(lines) <= width
    assert " ".join(lines) == f"Complete. {LONG}"


@pytest.mark.parametrize("width", [30, *WIDTHS])
def test_a_row_of_a_panel_goes_on_in_its_last_column(width: int) -> None:
    row = table_rows([[("sandbox", "dim"), ("/x" * 60, "id")]], width)[0]
    lines = [plain_text(line) for line in folded_row(row, width)]
    assert widest(lines) <= width
    assert "".join(line[9:] for line in lines) == "/x" * 60
    assert {line[:9] for line in lines[1:]} <= {" " * 9}


# Tables


def _listed(plans: list[Plan], projects: dict[str, str]) -> Iterator[Listed]:
    return iter([Listed(each, is_interrupted=False, project=projects.get(each.project_id)) for each in plans])


def _short(ids: list[str]) -> dict[str, str]:
    return short_ids(ids, ids)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_list_of_plans_fits_and_shortens_ids_before_it_spares_the_date_or_cuts_names(width: int) -> None:
    plans = [plan("translate the documentation"), plan(LONG), plan("二つの意見", state=PlanState.CONSTRAINED)]
    lines = shown_on(width, lambda screen: show_plans(screen, _listed(plans, {}), "/shop", _short))
    assert widest(lines) <= width
    shown = _short([each.plan_id for each in plans])
    for line, each in zip(lines[1:], plans, strict=True):
        assert line.split(" ")[0] == (each.plan_id if width >= 120 else shown[each.plan_id])
    assert ("created" in lines[0]) == (width >= 80)
    assert ("translate the documentation" in lines[1]) == (width >= 80)
    assert (LONG in lines[2]) == (width >= 200)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_plans_of_all_projects_stand_below_their_project_where_it_has_no_room_beside_them(width: int) -> None:
    projects = {"p": "/home/ada/shop", "q": "/home/ada/garden"}
    plans = [plan("one", "p"), plan("two", "q"), plan("three", "p"), plan(LONG, "q")]
    lines = shown_on(width, lambda screen: show_plans(screen, _listed(plans, projects), None, _short))
    assert widest(lines) <= width
    if width >= 120:
        assert [line.rpartition(" ")[2] for line in lines[1:]] == [projects[each.project_id] for each in plans]
    else:
        shown = [line if line.startswith("/") else line.split(" ")[0] for line in lines]
        ids = list(_short([each.plan_id for each in plans]).values())
        assert shown == ["/home/ada/shop", ids[0], ids[2], "", "/home/ada/garden", ids[1], ids[3]]


def test_the_first_rows_of_a_long_table_are_printed_before_the_last_are_read_and_columns_only_widen() -> None:
    stream, printed_when_read = io.StringIO(), []

    def rows() -> Iterator[Row]:
        for number in range(1000):
            printed_when_read.append(stream.getvalue().count("\n"))
            yield ["x" * (3 if number < 500 else 6), f"row {number}", "end"]

    assert show_long_table(PlainScreen(stream), rows(), ["id", "name", "last"], flexible=1, fewest=2) == 1000
    assert printed_when_read[0] == 0
    assert printed_when_read[-1] > 500
    starts = [line.index("row") for line in stream.getvalue().splitlines()[1:]]
    assert len(starts) == 1000
    assert sorted(starts) == starts


def test_a_table_fits_if_its_flexible_column_keeps_enough() -> None:
    rows: list[Row] = [["id", "x" * 100, "end"], ["id", "short", "end"]]
    assert [fits(rows, width, 1) for width in (38, 39, None)] == [False, True, True]
    assert fits([["id", "short", "end"]], 14, 1)
    assert not fits([["id", "short", "end"]], 13, 1)


# Errors


@pytest.mark.parametrize("width", WIDTHS)
def test_an_error_and_its_hint_stand_below_themselves(width: int) -> None:
    failure = _Failure("X", f"there is {LONG}", f"Say {LONG}.", 1)
    lines = shown_on(width, lambda screen: _complain(failure, screen))
    assert widest(lines) <= width
    assert lines[0].startswith("error: There is a plan")
    hint = next(number for number, line in enumerate(lines) if line.startswith("hint: Say"))
    assert all(line.startswith(" " * 7) for line in lines[1:hint])
    assert all(line.startswith(" " * 6) for line in lines[hint + 1 :])


def test_each_of_several_problems_begins_where_the_first_does() -> None:
    failure = _Failure("X", f"p.yaml:1:1: {LONG}\np.yaml:2:1: wrong\n  p.yaml:3:1: {LONG}", "", 1)
    lines = shown_on(60, lambda screen: _complain(failure, screen))
    assert widest(lines) <= 60
    assert [line[:14] for line in lines if "p.yaml" in line] == ["error: p.yaml:", "       p.yaml:", "         p.yam"]
    assert lines[1].startswith(" " * 9)


def test_an_error_that_is_stored_keeps_its_lines() -> None:
    failure = _Failure("X", f"p.yaml:1:1: {LONG}\np.yaml:2:1: wrong", "", 1)
    assert shown_on(None, lambda screen: _complain(failure, screen)) == [
        f"error: p.yaml:1:1: {LONG}",
        "p.yaml:2:1: wrong",
    ]
