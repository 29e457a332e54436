"""A sandbox that something removed: what would go back refuses and names `plan resume`, which makes it anew."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cli.project import Ended, Project

MISSING = 6
STEPS = "  - {name: one, run: echo 1 > one}\n  - {name: two, run: echo 2 > two}\n"
FAILING = "  - {name: one, run: echo 1 > one}\n  - {name: two, run: exit 1}\n"
CLASH = """
  - {name: one, run: echo 1 > one}
  - name: clash
    parallel: 2
    subplans:
      - {name: left, steps: [{run: echo left > version.txt; echo left > left}]}
      - {name: right, steps: [{run: echo right > version.txt}]}
"""
WITHOUT_AFTER_SUBPLAN = "policy: {auto_create_on: [on_tool_write, on_decision]}\n"
NESTED = """
  - {name: one, run: echo 1 > one}
  - name: outer
    subplans:
      - name: part
        steps:
          - name: clash
            parallel: 2
            subplans:
              - {name: left, steps: [{run: echo left > version.txt}]}
              - {name: right, steps: [{run: echo right > version.txt}]}
"""


def complete(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(STEPS)))


def errored(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(FAILING)), exit_code=1)


def errored_and_kept(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(FAILING, header="policy: {on_failure: keep}\n")), exit_code=1)


def errored_by_a_validation(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(STEPS, header="validate: [exit 1]\n")), exit_code=1)


def cancelled(project: Project) -> None:
    errored(project)
    project.json("plan", "cancel", "latest")


def queued(project: Project) -> None:
    complete(project)
    project.json("plan", "rollback", "--yes", "latest", project.checkpoint_before(1))


def constrained(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(CLASH)), exit_code=5)


def constrained_without_checkpoint(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(CLASH, header=WITHOUT_AFTER_SUBPLAN)), exit_code=5)


def constrained_below(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(NESTED)), exit_code=5)


SITUATIONS = [
    (complete, 0),
    (errored, 1),
    (errored_and_kept, 1),
    (errored_by_a_validation, 1),
    (cancelled, 1),
    (queued, 0),
    (constrained, 5),
    (constrained_without_checkpoint, 5),
    (constrained_below, 5),
]


def rebooted(project: Project) -> None:
    with project.opened() as opened, opened.store.transaction():
        opened.store.save(opened.find_plan("latest").changed(boot_id="another start"))


def command_in(text: str) -> list[str]:
    """The first command between backquotes."""
    found = re.search(r"`holdfast (plan [^`]*)`", text)
    assert found is not None, text
    return found[1].split()


def files_of(sandbox: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(sandbox.glob("*")) if path.is_file()}


def going_back(project: Project) -> list[list[str]]:
    first = project.checkpoints()[0]["checkpoint_id"]
    decision = next(each for each in project.json("plan", "status")["decisions"] if each["step_index"] == 0)
    correcting = ["plan", "correct", "--guidance", "otherwise", "--mode"]
    back = ["plan", "rollback", "latest", first]
    more = str(project.plan(STEPS, name="more.yaml"))
    return [
        [*each, *how]
        for each in (
            back,
            [*back, "--only", "app:."],
            [*back, "--without-keeping"],
            [*correcting, "revert", decision["decision_id"]],
            [*correcting, "append", "--with", more, decision["decision_id"]],
        )
        for how in (["--dry-run"], ["--yes"])
    ]


@pytest.mark.parametrize("is_after_a_reboot", [False, True], ids=["", "rebooted"])
@pytest.mark.parametrize(("situation", "exit_code"), SITUATIONS, ids=[each.__name__ for each, _ in SITUATIONS])
def test_going_back_is_refused_until_resume_has_made_the_sandbox_anew(
    project: Project, situation: Callable[[Project], None], exit_code: int, is_after_a_reboot: bool
) -> None:
    situation(project)
    sandbox, before = project.sandbox(), files_of(project.sandbox())
    words = going_back(project)
    groups = len(project.checkpoints())
    shutil.rmtree(sandbox)
    if is_after_a_reboot:
        rebooted(project)
    for each in words:
        if situation.__name__.startswith(("cancelled", "constrained")) and "append" in each:
            continue  # nothing is added to such a plan, whatever is missing
        refused = project.call(*each)
        assert refused.exit_code == MISSING, (each, refused)
        assert "The sandbox of resource 'app' is missing" in refused.stderr
        assert command_in(refused.stderr)[:2] == ["plan", "resume"]
        assert not sandbox.exists(), each
    assert len(project.checkpoints()) == groups
    resumed = project.call(*command_in(refused.stderr))
    assert resumed.exit_code == exit_code, resumed
    assert "app" in said_of_making(resumed)
    if situation is not queued:
        assert files_of(sandbox) == before
    project.json("plan", "rollback", "--yes", "latest", words[0][3])
    assert files_of(sandbox) == {"version.txt": "1\n"}


def said_of_making(ended: Ended) -> str:
    told = [line for line in (ended.stdout + ended.stderr).splitlines() if "re-created" in line]
    assert len(told) == 1, ended
    return told[0]


def test_resuming_a_complete_plan_says_that_its_sandbox_is_made_anew_and_nothing_else(project: Project) -> None:
    complete(project)
    shutil.rmtree(project.sandbox("data"))
    looked = project.json("plan", "resume", "--dry-run", "latest")
    assert (looked["made_anew"], looked["step_index"]) == (["data"], None)
    assert "the plan is complete" in project.call("plan", "resume", "--dry-run", "latest").stdout
    assert not project.sandbox("data").exists()
    made = project.json("plan", "resume", "latest")
    assert (made["made_anew"], made["state"]) == (["data"], "complete")
    assert files_of(project.sandbox("data")) == {"orders.csv": "1;2;3\n"}
    assert project.call("plan", "resume", "latest").exit_code == 4


def test_what_a_person_had_resolved_in_a_sandbox_that_is_gone_is_not_taken_as_resolved(project: Project) -> None:
    constrained(project)
    (project.sandbox() / "version.txt").write_text("resolved\n")
    shutil.rmtree(project.sandbox())
    assert project.call("plan", "resume", "--resolved", "latest").exit_code == 5
    assert "<<<<<<<" in (project.sandbox() / "version.txt").read_text()
    (project.sandbox() / "version.txt").write_text("resolved\n")
    project.json("plan", "resume", "latest")
    assert files_of(project.sandbox())["version.txt"] == "resolved\n"


def test_the_missing_sandbox_of_a_subplan_that_waits_is_made_anew_as_well(project: Project) -> None:
    constrained_below(project)
    with project.opened() as opened:
        part = opened.store.plans.below(opened.find_plan("latest").plan_id)[0]
    sandbox = Path(part.resource("app").sandbox_path)
    before = files_of(sandbox)
    shutil.rmtree(sandbox)
    assert project.json("plan", "resume", "--dry-run", "latest")["made_anew"] == ["app (part)"]
    assert project.call("plan", "resume", "latest").exit_code == 5
    assert files_of(sandbox) == before
    (sandbox / "version.txt").write_text("both\n")
    assert project.json("plan", "resume", "latest")["state"] == "complete"
    assert files_of(project.sandbox())["version.txt"] == "both\n"


def test_applying_a_result_whose_sandbox_is_gone_and_its_dry_run_work(project: Project) -> None:
    complete(project)
    shutil.rmtree(project.sandbox())
    shown = project.json("plan", "apply", "--dry-run", "latest")
    assert not project.sandbox().exists()
    applied = project.json("plan", "apply", "--yes", "latest")
    assert [each["file"] for each in shown["changes"]] == [each["file"] for each in applied["changes"]] != []
    assert (project.app / "two").read_text() == "2\n"


def test_a_checkpoint_of_a_missing_sandbox_is_refused_in_the_same_way(project: Project) -> None:
    complete(project)
    shutil.rmtree(project.sandbox())
    refused = project.call("checkpoint", "create", "latest")
    assert refused.exit_code == MISSING
    assert command_in(refused.stderr) == ["plan", "resume", project.json("plan", "status")["plan_id"]]


def test_a_step_that_removes_its_sandbox_leaves_one_from_which_the_plan_can_be_corrected(project: Project) -> None:
    steps = '  - {name: one, run: echo 1 > one}\n  - {name: clean, run: rm -rf "$HOLDFAST_RESOURCE_APP"}\n'
    options = ("--config", "sandbox.confine=false", "--config", "sandbox.view=own-path")
    failed = project.call("plan", "execute", str(project.plan(steps)), *options)
    assert failed.exit_code == MISSING
    assert files_of(project.sandbox()) == {"one": "1\n", "version.txt": "1\n"}
    decision = next(each for each in project.json("plan", "status")["decisions"] if each["step_index"] == 1)
    more = str(project.plan("  - {run: echo 2 > two}\n", name="more.yaml"))
    words = ("plan", "correct", "--yes", "--mode", "revert", "--guidance", "keep it", "--with", more)
    project.json(*words, decision["decision_id"], *options)
    assert files_of(project.sandbox()) == {"one": "1\n", "two": "2\n", "version.txt": "1\n"}
