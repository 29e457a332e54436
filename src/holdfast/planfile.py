"""A YAML plan file into a draft of a plan, with errors that name the line and column and what was expected there."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    field_validator,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails, PydanticCustomError, core_schema

from holdfast.errors import ConfigError, PlanFileError
from holdfast.model import (
    SUBPLANS_TOOL,
    DecisionSpec,
    DecisionType,
    MergeStrategy,
    OnFailure,
    Policy,
    Record,
    ResourceType,
    Step,
    Subplan,
    Trigger,
)
from holdfast.policy import LONGEST_TIMEOUT_SECONDS, TRIGGER_NAMES, did_you_mean, parse_triggers, resource_variable

KeyPath = tuple[str | int, ...]
CheckStep = Callable[[str, dict[str, Any]], Sequence[tuple[KeyPath, str]]]
"""A toolbox's opinion of a tool and its arguments: problems as (path inside the step, message)."""

RESOURCE_NAME = r"^[A-Za-z][A-Za-z0-9_-]*$"
EXPECTED_FILE = "expected a mapping with name, resources and steps"
# Each level of subplans takes four levels of YAML. Python's own limit is not far above, and is no clean way to fail.
DEEPEST_LEVEL = 120
# Aliases let a small file stand for a huge one.
MOST_VALUES = 100_000
LONGEST_DERIVED_NAME = 80


class ResourceDraft(Record):
    name: str
    type: ResourceType
    path: Path
    """Absolute, symbolic links resolved."""


class PlanDraft(Record):
    """What a plan file asks for; nothing of it has been stored yet."""

    name: str
    resources: tuple[ResourceDraft, ...]
    policy: Policy
    validation: tuple[str, ...] = ()
    steps: tuple[Step, ...]
    source_file: Path


# --- the format


class Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _has_a_value(cls, value: object) -> object:
        # A key with nothing behind it could mean "none" or "the default"; it is not ours to guess.
        if value is None:
            raise PydanticCustomError("no_value", "no value")
        return value


def _one_line(text: str) -> str:
    """A name; a folded block ends with a line break that is not meant."""
    name = text.strip()
    if not name:
        raise PydanticCustomError("problem", "expected text, found only blanks")
    if re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", name):
        raise PydanticCustomError("problem", "expected one line of text without control characters")
    return name


def _not_blank(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("problem", "expected text, found only blanks")
    return text


def _known_trigger(name: str) -> str:
    try:
        parse_triggers([name])
    except ConfigError as error:
        raise PydanticCustomError("problem", "{message}", {"message": error.message}) from None
    return name


def _choice(kind: type[StrEnum], choices: Iterable[StrEnum] | None = None) -> tuple[BeforeValidator, WithJsonSchema]:
    """One of an enumeration's values, as text."""
    names = [each.value for each in choices or kind]

    def chosen(value: object) -> object:
        if isinstance(value, str) and value in names:
            return kind(value)
        raise PydanticCustomError("choice", "choice", {"choices": names})

    return BeforeValidator(chosen), WithJsonSchema({"type": "string", "enum": names})


_STEP_DECISIONS = [each for each in DecisionType if each is not DecisionType.PROMPT_DEFINITION]

Name = Annotated[str, AfterValidator(_one_line), Field(min_length=1)]
Command = Annotated[str, AfterValidator(_not_blank), Field(min_length=1)]
TriggerName = Annotated[
    str, AfterValidator(_known_trigger), WithJsonSchema({"type": "string", "enum": list(TRIGGER_NAMES)})
]


class ResourceEntry(Entry):
    """A real thing the plan works on, in a private sandbox."""

    model_config = ConfigDict(title="Resource")

    type: Annotated[ResourceType, *_choice(ResourceType)] = Field(
        description="git: a git checkout. directory: any other folder."
    )
    path: Command = Field(description="The folder, relative to the plan file.")


class PolicyEntry(Entry):
    """What the plan does about checkpoints and failures; every key is optional."""

    model_config = ConfigDict(title="Policy")

    on_failure: Annotated[OnFailure, *_choice(OnFailure)] = Field(
        default=OnFailure.ROLLBACK,
        description="After a failed step: go back to before that step, to the start, or keep everything as it is.",
    )
    rollback_enabled: bool = Field(default=True, description="Whether the plan may be rolled back at all.")
    require_checkpoints: bool = Field(
        default=True, description="Refuse the plan if a tool that writes cannot be checkpointed."
    )
    max_checkpoints: int | None = Field(
        default=None,
        ge=2,
        description="How many checkpoints are kept. Default: sandbox.checkpoint.max-checkpoints-per-plan.",
    )
    auto_create_on: list[TriggerName] | None = Field(
        default=None,
        description="When a checkpoint is taken by itself; an empty list means never. "
        "Default: sandbox.checkpoint.auto-create-on.",
    )


class DecisionEntry(Entry):
    """What was decided with this step; one can return to it and correct it."""

    model_config = ConfigDict(title="Decision")

    type: Annotated[DecisionType, *_choice(DecisionType, _STEP_DECISIONS)] = Field(description="What kind of decision.")
    question: Command = Field(description="What had to be decided.")
    chosen: Command = Field(description="What was decided.")
    alternatives: list[str] = Field(default=[], description="What else could have been chosen.")
    rationale: str = Field(default="", description="Why.")
    confidence: float | None = Field(default=None, ge=0, le=1, description="How sure, from 0 to 1.")


class SubplanEntry(Entry):
    """A list of steps that runs as a plan of its own."""

    model_config = ConfigDict(title="Subplan")

    name: Name = Field(description="Its name, which no other subplan of the step has.")
    steps: list[StepEntry] = Field(min_length=1, description="Its steps, in order.")


_STEP_KINDS = ("run", "tool", "subplans")
_CALLS = ("run", "tool")
# Keys that only some kinds of steps have; a step with subplans leaves the rest to the steps inside.
_BELONGS_TO: Mapping[str, Sequence[str]] = {
    "args": ("tool",),
    "resource": _CALLS,
    "writes": _CALLS,
    "checkpointable": _CALLS,
    "side_effects": _CALLS,
    "idempotent": _CALLS,
    "parallel": ("subplans",),
    "merge": ("subplans",),
}


def _needs_its_kind() -> dict[str, Any]:
    """The same rule for editors."""
    return {
        "oneOf": [{"required": [kind]} for kind in _STEP_KINDS],
        "dependentSchemas": {
            key: {"anyOf": [{"required": [kind]} for kind in kinds]} for key, kinds in _BELONGS_TO.items()
        },
    }


class StepEntry(Entry):
    """One command (run), one call of a tool (tool and args), or several subplans (subplans)."""

    model_config = ConfigDict(title="Step", json_schema_extra=_needs_its_kind())

    name: Name | None = Field(default=None, description="Default: the command's first line, or the tool and its path.")
    run: Command | None = Field(default=None, description="A shell command; short for the tool shell.")
    tool: Name | None = Field(default=None, description="The tool to call.")
    args: dict[str, Any] = Field(default={}, description="The tool's arguments.")
    resource: str | None = Field(default=None, description="The resource it works on. Default: the first.")
    timeout: float | None = Field(
        default=None, gt=0, le=LONGEST_TIMEOUT_SECONDS, description="Seconds after which it is stopped and has failed."
    )
    retries: int = Field(default=0, ge=0, description="How often it is tried again after a failure.")
    writes: bool | None = Field(default=None, description="Whether it writes into the sandbox. Default: the tool's.")
    checkpointable: bool | None = Field(
        default=None, description="Whether a checkpoint can undo what it does. Default: the tool's."
    )
    side_effects: bool | None = Field(
        default=None, description="Whether it has effects outside of the sandbox. Default: the tool's."
    )
    idempotent: bool | None = Field(
        default=None, description="Whether doing it twice is the same as doing it once. Default: the tool's."
    )
    decision: DecisionEntry | None = Field(default=None, description="What was decided with this step.")
    subplans: list[SubplanEntry] | None = Field(
        default=None, min_length=1, description="Plans that run inside this step, each in sandboxes of its own."
    )
    parallel: int = Field(default=1, ge=1, description="How many of the subplans run at the same time.")
    merge: Annotated[MergeStrategy, *_choice(MergeStrategy)] = Field(
        default=MergeStrategy.THREE_WAY, description="How the subplans' results come together."
    )


class PlanFile(Entry):
    """A plan: steps that run in private sandboxes of the resources, with checkpoints to go back to."""

    model_config = ConfigDict(title="Holdfast plan file")

    name: Name = Field(description="What the plan is for, in one line.")
    resources: dict[str, ResourceEntry] = Field(
        min_length=1,
        description="What the plan works on, by name; the first is the default of every step.",
        json_schema_extra={"propertyNames": {"pattern": RESOURCE_NAME}},
    )
    policy: PolicyEntry = Field(default_factory=PolicyEntry, description="Checkpoints and failures.")
    validation: list[Command] = Field(
        default=[],
        alias="validate",
        description="Shell commands that run in the sandbox after the last step; if one fails, the plan has failed.",
    )
    steps: list[StepEntry] = Field(min_length=1, description="What is done, in order.")


SubplanEntry.model_rebuild()


class StepsFile(Entry):
    """New steps for a plan that is there already."""

    steps: list[StepEntry] = Field(min_length=1)


File = TypeVar("File", PlanFile, StepsFile)


class _EditorSchema(GenerateJsonSchema):
    """An optional key may be left out, but not be null."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        described = super().default_schema(schema)
        if described.get("default", ...) is None:
            del described["default"]
        return described


def plan_file_schema() -> dict[str, Any]:
    """The JSON Schema of a plan file."""
    schema = PlanFile.model_json_schema(by_alias=True, schema_generator=_EditorSchema)
    return {"$schema": _EditorSchema.schema_dialect, **schema}


def _model_at(path: KeyPath) -> type[Entry]:
    """Which part of the format stands at this place of a file."""
    match path:
        case ():
            return PlanFile
        case ("policy",):
            return PolicyEntry
        case ("resources", str()):
            return ResourceEntry
        case (*_, "steps", int()):
            return StepEntry
        case (*_, "subplans", int()):
            return SubplanEntry
        case _:
            return DecisionEntry


def _keys_at(path: KeyPath) -> dict[str, bool]:
    """The keys that may stand there, and whether each must."""
    return {entry.alias or name: entry.is_required() for name, entry in _model_at(path).model_fields.items()}


# --- YAML that remembers where it stood


@dataclass(frozen=True, order=True)
class _Place:
    line: int
    column: int


_START = _Place(1, 1)


@dataclass
class _Document:
    """A file's content as JSON-like values, the place of each, and what was wrong so far."""

    file: Path
    content: Any = None
    places: dict[KeyPath, _Place] = field(default_factory=dict)
    key_places: dict[KeyPath, _Place] = field(default_factory=dict)
    written: dict[KeyPath, str] = field(default_factory=dict)
    """How numbers and truth values were written, so that a message can show them so."""
    problems: set[tuple[_Place, str]] = field(default_factory=set)

    def wrong(self, path: KeyPath, message: str) -> None:
        """Something about the value at this path, or about the nearest value around it that the file has."""
        while path not in self.places and path:
            path = path[:-1]
        self.wrong_at(self.places.get(path, _START), message)

    def wrong_key(self, path: KeyPath, message: str) -> None:
        self.wrong_at(self.key_places[path], message)

    def wrong_at(self, place: _Place, message: str) -> None:
        self.problems.add((place, message))

    def refuse_if_wrong(self) -> None:
        if self.problems:
            raise _refused(
                [f"{self.file}:{place.line}:{place.column}: {message}" for place, message in sorted(self.problems)]
            )


def _refused(problems: Sequence[str]) -> PlanFileError:
    return PlanFileError(
        "\n".join(problems),
        hint="`holdfast plan schema` prints what a plan file may hold.",
        problems=tuple(problems),
    )


_YAML = "tag:yaml.org,2002:"
_TEXT_TAGS = {_YAML + "str", _YAML + "value", _YAML + "merge"}


class _Loader(yaml.SafeLoader):
    """PyYAML's loader, which does not nest deeper than we do."""

    level = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if parent is not None and self.level > DEEPEST_LEVEL:
            raise _yaml_error(f"nested deeper than {DEEPEST_LEVEL} levels", parent)
        self.level += 1
        node = super().compose_node(parent, index)
        self.level -= 1
        return node


class _Reader:
    """Turns YAML nodes into values, by way of PyYAML's own readers of numbers and truth values."""

    def __init__(self, document: _Document, loader: yaml.SafeLoader) -> None:
        self.document = document
        self.loader = loader
        self.ancestors: list[yaml.Node] = []
        self.values = 0

    def read(self, node: yaml.Node, path: KeyPath) -> Any:
        self._refuse_what_never_ends(node)
        self.document.places[path] = _place(node.start_mark)
        self.ancestors.append(node)
        try:
            match node:
                case yaml.MappingNode():
                    return self._mapping(node, path)
                case yaml.SequenceNode():
                    return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
                case _:
                    return self._scalar(node, path)
        finally:
            self.ancestors.pop()

    def _refuse_what_never_ends(self, node: yaml.Node) -> None:
        self.values += 1
        if any(node is ancestor for ancestor in self.ancestors):
            raise _yaml_error("an alias stands inside of what it is an alias for", node)
        if len(self.ancestors) > DEEPEST_LEVEL:
            raise _yaml_error(f"nested deeper than {DEEPEST_LEVEL} levels, aliases followed", node)
        if self.values > MOST_VALUES:
            raise _yaml_error(f"more than {MOST_VALUES} values, aliases counted each time", node)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        mapping = {}
        for key, (key_node, value_node) in self._entries(node).items():
            self.document.key_places[(*path, key)] = _place(key_node.start_mark)
            mapping[key] = self.read(value_node, (*path, key))
        return mapping

    def _entries(self, node: yaml.MappingNode) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """What a mapping holds: first what it merges, then its own keys, which win."""
        merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        own: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        merges = False
        for key_node, value_node in node.value:
            is_merge = key_node.tag == _YAML + "merge"
            key = "<<" if is_merge else self._key(key_node)
            if key in own or (is_merge and merges):
                self.document.wrong_at(_place(key_node.start_mark), f'the key "{key}" stands here a second time')
            elif is_merge:
                merges, merged = True, self._merged(value_node)
            elif key is not None:
                own[key] = (key_node, value_node)
        return {**merged, **own}

    def _merged(self, node: yaml.Node) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        self._refuse_what_never_ends(node)
        self.ancestors.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self._entries(node)
            if not isinstance(node, yaml.SequenceNode):
                raise _yaml_error("expected a mapping to merge, or a list of them", node)
            entries: dict[str, tuple[yaml.Node, yaml.Node]] = {}
            for item in node.value:
                if not isinstance(item, yaml.MappingNode):
                    raise _yaml_error("expected a mapping to merge", item)
                entries = {**self._merged(item), **entries}
            return entries
        finally:
            self.ancestors.pop()

    def _key(self, node: yaml.Node) -> str | None:
        place = _place(node.start_mark)
        if not isinstance(node, yaml.ScalarNode):
            self.document.wrong_at(place, "expected text as a key")
            return None
        if node.tag not in _TEXT_TAGS:
            self.document.wrong_at(
                place, f"expected text as a key, found {node.value or 'nothing'}{_quote(node.value)}"
            )
        return self._clean(node)

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        if node.tag in _TEXT_TAGS:
            return self._clean(node)
        self.document.written[path] = node.value
        match node.tag.removeprefix(_YAML):
            case "null":
                return None
            case "bool" | "int" | "float" as kind:
                return self._number(node, kind)
            case "timestamp":
                return self._unusable(node, f"{node.value} without quotes is a date{_quote(node.value)}")
            case _:
                return self._unusable(node, f"the YAML tag {node.tag.replace(_YAML, '!!')} has no meaning here")

    def _number(self, node: yaml.Node, kind: str) -> Any:
        if ":" in node.value:
            return self._unusable(node, f"{node.value} without quotes is a number to base 60{_quote(node.value)}")
        try:
            number = getattr(self.loader, f"construct_yaml_{kind}")(node)
        except (ValueError, KeyError, IndexError):
            return self._unusable(node, f"{_shortened(node.value)} is not a value of type {kind}")
        if (kind == "int" and abs(number) >= 2**63) or (kind == "float" and not math.isfinite(number)):
            return self._unusable(node, f"{_shortened(node.value)} is not a number that can be stored")
        return number

    def _clean(self, node: yaml.Node) -> str:
        text: str = node.value
        encodable = text.encode(errors="replace").decode()
        if encodable != text or "\0" in text:
            self.document.wrong_at(_place(node.start_mark), "expected text without NUL and lone surrogates")
        return encodable.replace("\0", "?")

    def _unusable(self, node: yaml.Node, message: str) -> Any:
        self.document.wrong_at(_place(node.start_mark), message)
        return node.value


def _place(mark: yaml.Mark) -> _Place:
    return _Place(mark.line + 1, mark.column + 1)


def _yaml_error(message: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=message, problem_mark=node.start_mark)


def _quote(written: str) -> str:
    return f'; put it in quotes: "{written}"' if written else ""


def _shortened(text: str, length: int = 40) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


_ADVICE = {
    "mapping values are not allowed here": 'text with ": " in it needs quotes, or a block that begins with |',
    "found character '\\t' that cannot start any token": "indent with blanks, not with tabs",
    "found character '%' that cannot start any token": "text that begins with % needs quotes",
    "found character '@' that cannot start any token": "text that begins with @ needs quotes",
    "found character '`' that cannot start any token": "text that begins with ` needs quotes",
    "but found another document": "a plan file is one document, without further lines of ---",
}


def _parse(text: str, document: _Document) -> None:
    """Fill the document; what is wrong with the YAML becomes its problems."""
    loader: yaml.SafeLoader | None = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is not None:
            document.content = _Reader(document, loader).read(node, ())
    except yaml.reader.ReaderError as error:
        document.wrong_at(_place_in(text, error.position), f"the character U+{error.character:04X} is not allowed")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.context, error.problem) if part)
        advice = _ADVICE.get(error.problem or "")
        document.wrong_at(_place(mark) if mark else _START, message + (f"; {advice}" if advice else ""))
    except (ValueError, OverflowError):
        # PyYAML lets these out of escapes beyond Unicode and out of absurd version numbers.
        place = _place(loader.get_mark()) if loader else _START
        document.wrong_at(place, "this escape or number is beyond what YAML allows")


def _place_in(text: str, position: int) -> _Place:
    before = text[:position]
    return _Place(before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)


# --- reading and checking


def load_plan_file(path: Path, *, defaults: Policy, check_step: CheckStep | None = None) -> PlanDraft:
    """The plan a file describes; ``PlanFileError`` with every problem that was found if it is not one."""
    document = _Document(path)
    _parse(_read(path), document)
    if not isinstance(document.content, dict):
        if not document.problems:
            document.wrong((), f"{EXPECTED_FILE}, found {_found(document, (), document.content)}")
        document.refuse_if_wrong()
    plan_file = _validated(document, PlanFile, document.content)
    folders = _check_resources(document)
    _check_steps(document, document.content.get("steps"), ("steps",), check_step)
    document.refuse_if_wrong()
    assert plan_file is not None, "without a problem there is a plan file"
    return _draft(plan_file, folders, path.absolute(), defaults)


def load_steps_file(path: Path, *, resources: Sequence[str], check_step: CheckStep | None = None) -> tuple[Step, ...]:
    """The steps of a file, for a plan that has these resources; of a whole plan file only its steps are used."""
    document = _Document(path)
    _parse(_read(path), document)
    if not isinstance(document.content, dict):
        if not document.problems:
            document.wrong((), f"expected a mapping with the key steps, found {_found(document, (), document.content)}")
        document.refuse_if_wrong()
    for key in document.content.keys() - _keys_at(()).keys():
        document.wrong_key((key,), f'unknown key "{key}" (expected steps)')
    given = {"steps": document.content["steps"]} if "steps" in document.content else {}
    document.content = {**given, "resources": dict.fromkeys(resources)}
    steps_file = _validated(document, StepsFile, given)
    _check_steps(document, given.get("steps"), ("steps",), check_step)
    document.refuse_if_wrong()
    assert steps_file is not None, "without a problem there are steps"
    return tuple(_steps(steps_file.steps, resources[0]))


def _read(path: Path) -> str:
    def refused(what: str) -> PlanFileError:
        return _refused([f"{path}: {what}; expected a plan file in YAML"])

    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise refused("this is a folder")
        if not stat.S_ISREG(mode):
            raise refused("this is not a regular file")
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise refused("there is no such file") from error
    except OSError as error:
        raise refused(f"it cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise refused("this cannot be the name of a file") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1
        raise _refused([f"{path}:{line}:{column}: this is not UTF-8; expected a plan file in YAML"]) from error


def _validated(document: _Document, model: type[File], content: object) -> File | None:
    unusable = {place for place, _ in document.problems}
    try:
        return model.model_validate(content)
    except ValidationError as invalid:
        for error in invalid.errors(include_url=False):
            # What YAML could not make sense of has been reported already.
            if document.places.get(error["loc"]) not in unusable:
                _report(document, error)
    return None


def _report(document: _Document, error: ErrorDetails) -> None:
    path, value, context = error["loc"], error["input"], error.get("ctx", {})
    found = f"found {_found(document, path, value)}"
    match error["type"]:
        case "missing":
            document.wrong(path[:-1], f'the key "{path[-1]}" is missing')
        case "extra_forbidden":
            known = _keys_at(path[:-1])
            message = f'unknown key "{path[-1]}" (known here: {", ".join(known)})'
            document.wrong_key(path, message + did_you_mean(str(path[-1]), known))
        case "no_value":
            optional = "" if _keys_at(path[:-1]).get(str(path[-1])) else " or leave the key out"
            document.wrong_key(path, f'the key "{path[-1]}" has no value; give it one{optional}')
        case "choice":
            choices = context["choices"]
            guess = did_you_mean(value, choices) if isinstance(value, str) else ""
            document.wrong(path, f"expected one of {', '.join(choices)}, {found}{guess}")
        case "string_type":
            quote = _quote(document.written.get(path, "")) if isinstance(value, bool | int | float) else ""
            document.wrong(path, f"expected text, {found}{quote}")
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal" as limit:
            document.wrong(path, f"expected {_limits(limit, context)}, {found}")
        case "too_short":
            document.wrong(path, f"expected at least one entry, {found}")
        case "problem":
            document.wrong(path, error["msg"])
        case other:
            document.wrong(path, f"expected {_EXPECTED.get(other, error['msg'])}, {found}")


_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}


def _limits(limit: str, context: Mapping[str, Any]) -> str:
    words = {
        "greater_than": ("gt", "more than"),
        "greater_than_equal": ("ge", "at least"),
        "less_than_equal": ("le", "at most"),
        "less_than": ("lt", "less than"),
    }
    key, word = words[limit]
    bound = context[key]
    return f"{word} {int(bound) if bound == int(bound) else bound}"


def _found(document: _Document, path: KeyPath, value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            written = document.written.get(path, "")
            return f"{written}, which YAML reads as {str(value).lower()}"
        case int() | float():
            return f"the number {document.written.get(path, value)}"
        case str():
            return f'the text "{_shortened(value)}"'
        case list():
            return "an empty list" if not value else "a list"
        case _:
            return "an empty mapping" if not value else "a mapping"


def _check_resources(document: _Document) -> dict[str, Path]:
    """Where each resource is; names and folders that cannot stand beside each other are problems."""
    entries = document.content.get("resources")
    folders: dict[str, Path] = {}
    variables: dict[str, str] = {}
    for name, entry in entries.items() if isinstance(entries, dict) else ():
        here: KeyPath = ("resources", name)
        if not re.match(RESOURCE_NAME, name) or name.endswith("\n"):
            document.wrong_key(
                here, f'expected a name of letters, digits, - and _ that begins with a letter, not "{name}"'
            )
        variable = resource_variable(name)
        if variable in variables:
            other = variables[variable]
            document.wrong_key(here, f'"{name}" and "{other}" would both be {variable} in a step; rename one')
        variables.setdefault(variable, name)
        written = entry.get("path") if isinstance(entry, dict) else None
        if isinstance(written, str) and written.strip():
            folder = _folder(document, name, written, folders)
            if folder is not None:
                folders[name] = folder
    return folders


def _folder(document: _Document, name: str, written: str, others: Mapping[str, Path]) -> Path | None:
    path: KeyPath = ("resources", name, "path")
    wanted = document.file.absolute().parent / written
    try:
        folder = Path(os.path.realpath(wanted, strict=True))
        str(folder).encode()
        if folder.is_dir():
            _refuse_overlap(document, name, folder, others)
            return folder
        document.wrong(path, f"expected a folder, but {wanted} is none")
    except FileNotFoundError:
        tilde = "; ~ has no meaning here" if written.startswith("~") else ""
        document.wrong(path, f"expected a folder, but {wanted} does not exist{tilde}")
    except UnicodeError:
        document.wrong(path, "expected a folder whose path is UTF-8")
    except OSError as error:
        document.wrong(path, f"expected a folder, but {wanted} cannot be used: {error.strerror}")
    return None


def _refuse_overlap(document: _Document, name: str, folder: Path, others: Mapping[str, Path]) -> None:
    # Compared as the file system does: also bind mounts, and capitals where it does not tell them from small letters.
    path: KeyPath = ("resources", name, "path")
    for other, taken in others.items():
        if folder.samefile(taken):
            document.wrong(path, f'"{name}" is the same folder as "{other}": {taken}')
        elif any(parent.samefile(taken) for parent in folder.parents):
            document.wrong(path, f'"{name}" lies inside of "{other}": {taken}')
        elif any(parent.samefile(folder) for parent in taken.parents):
            document.wrong(path, f'"{other}" lies inside of "{name}": {taken}')


def _check_steps(document: _Document, steps: object, path: KeyPath, check_step: CheckStep | None) -> None:
    for index, step in enumerate(steps if isinstance(steps, list) else ()):
        if isinstance(step, dict):
            here = (*path, index)
            _check_kind(document, step, here)
            _check_resource(document, step, here)
            _check_call(document, step, here, check_step)
            _check_subplans(document, step.get("subplans"), (*here, "subplans"), check_step)


def _check_kind(document: _Document, step: dict[str, Any], here: KeyPath) -> None:
    kinds = [kind for kind in _STEP_KINDS if kind in step]
    if not kinds:
        document.wrong(here, "expected one of run, tool or subplans in a step")
    elif len(kinds) > 1:
        document.wrong(here, f"expected only one of run, tool or subplans in a step, found {' and '.join(kinds)}")
    for key, owners in _BELONGS_TO.items():
        if key in step and kinds and not set(owners) & set(kinds):
            document.wrong_key((*here, key), f'the key "{key}" belongs to a step with {" or ".join(owners)}')
    if step.get("tool") == SUBPLANS_TOOL:
        document.wrong((*here, "tool"), "expected a tool; subplans are given by the key subplans")


def _check_resource(document: _Document, step: dict[str, Any], here: KeyPath) -> None:
    known = document.content.get("resources")
    wanted = step.get("resource")
    if isinstance(wanted, str) and isinstance(known, dict) and wanted not in known:
        message = f'there is no resource "{wanted}" (there are: {", ".join(known)})'
        document.wrong((*here, "resource"), message + did_you_mean(wanted, known))


def _check_call(document: _Document, step: dict[str, Any], here: KeyPath, check_step: CheckStep | None) -> None:
    if check_step is None or "subplans" in step or ("run" in step) == ("tool" in step):
        return
    if "run" in step:
        tool, args = "shell", {"command": step["run"]}
        usable = isinstance(step["run"], str) and bool(step["run"].strip())
    else:
        tool, args = step["tool"], step.get("args", {})
        usable = isinstance(tool, str) and bool(tool.strip()) and tool != SUBPLANS_TOOL and isinstance(args, dict)
    for inside, message in check_step(tool, args) if usable else ():
        document.wrong((*here, *_as_written(step, inside)), message)


def _as_written(step: dict[str, Any], inside: KeyPath) -> KeyPath:
    """``run`` stands for a tool and its argument; a problem with either is a problem with ``run``."""
    return ("run",) if "run" in step and inside[:1] in (("tool",), ("args",)) else inside


def _check_subplans(document: _Document, subplans: object, path: KeyPath, check_step: CheckStep | None) -> None:
    names: set[str] = set()
    for index, subplan in enumerate(subplans if isinstance(subplans, list) else ()):
        if not isinstance(subplan, dict):
            continue
        name = subplan.get("name")
        if isinstance(name, str) and name.strip() in names:
            document.wrong((*path, index, "name"), f'there is already a subplan "{name.strip()}" in this step')
        elif isinstance(name, str):
            names.add(name.strip())
        _check_steps(document, subplan.get("steps"), (*path, index, "steps"), check_step)


# --- the draft


def _draft(plan_file: PlanFile, folders: Mapping[str, Path], source_file: Path, defaults: Policy) -> PlanDraft:
    default_resource = next(iter(plan_file.resources))
    return PlanDraft(
        name=plan_file.name,
        resources=tuple(
            ResourceDraft(name=name, type=entry.type, path=folders[name]) for name, entry in plan_file.resources.items()
        ),
        policy=_policy(plan_file.policy, defaults),
        validation=tuple(plan_file.validation),
        steps=tuple(_steps(plan_file.steps, default_resource)),
        source_file=source_file,
    )


def _policy(entry: PolicyEntry, defaults: Policy) -> Policy:
    given: dict[str, Any] = {key: getattr(entry, key) for key in entry.model_fields_set}
    if entry.auto_create_on is not None:
        triggers: tuple[Trigger, ...] = parse_triggers(entry.auto_create_on)
        given["auto_create_on"] = triggers
    return defaults.model_copy(update=given)


def _steps(entries: Iterable[StepEntry], default_resource: str) -> Iterator[Step]:
    for entry in entries:
        tool, args = _call(entry)
        yield Step(
            name=entry.name or _derived_name(entry),
            tool=tool,
            args=args,
            resource=entry.resource or default_resource,
            writes=entry.writes,
            checkpointable=entry.checkpointable,
            side_effects=entry.side_effects,
            idempotent=entry.idempotent,
            timeout_seconds=entry.timeout,
            retries=entry.retries,
            decision=_decision(entry.decision) if entry.decision else None,
            subplans=tuple(
                Subplan(name=subplan.name, steps=tuple(_steps(subplan.steps, default_resource)))
                for subplan in entry.subplans or ()
            ),
            parallel=entry.parallel,
            merge=entry.merge,
        )


def _call(entry: StepEntry) -> tuple[str, dict[str, Any]]:
    if entry.run is not None:
        return "shell", {"command": entry.run}
    return entry.tool or SUBPLANS_TOOL, entry.args


def _derived_name(entry: StepEntry) -> str:
    if entry.run is not None:
        name = next(line for line in entry.run.splitlines() if line.strip())
    elif entry.subplans:
        name = ", ".join(subplan.name for subplan in entry.subplans)
    else:
        path = entry.args.get("path")
        name = f"{entry.tool} {path}" if isinstance(path, str) else str(entry.tool)
    return _shortened(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", name), LONGEST_DERIVED_NAME)


def _decision(entry: DecisionEntry) -> DecisionSpec:
    return DecisionSpec(
        type=entry.type,
        question=entry.question,
        chosen=entry.chosen,
        alternatives=tuple(entry.alternatives),
        rationale=entry.rationale,
        confidence=entry.confidence,
    )
