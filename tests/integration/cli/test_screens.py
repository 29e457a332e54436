"""The screens of a plan on terminals of several widths: aligned, uncut where there is room, and on one page."""

from __future__ import annotations

import re

import pytest

from holdfast.cli.output import cell_width
from tests.integration.cli.project import Project

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
STEPS = """\
  - {name: bump, tool: edit_file, args: {path: version.txt, find: "1", replace: "2"}, retries: 1}
  - {name: 二番目の手順はとても長い名前を持っています、本当に長い, run: echo x > ü.txt}
  - name: a name that is longer than what fits beside an id on a screen of any usual width, as it goes on and on
    run: mkdir -p a/rather/long/path/in/the/sandbox; echo y > a/rather/long/path/in/the/sandbox/with_a_long_name.txt
"""
FAILING = """\
  - {name: bump, tool: edit_file, args: {path: version.txt, find: "1", replace: "2"}}
  - {name: break it, run: "seq 1 40; rm version.txt; exit 3"}
  - {name: never, run: "true"}
"""


def screen(project: Project, columns: int, *arguments: str) -> list[str]:
    shown = ESCAPE.sub("", project.on_terminal(*arguments, columns=columns).stdout)
    return [line.rpartition("\r")[2] for line in shown.replace("\r\n", "\n").splitlines()]


def too_wide(lines: list[str], columns: int) -> list[str]:
    """Commands and paths are left to the terminal to fold, so that they can be copied."""
    return [line for line in lines if cell_width(line) > columns and not re.search("holdfast |(^| )/", line)]


@pytest.mark.parametrize("columns", [60, 200])
def test_everything_fits(project: Project, columns: int) -> None:
    header = "validate: [test -e version.txt]\n"
    executed = screen(project, columns, "plan", "execute", str(project.plan(STEPS, header=header)))
    lines = [line for line in executed if re.match(r"\[\d/3\] |validate ", line)]
    assert len(lines) == 4
    # The endings stand below each other.
    assert len({cell_width(line[: line.index(" ok ")]) for line in lines}) == 1
    first = project.checkpoints()[0]["checkpoint_id"]
    shown = {
        "execute": executed,
        "status": screen(project, columns, "plan", "status"),
        "log": screen(project, columns, "log"),
        "tree": screen(project, columns, "plan", "tree"),
        "list": screen(project, columns, "plan", "list", "--all"),
        "checkpoints": screen(project, columns, "checkpoint", "list"),
        "rollback": screen(project, columns, "plan", "rollback", "--dry-run", "latest", first),
    }
    assert {name: wide for name, lines in shown.items() if (wide := too_wide(lines, columns))} == {}
    assert all(line.endswith(("│", "╮", "╯")) for line in shown["rollback"] if line.startswith(("│", "╭", "╰")))
    assert "with_a_long_name.txt" in "".join(line.strip("│ ") for line in shown["rollback"])


def test_the_status_of_a_failed_plan_fits_one_page(project: Project) -> None:
    file = project.folder / "failing.yaml"
    file.write_text(f"name: ordinary\nresources: {{app: {{type: git, path: app}}}}\nsteps:\n{FAILING}")
    failed = screen(project, 80, "plan", "execute", str(file))
    assert len(failed[failed.index("Step 2 (break it) failed: the command ended with exit code 3") :]) < 24
    status = screen(project, 80, "plan", "status")
    # The folder of the test may have a path so long that it gets a line of its own.
    assert len([line for line in status if not line.lstrip().startswith("/")]) < 24
    assert sum(line.startswith("  | ") for line in status) == 4
    assert "  | 40" in status


@pytest.mark.parametrize(
    ("arguments", "is_coloured"),
    [(["plan", "status", "x"], True), (["plan", "status", "x", "--format", "plain"], False)],
)
def test_an_error_on_a_terminal_is_coloured_with_restraint(
    project: Project, arguments: list[str], is_coloured: bool
) -> None:
    shown = project.on_terminal(*arguments).stdout
    assert ("\x1b[1;31merror: \x1b[0mThere is no plan" in shown) == is_coloured
    assert ("\x1b[36mhint: \x1b[0mSee them" in shown) == is_coloured
    assert "\x1b" not in project.on_terminal(*arguments, variables={"NO_COLOR": "1"}).stdout
    assert "\x1b" not in project.call(*arguments).stderr


def test_a_plan_that_is_at_work_says_how_to_stop_it(project: Project) -> None:
    running = project.start("plan", "execute", str(project.plan("  - {name: wait, run: sleep 60}\n")))
    try:
        while "running" not in (status := project.call("plan", "status").stdout):
            assert running.poll() is None
        assert "stop      holdfast plan cancel " in status
        refused = project.call("plan", "execute", "latest")
        assert refused.exit_code == 5
        assert "or stop it with `holdfast plan cancel " in refused.stderr
        project.call("plan", "cancel", "latest")
    finally:
        running.communicate()


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("lastest", "There is no plan 'lastest'; did you mean \"latest\"?"),
        ("nothing", "There is no file of that name either."),
        ("latest", "hint: Create one with `holdfast plan create FILE`.\n"),
    ],
)
def test_what_cannot_be_executed_is_told_with_what_may_have_been_meant(project: Project, named: str, said: str) -> None:
    refused = project.call("plan", "execute", named)
    assert refused.exit_code == 3
    assert said in refused.stderr
