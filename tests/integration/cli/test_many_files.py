"""What is said about very many files: the first of them, and how many more."""

from __future__ import annotations

from tests.integration.cli.project import Project

MANY = (
    "  - {name: many, run: 'for n in $(seq 100); do echo $n > $n; done; echo l > x.log; echo \"*.log\" > .gitignore'}\n"
)


def test_long_lists_are_cut_for_people_and_whole_for_programs(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(MANY)))
    after = next(each for each in project.checkpoints() if "on_tool_write_complete" in each["triggers"])
    assert "and 52 more files" in project.call("checkpoint", "show", after["checkpoint_id"]).stdout
    assert len(project.json("checkpoint", "show", after["checkpoint_id"])["changes"]) == 102

    decision = next(each for each in project.json("plan", "status")["decisions"] if each["step_index"] == 0)
    correction = ["--mode", "revert", "--guidance", "x", "--dry-run", decision["decision_id"]]
    assert "and 72 more files" in project.call("plan", "correct", *correction).stdout

    undone = project.call("plan", "rollback", "-y", "latest", project.checkpoint_before(0)).stdout
    assert "and 72 more" in undone
    project.json("plan", "execute", "latest")
    applied = project.call("plan", "apply", "-y", "latest").stdout
    assert "and 71 more" in applied
    assert "because git ignores it  x.log" in applied
