"""Plan files in general: what is valid survives being written, and nothing whatever makes the loader fall over."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

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
    Subplan,
    Trigger,
)
from holdfast.planfile import PlanDraft, ResourceDraft, load_plan_file, plan_file_schema

pytestmark = pytest.mark.unmeasured
FOLDERS = ("one", "two", "three")
RESOURCES = ("app", "Data", "a-b")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("plans")
    for name in FOLDERS:
        (root / name).mkdir()
    return root


def is_one_line(name: str) -> bool:
    return bool(name.strip()) and name == name.strip() and all(unicodedata.category(each) != "Cc" for each in name)


# PyYAML writes NEL (U+0085) unescaped and reads it as the line break that YAML says it is.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\x85"))
not_blank = texts.filter(lambda text: bool(text.strip()))
names = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1).filter(is_one_line)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
declared = st.none() | st.booleans()
decisions = st.builds(
    DecisionSpec,
    type=st.sampled_from([each for each in DecisionType if each is not DecisionType.PROMPT_DEFINITION]),
    question=not_blank,
    chosen=not_blank,
    alternatives=st.lists(texts, max_size=2).map(tuple),
    rationale=texts,
    confidence=st.none() | st.floats(0, 1),
)


def calls(resources: tuple[str, ...]) -> st.SearchStrategy[Step]:
    shell = not_blank.map(lambda command: ("shell", {"command": command}))
    other = st.tuples(names.filter(lambda name: name != SUBPLANS_TOOL), st.dictionaries(texts, json_values, max_size=3))
    return st.builds(
        lambda call, **fields: Step(tool=call[0], args=call[1], **fields),
        shell | other,
        name=names,
        resource=st.sampled_from(resources),
        writes=declared,
        checkpointable=declared,
        side_effects=declared,
        idempotent=declared,
        timeout_seconds=st.none() | st.floats(0, 2_000_000, exclude_min=True),
        retries=st.integers(0, 2**40),
        decision=st.none() | decisions,
    )


def steps(resources: tuple[str, ...]) -> st.SearchStrategy[Step]:
    def with_subplans(inner: st.SearchStrategy[Step]) -> st.SearchStrategy[Step]:
        subplan = st.builds(Subplan, name=names, steps=st.lists(inner, min_size=1, max_size=2).map(tuple))
        return st.builds(
            Step,
            name=names,
            tool=st.just(SUBPLANS_TOOL),
            resource=st.just(resources[0]),
            subplans=st.lists(subplan, min_size=1, max_size=2, unique_by=lambda each: each.name).map(tuple),
            parallel=st.integers(1, 100),
            merge=st.sampled_from(MergeStrategy),
            decision=st.none() | decisions,
        )

    return st.recursive(calls(resources), with_subplans, max_leaves=4)


@st.composite
def plans(draw: st.DrawFn, folder: Path) -> PlanDraft:
    resources = tuple(draw(st.lists(st.sampled_from(RESOURCES), min_size=1, unique=True)))
    folders = draw(st.permutations(FOLDERS))
    return PlanDraft(
        name=draw(names),
        resources=tuple(
            ResourceDraft(name=name, type=draw(st.sampled_from(ResourceType)), path=folder / place)
            for name, place in zip(resources, folders, strict=False)
        ),
        policy=Policy(
            on_failure=draw(st.sampled_from(OnFailure)),
            rollback_enabled=draw(st.booleans()),
            require_checkpoints=draw(st.booleans()),
            max_checkpoints=draw(st.integers(2, 10**6)),
            auto_create_on=tuple(draw(st.lists(st.sampled_from(Trigger), unique=True))),
        ),
        validation=tuple(draw(st.lists(not_blank, max_size=2))),
        steps=tuple(draw(st.lists(steps(resources), min_size=1, max_size=3))),
        source_file=folder / "plan.yaml",
    )


DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Step)} | {"args": {}}


def as_written(step: Step) -> dict[str, Any]:
    dumped = step.model_dump(mode="json")
    entry = {name: value for name, value in dumped.items() if getattr(step, name) not in (None, DEFAULTS[name])}
    if "decision" in entry:
        entry["decision"] = {name: value for name, value in entry["decision"].items() if value is not None}
    if "timeout_seconds" in entry:
        entry["timeout"] = entry.pop("timeout_seconds")
    if step.tool == SUBPLANS_TOOL:
        del entry["tool"], entry["resource"]
        entry["subplans"] = [
            {"name": subplan.name, "steps": [as_written(inner) for inner in subplan.steps]} for subplan in step.subplans
        ]
    elif step.tool == "shell" and list(step.args) == ["command"]:
        del entry["tool"]
        entry["run"] = entry.pop("args")["command"]
    else:
        entry["args"] = step.args
    return entry


def render(draft: PlanDraft, **style: Any) -> str:
    content = {
        "name": draft.name,
        "resources": {each.name: {"type": each.type.value, "path": each.path.name} for each in draft.resources},
        "policy": draft.policy.model_dump(mode="json"),
        "validate": list(draft.validation),
        "steps": [as_written(step) for step in draft.steps],
    }
    return str(yaml.safe_dump(content, sort_keys=False, **style))


@settings(max_examples=30, deadline=None)
@given(data=st.data(), flow=st.sampled_from([True, False, None]), unicode=st.booleans())
def test_a_plan_that_is_written_and_loaded_is_the_same(
    folder: Path, data: st.DataObject, flow: Any, unicode: bool
) -> None:
    draft = data.draw(plans(folder))
    text = render(draft, default_flow_style=flow, allow_unicode=unicode)
    draft.source_file.write_text(text, encoding="utf-8", newline="")
    assert load_plan_file(draft.source_file, defaults=Policy()) == draft


def loads_or_refuses(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    refused: PlanFileError | None = None
    try:
        load_plan_file(file, defaults=Policy(), check_step=lambda _tool, _args: [(("args", 0, "x"), "no")])
    except PlanFileError as error:
        refused = error
    if refused is not None:
        assert refused.problems
        assert refused.message == "\n".join(refused.problems)
        assert all(problem.startswith(f"{file}:") for problem in refused.problems)


YAML_SIGNS = "\n \t-:,?[]{}#&*!|>'\"%@`<~.0123456789eExXoObB_+=\\/\u0085\u2028\ufeffnuUyon"


@settings(max_examples=300, deadline=None)
@given(content=st.text(st.sampled_from(YAML_SIGNS) | st.characters(exclude_categories=["Cs"])))
def test_any_text_is_loaded_or_refused(folder: Path, content: str) -> None:
    loads_or_refuses(folder / "any.yaml", content.encode())


@settings(max_examples=100, deadline=None)
@given(content=st.binary())
def test_any_bytes_are_loaded_or_refused(folder: Path, content: bytes) -> None:
    loads_or_refuses(folder / "any.yaml", content)


VALID = """\
name: n
resources: {app: {type: git, path: one}}
policy: {auto_create_on: [on_error], max_checkpoints: 5}
validate: [make]
steps:
- &a {run: make, timeout: 5.5, decision: {type: strategy_choice, question: q, chosen: c}}
- {<<: *a, retries: 2}
- subplans: [{name: s, steps: [{tool: t, args: {a: [1, {b: "c"}]}}]}]
"""


@settings(max_examples=200, deadline=None)
@given(
    start=st.integers(0, len(VALID)),
    length=st.integers(0, 12),
    instead=st.text(st.sampled_from(YAML_SIGNS), max_size=6)
    | st.sampled_from(["!!int ", "!!timestamp ", "*a", "<<: ", "\\U"]),
)
def test_a_valid_file_with_a_slip_of_the_pen_is_loaded_or_refused(
    folder: Path, start: int, length: int, instead: str
) -> None:
    loads_or_refuses(folder / "any.yaml", (VALID[:start] + instead + VALID[start + length :]).encode())


def known_words() -> list[str]:
    schema = plan_file_schema()
    parts = [schema, *schema["$defs"].values()]
    return sorted(
        {key for part in parts for key in part["properties"]} | {"app", "git", "one", "rollback", "shell", "x"}
    )


garbage = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.dates() | st.sampled_from(known_words()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(known_words()) | st.integers(0, 3) | st.none(), inner, max_size=6)
    ),
    max_leaves=30,
)
plan_like = st.fixed_dictionaries(
    {
        "name": st.just("n") | garbage,
        "resources": st.just({"app": {"type": "git", "path": "one"}}) | garbage,
        "steps": st.lists(st.dictionaries(st.sampled_from(known_words()), garbage, max_size=4), max_size=3) | garbage,
    },
    optional={"policy": garbage, "validate": garbage},
)


@settings(max_examples=200, deadline=None)
@given(content=plan_like)
def test_any_values_in_the_place_of_others_are_loaded_or_refused(folder: Path, content: Any) -> None:
    loads_or_refuses(folder / "any.yaml", yaml.safe_dump(content).encode())


@pytest.mark.parametrize(
    "content",
    [
        "%YAML 1." + "9" * 5000 + "\n---\na",
        "a: !!int ''",
        "a: !!timestamp x",
        "a: 0b_",
        "a: " + "9" * 5000,
        "a: 0x" + "f" * 5000,
        "? {a: b}\n: c",
        "!!set {a, b}",
        "!!omap [a: b]",
        "!!binary '='",
        "- &a [*a]",
        "&a {*a : b}",
        "a: !<tag:yaml.org,2002:map> x",
        "a: !!str {b: c}",
        "a: !!int [1]",
        "!!null {name: n}",
        "\ufeff",
        "name: n\nresources: {? [a] : {}}\nsteps: [{? {run: a} : b}]",
    ],
)
def test_known_oddities_of_yaml_are_refused(folder: Path, content: str) -> None:
    (folder / "odd.yaml").write_text(content)
    with pytest.raises(PlanFileError):
        load_plan_file(folder / "odd.yaml", defaults=Policy())
