"""The keys of a plan file, their types and their JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from holdfast.checkpoints.triggers import TRIGGER_NAMES, parse_triggers
from holdfast.errors import ConfigError
from holdfast.model import SHELL_TOOL, DecisionType, MergeStrategy, OnFailure, ResourceType
from holdfast.planfile.document import KeyPath
from holdfast.planfile.unstored import LONGEST_RESOURCE_NAME
from holdfast.process.environment import LONGEST_TIMEOUT_SECONDS

"""File names are made of it together with an id and more, and file systems limit a name to 255 bytes, some to 143."""
RESOURCE_NAME = r"^[A-Za-z][A-Za-z0-9_-]*$"


class Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _has_a_value(cls, value: object) -> object:
        # A key without a value could mean "none" or "the default"; we do not guess.
        if value is None:
            raise PydanticCustomError("no_value", "no value")
        return value


def _one_line(text: str) -> str:
    """A name without the line break that a folded block ends with."""
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
    """A folder that the plan works on, in a private sandbox."""

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
        description="After a failed step: roll back to before that step, to the start, or keep everything as it is.",
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
        description="When a checkpoint is taken automatically; an empty list means never. "
        "Default: sandbox.checkpoint.auto-create-on.",
    )


class DecisionEntry(Entry):
    """What was decided with this step; you can correct it later."""

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


STEP_KINDS = ("run", "tool", "subplans")
_CALLS = ("run", "tool")
# Keys that only some kinds of steps have; a step with subplans leaves the others to the steps inside.
BELONGS_TO: Mapping[str, Sequence[str]] = {
    "args": ("tool",),
    "resource": _CALLS,
    "timeout": _CALLS,
    "retries": _CALLS,
    "writes": _CALLS,
    "checkpointable": _CALLS,
    "side_effects": _CALLS,
    "compensate": _CALLS,
    "idempotent": _CALLS,
    "parallel": ("subplans",),
    "merge": ("subplans",),
}


class CallEntry(Entry):
    """A call of a tool."""

    model_config = ConfigDict(title="Call")

    tool: Name = Field(description="The tool to call.")
    args: dict[str, Any] = Field(default={}, description="The tool's arguments.")


def _or_text(schema: dict[str, Any]) -> None:
    """The same rule in the JSON Schema, for editors."""
    schema["anyOf"] = [{"type": "string", "minLength": 1}, {"$ref": schema.pop("$ref")}]


def _as_call(value: object) -> object:
    """A text is short for a shell command."""
    return {"tool": SHELL_TOOL, "args": {"command": value}} if isinstance(value, str) and value.strip() else value


def _needs_its_kind() -> dict[str, Any]:
    """The rules of a step in the JSON Schema, for editors."""
    return {
        "oneOf": [{"required": [kind]} for kind in STEP_KINDS],
        "dependentSchemas": {
            key: {"anyOf": [{"required": [kind]} for kind in kinds]} for key, kinds in BELONGS_TO.items()
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
    compensate: Annotated[CallEntry, BeforeValidator(_as_call)] | None = Field(
        default=None,
        description="A shell command, or a tool and its arguments, that undoes what the step did outside of the "
        "sandbox; it runs when a rollback undoes the step.",
        json_schema_extra=_or_text,
    )
    subplans: list[SubplanEntry] | None = Field(
        default=None, min_length=1, description="Plans that run inside this step, each in sandboxes of its own."
    )
    parallel: int = Field(default=1, ge=1, description="How many of the subplans run at the same time.")
    merge: Annotated[MergeStrategy, *_choice(MergeStrategy)] = Field(
        default=MergeStrategy.THREE_WAY, description="How the subplans' results come together."
    )


class PlanFile(Entry):
    """A plan: steps that run in private sandboxes of the resources, with checkpoints to roll back to."""

    model_config = ConfigDict(title="Holdfast plan file")

    name: Name = Field(description="What the plan is for, in one line.")
    resources: dict[str, ResourceEntry] = Field(
        min_length=1,
        description="What the plan works on, by name; the first is the default of every step.",
        json_schema_extra={"propertyNames": {"pattern": RESOURCE_NAME, "maxLength": LONGEST_RESOURCE_NAME}},
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
    """New steps for an existing plan."""

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


def model_at(path: KeyPath) -> type[Entry]:
    """The part of the format that belongs at this place of a file."""
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
        case (*_, "compensate"):
            return CallEntry
        case _:
            return DecisionEntry


def keys_at(path: KeyPath) -> dict[str, bool]:
    """The keys that are allowed there, and whether each is required."""
    return {entry.alias or name: entry.is_required() for name, entry in model_at(path).model_fields.items()}
