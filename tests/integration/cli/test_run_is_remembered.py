"""A program of `holdfast run` gets the same again when it runs again, and how it ended is shown everywhere."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.project import Ended, Project
from tests.integration.cli.resting import resting
from tests.support.conversation import Said, converse

COPIES = 'echo "$MY_KEY" >> "$OUTSIDE_LOG"; echo 2 > version.txt; exit 3'
SECRET = "s3cret-value"


def of_app(project: Project, *arguments: str, **variables: str) -> Ended:
    return project.run(*arguments, cwd=project.app, variables=variables)


def data_of(project: Project, *arguments: str, exit_code: int = 0, **variables: str) -> Any:
    ended = of_app(project, "--format", "json", *arguments, **variables)
    assert ended.exit_code == exit_code, ended
    return ended.data


@pytest.fixture
def outside(project: Project) -> Path:
    folder = project.folder / "outside of it"
    folder.mkdir()
    return folder


@pytest.fixture
def variables(outside: Path) -> dict[str, str]:
    return {"MY_KEY": SECRET, "OUTSIDE_LOG": str(outside / "log")}


@pytest.fixture
def rolled_back(project: Project, outside: Path, variables: dict[str, str]) -> str:
    """The id of a plan whose program has run and was rolled back, so that it runs again."""
    options = ("--pass-env", "MY_KEY", "--pass-env", "OUTSIDE_*", "--allow-write", "../outside of it")
    assert of_app(project, "run", *options, "--", "sh", "-c", COPIES, **variables).exit_code == 3
    assert (outside / "log").read_text() == f"{SECRET}\n"
    plan_id = str(data_of(project, "plan", "status")["plan_id"])
    first = data_of(project, "checkpoint", "list")["checkpoints"][0]["checkpoint_id"]
    data_of(project, "plan", "rollback", "--yes", plan_id, first)
    return plan_id


def test_it_gets_its_variables_and_places_again(
    project: Project, outside: Path, variables: dict[str, str], rolled_back: str
) -> None:
    data_of(project, "plan", "execute", rolled_back, exit_code=3, **variables)
    assert (outside / "log").read_text() == f"{SECRET}\n" * 2


def test_the_places_are_shown_as_outside_of_rollback(project: Project, outside: Path, rolled_back: str) -> None:
    assert data_of(project, "plan", "status")["outside_of_rollback"] == [str(outside)]
    assert f"outside of rollback: {outside}" in of_app(project, "plan", "status").stdout


def test_values_of_variables_are_not_stored(project: Project, rolled_back: str) -> None:
    assert all(SECRET.encode() not in file.read_bytes() for file in project.home.rglob("*") if file.is_file())


def test_a_variable_that_is_not_set_now_is_named_before_anything_runs(
    project: Project, outside: Path, variables: dict[str, str], rolled_back: str
) -> None:
    before = project.files()
    for words in (("plan", "execute"), ("plan", "resume"), ("plan", "resume", "--dry-run")):
        refused = of_app(project, *words, rolled_back, OUTSIDE_LOG=variables["OUTSIDE_LOG"])
        assert refused.exit_code == 4
        assert "The variable MY_KEY is not set now, but this program was given it: sh -c" in refused.stderr
        assert f"holdfast run --in {rolled_back}" in refused.stderr
        assert project.files() == before
    assert (outside / "log").read_text() == f"{SECRET}\n"


def test_a_place_that_is_gone_is_named_before_anything_runs(
    project: Project, outside: Path, variables: dict[str, str], rolled_back: str
) -> None:
    outside.rename(outside.with_name("elsewhere"))
    before = project.files()
    refused = of_app(project, "plan", "resume", rolled_back, **variables)
    assert refused.exit_code == 4
    assert f"--allow-write: {outside} does not exist." in refused.stderr
    assert "Nothing was started." in refused.stderr
    assert project.files() == before


def test_checkpoints_are_taken_while_it_runs_again_as_they_were(project: Project) -> None:
    with resting(project) as beginning:
        script = beginning + "echo one > f; rest; echo two > f; rest"
        assert of_app(project, "run", "--settle", "100ms", "--", "sh", "-c", script).exit_code == 0
        first = data_of(project, "checkpoint", "list")["checkpoints"][0]["checkpoint_id"]
        data_of(project, "plan", "rollback", "--yes", "latest", first)
        data_of(project, "plan", "execute", "latest")
    moments = data_of(project, "checkpoint", "list")["checkpoints"]
    in_second = [each for each in moments if each["triggers"] == ["settled"] and not each["superseded"]]
    assert len(in_second) == 2


def test_a_plan_is_called_after_its_program_and_the_time_or_as_one_says(project: Project) -> None:
    of_app(project, "run", "--", "/bin/sh", "-c", "true")
    status = data_of(project, "plan", "status")
    assert re.fullmatch(r"sh, \d{1,2} [A-Z][a-z]{2} \d\d:\d\d", status["name"])
    assert status["steps"][0]["name"] == "/bin/sh -c true"
    tree = of_app(project, "plan", "tree").stdout
    assert "What is to be done? → /bin/sh -c true" in tree
    of_app(project, "run", "--name", " try a parser ", "--", "true")
    assert data_of(project, "plan", "status")["name"] == "try a parser"
    for wrong in ("", "  ", "two\nlines"):
        refused = of_app(project, "run", "--name", wrong, "--", "true")
        assert refused.exit_code == 2
        assert "A name is one line of text" in refused.stderr
    assert len(data_of(project, "plan", "list")["plans"]) == 2


def test_a_program_that_ended_with_an_error_is_shown_so_everywhere(project: Project) -> None:
    started = data_of(project, "run", "--", "sh", "-c", "echo 2 > version.txt; exit 3", exit_code=3)
    assert (started["state"], started["program_exit_code"]) == ("complete", 3)
    assert started["program_error"] == "sh ended with exit code 3"
    for words in (("plan", "status"), ("plan", "list")):
        data = data_of(project, *words)
        found = data["plans"][0] if words[1] == "list" else data
        assert (found["state"], found["program_exit_code"]) == ("complete", 3)
        assert found["program_error"] == "sh ended with exit code 3"
    shown = of_app(project, "plan", "status").stdout
    assert "complete, 1 of 1 step done; sh ended with exit code 3\n" in shown
    assert re.search(r"1  exit 3  sh -c", shown)
    assert "complete, exit 3" in of_app(project, "plan", "list").stdout


def test_going_on_ends_as_the_program_does(project: Project) -> None:
    of_app(project, "run", "--", "sh", "-c", "echo 2 > version.txt; exit 3")
    first = data_of(project, "checkpoint", "list")["checkpoints"][0]["checkpoint_id"]
    for verb in ("execute", "resume"):
        data_of(project, "plan", "rollback", "--yes", "latest", first)
        ended = of_app(project, "plan", verb, "latest")
        assert ended.exit_code == 3
        assert "Complete, but sh ended with exit code 3. 1 file: 1 changed" in ended.stdout
        assert "  exit 3 " in ended.stdout
    data_of(project, "plan", "rollback", "--yes", "latest", first)
    again = data_of(project, "plan", "execute", "latest", exit_code=3)
    assert (again["state"], again["program_exit_code"]) == ("complete", 3)
    # Nothing is run now, so nothing fails.
    assert data_of(project, "plan", "execute", "latest")["program_exit_code"] is None


def test_a_program_that_a_signal_ended_is_shown_as_shells_say_it(project: Project) -> None:
    code = 128 + signal.SIGTERM
    assert data_of(project, "run", "--", "sh", "-c", "kill -TERM $$", exit_code=code)["program_exit_code"] == code
    assert f"complete, exit {code}" in of_app(project, "plan", "list").stdout
    assert "; sh was ended by SIGTERM" in of_app(project, "plan", "status").stdout
    first = data_of(project, "checkpoint", "list")["checkpoints"][0]["checkpoint_id"]
    data_of(project, "plan", "rollback", "--yes", "latest", first)
    assert data_of(project, "plan", "execute", "latest", exit_code=code)["program_exit_code"] == code


def test_a_program_that_succeeded_and_a_plan_without_one_say_nothing_of_that(project: Project) -> None:
    assert data_of(project, "run", "--", "true")["program_exit_code"] == 0
    assert "; " not in of_app(project, "plan", "status").stdout.splitlines()[1]
    project.json("plan", "execute", str(project.plan("  - run: echo 1 > f\n")))
    status = project.json("plan", "status")
    assert (status["program_exit_code"], status["program_error"]) == (None, None)


# Interactive programs

ASKS = "printf '%s? ' name; read name; echo \"hello $name\" > greeting; test -t 0"


def on_terminal(project: Project, *arguments: str, answers: Sequence[tuple[str, str]] = ()) -> Said:
    return converse(arguments, project.app, project.environment, answers)


@pytest.fixture
def interactive(project: Project) -> Project:
    """The program had a terminal, has ended, and was rolled back."""
    started = on_terminal(project, "run", "--", "sh", "-c", ASKS, answers=[("name? ", "Ada")])
    assert started.exit_code == 0, started
    first = data_of(project, "checkpoint", "list")["checkpoints"][0]["checkpoint_id"]
    data_of(project, "plan", "rollback", "--yes", "latest", first)
    return project


def greeting(project: Project) -> str | None:
    [resource] = data_of(project, "plan", "status")["resources"]
    file = Path(resource["sandbox_path"]) / "greeting"
    return file.read_text() if file.exists() else None


@pytest.mark.parametrize("verb", ["execute", "resume"])
def test_an_interactive_program_is_started_again_only_after_a_yes_and_gets_the_terminal(
    interactive: Project, verb: str
) -> None:
    no = on_terminal(interactive, "plan", verb, "latest", answers=[("[y/N]", "n")])
    assert no.exit_code == 4
    said = " ".join(no.shown.split())
    assert "This starts from its beginning: sh -c" in said
    assert "You said no; nothing was started." in said
    assert "holdfast plan keep" in said
    assert greeting(interactive) is None
    yes = on_terminal(interactive, "plan", verb, "latest", answers=[("[y/N]", "y"), ("name? ", "Grace")])
    assert yes.exit_code == 0, yes
    assert greeting(interactive) == "hello Grace\n"
    assert "It ended. 1 file: 1 added" in yes.shown


def test_with_yes_it_is_said_and_not_asked(interactive: Project) -> None:
    ended = on_terminal(interactive, "plan", "execute", "--yes", "latest", answers=[("name? ", "Grace")])
    assert "starts from its beginning  sh -c" in ended.shown
    assert "[y/N]" not in ended.shown
    assert (ended.exit_code, greeting(interactive)) == (0, "hello Grace\n")


def test_without_a_terminal_it_is_not_started_unless_that_is_chosen(interactive: Project) -> None:
    for verb in ("execute", "resume"):
        refused = of_app(interactive, "plan", verb, "latest")
        assert refused.exit_code == 4
        assert "This starts an interactive program from its beginning: sh -c" in refused.stderr
        assert "holdfast plan execute --yes" in refused.stderr
        assert greeting(interactive) is None
    # There is no terminal for it, and it says so with its exit code.
    assert of_app(interactive, "plan", "resume", "--rerun", "latest").exit_code == 1
    assert greeting(interactive) == "hello \n"
