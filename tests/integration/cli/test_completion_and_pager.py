"""Shell completion, and long output on a terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli.project import Project

STEPS = "  - {name: one, run: echo 1 > one}\n"


def completed(project: Project, line: str) -> list[str]:
    """What bash would be offered for a command line that ends like this."""
    words = line.split(" ")
    variables = {"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    program = Path(sys.executable).with_name("holdfast")
    ended = subprocess.run(
        [program], cwd=project.folder, env={**project.environment, **variables}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert ended.stderr == ""
    return [each.partition(",")[2] for each in ended.stdout.split("\n") if each]


@pytest.fixture
def ran(project: Project) -> Project:
    project.json("plan", "execute", str(project.plan(STEPS)))
    return project


def test_commands_are_completed(project: Project) -> None:
    assert completed(project, "holdfast pl") == ["plan"]
    assert completed(project, "holdfast plan roll") == ["rollback"]


def test_plans_checkpoints_decisions_and_settings_are_completed(ran: Project) -> None:
    plan_id = ran.json("plan", "status")["plan_id"]
    assert completed(ran, f"holdfast plan status {plan_id[:6]}") == [plan_id]
    assert completed(ran, "holdfast plan status lat") == ["latest"]
    offered = completed(ran, f"holdfast plan rollback {plan_id} cp_")
    assert len(offered) == len(ran.checkpoints())
    assert completed(ran, f"holdfast plan rollback {plan_id} @") == ["@", "@-1"]
    assert completed(ran, f"holdfast plan rollback {plan_id} st") == ["start"]
    decision = ran.json("plan", "status")["decisions"][0]["decision_id"]
    assert decision in completed(ran, f"holdfast plan explain {decision[:4]}")
    assert "sandbox.confine" in completed(ran, "holdfast config get sandbox.c")
    assert "plan.yaml" in completed(ran, "holdfast plan execute pl")


def test_where_there_is_nothing_nothing_is_completed_and_nothing_is_said(project: Project) -> None:
    assert completed(project, "holdfast plan rollback nonsense cp_") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_names_the_program(project: Project, shell: str) -> None:
    script = project.call("completion", shell).stdout
    assert "_HOLDFAST_COMPLETE" in script
    assert project.json("completion", shell)["script"].strip() == script.strip()


def test_a_shell_that_is_not_known_is_refused(project: Project) -> None:
    assert project.call("completion", "tcsh").exit_code == 2


def test_long_output_on_a_terminal_goes_through_the_pager(ran: Project) -> None:
    pager = ran.folder / "pager"
    pager.write_text(f"#!/bin/sh\necho paged; cat > {ran.folder}/read; cat {ran.folder}/read\n")
    pager.chmod(0o755)
    shown = ran.on_terminal("plan", "diff", "--patch", variables={"HOLDFAST_PAGER": str(pager)}).stdout
    assert "paged" in shown
    assert "+++ b/app/one" in (ran.folder / "read").read_text()
    shown = ran.on_terminal("plan", "diff", variables={"HOLDFAST_PAGER": "", "PAGER": str(pager)}).stdout
    assert "paged" not in shown
    assert "one" in shown


@pytest.mark.parametrize("words", ["log", "plan tree", "plan list", "checkpoint list"])
def test_lists_go_through_the_pager_unless_that_is_not_wanted(ran: Project, words: str) -> None:
    pager = ran.folder / "pager"
    pager.write_text("#!/bin/sh\necho paged\nexec cat\n")
    pager.chmod(0o755)
    paged = ran.on_terminal(*words.split(), variables={"HOLDFAST_PAGER": str(pager)}).stdout
    assert "paged" in paged
    directly = ran.on_terminal(*words.split(), "--no-pager", variables={"HOLDFAST_PAGER": str(pager)}).stdout
    assert directly == paged.replace("paged\r\n", "").replace("paged\n", "")


@pytest.mark.parametrize("pager", ["no-such-pager", "'unclosed", "true"])
def test_a_pager_that_does_not_work_or_does_not_read_is_no_trouble(ran: Project, pager: str) -> None:
    ended = ran.on_terminal("plan", "diff", "--patch", variables={"HOLDFAST_PAGER": pager})
    assert ended.exit_code == 0
    assert ("+1" in ended.stdout) == (pager != "true")


def test_without_a_terminal_nothing_is_paged(ran: Project) -> None:
    assert "paged" not in ran.run("plan", "diff", variables={"PAGER": "echo paged"}).stdout
