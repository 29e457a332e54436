"""A bar while files are copied, saved and written: on a terminal, and nowhere else."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import pytest

from tests.integration.cli.project import Ended, Project

FILES = 200
STEPS = "  - {name: rewrite, run: 'for each in files/*; do echo more >> $each; done', resource: data}\n"
_EAGER = """
import holdfast.cli.screen.bar, holdfast.cli.screen.progress, holdfast.system.progress
holdfast.system.progress.FEWEST_FILES, holdfast.system.progress._TELL_EVERY_SECONDS = 50, 0.0
holdfast.cli.screen.bar.SHOWN_AFTER_SECONDS = holdfast.cli.screen.progress.SHOWN_AFTER_SECONDS = 0.0
"""
"""Holdfast that takes two hundred files for many and shows at once what it does."""


@pytest.fixture
def many(project: Project) -> Project:
    (project.data / "files").mkdir()
    for number in range(FILES):
        (project.data / "files" / str(number)).write_text("1\n")
    return project


def shown(project: Project, *arguments: str, columns: int = 80, variables: Mapping[str, str] = {}) -> Ended:
    return project.on_terminal(*arguments, columns=columns, variables=variables, first=_EAGER)


def bars(ended: Ended) -> list[str]:
    """The lines that were shown for a moment, without colours."""
    assert ended.exit_code == 0, ended
    text = re.sub(r"\x1b\[[0-9;]*m", "", ended.stdout)
    return [line for line in re.split(r"[\r\n]|\x1b\[[0-9;?]*[A-Za-z]", text) if re.search("[━─]", line)]


def left_standing(ended: Ended) -> str:
    """What is on the screen in the end, as a terminal would have it."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", ended.stdout):
        if part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1])
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part[0] not in "\x1b\r":
            lines[row] += part
    return "\n".join(lines)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_executing_shows_bars_that_fit_and_leaves_none_behind(many: Project, columns: int) -> None:
    ended = shown(many, "plan", "execute", str(many.plan(STEPS)), columns=columns)
    found = bars(ended)
    assert any(re.search(r"copying data  [━╸─]+ .*/ 201 files", each) for each in found)
    assert any(re.search(r"saving data  [━╸─]+ .*/ 20[01] files", each) for each in found)
    assert max(map(len, found)) < columns
    end = left_standing(ended)
    assert not re.search("[━─]|copying|saving", end)
    assert "[1/1] rewrite  ok" in end
    assert "Complete." in end


def test_the_other_commands_show_them_too(many: Project) -> None:
    plan = many.json("plan", "execute", str(many.plan(STEPS)))["plan_id"]
    assert any("checking data" in each for each in bars(shown(many, "plan", "apply", "--dry-run", plan)))
    assert any("writing data" in each for each in bars(shown(many, "plan", "apply", "-y", plan)))
    assert any("writing data" in each for each in bars(shown(many, "plan", "unapply", "-y", plan)))
    going_back = shown(many, "plan", "rollback", "-y", plan, many.checkpoint_before(0))
    assert any("restoring data" in each for each in bars(going_back))
    for each in (many.sandbox("data") / "files").iterdir():
        each.write_text("by hand\n")
    assert any("saving data" in each for each in bars(shown(many, "checkpoint", "create", plan)))


def test_a_program_gets_its_terminal_after_the_bar_is_gone(many: Project) -> None:
    ended = shown(many, "run", "--resource", str(many.data), "--", "echo", "hello from", "inside")
    assert any("copying data" in each for each in bars(ended))
    assert "hello from inside" in left_standing(ended)


def test_without_colour_a_bar_has_none(many: Project) -> None:
    ended = shown(many, "plan", "execute", str(many.plan(STEPS)), variables={"NO_COLOR": "1"})
    assert bars(ended)
    assert not re.search(r"\x1b\[[0-9;]*m", ended.stdout)


def test_plain_text_and_envelopes_hold_nothing_that_moves_even_on_a_terminal(many: Project) -> None:
    plain = shown(many, "plan", "execute", str(many.plan(STEPS)), "--format", "plain")
    assert bars(plain) == []
    assert "\x1b" not in plain.stdout
    envelope = shown(many, "plan", "execute", str(many.plan(STEPS)), "--format", "json")
    assert "\x1b" not in envelope.stdout
    assert json.loads(envelope.stdout)["exit_code"] == 0


def test_a_dumb_terminal_and_no_terminal_at_all_get_no_bar(many: Project) -> None:
    assert bars(shown(many, "plan", "execute", str(many.plan(STEPS)), variables={"TERM": "dumb"})) == []
    piped = many.run("plan", "execute", str(many.plan(STEPS)))
    assert piped.exit_code == 0
    assert "\x1b" not in piped.stdout + piped.stderr
    assert "copying" not in piped.stdout + piped.stderr


def test_subplans_side_by_side_say_how_far_each_of_them_is(many: Project) -> None:
    subplans = "".join(f"      - {{name: {name}, steps: [{{run: sleep 0.3}}]}}\n" for name in ("one", "two"))
    steps = f"  - name: both\n    parallel: 2\n    subplans:\n{subplans}"
    for number in range(100):  # the files of one folder are copied together
        folder = many.data / "folders" / str(number)
        folder.mkdir(parents=True)
        for name in ("a", "b"):
            (folder / name).write_text("1\n")
    ended = shown(many, "plan", "execute", str(many.plan(steps)), columns=120)
    assert ended.exit_code == 0, ended
    assert re.search(r"(one|two): copying data \d+ %", ended.stdout)
    assert "copying" not in left_standing(ended)
