"""What a user sees afterwards: exit code, words, answers for programs, files, checkpoints, processes."""

from __future__ import annotations

import json
import re

import yaml
from behave import step, then, use_step_matcher
from features.names import named, value_at
from features.scratch import compare, describe, wait_until

use_step_matcher("re")

ENVELOPE = {"command", "status", "exit_code", "data", "timing", "messages"}
ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


def expect_equal(found, expected):
    assert found == expected, f"expected {expected!r}, found {found!r}"


def expect_same(one, other, ignoring=()):
    differences = compare(one, other, ignoring=ignoring)
    assert not differences, "\n".join(differences)


# The command


@then(r"it ends with exit code (\d+)")
def check_exit_code(context, code):
    assert context.ended.exit_code == int(code), f"expected exit code {code}, but {context.ended}"


@then(r"the killed command is gone")
def check_killed(context):
    assert context.ended.exit_code < 0, context.ended


@then(r"it says")
def check_words(context):
    for line in context.text.splitlines():
        check_said(context, line.strip())


@then(r'it says "([^"]+)"')
def check_said(context, words):
    assert named(context, words) in context.ended.said, f"expected {named(context, words)!r}, but {context.ended}"


@then(r'it does not say "([^"]+)"')
def check_not_said(context, words):
    assert named(context, words) not in context.ended.said, context.ended


@then(r'it says "([^"]+)" (\d+) times?')
def check_said_often(context, words, times):
    expect_equal(context.ended.said.count(words), int(times))


@then(r"it is coloured")
def check_coloured(context):
    assert "\x1b[" in context.ended.stdout, context.ended


@then(r"the data has")
def check_data(context):
    for path, expected in context.table:
        check_value(context, context.ended.data, path, expected)


@then(r'"plan status" has')
def check_status(context):
    data = context.scratch.ask("plan", "status", "latest")
    for path, expected in context.table:
        check_value(context, data, path, expected)


def check_value(context, data, path, expected):
    found = value_at(data, path)
    expected = named(context, expected)
    if expected == "an id":
        assert isinstance(found, str), f"{path} is {found!r}"
        assert ULID.fullmatch(found), f"{path} is {found!r}"
        return
    try:
        wanted = json.loads(expected)
    except ValueError:
        wanted = expected
    assert found == wanted, f"{path} is {found!r}, not {wanted!r}"


@then(r"the answer is one envelope in (json|yaml)")
def check_envelope(context, chosen):
    answer = context.ended.envelope if chosen == "json" else yaml.safe_load(context.ended.stdout)
    expect_equal(set(answer), ENVELOPE)
    expect_equal(set(answer["timing"]), {"started", "duration_ms"})
    expect_equal(answer["exit_code"], context.ended.exit_code)
    expect_equal(answer["status"], "ok" if context.ended.exit_code == 0 else "error")
    context.answers = [*getattr(context, "answers", []), answer]


@then(r"both answers have the same data")
def check_same_data(context):
    one, other = context.answers
    expect_equal(one["data"], other["data"])


# Files


@then(r"my files are untouched")
def check_mine(context):
    expect_same(context.mine, context.scratch.mine())


@then(r"nothing has changed")
def check_nothing_changed(context):
    differences = context.before.differences_to(context.scratch.scene())
    assert not differences, "\n".join(differences)


@then(r'the sandboxes are exactly as "([^"]+)"')
def check_sandboxes(context, name):
    expect_same(context.remembered[name], context.scratch.described_sandboxes())


@then(r'but for "([^"]+)" the sandbox of "([^"]+)" is exactly as my folder "([^"]+)"')
def check_sandbox_against_mine(context, exception, resource, place):
    sandbox = describe(context.scratch.sandbox(resource))
    assert sandbox.pop(exception.encode(), None), f"{exception} is not there"
    expect_same(describe(context.scratch.root / place), sandbox)


@then(r'in (the sandbox of )?"([^"]+)" this prints')
def check_printed_lines(context, in_sandbox, place):
    """The first line is the command, the others are what it prints."""
    command, _, expected = context.text.partition("\n")
    folder = context.scratch.sandbox(place) if in_sandbox else place
    expect_equal(context.scratch.shell(command.removeprefix("$ "), folder).strip(), named(context, expected).strip())


@then(r"there is no sandbox")
def check_no_sandbox(context):
    folder = context.scratch.home / "sandboxes"
    assert not folder.exists() or not any(folder.iterdir())


@then(r"the rollback counts each file it lists, among them")
def check_reverted(context):
    listed = {each["file"]: each["action"] for each in context.ended.data["changes_reverted"]}
    expect_equal(context.ended.data["rollback_summary"]["files_reverted"], len(listed))
    for file, action in context.table:
        assert listed.get(file) == action, f"{file} is not {action}, but {listed}"


# Checkpoints


@then(r"the checkpoints are")
def check_checkpoints(context):
    found = [
        (
            ", ".join(group["triggers"]),
            "" if group["step_index"] is None else str(group["step_index"] + 1),
            ", ".join(group["resources"]),
        )
        for group in context.scratch.groups()
    ]
    expected = [tuple(row) for row in context.table]
    assert found == expected, "found:\n" + "\n".join(f"| {' | '.join(row)} |" for row in found)


@then(r"the checkpoint \{([^{}]+)\} (adds nothing|adds content)")
def check_size(context, name, what):
    checkpoint_id = named(context, f"{{{name}}}")
    group = next(each for each in context.scratch.groups() if each["checkpoint_id"] == checkpoint_id)
    expect_equal(sum(group["sizes"]) == 0, what == "adds nothing")


@then(r'(\w+) alone has taken checkpoints, at "([^"]*)"')
def check_trigger(context, trigger, steps):
    """Besides those of the plan's start and end, which are always taken."""
    found = [group for group in context.scratch.groups() if group["triggers"][0] not in ("pre_execute", "post_execute")]
    assert all(group["triggers"] == [trigger] for group in found), found
    expect_equal(", ".join(group["step"] or "no step" for group in found), steps)


@then(r"(\d+) moments? at which it rested (?:is|are) kept")
def check_rests(context, number):
    sql = "SELECT DISTINCT group_id FROM checkpoint_metadata WHERE checkpoint_type = 'settled'"
    wait_until(lambda: len(context.scratch.query(sql)) == int(number))


@then(r"the log is")
def check_log(context):
    """But for the names of the checkpoints and the times."""
    drawn = [line for line in context.ended.stdout.splitlines() if re.match(r"[@○◆✗│├]", line)]
    found = [re.sub(r"cp_\w+  +|  [\d:]{8}$", "", line) for line in drawn]
    expect_equal(found, context.text.splitlines())


# Decisions


@then(r"the decisions are")
def check_decisions(context):
    """All that were ever made, also those that are superseded, in the order in which they were made."""
    tree = context.scratch.ask("plan", "tree", "--all", "latest")["decisions"]
    context.decisions = sorted(_with_children(tree), key=lambda decision: decision["sequence"])
    found = [(each["type"], each["step"] or "", each["chosen"], _mark(each)) for each in context.decisions]
    expected = [tuple(row) for row in context.table]
    assert found == expected, "found:\n" + "\n".join(f"| {' | '.join(row)} |" for row in found)


@then(r"each of them but the first has a checkpoint to go back to")
def check_decisions_have_checkpoints(context):
    bare = [each for each in context.decisions if not each["checkpoints"]]
    expect_equal([each["type"] for each in bare], ["prompt_definition"])


@step(r'I note the decision for "([^"]+)" as \{([^{}]+)\}')
def note_decision(context, chosen, name):
    context.noted[name] = next(each["decision_id"] for each in context.decisions if each["chosen"] == chosen)


def _with_children(decisions):
    return [found for each in decisions for found in (each, *_with_children(each["children"]))]


def _mark(decision):
    return "superseded" if decision["is_superseded"] else ""


# Processes


@then(r"the step has processes running")
def check_alive(context):
    assert len(context.scratch.step_processes()) >= 2


@then(r"no process of the step is left")
def check_dead(context):
    expect_equal(context.scratch.step_processes(), [])
