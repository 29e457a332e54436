"""Plan files: what they mean, and where a wrong one is said to be wrong."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import PlanFileError
from holdfast.model import (
    SUBPLANS_TOOL,
    DecisionSpec,
    DecisionType,
    MergeStrategy,
    OnFailure,
    Policy,
    ResourceType,
    Step,
    Trigger,
)
from holdfast.planfile import PlanDraft, load_plan_file, load_steps_file, plan_file_schema

HEAD = "name: n\nresources: {app: {type: directory, path: app}}\n"
STEPS = "steps: [{run: make}]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("app", "data", "app/inner"):
        (tmp_path / name).mkdir()
    return tmp_path


def load(folder: Path, text: str | bytes, **options: Any) -> PlanDraft:
    file = folder / "plan.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_plan_file(file, **{"defaults": Policy(), **options})


def problems(folder: Path, text: str | bytes, **options: Any) -> list[str]:
    with pytest.raises(PlanFileError) as caught:
        load(folder, text, **options)
    error = caught.value
    assert error.message == "\n".join(error.problems)
    assert error.exit_code == 2
    file = f"{folder / 'plan.yaml'}:"
    assert all(problem.startswith(file) for problem in error.problems)
    return [problem.removeprefix(file) for problem in error.problems]


CONTRACT = """\
name: upgrade the widget
resources:                      # in order; the first is the default of every step
  app:  {type: git, path: app}
  data: {type: directory, path: ./app/../data}
policy:
  on_failure: rollback_to_start
  rollback_enabled: true
  require_checkpoints: false
  max_checkpoints: 7
  auto_create_on: [on_tool_write, after_tool_execute]
validate:
  - pytest -q
steps:
  - name: bump the version
    tool: edit_file
    args: {path: pyproject.toml, find: 'version = "1"', replace: 'version = "2"'}
    decision:
      type: strategy_choice
      question: Which version comes next?
      chosen: "2"
      alternatives: ["1.1"]
      rationale: the format changes
      confidence: 0.5
  - name: regenerate
    run: make generated
    timeout: 600
    retries: 1
  - name: keep a note
    tool: write_file
    resource: data
    args: {path: notes.txt, content: "done\\n"}
    checkpointable: true
    side_effects: false
    idempotent: true
  - name: look
    run: git status
    writes: false
  - name: two things at once
    parallel: 2
    merge: last_wins
    subplans:
      - {name: left,  steps: [{run: ./left.sh}]}
      - name: right
        steps:
          - subplans: [{name: deep, steps: [{run: ./right.sh, resource: data}]}]
"""


def test_a_whole_plan_file_becomes_a_draft(folder: Path) -> None:
    draft = load(folder, CONTRACT)

    assert draft.name == "upgrade the widget"
    assert draft.source_file == folder / "plan.yaml"
    assert [(each.name, each.type, each.path) for each in draft.resources] == [
        ("app", ResourceType.GIT, folder / "app"),
        ("data", ResourceType.DIRECTORY, folder / "data"),
    ]
    assert draft.policy == Policy(
        on_failure=OnFailure.ROLLBACK_TO_START,
        require_checkpoints=False,
        max_checkpoints=7,
        auto_create_on=(Trigger.ON_TOOL_WRITE, Trigger.ON_TOOL_WRITE_COMPLETE),
    )
    assert draft.validation == ("pytest -q",)

    bump, regenerate, note, look, both = draft.steps
    assert (bump.tool, bump.resource) == ("edit_file", "app")
    assert bump.args == {"path": "pyproject.toml", "find": 'version = "1"', "replace": 'version = "2"'}
    assert bump.decision == DecisionSpec(
        type=DecisionType.STRATEGY_CHOICE,
        question="Which version comes next?",
        chosen="2",
        alternatives=("1.1",),
        rationale="the format changes",
        confidence=0.5,
    )
    assert (regenerate.tool, regenerate.args) == ("shell", {"command": "make generated"})
    assert (regenerate.timeout_seconds, regenerate.retries) == (600, 1)
    assert (note.resource, note.args["content"]) == ("data", "done\n")
    assert (note.checkpointable, note.side_effects, note.idempotent) == (True, False, True)
    assert (look.writes, bump.writes) == (False, None)
    assert (both.tool, both.parallel, both.merge) == (SUBPLANS_TOOL, 2, MergeStrategy.LAST_WINS)
    left, right = both.subplans
    assert (left.name, left.steps[0].args, left.steps[0].resource) == ("left", {"command": "./left.sh"}, "app")
    deep = right.steps[0].subplans[0]
    assert (deep.name, deep.steps[0].resource) == ("deep", "data")


def test_what_the_policy_leaves_out_comes_from_the_defaults(folder: Path) -> None:
    defaults = Policy(max_checkpoints=9, auto_create_on=(Trigger.BEFORE_STEP,), on_failure=OnFailure.KEEP)
    assert load(folder, HEAD + STEPS, defaults=defaults).policy == defaults
    draft = load(folder, HEAD + "policy: {rollback_enabled: false}\n" + STEPS, defaults=defaults)
    assert draft.policy == defaults.model_copy(update={"rollback_enabled": False})


def test_an_empty_list_of_triggers_means_none_at_all(folder: Path) -> None:
    assert load(folder, HEAD + "policy: {auto_create_on: []}\n" + STEPS).policy.auto_create_on == ()


@pytest.mark.parametrize(
    ("step", "name"),
    [
        ("run: make all", "make all"),
        ("run: |\n\n      first   line\n      second line", "first line"),
        ("run: " + "x" * 100, "x" * 79 + "…"),
        ("{tool: write_file, args: {path: notes.txt}}", "write_file notes.txt"),
        ("{tool: python, args: {path: 3}}", "python"),
        ("{tool: 'my\u00a0tool'}", "my tool"),
        ("subplans: [{name: left, steps: [{run: a}]}, {name: right, steps: [{run: a}]}]", "left, right"),
        ("{run: a, name: '  given  '}", "given"),
    ],
)
def test_a_step_without_a_name_is_called_after_what_it_does(folder: Path, step: str, name: str) -> None:
    assert load(folder, HEAD + f"steps:\n  - {step}\n").steps[0].name == name


def test_paths_are_relative_to_the_plan_file_and_links_are_resolved(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "link").symlink_to("data")
    monkeypatch.chdir(folder / "app")
    text = f"name: n\nresources:\n  a: {{type: directory, path: link}}\n  b: {{type: git, path: {folder}/app}}\n{STEPS}"
    (folder / "plan.yaml").write_text(text)
    draft = load_plan_file(Path("../plan.yaml"), defaults=Policy())
    assert [each.path for each in draft.resources] == [folder / "data", folder / "app"]
    assert draft.source_file.is_absolute()


def test_anchors_and_merge_keys_work(folder: Path) -> None:
    text = """
steps:
  - &make {run: make, timeout: 5, retries: 2}
  - {<<: *make, retries: 3}
  - {<<: [{timeout: 1}, *make], name: third}
  - *make
"""
    steps = load(folder, HEAD + text).steps
    assert [(step.timeout_seconds, step.retries) for step in steps] == [(5, 2), (5, 3), (1, 2), (5, 2)]
    assert steps[2].name == "third"


def test_a_byte_order_mark_is_no_content(folder: Path) -> None:
    assert load(folder, b"\xef\xbb\xbf" + (HEAD + STEPS).encode()).name == "n"


def test_plain_signs_that_yaml_gives_a_meaning_to_are_text_as_values(folder: Path) -> None:
    step = load(folder, HEAD + "steps: [{tool: t, args: {find: =, replace: <<}}]\n").steps[0]
    assert step.args == {"find": "=", "replace": "<<"}


# Each file is wrong in the ways listed, and in no other.
WRONG_CONTENT = {
    "empty": ("", ["1:1: expected a mapping with name, resources and steps, found nothing"]),
    "only a comment": ("# later\n", ["1:1: expected a mapping with name, resources and steps, found nothing"]),
    "a list": ("- a\n", ["1:1: expected a mapping with name, resources and steps, found a list"]),
    "a text": ("\n  hello", ['2:3: expected a mapping with name, resources and steps, found the text "hello"']),
    "an empty mapping": (
        "{}",
        ['1:1: the key "name" is missing', '1:1: the key "resources" is missing', '1:1: the key "steps" is missing'],
    ),
    "colon in a command": (
        HEAD + "steps:\n  - run: echo a: b\n",
        ['4:16: mapping values are not allowed here; text with ": " in it needs quotes, or a block that begins with |'],
    ),
    "tab": (
        "name: n\nresources:\n\tapp: x\n",
        [
            (
                "3:1: while scanning for the next token, found character '\\t' that cannot start any token; "
                "indent with spaces, not with tabs"
            )
        ],
    ),
    "bracket left open": (
        "name: [n\n",
        ["2:1: while parsing a flow sequence, expected ',' or ']', but got '<stream end>'"],
    ),
    "two documents": (
        HEAD + STEPS + "---\nname: m\n",
        [
            (
                "4:1: expected a single document in the stream, but found another document; "
                "a plan file is one document, without further lines of ---"
            )
        ],
    ),
    "unknown alias": ("name: *who\n", ["1:7: found undefined alias 'who'"]),
    "alias inside itself": (
        HEAD + "steps: [{tool: t, args: &a {b: *a}}]\n",
        ["3:25: an alias refers to a value that contains it"],
    ),
    "merge of itself": (
        HEAD + "steps:\n  - &a\n    <<: *a\n",
        ["4:5: an alias refers to a value that contains it"],
    ),
    "merge of a text": (
        HEAD + "steps: [{<<: text, run: a}]\n",
        ["3:14: expected a mapping to merge, or a list of them"],
    ),
    "merge of texts": (HEAD + "steps: [{<<: [text], run: a}]\n", ["3:15: expected a mapping to merge"]),
    "two merges": (
        HEAD + "steps: [{<<: {run: a}, <<: {retries: 1}}]\n",
        ['3:24: the key "<<" is here a second time'],
    ),
    "control character": ("name: a\nsteps: \x07\n", ["2:8: the character U+0007 is not allowed"]),
    "escape beyond unicode": (
        'name: "\\Uffffffff"\n',
        ["1:10: this escape or number is beyond what YAML allows"],
    ),
    "lone surrogate": ('name: "a\\ud800"\n' + HEAD[8:] + STEPS, ["1:7: expected text without NUL and lone surrogates"]),
    "NUL": (HEAD + 'steps: [{run: "a\\0"}]\n', ["3:15: expected text without NUL and lone surrogates"]),
    "key twice": (HEAD + "steps:\n- run: a\n  run: b\n", ['5:3: the key "run" is here a second time']),
    "key twice in arguments": (
        HEAD + "steps: [{tool: t, args: {a: 1, a: 1}}]\n",
        ['3:32: the key "a" is here a second time'],
    ),
    "list as a key": (HEAD + "steps: [{run: a, [b]: c}]\n", ["3:18: expected text as a key"]),
    "number as a key": (
        HEAD + "steps: [{tool: t, args: {1: c}}]\n",
        ['3:26: expected text as a key, found 1; put it in quotes: "1"'],
    ),
    "truth as a key": (
        "name: n\nresources:\n  on: {type: git, path: app}\n" + STEPS,
        ['3:3: expected text as a key, found on; put it in quotes: "on"'],
    ),
    "date": (
        HEAD + "steps: [{tool: t, args: {day: 2024-01-01}}]\n",
        ['3:31: 2024-01-01 without quotes is a date; put it in quotes: "2024-01-01"'],
    ),
    "base 60": (
        HEAD + "steps: [{run: a, timeout: 1:30}]\n",
        ['3:27: 1:30 without quotes is a number to base 60; put it in quotes: "1:30"'],
    ),
    "huge number": (
        HEAD + "steps: [{run: a, retries: 9223372036854775808}]\n",
        ["3:27: 9223372036854775808 is not a number that can be stored"],
    ),
    "infinite": (HEAD + "steps: [{run: a, timeout: .inf}]\n", ["3:27: .inf is not a number that can be stored"]),
    "no number": (HEAD + "steps: [{run: a, timeout: !!float x}]\n", ["3:27: x is not a value of type float"]),
    "no truth": (HEAD + "steps: [{run: a, writes: !!bool x}]\n", ["3:26: x is not a value of type bool"]),
    "own tag": (HEAD + "steps: [{run: !mine a}]\n", ["3:15: the YAML tag !mine has no meaning here"]),
    "python tag": (
        HEAD + "steps: [{run: !!python/name:os.system a}]\n",
        ["3:15: the YAML tag !!python/name:os.system has no meaning here"],
    ),
    "text that is a number": (
        HEAD + "steps:\n- run: a\n  decision: {type: strategy_choice, question: q, chosen: 2}\n",
        ['5:58: expected text, found the number 2; put it in quotes: "2"'],
    ),
    "text that is a float": (
        HEAD + "validate: [1.50]\n" + STEPS,
        ['3:12: expected text, found the number 1.50; put it in quotes: "1.50"'],
    ),
    "text that is a truth value": (
        "name: on\n" + HEAD[8:] + STEPS,
        ['1:7: expected text, found on, which YAML reads as true; put it in quotes: "on"'],
    ),
    "text that is false": (
        HEAD + "steps: [{run: no}]\n",
        ['3:15: expected text, found no, which YAML reads as false; put it in quotes: "no"'],
    ),
    "text that is a list": (HEAD + "steps: [{run: [a]}]\n", ["3:15: expected text, found a list"]),
    "text that is a mapping": (
        HEAD + "steps: [{run: {{a}}}]\n",
        ["3:15: expected text, found an empty mapping", "3:16: expected text as a key"],
    ),
    "quoted truth value": (
        HEAD + 'steps: [{run: a, writes: "yes"}]\n',
        ['3:26: expected true or false, found the text "yes"'],
    ),
    "number in quotes": (
        HEAD + 'steps: [{run: a, timeout: "5"}]\n',
        ['3:27: expected a number, found the text "5"'],
    ),
    "half a retry": (
        HEAD + "steps: [{run: a, retries: 1.5}]\n",
        ["3:27: expected a whole number, found the number 1.5"],
    ),
    "truth as a number": (
        HEAD + "steps: [{run: a, retries: yes}]\n",
        ["3:27: expected a whole number, found yes, which YAML reads as true"],
    ),
    "blank name": ('name: " "\n' + HEAD[8:] + STEPS, ["1:7: expected text, found only blanks"]),
    "empty name": ('name: ""\n' + HEAD[8:] + STEPS, ["1:7: expected text, found only blanks"]),
    "name of two lines": (
        "name: |\n  a\n  b\n" + HEAD[8:] + STEPS,
        ["1:7: expected one line of text without control characters"],
    ),
    "name with an escape sequence": (
        'name: "\\e[31m"\n' + HEAD[8:] + STEPS,
        ["1:7: expected one line of text without control characters"],
    ),
    "blank command": (HEAD + "steps: [{run: ' '}]\n", ["3:15: expected text, found only blanks"]),
    "key without a value": (
        HEAD + "policy:\nvalidate:\n" + STEPS,
        [
            '3:1: the key "policy" has no value; give it one or leave the key out',
            '4:1: the key "validate" has no value; give it one or leave the key out',
        ],
    ),
    "required key without a value": ("name:\n" + HEAD[8:] + STEPS, ['1:1: the key "name" has no value; give it one']),
    "nothing in a list": (HEAD + "steps: [~]\n", ["3:9: expected a mapping, found nothing"]),
    "steps are no list": (HEAD + "steps: {run: a}\n", ["3:8: expected a list, found a mapping"]),
    "no steps": (HEAD + "steps: []\n", ["3:8: expected at least one entry, found an empty list"]),
    "validate is a text": (HEAD + "validate: make\n" + STEPS, ['3:11: expected a list, found the text "make"']),
    "unknown key": (
        HEAD + STEPS + "polcy: {}\n",
        ['4:1: unknown key "polcy" (known here: name, resources, policy, validate, steps); did you mean "policy"?'],
    ),
    "the model's word for validate": (
        HEAD + STEPS + "validation: [a]\n",
        [
            (
                '4:1: unknown key "validation" (known here: name, resources, policy, validate, steps); '
                'did you mean "validate"?'
            )
        ],
    ),
    "unknown key of a policy": (
        HEAD + "policy: {zzz: 1}\n" + STEPS,
        [
            (
                '3:10: unknown key "zzz" (known here: '
                "on_failure, rollback_enabled, require_checkpoints, max_checkpoints, auto_create_on)"
            )
        ],
    ),
    "unknown key deep inside": (
        HEAD + "steps:\n- subplans:\n  - name: a\n    steps:\n    - run: b\n    stesp: []\n",
        ['8:5: unknown key "stesp" (known here: name, steps); did you mean "steps"?'],
    ),
    "unknown trigger": (
        HEAD + "policy:\n  auto_create_on:\n  - before_tool_execute\n  - on_eror\n" + STEPS,
        [
            (
                '6:5: unknown trigger "on_eror" (valid: before_step, on_tool_write, on_tool_write_complete, '
                "on_decision, on_subplan_spawn, after_subplan, on_error, before_tool_execute, after_tool_execute); "
                'did you mean "on_error"?'
            )
        ],
    ),
    "unknown answer to failure": (
        HEAD + "policy: {on_failure: rollbak}\n" + STEPS,
        ['3:22: expected one of rollback, rollback_to_start, keep, found the text "rollbak"; did you mean "rollback"?'],
    ),
    "a truth value for a choice": (
        HEAD + "policy: {on_failure: no}\n" + STEPS,
        ["3:22: expected one of rollback, rollback_to_start, keep, found no, which YAML reads as false"],
    ),
    "numbers beyond their limits": (
        HEAD
        + "policy: {max_checkpoints: 1}\nsteps:\n- {run: a, timeout: 0, retries: -1}\n- {run: a, timeout: 2000001}\n"
        + "- {subplans: [{name: a, steps: [{run: a}]}], parallel: 0}\n"
        + "- {run: a, decision: {type: strategy_choice, question: q, chosen: c, confidence: 1.5}}\n",
        [
            "3:27: expected at least 2, found the number 1",
            "5:21: expected more than 0, found the number 0",
            "5:33: expected at least 0, found the number -1",
            "6:21: expected at most 2000000, found the number 2000001",
            "7:56: expected at least 1, found the number 0",
            "8:82: expected at most 1, found the number 1.5",
        ],
    ),
    "incomplete decision": (
        HEAD + "steps:\n- run: a\n  decision:\n    type: strategy_choice\n",
        ['6:5: the key "chosen" is missing', '6:5: the key "question" is missing'],
    ),
    "the root decision": (
        HEAD + "steps: [{run: a, decision: {type: prompt_definition, question: q, chosen: c}}]\n",
        [
            (
                "3:35: expected one of invariant_enforced, strategy_choice, resource_selection, subplan_spawn, "
                "subplan_parallel_spawn, implementation_choice, tool_invocation, error_recovery, validation_response, "
                'user_intervention, found the text "prompt_definition"'
            )
        ],
    ),
    "a step that does nothing": (
        HEAD + "steps:\n- name: a\n",
        ["4:3: expected one of run, tool or subplans in a step"],
    ),
    "a step that does two things": (
        HEAD + "steps:\n- {run: a, tool: b}\n",
        ["4:3: expected only one of run, tool or subplans in a step, found run and tool"],
    ),
    "a step that does three things": (
        HEAD + "steps:\n- {run: a, tool: b, subplans: [{name: c, steps: [{run: a}]}]}\n",
        ["4:3: expected only one of run, tool or subplans in a step, found run and tool and subplans"],
    ),
    "keys of another kind of step": (
        HEAD + "steps:\n- {run: a, args: {}, merge: three_way, parallel: 1}\n"
        "- {writes: true, resource: app, subplans: [{name: c, steps: [{run: a}]}]}\n",
        [
            '4:12: the key "args" belongs to a step with tool',
            '4:22: the key "merge" belongs to a step with subplans',
            '4:40: the key "parallel" belongs to a step with subplans',
            '5:4: the key "writes" belongs to a step with run or tool',
            '5:18: the key "resource" belongs to a step with run or tool',
        ],
    ),
    "unknown keys of a decision and of a compensation": (
        HEAD + "steps:\n- {run: a, decision: {chosn: b}}\n- {run: a, compensate: {toool: b}}\n",
        [
            '4:22: the key "chosen" is missing',
            '4:22: the key "question" is missing',
            '4:22: the key "type" is missing',
            (
                '4:23: unknown key "chosn" (known here: type, question, chosen, alternatives, rationale, confidence); '
                'did you mean "chosen"?'
            ),
            '5:24: the key "tool" is missing',
            '5:25: unknown key "toool" (known here: tool, args); did you mean "tool"?',
        ],
    ),
    "subplans as a tool": (
        HEAD + "steps: [{tool: subplans}]\n",
        ["3:16: expected a tool; subplans are given by the key subplans"],
    ),
    "no subplans": (HEAD + "steps: [{subplans: []}]\n", ["3:20: expected at least one entry, found an empty list"]),
    "a subplan is no mapping": (HEAD + "steps: [{subplans: [a]}]\n", ['3:21: expected a mapping, found the text "a"']),
    "subplans of one name": (
        HEAD + "steps:\n- subplans:\n  - {name: a, steps: [{run: b}]}\n  - {name: a, steps: [{run: b}]}\n",
        ['6:12: there is already a subplan "a" in this step'],
    ),
    "unknown resource": (
        HEAD + "steps: [{run: a, resource: apps}]\n",
        ['3:28: there is no resource "apps" (there are: app); did you mean "app"?'],
    ),
    "unknown resource deep inside": (
        HEAD + "steps:\n- subplans:\n  - name: a\n    steps:\n    - run: b\n      resource: zzz\n",
        ['8:17: there is no resource "zzz" (there are: app)'],
    ),
    "no resources": ("name: n\nresources: {}\n" + STEPS, ["2:12: expected at least one entry, found an empty mapping"]),
    "resources are a list": ("name: n\nresources: [app]\n" + STEPS, ["2:12: expected a mapping, found a list"]),
    "a resource is a text": (
        "name: n\nresources: {app: app}\n" + STEPS,
        ['2:18: expected a mapping, found the text "app"'],
    ),
    "a resource without type and path": (
        "name: n\nresources:\n  app: {}\n" + STEPS,
        ['3:8: the key "path" is missing', '3:8: the key "type" is missing'],
    ),
    "unknown type of resource": (
        "name: n\nresources:\n  app: {type: gti, path: app}\n" + STEPS,
        ['3:15: expected one of git, directory, found the text "gti"; did you mean "git"?'],
    ),
    "a resource name that no file could be named after": (
        f"name: n\nresources:\n  {'r' * 81}: {{type: git, path: app}}\n" + STEPS,
        ["3:3: expected a name of at most 80 characters, and this one has 81"],
    ),
    "resource names": (
        "name: n\nresources:\n  9x: {type: git, path: app}\n  a b: {type: git, path: data}\n" + STEPS,
        [
            '3:3: expected a name of letters, digits, - and _ that begins with a letter, not "9x"',
            '4:3: expected a name of letters, digits, - and _ that begins with a letter, not "a b"',
        ],
    ),
    "resource names that become one variable": (
        "name: n\nresources:\n  my-app: {type: git, path: app}\n  My_App: {type: git, path: data}\n" + STEPS,
        ['4:3: "My_App" and "my-app" would both be HOLDFAST_RESOURCE_MY_APP in a step; rename one'],
    ),
}


@pytest.mark.parametrize(("text", "expected"), WRONG_CONTENT.values(), ids=WRONG_CONTENT.keys())
def test_a_wrong_file_is_refused_with_every_problem_and_its_place(folder: Path, text: str, expected: list[str]) -> None:
    assert problems(folder, text) == expected


def test_all_problems_are_reported_at_once_in_the_order_of_the_file(folder: Path) -> None:
    text = "nam: 5\nresources:\n  app: {type: git, path: nowhere}\npolicy: {max_checkpoints: 0}\nsteps:\n- when: now\n"
    places = [problem.split(": ")[0] for problem in problems(folder, text)]
    assert places == ["1:1", "1:1", "3:26", "4:27", "6:3", "6:3"]


def test_resource_folders_must_exist_and_be_folders(folder: Path) -> None:
    (folder / "file").write_text("")
    (folder / "loop").symlink_to("loop")
    text = "name: n\nresources:\n" + "".join(
        f"  r{index}: {{type: directory, path: {path}}}\n"
        for index, path in enumerate(["nowhere", "file", "loop", "file/below", "'~/data'"])
    )
    assert problems(folder, text + STEPS) == [
        f"3:31: expected a folder, but {folder}/nowhere does not exist",
        f"4:31: expected a folder, but {folder}/file is not a folder",
        f"5:31: expected a folder, but {folder}/loop cannot be used: {os.strerror(40)}",
        f"6:31: expected a folder, but {folder}/file/below cannot be used: {os.strerror(20)}",
        f"7:31: expected a folder, but {folder}/~/data does not exist; ~ is not expanded here",
    ]


def test_a_plan_file_and_its_resources_may_lie_on_a_path_that_is_not_text(folder: Path) -> None:
    odd = folder / os.fsdecode(b"\xff")
    odd.mkdir()
    (odd / "plan.yaml").write_text("name: n\nresources: {a: {type: git, path: .}}\n" + STEPS)
    draft = load_plan_file(odd / "plan.yaml", defaults=Policy())
    assert (draft.resources[0].path, draft.source_file) == (odd, odd / "plan.yaml")
    (odd / "plan.yaml").write_text("name: 1\n")
    with pytest.raises(PlanFileError, match=r"/\\xff/plan\.yaml:1:"):
        load_plan_file(odd / "plan.yaml", defaults=Policy())


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("app", "app/../app", '"b" is the same folder as "a": {folder}/app'),
        ("app", "link", '"b" is the same folder as "a": {folder}/app'),
        ("app", "app/inner", '"b" is inside of "a": {folder}/app'),
        ("app/inner", "link", '"a" is inside of "b": {folder}/app/inner'),
        ("link/inner", ".", '"a" is inside of "b": {folder}/app/inner'),
    ],
)
def test_resources_may_not_overlap_also_not_through_a_link(folder: Path, first: str, second: str, message: str) -> None:
    (folder / "link").symlink_to("app")
    text = f"name: n\nresources:\n  a: {{type: git, path: {first}}}\n  b: {{type: git, path: {second}}}\n"
    assert problems(folder, text + STEPS) == ["4:24: " + message.format(folder=folder)]


def test_folders_with_a_common_beginning_do_not_overlap(folder: Path) -> None:
    (folder / "app-two").mkdir()
    text = "name: n\nresources:\n  a: {type: git, path: app}\n  b: {type: git, path: app-two}\n"
    assert len(load(folder, text + STEPS).resources) == 2


def test_a_missing_file_is_named_with_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(PlanFileError) as caught:
        load_plan_file(tmp_path / "none.yaml", defaults=Policy())
    assert caught.value.message == f"{tmp_path}/none.yaml: there is no such file; expected a plan file in YAML"
    assert caught.value.hint


def test_a_plan_from_a_stream_has_no_file_and_its_paths_begin_in_the_current_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "name: n\nresources: {a: {type: git, path: app}}\n" + STEPS
    (folder / "elsewhere").mkdir()
    file, pipe = folder / "elsewhere" / "plan.yaml", folder / "elsewhere" / "pipe"
    file.write_text(text)
    os.mkfifo(pipe)
    (folder / "link").symlink_to("/dev/fd")
    monkeypatch.chdir(folder)
    writer = threading.Thread(target=pipe.write_text, args=(text,))
    writer.start()
    drafts = [load_plan_file(pipe, defaults=Policy())]
    writer.join()
    one, other = socket.socketpair()
    with one, other, file.open() as opened:
        other.sendall(text.encode())
        other.shutdown(socket.SHUT_WR)
        names = f"/dev/fd/{opened.fileno()}", f"link/{one.fileno()}"
        drafts += [load_plan_file(Path(name), defaults=Policy()) for name in names]
    assert [(each.resources[0].path, each.source_file) for each in drafts] == [(folder / "app", None)] * 3


def test_a_stream_without_an_end_is_refused() -> None:
    with pytest.raises(PlanFileError, match="more than 64 MiB"):
        load_plan_file(Path("/dev/zero"), defaults=Policy())


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    for name, message in {
        ".": "this is a folder",
        "a\0b": "this cannot be the name of a file",
        "x" * 300: f"it cannot be read ({os.strerror(36)})",
    }.items():
        with pytest.raises(PlanFileError) as caught:
            load_plan_file(tmp_path / name, defaults=Policy())
        assert f": {message}; expected a plan file" in caught.value.message


def test_a_file_that_is_not_utf_8_is_refused_at_the_first_wrong_byte(folder: Path) -> None:
    assert problems(folder, "name: ä\n# é".encode() + b"\xff\n") == [
        "2:4: this is not UTF-8; expected a plan file in YAML"
    ]


def test_aliases_that_multiply_are_refused(folder: Path) -> None:
    rows = "".join(f"    - &a{row} [{', '.join([f'*a{row - 1}'] * 10)}]\n" for row in range(1, 9))
    text = HEAD + "steps:\n- tool: t\n  args:\n    x:\n    - &a0 [x]\n" + rows
    (problem,) = problems(folder, text)
    assert problem.endswith("more than 100000 values, aliases counted each time")


@pytest.mark.parametrize("depth", [125, 5000])
def test_too_deep_a_file_is_refused(folder: Path, depth: int) -> None:
    (problem,) = problems(folder, HEAD + "steps: " + "[" * depth + "]" * depth)
    assert problem == "3:127: nested deeper than 120 levels"


def test_aliases_do_not_make_a_file_deeper_than_it_may_be(folder: Path) -> None:
    layers = "".join(f"    l{n}: &l{n} {'[' * 50}*l{n - 1}{']' * 50}\n" for n in range(1, 4))
    text = HEAD + "steps:\n- tool: t\n  args:\n    l0: &l0 []\n" + layers
    (problem,) = problems(folder, text)
    assert problem.endswith(": nested deeper than 120 levels, aliases followed")


def test_subplans_nest_many_levels(folder: Path) -> None:
    step = "{run: a}"
    for _ in range(25):
        step = f"{{subplans: [{{name: s, steps: [{step}]}}]}}"
    inner = load(folder, HEAD + f"steps: [{step}]\n").steps[0]
    for _ in range(25):
        inner = inner.subplans[0].steps[0]
    assert inner.args == {"command": "a"}


def test_problems_of_the_toolbox_get_the_line_of_the_step(folder: Path) -> None:
    calls = []

    def check(tool: str, args: dict[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
        calls.append((tool, args))
        complaints: dict[str, list[tuple[tuple[str | int, ...], str]]] = {
            "edit_file": [(("args", "find"), "find is empty"), (("args", "replace"), "replace is missing")],
            "nope": [(("tool",), "no such tool")],
            "shell": [(("args", "command"), "forbidden"), ((), "in general")],
        }
        return complaints.get(tool, [])

    text = """\
steps:
- tool: edit_file
  args:
    path: a
    find: ""
- tool: nope
- subplans:
  - name: s
    steps:
    - name: x
      run: rm
- {tool: fine, args: {list: [1]}}
- {run: a, tool: b}
- {run: " "}
- {tool: c, args: []}
"""
    assert problems(folder, HEAD + text, check_step=check) == [
        "6:5: replace is missing",
        "7:11: find is empty",
        "8:9: no such tool",
        "12:7: in general",
        "13:12: forbidden",
        "15:3: expected only one of run, tool or subplans in a step, found run and tool",
        "16:9: expected text, found only blanks",
        "17:19: expected a mapping, found an empty list",
    ]
    assert calls == [
        ("edit_file", {"path": "a", "find": ""}),
        ("nope", {}),
        ("shell", {"command": "rm"}),
        ("fine", {"list": [1]}),
    ]


def test_a_toolbox_without_complaints_lets_the_plan_through(folder: Path) -> None:
    assert load(folder, HEAD + STEPS, check_step=lambda _tool, _args: []).steps[0].tool == "shell"


def steps_of(folder: Path, text: str, **options: Any) -> tuple[Step, ...]:
    (folder / "steps.yaml").write_text(text)
    return load_steps_file(folder / "steps.yaml", resources=["app", "data"], **options)


def test_a_file_of_steps_alone_works_on_the_resources_of_the_plan(folder: Path) -> None:
    first, second = steps_of(folder, "steps:\n- run: make\n- {run: ls, resource: data}\n")
    assert (first.args, first.resource, second.resource) == ({"command": "make"}, "app", "data")


def test_of_a_whole_plan_file_only_the_steps_are_used(folder: Path) -> None:
    assert [step.name for step in steps_of(folder, "name: 5\nresources: {}\n" + STEPS)] == ["make"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["1:1: expected a mapping with the key steps, found nothing"]),
        ("- run: a\n", ["1:1: expected a mapping with the key steps, found a list"]),
        ("steps: [\n", ["2:1: while parsing a flow node, expected the node content, but found '<stream end>'"]),
        ("name: n\n", ['1:1: the key "steps" is missing']),
        ("stesp: []\n" + STEPS, ['1:1: unknown key "stesp" (expected steps)']),
        (
            "steps: [{run: a, resource: dat}]\n",
            ['1:28: there is no resource "dat" (there are: app, data); did you mean "data"?'],
        ),
        (
            "steps: [{run: 5}, {}]\n",
            [
                '1:15: expected text, found the number 5; put it in quotes: "5"',
                "1:19: expected one of run, tool or subplans in a step",
            ],
        ),
        ("steps: [{tool: t}]\n", ["1:16: no such tool"]),
    ],
)
def test_a_wrong_file_of_steps_is_refused_with_every_problem_and_its_place(
    folder: Path, text: str, expected: list[str]
) -> None:
    with pytest.raises(PlanFileError) as caught:
        steps_of(folder, text, check_step=lambda tool, _args: [(("tool",), "no such tool")] if tool == "t" else [])
    assert list(caught.value.problems) == [f"{folder}/steps.yaml:{problem}" for problem in expected]


def references(schema: object) -> list[str]:
    if isinstance(schema, dict):
        own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
        return own + [ref for value in schema.values() for ref in references(value)]
    return [ref for value in schema for ref in references(value)] if isinstance(schema, list) else []


def test_the_schema_describes_every_key_to_an_editor() -> None:
    schema = plan_file_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"] == "Holdfast plan file"
    assert schema["required"] == ["name", "resources", "steps"]
    for part in (schema, *schema["$defs"].values()):
        assert part["title"]
        assert part["description"]
        assert part["additionalProperties"] is False
        assert all(entry["description"] for entry in part["properties"].values())
    assert {ref.removeprefix("#/$defs/") for ref in references(schema)} == set(schema["$defs"])


def test_the_schema_says_what_the_loader_enforces() -> None:
    schema = plan_file_schema()
    step = schema["$defs"]["StepEntry"]
    assert step["oneOf"] == [{"required": ["run"]}, {"required": ["tool"]}, {"required": ["subplans"]}]
    assert step["dependentSchemas"]["parallel"] == {"anyOf": [{"required": ["subplans"]}]}
    assert step["properties"]["timeout"]["exclusiveMinimum"] == 0
    policy = schema["$defs"]["PolicyEntry"]["properties"]
    assert policy["max_checkpoints"]["minimum"] == 2
    assert "before_tool_execute" in policy["auto_create_on"]["items"]["enum"]
    assert "prompt_definition" not in schema["$defs"]["DecisionEntry"]["properties"]["type"]["enum"]
    assert schema["properties"]["resources"]["propertyNames"]["pattern"].startswith("^[A-Za-z]")
    assert '"null"' not in str(schema).replace("'", '"')
