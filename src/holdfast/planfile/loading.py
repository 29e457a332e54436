"""Loading a plan file: reads and checks all of it. A problem has line, column and what was expected."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from holdfast.model import SHELL_TOOL, SUBPLANS_TOOL, Policy, Step
from holdfast.names import did_you_mean, name_text
from holdfast.planfile.document import Document, KeyPath, parse, quote, refused
from holdfast.planfile.draft import draft_of, steps_of
from holdfast.planfile.format import (
    BELONGS_TO,
    RESOURCE_NAME,
    STEP_KINDS,
    File,
    PlanFile,
    StepsFile,
    keys_at,
)
from holdfast.planfile.source import Source, read_source
from holdfast.planfile.unstored import LONGEST_RESOURCE_NAME, PlanDraft, shortened
from holdfast.planfile.values import Values
from holdfast.process.environment import resource_variable

CheckStep = Callable[[str, dict[str, Any]], Sequence[tuple[KeyPath, str]]]
"""Checks a tool and its arguments: problems as (path inside the step, message)."""

EXPECTED_FILE = "expected a mapping with name, resources and steps"


def load_plan_file(path: Path, *, defaults: Policy, check_step: CheckStep | None = None) -> PlanDraft:
    """The plan that a file describes; otherwise a ``PlanFileError`` with every problem that was found."""
    document, source = _read(path)
    if not isinstance(document.content, dict):
        if not document.problems:
            document.wrong((), f"{EXPECTED_FILE}, found {_found(document, (), document.content)}")
        document.refuse_if_wrong()
    return _drafted(document, source.file, defaults, check_step)


def plan_from(
    content: Mapping[str, Any], folder: Path, *, defaults: Policy, check_step: CheckStep | None = None
) -> PlanDraft:
    """The plan of a file with this content in that folder; a problem has the path of the value instead of a line."""
    document = Values(file=folder, folder=folder)
    document.read(content)
    return _drafted(document, None, defaults, check_step)


def _drafted(document: Document, source_file: Path | None, defaults: Policy, check_step: CheckStep | None) -> PlanDraft:
    plan_file = _validated(document, PlanFile, document.content)
    folders = _check_resources(document)
    _check_steps(document, document.content.get("steps"), ("steps",), check_step)
    document.refuse_if_wrong()
    assert plan_file is not None, "without a problem there is a plan file"
    return draft_of(plan_file, folders, source_file, defaults)


def load_steps_file(path: Path, *, resources: Sequence[str], check_step: CheckStep | None = None) -> tuple[Step, ...]:
    """The steps of a file, for a plan that has these resources; of a whole plan file only its steps are used."""
    document, _ = _read(path)
    if not isinstance(document.content, dict):
        if not document.problems:
            document.wrong((), f"expected a mapping with the key steps, found {_found(document, (), document.content)}")
        document.refuse_if_wrong()
    for key in document.content.keys() - keys_at(()).keys():
        document.wrong_key((key,), f'unknown key "{key}" (expected steps)')
    given = {"steps": document.content["steps"]} if "steps" in document.content else {}
    document.content = {**given, "resources": dict.fromkeys(resources)}
    steps_file = _validated(document, StepsFile, given)
    _check_steps(document, given.get("steps"), ("steps",), check_step)
    document.refuse_if_wrong()
    assert steps_file is not None, "without a problem there are steps"
    return tuple(steps_of(steps_file.steps, resources[0]))


def _read(path: Path) -> tuple[Document, Source]:
    source = read_source(path)
    document = Document(path, source.folder)
    parse(_text(source.content, path), document)
    return document, source


def _text(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1
        raise refused(
            [f"{name_text(str(path))}:{line}:{column}: this is not UTF-8; expected a plan file in YAML"]
        ) from error


def _validated(document: Document, model: type[File], content: object) -> File | None:
    unusable = {place for place, _ in document.problems}
    try:
        return model.model_validate(content)
    except ValidationError as invalid:
        for error in invalid.errors(include_url=False):
            # A value that YAML could not read has been reported already.
            if document.places.get(error["loc"]) not in unusable:
                _report(document, error)
    return None


def _report(document: Document, error: ErrorDetails) -> None:
    path, value, context = error["loc"], error["input"], error.get("ctx", {})
    found = f"found {_found(document, path, value)}"
    match error["type"]:
        case "missing":
            document.wrong(path[:-1], f'the key "{path[-1]}" is missing')
        case "extra_forbidden":
            known = keys_at(path[:-1])
            message = f'unknown key "{path[-1]}" (known here: {", ".join(known)})'
            document.wrong_key(path, message + did_you_mean(str(path[-1]), known))
        case "no_value":
            optional = "" if keys_at(path[:-1]).get(str(path[-1])) else " or leave the key out"
            document.wrong_key(path, f'the key "{path[-1]}" has no value; give it one{optional}')
        case "choice":
            choices = context["choices"]
            guess = did_you_mean(value, choices) if isinstance(value, str) else ""
            document.wrong(path, f"expected one of {', '.join(choices)}, {found}{guess}")
        case "string_type":
            advice = quote(document.written.get(path, "")) if isinstance(value, bool | int | float) else ""
            document.wrong(path, f"expected text, {found}{advice}")
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


def _found(document: Document, path: KeyPath, value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            written = document.written.get(path)
            return str(value) if written is None else f"{written}, which YAML reads as {str(value).lower()}"
        case int() | float():
            return f"the number {document.written.get(path, value)}"
        case str():
            return f'the text "{shortened(value)}"'
        case list():
            return "an empty list" if not value else "a list"
        case _:
            return "an empty mapping" if not value else "a mapping"


def _check_resources(document: Document) -> dict[str, Path]:
    """The folder of each resource; names and folders that clash are problems."""
    entries = document.content.get("resources")
    folders: dict[str, Path] = {}
    variables: dict[str, str] = {}
    for name, entry in entries.items() if isinstance(entries, dict) else ():
        here: KeyPath = ("resources", name)
        if not re.match(RESOURCE_NAME, name) or name.endswith("\n"):
            document.wrong_key(
                here, f'expected a name of letters, digits, - and _ that begins with a letter, not "{name}"'
            )
        elif len(name) > LONGEST_RESOURCE_NAME:
            document.wrong_key(
                here, f"expected a name of at most {LONGEST_RESOURCE_NAME} characters, and this one has {len(name)}"
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


def _folder(document: Document, name: str, written: str, others: Mapping[str, Path]) -> Path | None:
    path: KeyPath = ("resources", name, "path")
    wanted = document.folder / written
    try:
        folder = Path(os.path.realpath(wanted, strict=True))
        if folder.is_dir():
            _refuse_overlap(document, name, folder, others)
            return folder
        document.wrong(path, f"expected a folder, but {wanted} is not a folder")
    except FileNotFoundError:
        tilde = "; ~ is not expanded here" if written.startswith("~") else ""
        document.wrong(path, f"expected a folder, but {wanted} does not exist{tilde}")
    except OSError as error:
        document.wrong(path, f"expected a folder, but {wanted} cannot be used: {error.strerror}")
    return None


def _refuse_overlap(document: Document, name: str, folder: Path, others: Mapping[str, Path]) -> None:
    # Compared by device and inode, for bind mounts and for file systems that ignore upper and lower case.
    path: KeyPath = ("resources", name, "path")
    for other, taken in others.items():
        if folder.samefile(taken):
            document.wrong(path, f'"{name}" is the same folder as "{other}": {taken}')
        elif any(parent.samefile(taken) for parent in folder.parents):
            document.wrong(path, f'"{name}" is inside of "{other}": {taken}')
        elif any(parent.samefile(folder) for parent in taken.parents):
            document.wrong(path, f'"{other}" is inside of "{name}": {taken}')


def _check_steps(document: Document, steps: object, path: KeyPath, check_step: CheckStep | None) -> None:
    for index, step in enumerate(steps if isinstance(steps, list) else ()):
        if isinstance(step, dict):
            here = (*path, index)
            _check_kind(document, step, here)
            _check_resource(document, step, here)
            _check_call(document, step, here, check_step)
            _check_subplans(document, step.get("subplans"), (*here, "subplans"), check_step)


def _check_kind(document: Document, step: dict[str, Any], here: KeyPath) -> None:
    kinds = [kind for kind in STEP_KINDS if kind in step]
    if not kinds:
        document.wrong(here, "expected one of run, tool or subplans in a step")
    elif len(kinds) > 1:
        document.wrong(here, f"expected only one of run, tool or subplans in a step, found {' and '.join(kinds)}")
    for key, owners in BELONGS_TO.items():
        if key in step and kinds and not set(owners) & set(kinds):
            document.wrong_key((*here, key), f'the key "{key}" belongs to a step with {" or ".join(owners)}')
    if step.get("tool") == SUBPLANS_TOOL:
        document.wrong((*here, "tool"), "expected a tool; subplans are given by the key subplans")


def _check_resource(document: Document, step: dict[str, Any], here: KeyPath) -> None:
    known = document.content.get("resources")
    wanted = step.get("resource")
    if isinstance(wanted, str) and isinstance(known, dict) and wanted not in known:
        message = f'there is no resource "{wanted}" (there are: {", ".join(known)})'
        document.wrong((*here, "resource"), message + did_you_mean(wanted, known))


def _check_call(document: Document, step: dict[str, Any], here: KeyPath, check_step: CheckStep | None) -> None:
    if check_step is None or "subplans" in step or ("run" in step) == ("tool" in step):
        return
    if "run" in step:
        tool, args = SHELL_TOOL, {"command": step["run"]}
        usable = isinstance(step["run"], str) and bool(step["run"].strip())
    else:
        tool, args = step["tool"], step.get("args", {})
        usable = isinstance(tool, str) and bool(tool.strip()) and tool != SUBPLANS_TOOL and isinstance(args, dict)
    for inside, message in check_step(tool, args) if usable else ():
        document.wrong((*here, *_as_written(step, inside)), message)
    undo = step.get("compensate")
    if isinstance(undo, dict) and isinstance(undo.get("tool"), str) and isinstance(undo.get("args", {}), dict):
        for inside, message in check_step(undo["tool"], undo.get("args", {})):
            document.wrong((*here, "compensate", *inside), message)


def _as_written(step: dict[str, Any], inside: KeyPath) -> KeyPath:
    """``run`` stands for a tool and its argument; a problem with either is a problem with ``run``."""
    return ("run",) if "run" in step and inside[:1] in (("tool",), ("args",)) else inside


def _check_subplans(document: Document, subplans: object, path: KeyPath, check_step: CheckStep | None) -> None:
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
