"""Picker: lets a person choose a moment of a plan and what to do with it; it changes nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from holdfast import HoldfastError, checkpoint_title
from holdfast.cli.data import file_label
from holdfast.cli.output import Row, Span, counted, shortened, time_text, wrapped
from holdfast.cli.screen.graph import Line
from holdfast.cli.screen.moments import change_rows, diff_command
from holdfast.cli.screen.picker.drawing import Layout, LazyRows, chosen, drawn
from holdfast.cli.screen.picker.raw_terminal import RawTerminal
from holdfast.cli.screen.picker.state import Pane, Sizes, State, top_for
from holdfast.cli.screen.timeline import Content, moment_lines, moment_row
from holdfast.model import Plan
from holdfast.names import name_text

if TYPE_CHECKING:
    from holdfast import FileDiff, Holdfast, MomentView, Timeline

_LARGEST_COMPARED_BYTES = 500_000
"""Lines of larger files are not compared while a person looks through the moments."""
_READ_AHEAD = 100
_NARROWEST_NAME = 12
_MOST_DIFFERENCES = 100
_KEYS = {
    Pane.MOMENTS: "↑↓ choose   space/b scroll   Enter what to do   q quit",
    Pane.MENU: "↑↓ choose   Enter do it   q back",
    Pane.FILES: "↑↓ choose   space mark   a all   Enter restore   q back",
}


class Entry(NamedTuple):
    """One line of the menu."""

    name: str
    about: str
    is_offered: Callable[[Holdfast, Plan, MomentView], bool]
    needs_files: bool = False


class Choice(NamedTuple):
    """What a person chose."""

    entry: Entry
    moment: MomentView
    files: tuple[FileDiff, ...]


class _Moments:
    """The lines of the graph, read as they come into sight."""

    def __init__(self, timeline: Timeline) -> None:
        self._left = moment_lines(timeline)
        self.lines: list[Line[Content]] = []
        self.places: list[int] = []
        """The lines that are moments; the others only join branches."""

    def read_up_to(self, count: int) -> None:
        while len(self.places) < count and (line := next(self._left, None)) is not None:
            if line.node is not None:
                self.places.append(len(self.lines))
            self.lines.append(line)

    def at(self, number: int) -> MomentView:
        node = self.lines[self.places[number]].node
        assert node is not None
        return node.content.moment


class Picker:
    def __init__(self, holdfast: Holdfast, timeline: Timeline, menu: Sequence[Entry]) -> None:
        self._holdfast, self._plan, self._menu = holdfast, timeline.plan, menu
        self._moments = _Moments(timeline)
        self._changes = holdfast.moment_changes(timeline.plan)
        self._differences: dict[tuple[int, int], LazyRows] = {}
        self._state, self._top, self._file_top = State(), 0, 0
        self._offered: Sequence[Entry] | None = None
        self._files: Sequence[FileDiff] = ()
        self._problem = ""

    def pick(self, terminal: RawTerminal) -> Choice | None:
        """What a person chose; None if they only looked."""
        self._moments.read_up_to(_READ_AHEAD)
        while not self._state.is_over:
            layout = Layout(*terminal.size)
            terminal.show(self._rows(layout))
            if self._state.pane is Pane.MOMENTS and not self._compare(terminal, layout):
                continue
            keys = terminal.keys()
            if keys is None:
                return None
            for key in keys:
                self._press(key, layout)
                if self._state.has_chosen and (choice := self._chosen()) is not None:
                    return choice
        return None

    # Keys

    def _press(self, key: str, layout: Layout) -> None:
        before = self._state
        sizes = Sizes(
            moments=len(self._moments.places),
            page=max(1, layout.list_lines - 1),
            entries=len(self._entries()) if before.pane is Pane.MENU else 0,
            files=len(self._files),
            scrolled=max(1, layout.pane_lines - 2),
        )
        self._state = before.pressed(key, sizes)
        if self._state.moment != before.moment:
            self._offered, self._problem = None, ""
            self._moments.read_up_to(self._state.moment + _READ_AHEAD)

    def _entries(self) -> Sequence[Entry]:
        """What can be done with the chosen moment; found when the menu is opened."""
        if self._offered is None:
            moment = self._moments.at(self._state.moment)
            self._offered = [each for each in self._menu if each.is_offered(self._holdfast, self._plan, moment)]
        return self._offered

    def _chosen(self) -> Choice | None:
        """The choice, if it is complete; otherwise the files are asked for first."""
        moment, entry = self._moments.at(self._state.moment), self._entries()[self._state.entry]
        if not entry.needs_files:
            return Choice(entry, moment, ())
        if self._state.pane is Pane.FILES:
            return Choice(entry, moment, tuple(self._files[each] for each in sorted(self._state.marked)))
        self._find_files(moment)
        self._state = self._state.changed(pane=Pane.FILES, has_chosen=False, file=0, marked=frozenset())
        return None

    def _find_files(self, moment: MomentView) -> None:
        checkpoint = moment.checkpoints[0].checkpoint.checkpoint_id
        self._problem, self._files = "", ()
        try:
            found = self._holdfast.diff(self._plan.plan_id, checkpoint, with_ignored=False)
            self._files = sorted(found, key=lambda each: each.is_ignored)
        except HoldfastError as error:
            self._problem = error.message

    # What is shown

    def _compare(self, terminal: RawTerminal, layout: Layout) -> bool:
        """Compare what is seen, until a key is pressed; whether all of it has been shown."""
        if not self._moments.places or not layout.pane_lines:
            return True
        rows = self._difference(layout)
        wanted, had = self._state.scroll + layout.pane_lines, len(rows)
        while not terminal.has_input():
            if rows.made_up_to(wanted):
                last = max(0, len(rows) - layout.pane_lines)
                is_shown = len(rows) == had and self._state.scroll <= last
                self._state = self._state.changed(scroll=min(self._state.scroll, last))
                return is_shown
        return True

    def _difference(self, layout: Layout) -> LazyRows:
        key = self._state.moment, layout.pane_columns
        if key not in self._differences:
            if len(self._differences) >= _MOST_DIFFERENCES:
                self._differences.clear()
            self._differences[key] = LazyRows(self._difference_rows(layout.pane_columns))
        return self._differences[key]

    def _difference_rows(self, columns: int) -> Iterator[list[Span]]:
        moment = self._moments.at(self._state.moment)
        for line in wrapped(_title(moment), columns, breaking=True):
            yield [(line, "strong")]
        yield [(f"{time_text(moment.group.created_at)}  {moment.checkpoints[0].display_id}", "dim")]
        change = self._changes.at(moment.group, _LARGEST_COMPARED_BYTES)
        command = partial(diff_command, self._holdfast, self._plan, moment, change, "patch")
        if not change.count and not change.ignored_count and change.problem is None:
            yield [("No file changed." if moment.group.parent_group_id else "Here the plan begins.", "dim")]
        yield from change_rows(self._plan, change, "patch", columns, command)

    def _rows(self, layout: Layout) -> list[Row]:
        state, plan = self._state, self._plan
        name = shortened(plan.name, max(_NARROWEST_NAME, layout.columns - len(plan.plan_id) - 2))
        header: Row = [(name, "strong"), "  ", (plan.plan_id, "dim")]
        panes: dict[Pane, Callable[[Layout], Sequence[Row]]] = {
            Pane.MOMENTS: self._difference_seen, Pane.MENU: self._menu_rows, Pane.FILES: self._file_rows,
        }  # fmt: skip
        pane, keys = panes[state.pane](layout), _KEYS[state.pane]
        if not layout.pane_lines and state.pane is not Pane.MOMENTS:
            return drawn(layout, header, pane, [], keys)
        return drawn(layout, header, self._list(layout), pane, keys)

    def _list(self, layout: Layout) -> list[Row]:
        if not self._moments.places:
            return [[("It has no checkpoints yet.", "dim")]]
        here = self._moments.places[self._state.moment]
        self._top = top_for(here, self._top, layout.list_lines)
        rows: list[Row] = []
        for number, line in enumerate(self._moments.lines[self._top : self._top + layout.list_lines], self._top):
            row = moment_row(self._plan, line, layout.list_columns)
            rows.append(chosen(row, layout.list_columns) if number == here else row)
        return rows

    def _difference_seen(self, layout: Layout) -> Sequence[Row]:
        if not self._moments.places:
            return []
        return self._difference(layout).seen(self._state.scroll, layout.pane_lines)

    def _menu_rows(self, layout: Layout) -> Sequence[Row]:
        title = _title(self._moments.at(self._state.moment))
        rows: list[Row] = [[(line, "strong")] for line in wrapped(title, layout.pane_columns, breaking=True)]
        if not self._entries():
            return [*rows, [("Nothing can be done with it now; `holdfast plan status` tells why.", "warn")]]
        width = max(len(each.name) for each in self._entries())
        for number, each in enumerate(self._entries()):
            row: Row = [f"{each.name:<{width}}  ", (each.about, "dim")]
            rows.append(chosen(row, layout.pane_columns) if number == self._state.entry else row)
        return rows

    def _file_rows(self, layout: Layout) -> Sequence[Row]:
        if self._problem or not self._files:
            return [[(self._problem or "All files are as they were at this moment.", "warn")]]
        height = max(1, layout.dialog_lines - 1)
        self._file_top = top_for(self._state.file, self._file_top, height)
        marked = counted(len(self._state.marked), "file")
        rows: list[Row] = [[(f"Restore which files from this moment? {marked} marked", "strong")]]
        for number, each in list(enumerate(self._files))[self._file_top : self._file_top + height]:
            row = self._file_row(each, is_marked=number in self._state.marked)
            rows.append(chosen(row, layout.pane_columns) if number == self._state.file else row)
        return rows

    def _file_row(self, each: FileDiff, *, is_marked: bool) -> Row:
        # The difference leads from that moment to the present; restoring leads the other way.
        words = {"added": ("remove ", "bad"), "removed": ("restore", "good"), "changed": ("restore", "good")}
        label = name_text(file_label(self._plan, each.resource, each.path))
        note = "  (git ignores it)" if each.is_ignored else ""
        return [f"[{'x' if is_marked else ' '}] ", words[each.status], f" {label}", (note, "dim")]


def _title(moment: MomentView) -> str:
    return checkpoint_title(moment.checkpoints[0].checkpoint, moment.group)
