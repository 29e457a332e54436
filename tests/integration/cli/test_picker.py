"""`holdfast log -i` on a real terminal."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator

import pytest

from holdfast.cli.output import cell_width
from tests.integration.cli.damage import module
from tests.integration.cli.project import Project, wait_until
from tests.support.terminals import OnTerminal

STEPS = """\
  - {name: bump, run: echo 2 > version.txt}
  - {name: list, run: seq 1 200 > "all the numbers"; echo more >> ../data/orders.csv}
  - {name: trip, run: rm version.txt src/main.py}
"""
DOWN, UP, PAGE_DOWN, END, ENTER, ESCAPE = "\x1b[B", "\x1b[A", "\x1b[6~", "\x1b[F", "\r", "\x1b"
LEFT = b"\x1b[?25h\x1b[?1049l"
"""The terminal gets its cursor and its own content back."""


@pytest.fixture
def project(project: Project) -> Project:
    project.call("plan", "execute", str(project.plan(STEPS)))
    return project


class Picker(OnTerminal):
    def __init__(self, project: Project, *arguments: str, columns: int = 80, lines: int = 24) -> None:
        words = [sys.executable, "-m", "holdfast", "log", "-i", *arguments]
        super().__init__(words, project.folder, project.environment, columns=columns, lines=lines)
        self.before = self.attributes


@pytest.fixture
def picker(project: Project) -> Iterator[Picker]:
    started = Picker(project)
    yield started
    started.kill()
    started.close()


def test_the_difference_of_the_chosen_moment_is_below_the_list(picker: Picker) -> None:
    screen = picker.shows("after the last step", "No file changed.")
    assert len(screen) == 24
    assert screen[0].startswith("a test plan")
    assert screen[1].startswith("@  cp_")
    assert set(screen[9]) == {"─"}
    assert "Enter what to do" in screen[23]
    picker.press("j")
    picker.shows("-print('hello')", "--- a/app/src/main.py")
    picker.press(DOWN + DOWN)
    picker.shows("after step 2: list", "+++ b/app/all the numbers", "+1")
    picker.press(END)
    picker.shows("Here the plan begins.")
    picker.press("k" + UP)
    picker.press("q")
    assert picker.end() == 0
    assert picker.sent.rstrip().endswith(LEFT)
    assert picker.attributes == picker.before


def test_a_long_difference_is_scrolled_and_not_beyond_its_end(picker: Picker) -> None:
    picker.shows("No file changed.")
    picker.press("jjj")
    picker.shows("+++ b/app/all the numbers")
    picker.press(" ")
    picker.until(lambda terminal: "+++ b/app/all the numbers" not in "\n".join(terminal.screen))
    picker.press(" " * 60)
    picker.shows("+more")
    picker.press("b" * 60)
    picker.shows("+++ b/app/all the numbers")
    picker.press(ESCAPE)
    assert picker.end() == 0


def test_on_a_wide_terminal_it_is_beside_and_a_resize_draws_anew(project: Project) -> None:
    picker = Picker(project, columns=120, lines=30)
    screen = picker.shows("after the last step", "│ No file changed.")
    assert len(screen) == 30
    for columns, lines in ((80, 24), (60, 10), (40, 7), (20, 3), (132, 43)):
        picker.resize(columns, lines)
        screen = picker.until(lambda terminal, size=lines: len(terminal.screen) == size)
        assert [line for line in screen if cell_width(line) > columns] == []
        assert "a test" in screen[0]
    picker.press("q")
    assert picker.end() == 0
    picker.close()


def test_a_menu_in_a_tiny_terminal_takes_the_place_of_the_list(project: Project) -> None:
    picker = Picker(project, columns=50, lines=6)
    picker.shows("after the last step")
    picker.press(ENTER)
    picker.shows("roll back", "restore files")
    picker.press("qq")
    assert picker.end() == 0
    picker.close()


def test_rolling_back_asks_as_the_command_does_and_no_changes_nothing(project: Project, picker: Picker) -> None:
    before = project.files()
    picker.shows("No file changed.")
    picker.press("jj" + ENTER)
    picker.shows("before step 3: trip", "the whole plan")
    picker.press(ENTER)
    asked = picker.prints("[y/N]")
    assert picker.attributes == picker.before
    question = " ".join(asked.split())
    assert "(before step 3: trip): 2 files will be restored or removed" in question
    assert "Roll back? [y/N]" in question
    picker.press("n\n")
    assert picker.end() == 4
    assert "You said no; nothing was changed." in picker.plain
    assert project.files() == before


def test_rolling_back_does_what_the_command_does(project: Project, picker: Picker) -> None:
    picker.shows("No file changed.")
    picker.press("jj" + ENTER + ENTER)
    picker.prints("[y/N]")
    picker.press("y\n")
    assert picker.end() == 0
    assert "holdfast plan execute" in picker.plain
    assert (project.sandbox() / "version.txt").read_text() == "2\n"
    assert project.json("log")["moments"][0]["title"] == "back at step 3: trip"


def test_single_files_are_restored(project: Project, picker: Picker) -> None:
    picker.shows("No file changed.")
    picker.press("jj" + ENTER + "j" + ENTER)
    picker.shows("[ ] restore app/src/main.py", "[ ] restore app/version.txt", "0 files marked")
    picker.press("a")
    picker.shows("2 files marked")
    picker.press(" ")
    picker.shows("[ ] restore app/src/main.py", "[x] restore app/version.txt", "1 file marked")
    picker.press(ENTER)
    assert "1 file will be restored" in " ".join(picker.prints("Restore? [y/N]").split())
    picker.press("y\n")
    assert picker.end() == 0
    assert (project.sandbox() / "version.txt").read_text() == "2\n"
    assert not (project.sandbox() / "src/main.py").exists()


def test_a_file_that_was_not_there_is_said_to_be_removed(picker: Picker) -> None:
    picker.shows("No file changed.")
    picker.press(END + ENTER + "j" + ENTER)
    picker.shows("[ ] remove  app/all the numbers")
    picker.press(ESCAPE)
    picker.shows("the whole plan")
    picker.press("q")
    picker.shows("Here the plan begins.")
    picker.press("q")
    assert picker.end() == 0


def test_where_nothing_differs_there_is_nothing_to_restore(picker: Picker) -> None:
    picker.shows("No file changed.")
    picker.press(ENTER + "j" + ENTER)
    picker.shows("All files are as they were at this moment.")
    picker.press(ENTER + "qqq")
    assert picker.end() == 0


def test_a_result_that_was_applied_is_only_looked_at(project: Project) -> None:
    project.json("plan", "apply", "--yes", "latest")
    picker = Picker(project)
    picker.shows("before apply")
    picker.press(ENTER)
    picker.shows("Nothing can be done with it now")
    picker.press(ENTER + "qq")
    assert picker.end() == 0
    picker.close()


def test_a_plan_that_has_not_run_has_nothing_to_choose(project: Project) -> None:
    project.json("plan", "create", str(project.plan(STEPS)))
    picker = Picker(project)
    picker.shows("It has no checkpoints yet.")
    picker.press(ENTER + DOWN + " " + "q")
    assert picker.end() == 0
    picker.close()


def test_more_moments_are_read_as_they_come_into_sight(project: Project) -> None:
    with project.opened() as holdfast:
        for number in range(130):
            (project.sandbox() / "f").write_text(str(number))
            holdfast.create_checkpoint("latest")
    picker = Picker(project)
    picker.shows("asked for by a person")
    for _ in range(20):
        picker.press(PAGE_DOWN)
    picker.shows("before the first step")
    picker.press(END)
    picker.shows("Here the plan begins.")
    picker.press("q")
    assert picker.end() == 0
    picker.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_and_the_terminal_is_as_before(picker: Picker, number: int) -> None:
    picker.shows("No file changed.")
    assert picker.attributes != picker.before
    picker.signal(number)
    assert picker.end() == (130 if number == signal.SIGINT else -number)
    assert LEFT in picker.sent
    assert picker.attributes == picker.before


def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(project: Project) -> None:
    command = shlex.join([sys.executable, "-m", "holdfast", "log", "-i"])
    script = f"set -m; {command}; stty -a; echo suspended; read line; fg; echo over"
    terminal = OnTerminal(["bash", "-c", script], project.folder, project.environment)
    before = terminal.attributes
    terminal.shows("No file changed.")
    terminal.press("\x1a")
    shown = terminal.prints("suspended")
    assert " icanon" in shown
    assert " -icanon" not in shown
    assert terminal.attributes == before
    count = terminal.sent.count(b"\x1b[?1049h")
    terminal.press("\n")
    terminal.until(lambda one: one.sent.count(b"\x1b[?1049h") > count)
    terminal.press("j")
    terminal.shows("-print('hello')")
    terminal.press("q")
    terminal.prints("over")
    assert terminal.end() == 0
    terminal.close()


def test_an_exception_leaves_the_terminal_as_before(project: Project) -> None:
    broken = "import holdfast.cli.screen.picker.picking as module; module.Layout = None"
    shown = project.on_terminal("log", "-i", first=broken)
    assert shown.exit_code != 0
    assert shown.stdout.index(LEFT.decode()) < shown.stdout.index("error")


def test_a_terminal_that_goes_away_ends_it(project: Project) -> None:
    picker = Picker(project)
    picker.shows("No file changed.")
    process = picker.process
    picker.close()
    wait_until(lambda: os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
    os.waitpid(process, 0)


@pytest.mark.parametrize("options", [["--format", "json"], ["--format", "yaml"], ["--format", "plain"]])
def test_formats_that_cannot_draw_are_refused(project: Project, options: list[str]) -> None:
    refused = project.on_terminal("log", "-i", *options)
    assert refused.exit_code == 2
    assert f"no output in the format {options[1]}" in " ".join(refused.stdout.split())


def test_without_a_terminal_it_is_refused(project: Project) -> None:
    refused = project.run("log", "-i")
    assert refused.exit_code == 2
    assert "needs a terminal" in refused.stderr
    assert "holdfast log --stat" in refused.stderr
    assert project.on_terminal("log", "-i", variables={"TERM": "dumb"}).exit_code == 2


def test_colours_are_left_out_if_they_are_not_wanted(project: Project) -> None:
    shown = project.on_terminal("log", "-i", answer="q", variables={"NO_COLOR": "1"}).stdout
    assert "\x1b[7m" in shown  # what is chosen is still seen
    assert "\x1b[36m" not in shown
    assert "\x1b[36" in project.on_terminal("log", "-i", answer="q").stdout


def test_very_many_files_are_restored_at_once_and_named_in_short(project: Project) -> None:
    folder = project.sandbox() / "many"
    folder.mkdir()
    for number in range(40):
        (folder / f"file {number}").touch()
    (project.sandbox() / ".gitignore").write_text("cache\n")
    (project.sandbox() / "cache").touch()
    picker = Picker(project)
    picker.shows("after the last step")
    picker.press(ENTER + "j" + ENTER)
    picker.shows("[ ] remove  app/many/file 0")
    picker.press(END)
    picker.shows("remove  app/cache  (git ignores it)")
    picker.press("a" + ENTER)
    picker.prints("Restore? [y/N]")
    picker.press("y\n")
    assert picker.end() == 0
    picker.close()
    assert "and 12 more" in picker.plain
    assert not list(folder.glob("*"))
    assert " and 32 more restored from " in project.json("log")["moments"][0]["title"]


def test_lines_of_large_files_are_not_compared(project: Project) -> None:
    (project.sandbox() / "large").write_text("line\n" * 200_000)
    project.json("checkpoint", "create", "latest")
    picker = Picker(project)
    picker.shows("added app/large (large; its lines are not compared here)")
    picker.press("q")
    assert picker.end() == 0
    picker.close()


def test_damaged_content_is_said_and_ends_nothing(project: Project) -> None:
    with module.connect(project.home / "objects.db") as connection:
        connection.execute("UPDATE object SET data = CAST(x'00' || 'rotten' AS BLOB)")
    connection.close()
    picker = Picker(project)
    picker.shows("after the last step")
    picker.press("j")
    picker.shows("What changed cannot be shown")
    picker.press("j" + ENTER + "j" + ENTER)
    picker.until(lambda terminal: "Enter restore" in terminal.screen[-1] and "object" in terminal.screen[10])
    picker.press("qqq")
    assert picker.end() == 0
    picker.close()
