"""What is chosen in the picker, as a value; each key makes another one of it. Nothing here knows a terminal."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec


class Key(StrEnum):
    """Keys that are not a character."""

    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    HOME = "home"
    END = "end"
    ENTER = "enter"
    ESCAPE = "escape"


class Pane(StrEnum):
    MOMENTS = "moments"
    MENU = "menu"
    FILES = "files"


class Sizes(msgspec.Struct, frozen=True):
    """How much there is to choose from, and how much of it is seen at once."""

    moments: int
    page: int
    """How many lines of the list are seen."""
    entries: int = 0
    """How many things the menu offers."""
    files: int = 0
    """How many files differ from those of the chosen moment."""
    scrolled: int = 10
    """How far the difference is scrolled at once."""


class State(msgspec.Struct, frozen=True):
    moment: int = 0
    scroll: int = 0
    """How many lines of the difference are above the screen."""
    pane: Pane = Pane.MOMENTS
    entry: int = 0
    """Of the menu."""
    file: int = 0
    marked: frozenset[int] = frozenset()
    """Which of the files are to be restored."""
    is_over: bool = False
    has_chosen: bool = False
    """The entry of the menu is to be carried out."""

    def pressed(self, key: str, sizes: Sizes) -> State:
        """What that key makes of it; keys without a meaning change nothing."""
        panes: dict[Pane, Callable[[str, Sizes], State]] = {
            Pane.MOMENTS: self._in_moments,
            Pane.MENU: self._in_menu,
            Pane.FILES: self._in_files,
        }
        return panes[self.pane](key, sizes)

    def changed(self, **fields: object) -> State:
        return msgspec.structs.replace(self, **fields)

    def _in_moments(self, key: str, sizes: Sizes) -> State:
        if key in ("q", Key.ESCAPE):
            return self.changed(is_over=True)
        if key == Key.ENTER:
            return self.changed(pane=Pane.MENU, entry=0) if sizes.moments else self
        if key in (" ", "J", "b", "K"):
            by = sizes.scrolled if key in (" ", "J") else -sizes.scrolled
            return self.changed(scroll=max(0, self.scroll + by))
        moment = moved(self.moment, key, sizes.moments, sizes.page)
        return self if moment == self.moment else self.changed(moment=moment, scroll=0)

    def _in_menu(self, key: str, sizes: Sizes) -> State:
        if key in ("q", Key.ESCAPE):
            return self.changed(pane=Pane.MOMENTS)
        if key == Key.ENTER:
            return self.changed(has_chosen=sizes.entries > 0)
        return self.changed(entry=moved(self.entry, key, sizes.entries, sizes.entries))

    def _in_files(self, key: str, sizes: Sizes) -> State:
        if key in ("q", Key.ESCAPE):
            return self.changed(pane=Pane.MENU, marked=frozenset(), file=0)
        if key == " " and sizes.files:
            below = moved(self.file, Key.DOWN, sizes.files, sizes.page)
            return self.changed(marked=self.marked ^ {self.file}, file=below)
        if key == "a":
            every = frozenset(range(sizes.files))
            return self.changed(marked=frozenset() if self.marked == every else every)
        if key == Key.ENTER and sizes.files:
            return self.changed(marked=self.marked or frozenset({self.file}), has_chosen=True)
        return self.changed(file=moved(self.file, key, sizes.files, sizes.page))


def moved(place: int, key: str, count: int, page: int) -> int:
    """Where a key leads in a list of that many; ``page``: how many of them are seen."""
    steps = {
        Key.UP: -1, "k": -1, Key.DOWN: 1, "j": 1, Key.PAGE_UP: -page, Key.PAGE_DOWN: page,
        Key.HOME: -count, "g": -count, Key.END: count, "G": count,
    }  # fmt: skip
    return max(0, min(count - 1, place + steps.get(key, 0)))


def top_for(chosen: int, top: int, height: int) -> int:
    """The first line to show so that the chosen one is seen, moved no further than needed."""
    return max(0, min(max(top, chosen - height + 1), chosen))
