"""`plan tree`, `plan explain` and `plan diff --attempt`: looking at the decisions of a plan."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.integration.cli.project import Project

STEPS = """\
  - name: bump
    tool: edit_file
    args: {path: version.txt, find: "1", replace: "2"}
    decision:
      type: strategy_choice
      question: Which version comes next?
      chosen: "2"
      alternatives: ["1.1", "3"]
      rationale: the format changes
      confidence: 0.75
  - {name: note, run: 'echo noted; echo n > note.txt'}
"""


@pytest.fixture
def ran(project: Project) -> Project:
    project.json("plan", "execute", str(project.plan(STEPS)))
    return project


def root_of(project: Project, *arguments: str) -> dict[str, Any]:
    roots = project.json("plan", "tree", *arguments)["decisions"]
    assert len(roots) == 1
    return dict(roots[0])


def correct(project: Project, decision: str) -> None:
    file = project.folder / "new.yaml"
    file.write_text("steps: [{name: another, run: echo other > note.txt}]")
    arguments = ["--yes", "--mode", "revert", "--guidance", "rather so", "--with", str(file), decision]
    project.json("plan", "correct", *arguments)


# plan tree


def test_the_tree_is_drawn_with_steps_and_checkpoints(ran: Project) -> None:
    root = root_of(ran)
    bump, note = root["children"]
    shown = ran.call("plan", "tree").stdout.splitlines()
    assert shown[1] == "prompt_definition  What is to be done? → a test plan"
    assert shown[3] == "├─ strategy_choice  Which version comes next? → 2"
    cps = "  ".join(each["display_id"] for each in bump["checkpoints"])
    assert shown[4] == f"│  {bump['decision_id']}  {cps}  step 1 bump"
    assert shown[5].startswith("└─ tool_invocation  How is this done: note?")
    assert shown[6].startswith(f"   {note['decision_id']}  cp_")


def test_the_tree_as_data_has_full_ids(ran: Project) -> None:
    data = ran.json("plan", "tree", in_process=False)
    assert data["plan_id"] == ran.json("plan", "status")["plan_id"]
    listed = {each["checkpoint_id"] for each in ran.checkpoints()}
    bump = data["decisions"][0]["children"][0]
    assert {each["checkpoint_id"] for each in bump["checkpoints"]} <= listed
    assert (bump["type"], bump["step"], bump["step_index"]) == ("strategy_choice", "bump", 0)
    as_yaml = yaml.safe_load(ran.call("plan", "tree", "--format", "yaml").stdout)
    assert as_yaml["data"] == data


def test_superseded_decisions_are_drawn_on_request_and_marked(ran: Project) -> None:
    correct(ran, root_of(ran)["children"][1]["decision_id"])
    shown = ran.call("plan", "tree").stdout
    assert "user_intervention (correction)  How is this done: note? → rather so" in shown
    assert "superseded" not in shown
    more = next(line for line in shown.splitlines() if line.startswith("1 more"))
    with_all = ran.call(*more.split()[3:]).stdout
    assert "tool_invocation (superseded)  How is this done: note?" in with_all
    assert [each["is_superseded"] for each in root_of(ran, "--all")["children"]] == [False, True, False, False]


def test_subplans_are_drawn_below_what_spawned_them(project: Project) -> None:
    steps = """\
  - name: parts
    subplans: [{name: left, steps: [{name: l, run: echo l > l}]}, {name: right, steps: [{name: r, run: echo r > r}]}]
  - {name: after, run: echo a > a}
"""
    project.json("plan", "execute", str(project.plan(steps)))
    spawn, after = root_of(project)["children"]
    assert [each["name"] for each in spawn["subplans"]] == ["left", "right"]
    assert after["subplans"] == []
    lines = project.call("plan", "tree").stdout.splitlines()
    left = f"│  ├─ subplan {spawn['subplans'][0]['plan_id']}  left, complete"
    assert lines.index(left) == 5
    assert lines[6] == "│  │  └─ prompt_definition  What is to be done? → left"
    assert lines[8].startswith("│  │     └─ tool_invocation")
    assert f"│  └─ subplan {spawn['subplans'][1]['plan_id']}  right, complete" in lines
    explained = project.json("plan", "explain", spawn["decision_id"])
    assert [each["name"] for each in explained["subplans"]] == ["left", "right"]
    assert "subplan right, complete" in project.call("plan", "explain", spawn["decision_id"]).stdout


def test_a_narrow_terminal_gets_lines_that_fit(ran: Project) -> None:
    shown = ran.on_terminal("plan", "tree", columns=60, variables={"NO_COLOR": "1"}).stdout
    decisions = [line.rstrip() for line in shown.splitlines() if "→" in line]
    assert len(decisions) == 3
    assert max(map(len, decisions)) == 60
    assert decisions[-1].endswith("…")
    assert root_of(ran)["children"][0]["checkpoints"][-1]["display_id"] in shown


# plan explain


def test_a_decision_is_explained_with_everything_about_it(ran: Project) -> None:
    decision = root_of(ran)["children"][0]["decision_id"]
    data = ran.json("plan", "explain", decision[:24].lower(), in_process=False)
    assert data["plan_id"] == ran.json("plan", "status")["plan_id"]
    assert (data["decision_id"], data["type"], data["chosen"]) == (decision, "strategy_choice", "2")
    assert (data["alternatives"], data["rationale"], data["confidence"]) == (["1.1", "3"], "the format changes", 0.75)
    assert data["checkpoint_id"] == ran.checkpoint_before(0)
    assert [(each["file"], each["added_lines"], each["removed_lines"]) for each in data["changes"]] == [
        ("app/version.txt", 1, 1)
    ]
    assert [each["step_index"] for each in data["dependents"]] == [1]
    assert (data["can_be_reverted"], data["step"], data["run"]["status"]) == (True, "bump", "succeeded")


def test_a_decision_is_explained_to_people(ran: Project) -> None:
    bump, note = (each["decision_id"] for each in root_of(ran)["children"])
    shown = ran.call("plan", "explain", bump).stdout
    for line in (
        "question      Which version comes next?",
        "choice        2",
        "alternatives  1.1, 3",
        "rationale     the format changes",
        "confidence    0.75",
        "step          1 bump, succeeded",
        "M  app/version.txt  +1 -1",
        f"{note}  echo noted; echo n > note.txt",
    ):
        assert line in shown.splitlines()
    assert f"holdfast plan correct --dry-run --mode revert --guidance TEXT {bump}" in shown
    last = ran.call("plan", "explain", note).stdout
    assert "noted" in last[last.index("The end of its step's output") :]
    assert "What depends on it\nNothing." in last


def test_what_cannot_be_known_or_done_is_said(project: Project) -> None:
    header = "policy: {auto_create_on: [], on_failure: keep}\n"
    steps = "  - {name: good, run: echo 1 > one}\n  - {name: bad, run: 'false'}\n"
    project.json("plan", "execute", str(project.plan(steps, header=header)), exit_code=1)
    root = root_of(project, "--all")
    shown = project.call("plan", "explain", root["children"][1]["decision_id"]).stdout
    assert "step          2 bad, failed: " in shown
    assert "checkpoint    none" in shown
    assert "Not recorded" in shown
    assert "plan correct" not in shown
    assert "follows from" not in project.call("plan", "explain", root["decision_id"]).stdout


def test_superseded_decisions_and_corrections_are_called_so(ran: Project) -> None:
    note = root_of(ran)["children"][1]["decision_id"]
    correct(ran, note)
    shown = ran.call("plan", "explain", note).stdout
    assert f"Decision {note}  superseded" in shown
    assert "succeeded, undone since" in shown
    intervention = root_of(ran)["children"][1]["decision_id"]
    assert f"Decision {intervention}  correction" in ran.call("plan", "explain", intervention).stdout


def test_a_rationale_of_several_lines_stays_in_its_column(project: Project) -> None:
    reasons = 'decision: {type: strategy_choice, question: "Why?", chosen: so, rationale: "first\\nsecond"}'
    project.json("plan", "execute", str(project.plan(f"  - {{name: s, run: 'true', {reasons}}}\n")))
    shown = project.call("plan", "explain", root_of(project)["children"][0]["decision_id"]).stdout
    assert "rationale     first\n              second\n" in shown


def test_many_dependents_are_counted(project: Project) -> None:
    steps = "".join(f"  - {{name: s{number}, run: echo {number} > f, writes: false}}\n" for number in range(23))
    project.json("plan", "execute", str(project.plan(steps)))
    first = root_of(project)["children"][0]["decision_id"]
    assert "and 2 more decisions" in project.call("plan", "explain", first).stdout
    assert len(project.json("plan", "explain", first)["dependents"]) == 22


def test_an_unknown_decision_is_refused_with_where_to_find_them(ran: Project) -> None:
    refused = ran.json("plan", "explain", "nothing", exit_code=3)["error"]
    assert "holdfast plan tree" in refused["hint"]
    assert ran.json("plan", "explain", "0", exit_code=3)["error"]["type"] == "AmbiguousError"


# plan diff --attempt


def test_two_attempts_are_compared(ran: Project) -> None:
    correct(ran, root_of(ran)["children"][1]["decision_id"])
    data = ran.json("plan", "diff", "--attempt", "1", "2")
    assert [(each["file"], each["status"]) for each in data["files"]] == [("app/note.txt", "changed")]
    assert data["attempts"] == [1, 2]
    listed = [each["checkpoint_id"] for each in ran.checkpoints()]
    assert {data["from_checkpoint_id"], data["to_checkpoint_id"]} <= set(listed)
    patch = ran.call("plan", "diff", "--patch", "--attempt", "1", "2", "latest").stdout
    assert "-n\n+other\n" in patch


def test_an_unknown_attempt_is_refused_with_those_there_are(ran: Project) -> None:
    refused = ran.json("plan", "diff", "--attempt", "1", "7", "latest", exit_code=3)["error"]
    assert "attempt 7" in refused["message"]
    assert "attempts: 1." in refused["hint"]


def test_attempts_and_checkpoints_are_not_compared_with_each_other(ran: Project) -> None:
    assert ran.run("plan", "diff", "--attempt", "1", "1", "latest", ran.checkpoint_before(0)).exit_code == 2
