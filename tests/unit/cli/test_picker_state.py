"""What each key makes of what is chosen in the picker."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.screen.picker.raw_terminal import fitted, keys_in
from holdfast.cli.screen.picker.state import Key, Pane, Sizes, State, moved, top_for

SIZES = Sizes(moments=30, page=8, entries=2, files=3, scrolled=5)
KEYS = [*Key, "j", "k", "g", "G", "q", "a", " ", "b", "J", "K", "x", "é"]


def after(*keys: str, state: State | None = None, sizes: Sizes = SIZES) -> State:
    return reduce(lambda present, key: present.pressed(key, sizes), keys, state or State())


@pytest.mark.parametrize(
    ("keys", "moment"),
    [
        ([Key.DOWN], 1), (["j", "j", "k"], 1), ([Key.UP], 0), ([Key.PAGE_DOWN], 8), ([Key.PAGE_DOWN] * 9, 29),
        ([Key.PAGE_DOWN, Key.PAGE_UP, Key.PAGE_UP], 0), ([Key.END], 29), (["G"], 29), (["G", "g"], 0),
        ([Key.END, Key.HOME], 0), (["x"], 0),
    ],
)  # fmt: skip
def test_a_moment_is_chosen_with_arrows_letters_and_pages(keys: list[str], moment: int) -> None:
    assert after(*keys).moment == moment


def test_the_difference_is_scrolled_and_begins_anew_for_another_moment() -> None:
    assert after(" ").scroll == 5
    assert after(" ", "J", "b").scroll == 5
    assert after("b", "K").scroll == 0
    assert after(" ", Key.DOWN).scroll == 0
    assert after(" ", Key.UP).scroll == 5  # it is the first one, so nothing else was chosen


@pytest.mark.parametrize("key", ["q", Key.ESCAPE])
def test_q_and_escape_lead_back_one_step_at_a_time(key: str) -> None:
    in_files = State(pane=Pane.FILES, marked=frozenset({1}), file=1, moment=4)
    in_menu = after(key, state=in_files)
    assert (in_menu.pane, in_menu.marked, in_menu.file) == (Pane.MENU, frozenset(), 0)
    in_moments = after(key, state=in_menu)
    assert (in_moments.pane, in_moments.moment, in_moments.is_over) == (Pane.MOMENTS, 4, False)
    assert after(key, state=in_moments).is_over


def test_enter_opens_the_menu_and_then_chooses() -> None:
    assert after(Key.ENTER).pane is Pane.MENU
    chosen = after(Key.ENTER, "j", Key.ENTER)
    assert (chosen.has_chosen, chosen.entry) == (True, 1)
    assert after(Key.ENTER, "j", "j", "k", Key.ENTER).entry == 0


def test_nothing_is_chosen_where_there_is_nothing() -> None:
    assert after(Key.ENTER, sizes=Sizes(moments=0, page=8)).pane is Pane.MOMENTS
    assert not after(Key.ENTER, Key.ENTER, sizes=Sizes(moments=1, page=8, entries=0)).has_chosen
    without_files = Sizes(moments=1, page=8, entries=2, files=0)
    for key in (Key.ENTER, " ", "a"):
        state = after(key, state=State(pane=Pane.FILES), sizes=without_files)
        assert (state.has_chosen, state.marked) == (False, frozenset())


def test_files_are_marked_one_by_one_or_all() -> None:
    start = State(pane=Pane.FILES)
    assert after(" ", state=start) == State(pane=Pane.FILES, marked=frozenset({0}), file=1)
    assert after(" ", Key.UP, " ", state=start).marked == frozenset()
    assert after("a", state=start).marked == {0, 1, 2}
    assert after("a", "a", state=start).marked == frozenset()
    assert after(" ", " ", Key.ENTER, state=start).marked == {0, 1}
    assert after("j", Key.ENTER, state=start).marked == {1}  # none is marked, so it is the chosen one
    assert after("j", Key.ENTER, state=start).has_chosen


@given(st.lists(st.sampled_from(KEYS)), st.integers(0, 5), st.integers(0, 5), st.integers(1, 9))
def test_whatever_is_pressed_the_choice_exists(keys: list[str], moments: int, files: int, page: int) -> None:
    sizes = Sizes(moments=moments, page=page, entries=2, files=files)
    state = after(*keys, sizes=sizes)
    assert 0 <= state.moment < max(1, moments)
    assert 0 <= state.file < max(1, files)
    assert state.entry in (0, 1)
    assert state.scroll >= 0
    assert state.marked <= set(range(files))


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 20))
def test_the_chosen_line_is_always_seen(chosen: int, top: int, height: int) -> None:
    first = top_for(chosen, top, height)
    assert 0 <= first <= chosen < first + height
    assert top_for(chosen, first, height) == first


def test_a_list_of_nothing_has_no_other_place() -> None:
    assert moved(0, Key.END, 0, 5) == 0


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("\x1b[A\x1bOB", [Key.UP, Key.DOWN]),
        ("\x1b[5~\x1b[6~", [Key.PAGE_UP, Key.PAGE_DOWN]),
        ("\x1b[H\x1b[F\x1b[1~\x1b[4~", [Key.HOME, Key.END, Key.HOME, Key.END]),
        ("\r\n", [Key.ENTER, Key.ENTER]),
        ("\x1b", [Key.ESCAPE]),
        ("jk q", ["j", "k", " ", "q"]),
        ("\x1b[15~\x1b[1;5Cj", ["j"]),  # F5 and Ctrl-Right mean nothing here
        ("", []),
    ],
)
def test_keys_are_read_as_terminals_send_them(sent: str, keys: list[str]) -> None:
    assert keys_in(sent) == keys


def test_a_row_is_cut_to_the_width() -> None:
    assert fitted(["one ", ("two", "id"), "three"], 6) == [("one ", "plain"), ("t…", "id")]
    assert fitted([("日本語", "id")], 4) == [("日…", "id")]
    assert fitted(["one"], 10) == [("one", "plain")]
