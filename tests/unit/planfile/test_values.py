"""Plans that are built in code: the same checks and messages as for a file, with the path of the value."""

from __future__ import annotations

import math
from collections import OrderedDict
from pathlib import Path
from typing import Any, Required, get_origin, get_type_hints

import pytest
import yaml

from holdfast.errors import PlanFileError
from holdfast.model import OnFailure, Policy, ResourceType
from holdfast.planfile import PlanDraft, content, format, load_plan_file, plan_from  # noqa: A004 - the module
from tests.unit.planfile.test_planfile import CONTRACT

APP = {"app": {"type": "directory", "path": "app"}}
STEPS = [{"run": "make"}]
KINDS = "text, a number, True, False, a list or a mapping"
GOOD: dict[str, Any] = {"name": "n", "resources": APP, "steps": STEPS}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("app", "data"):
        (tmp_path / name).mkdir()
    return tmp_path


def made(folder: Path, **changed: Any) -> PlanDraft:
    return plan_from({**GOOD, **changed}, folder, defaults=Policy())


def problems(folder: Path, given: dict[str, Any]) -> list[str]:
    with pytest.raises(PlanFileError) as caught:
        plan_from(given, folder, defaults=Policy())
    assert caught.value.exit_code == 2
    return list(caught.value.problems)


def test_the_same_content_in_code_and_in_a_file_is_the_same_plan(folder: Path) -> None:
    file = folder / "plan.yaml"
    file.write_text(CONTRACT)
    from_file = load_plan_file(file, defaults=Policy())
    from_code = plan_from(yaml.safe_load(CONTRACT), folder, defaults=Policy())

    assert from_code == from_file.model_copy(update={"source_file": None})


def test_paths_enumerations_tuples_and_mappings_are_taken_for_what_a_file_would_have(folder: Path) -> None:
    draft = made(
        folder,
        resources=OrderedDict(app={"type": ResourceType.DIRECTORY, "path": folder / "app"}),
        steps=({"tool": "write_file", "args": {"path": Path("a"), "content": "x", "n": 1.5}},),
        policy={"on_failure": OnFailure.KEEP, "max_checkpoints": 5, "require_checkpoints": False},
    )

    assert draft.resources[0].path == folder / "app"
    assert draft.steps[0].args == {"path": "a", "content": "x", "n": 1.5}
    assert (draft.policy.on_failure, draft.policy.max_checkpoints) == (OnFailure.KEEP, 5)


def test_every_problem_is_told_at_once_in_the_order_of_the_values_with_its_path(folder: Path) -> None:
    given = {
        "name": 3,
        "resources": {"app": {"type": "gti", "path": "nowhere"}},
        "steps": [{"run": "make"}, {"run": "a", "tool": "b"}, {"tool": "shell", "agrs": {}}, {"run": ""}],
        "stesp": [],
    }
    known = ", ".join(content.StepContent.__annotations__)
    assert problems(folder, given) == [
        "name: expected text, found the number 3",
        'resources.app.type: expected one of git, directory, found the text "gti"; did you mean "git"?',
        f"resources.app.path: expected a folder, but {folder / 'nowhere'} does not exist",
        "steps[1]: expected only one of run, tool or subplans in a step, found run and tool",
        f'steps[2].agrs: unknown key "agrs" (known here: {known}); did you mean "args"?',
        "steps[3].run: expected text, found only blanks",
        'stesp: unknown key "stesp" (known here: name, resources, policy, validate, steps); did you mean "steps"?',
    ]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": None}, 'name: the key "name" has no value; give it one'),
        ({"name": True}, "name: expected text, found True"),
        ({"name": "a\0b"}, "name: expected text without NUL and lone surrogates"),
        ({"name": "a\udc80b"}, "name: expected text without NUL and lone surrogates"),
        ({"steps": "make"}, 'steps: expected a list, found the text "make"'),
        ({"steps": {1, 2}}, f"steps: expected {KINDS}, found a value of type set"),
        ({"steps": b"x"}, f"steps: expected {KINDS}, found a value of type bytes"),
        ({"steps": [{"run": "a", "timeout": 2**63}]}, f"steps[0].timeout: {2**63} is not a number that can be stored"),
        ({"steps": [{"run": "a", "timeout": math.nan}]}, "steps[0].timeout: nan is not a number that can be stored"),
        ({"steps": [{"run": "a", "retries": -1}]}, "steps[0].retries: expected at least 0, found the number -1"),
        ({"resources": {3: {}, **APP}}, "resources: expected text as a key, found 3"),
        (
            {"resources": {"a b": APP["app"]}},
            'resources.a b: expected a name of letters, digits, - and _ that begins with a letter, not "a b"',
        ),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named(folder: Path, changed: dict[str, Any], said: str) -> None:
    assert problems(folder, {**GOOD, **changed}) == [said]


def test_what_is_missing_is_missing_in_the_plan(folder: Path) -> None:
    assert problems(folder, {}) == [f'the plan: the key "{key}" is missing' for key in ("name", "resources", "steps")]


def test_values_that_contain_themselves_or_are_far_too_many_are_refused(folder: Path) -> None:
    endless: list[Any] = []
    endless.append(endless)
    (said,) = problems(folder, {**GOOD, "steps": [{"tool": "t", "args": {"a": endless}}]})
    assert said.startswith("steps[0].args.a[0][0]")
    assert said.endswith(": nested deeper than 120 levels")
    many = {**GOOD, "steps": [{"tool": "t", "args": {"a": ["x"] * 100_001}}]}
    assert problems(folder, many)[0].endswith(": more than 100000 values")


def test_the_types_for_editors_have_the_keys_of_a_plan_file() -> None:
    pairs = [
        (content.PlanContent, format.PlanFile),
        (content.ResourceContent, format.ResourceEntry),
        (content.PolicyContent, format.PolicyEntry),
        (content.DecisionContent, format.DecisionEntry),
        (content.CallContent, format.CallEntry),
        (content.SubplanContent, format.SubplanEntry),
        (content.StepContent, format.StepEntry),
    ]
    for typed, model in pairs:
        hints = get_type_hints(typed, include_extras=True)
        assert list(hints) == [each.alias or name for name, each in model.model_fields.items()]
        if typed is not content.PlanContent:
            required = [name for name, hint in hints.items() if typed.__total__ or get_origin(hint) is Required]
            assert required == [name for name, each in model.model_fields.items() if each.is_required()]
