"""What a user sees afterwards: exit code, words, answers for programs, files, checkpoints, processes."""

from __future__ import annotations

import json
import re

import yaml
from behave import then, use_step_matcher
from features.names import named, value_at
from features.scratch import compare, describe

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


# Processes


@then(r"the step has processes running")
def check_alive(context):
    assert len(context.scratch.step_processes()) >= 2


@then(r"no process of the step is left")
def check_dead(context):
    expect_equal(context.scratch.step_processes(), [])
