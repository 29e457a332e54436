"""What commands say, and what they leave alone, after a command on the same plan was killed."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.project import Project, kill_in_apply, wait_until


@pytest.fixture
def log(project: Project) -> Path:
    """What steps do outside of the sandboxes."""
    outside = project.folder / "outside"
    outside.mkdir()
    project.home.mkdir()
    (project.home / "config.toml").write_text(f'sandbox.allow-write = ["{outside}"]\n')
    return outside / "log"


def executed(project: Project, log: Path, *, slow: bool = True, policy: str = "") -> str:
    """A plan of three steps; undoing the second takes a minute, or fails."""
    undo = f"echo begin >> {log}; sleep 60" if slow else "exit 7"
    steps = f"""
  - {{name: A, run: "echo a > a; echo A >> {log}", side_effects: true, compensate: "echo undo A >> {log}"}}
  - {{name: B, run: "echo B >> {log}", side_effects: true, compensate: "{undo}"}}
  - {{name: C, run: "echo C >> {log}; test ! -e stop", side_effects: true, compensate: "echo undo C >> {log}"}}
"""
    plan = project.plan(steps, header=policy)
    project.run("plan", "execute", str(plan))
    return str(project.json("plan", "list")["plans"][0]["plan_id"])


def killed_in_the_middle(project: Project, log: Path, *words: str) -> None:
    process = project.start(*words)
    wait_until(lambda: "begin" in log.read_text())
    process.send_signal(signal.SIGKILL)
    process.communicate()


def first_checkpoint(project: Project) -> str:
    return str(project.checkpoints()[0]["checkpoint_id"])


def decision_of(project: Project, step_index: int) -> str:
    decisions = project.json("plan", "status")["decisions"]
    of_step = (each for each in decisions if each["step_index"] == step_index and each["type"] == "tool_invocation")
    return str(next(of_step)["decision_id"])


def words_of(text: str) -> str:
    return " ".join(text.split())


def everything(project: Project, log: Path) -> tuple[Any, ...]:
    return project.files(), log.read_text(), project.json("plan", "status")


def test_a_dry_run_does_not_finish_an_interrupted_command(project: Project, log: Path) -> None:
    plan = executed(project, log)
    first, decision = first_checkpoint(project), decision_of(project, 0)
    killed_in_the_middle(project, log, "plan", "rollback", "--yes", plan, first)
    before = everything(project, log)
    for words in (
        ("rollback", "--dry-run", plan, first),
        ("correct", "--dry-run", "--mode", "revert", "--guidance", "x", decision),
        ("apply", "--dry-run", plan),
    ):
        ended = project.run("plan", *words)
        assert ended.exit_code == 4
        assert f"The rollback of plan {plan} was cut short" in ended.stderr
        assert f"holdfast plan execute {plan}" in ended.stderr
        assert everything(project, log) == before


def test_status_names_an_interrupted_rollback_and_execute_finishes_it_first(project: Project, log: Path) -> None:
    plan = executed(project, log)
    killed_in_the_middle(project, log, "plan", "rollback", "--yes", plan, first_checkpoint(project))
    status = project.run("plan", "status", plan)
    assert "cut short the rollback; the next command that changes the plan finishes it first" in words_of(status.stdout)
    assert f"holdfast plan resume --dry-run {plan}" in status.stdout
    preview = project.run("plan", "resume", "--dry-run", plan)
    assert "continues  1 A" in preview.stdout
    ended = project.run("plan", "execute", plan)
    assert ended.exit_code == 0
    assert "nothing was run" not in ended.stdout + ended.stderr
    assert "not undone: step 2 (B), undoing it begun; whether it was done is not known" in ended.stdout
    assert "undone by its own command: step 1 (A)" in ended.stdout
    assert log.read_text().split("\n")[3:] == ["undo C", "begin", "undo A", "A", "B", "C", ""]


def test_repeating_an_interrupted_correction_finishes_it(project: Project, log: Path) -> None:
    executed(project, log)
    words = ("plan", "correct", "--mode", "revert", "--guidance", "x", "--yes", decision_of(project, 0))
    killed_in_the_middle(project, log, *words)
    ended = project.run(*words)
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert project.json("plan", "status")["attempt"] == 2


def test_resume_finishes_an_interrupted_correction_and_lists_its_steps(project: Project, log: Path) -> None:
    plan = executed(project, log)
    longer = project.folder / "longer.yaml"
    longer.write_text(f"steps: [{', '.join(f'{{name: new {number}, run: echo n > n}}' for number in range(1, 5))}]")
    correct = ("plan", "correct", "--mode", "revert", "--guidance", "x", "--yes", "--with", str(longer))
    killed_in_the_middle(project, log, *correct, decision_of(project, 0))
    ended = project.run("plan", "resume", plan)
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert all(f"[{number}/4] new {number}  ok" in ended.stdout for number in range(1, 5))


def test_what_could_not_be_undone_outside_is_not_said_to_be_undone(project: Project, log: Path) -> None:
    executed(project, log, slow=False)
    words = ("plan", "correct", "--mode", "revert", "--guidance", "x", "--yes", decision_of(project, 1))
    ended = project.run(*words)
    assert "not undone: step 2 (B), undoing it failed: the command ended with exit code 7" in ended.stdout
    assert "undone by its own command: step 3 (C)" in ended.stdout
    assert "undone by its own command: step 2" not in ended.stdout
    again = (*words[:-1], decision_of(project, 1))
    impact = project.json(*again)["impact"]
    assert [each["step"] for each in impact["side_effects_not_undone"]] == ["B"]
    assert [(each["step"], each["note"]) for each in impact["compensated"]] == [("C", "done")]


def test_the_rollback_after_a_failure_lists_effects_outside_that_stay(project: Project, log: Path) -> None:
    (project.app / "stop").touch()
    policy = "policy: {on_failure: rollback_to_start}\n"
    plan = executed(project, log, slow=False, policy=policy)
    ended = project.run("plan", "execute", plan)
    assert ended.exit_code == 1
    assert "outside  not undone: step 2 (B), undoing it failed: the command ended with exit code 7" in ended.stdout
    assert "outside  not undone: step 3 (C)" in ended.stdout
    data = project.json("plan", "execute", plan, exit_code=1)
    assert [each["step"] for each in data["side_effects_not_undone"]] == ["B", "C"]
    assert [each["step"] for each in data["compensated"]] == ["A"]


@pytest.mark.parametrize("verb", ["execute", "apply"])
def test_a_command_that_undoes_what_another_plan_left_in_real_files_says_so(project: Project, verb: str) -> None:
    steps = "  - {run: echo 4 >> orders.csv; echo 5 > new.csv, resource: data}\n"
    first, second = (project.json("plan", "execute", str(project.plan(steps)))["plan_id"] for _ in range(2))
    if verb == "execute":
        second = project.json("plan", "create", str(project.plan(steps)))["plan_id"]
    kill_in_apply(project, first)
    ended = project.call("plan", verb, second, *(["--yes"] if verb == "apply" else []))
    assert ended.exit_code == 0, ended
    said = f"{project.app}, {project.data}: the apply of plan {first} (a test plan) was cut short; it is undone"
    assert f"restored {said}" in words_of(ended.stdout)
    assert (project.data / "orders.csv").read_text() == "1;2;3\n" + ("4\n" if verb == "apply" else "")


def test_what_the_policy_forbids_is_not_offered(project: Project) -> None:
    plan = project.plan("  - run: exit 3\n", header="policy: {rollback_enabled: false}\n")
    ended = project.run("plan", "execute", str(plan))
    assert ended.exit_code == 1
    assert "plan rollback" not in ended.stdout
    assert "plan correct" not in ended.stdout


@pytest.mark.parametrize("is_failed", [True, False])
def test_a_step_that_was_not_interrupted_is_not_skipped(project: Project, log: Path, is_failed: bool) -> None:
    if is_failed:
        (project.app / "stop").touch()
        plan = executed(project, log, slow=False)
    else:
        made = project.plan(f"  - {{name: A, run: 'echo A >> {log}', side_effects: true}}\n")
        plan = str(project.json("plan", "create", str(made))["plan_id"])
        log.touch()
    before = log.read_text()
    for words in (("resume", "--skip", plan), ("resume", "--skip", "--dry-run", plan)):
        ended = project.run("plan", *words)
        assert (ended.exit_code, "There is nothing to skip" in ended.stderr) == (4, True)
    assert log.read_text() == before


def test_a_dry_run_says_what_skipping_and_repeating_would_do(project: Project, log: Path) -> None:
    steps = f"""
  - {{name: first, run: "true"}}
  - {{name: mail, run: "echo half > half; echo begin >> {log}; sleep 60", side_effects: true}}
  - {{name: last, run: "true"}}
"""
    log.touch()
    killed_in_the_middle(project, log, "plan", "execute", str(project.plan(steps)))
    listed = project.json("plan", "list")["plans"][0]
    plan = listed["plan_id"]
    assert (listed["state"], listed["interrupted"]) == ("processing", True)
    assert "interrupted" in project.run("plan", "list").stdout
    assert "2 cut short mail" in words_of(project.run("plan", "status", plan).stdout)
    skipping = project.run("plan", "resume", "--dry-run", "--skip", plan).stdout
    assert "skips      mail" in skipping
    assert "continues  3 last" in skipping
    assert "restores" not in skipping
    assert f"holdfast plan resume --skip {plan}" in skipping
    repeating = project.run("plan", "resume", "--dry-run", "--rerun", plan).stdout
    assert "continues 2 mail" in words_of(repeating)
    assert f"holdfast plan resume --rerun {plan}" in repeating
    ended = project.run("plan", "resume", "--skip", plan)
    assert ended.exit_code == 0
    assert (project.sandbox() / "half").exists()


def test_a_dry_run_is_refused_while_the_plan_runs(project: Project, log: Path) -> None:
    log.touch()
    process = project.start("plan", "execute", str(project.plan(f"  - run: echo begin >> {log}; sleep 60\n")))
    try:
        wait_until(lambda: "begin" in log.read_text())
        plan, checkpoint = project.json("plan", "list")["plans"][0]["plan_id"], first_checkpoint(project)
        for words in (("resume", "--dry-run", plan), ("rollback", "--dry-run", plan, checkpoint)):
            ended = project.run("plan", *words)
            assert (ended.exit_code, "is in use by `plan execute`" in ended.stderr) == (5, True)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
