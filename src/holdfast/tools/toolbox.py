"""The toolbox: built-in tools, registered tools and those of installed packages, by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

from holdfast.errors import UsageError
from holdfast.model import PROGRAM_TOOL, SHELL_TOOL, SUBPLANS_TOOL, Record, Step
from holdfast.tools.declaration import AnyTool, Tool, ToolContext, ToolDeclaration, ToolResult

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

ENTRY_POINT_GROUP = "holdfast.tools"
_OVERRIDABLE = ("writes", "checkpointable", "side_effects", "idempotent", "timeout_seconds")


def _shell() -> Iterable[AnyTool]:
    from holdfast.tools.shell import Shell

    return (Shell(),)


def _files() -> Iterable[AnyTool]:
    from holdfast.tools.files import ApplyPatch, DeleteFile, EditFile, WriteFile

    return WriteFile(), EditFile(), DeleteFile(), ApplyPatch()


def _python() -> Iterable[AnyTool]:
    from holdfast.tools.python import Python

    return (Python(),)


def _program() -> Iterable[AnyTool]:
    from holdfast.tools.program import Program

    return (Program(),)


_BUILT_IN = {
    SHELL_TOOL: _shell,
    **dict.fromkeys(("write_file", "edit_file", "delete_file", "apply_patch"), _files),
    "python": _python,
    PROGRAM_TOOL: _program,
}
"""What imports them; all but the last need pydantic, whose import takes longer than all else that `run` imports."""


class Toolbox:
    """Tools by name; the built-in ones, and those of installed packages, are imported when their name is asked for."""

    def __init__(
        self, tools: Iterable[AnyTool] = (), *, with_built_in: bool = False, with_installed: bool = False
    ) -> None:
        self._tools: dict[str, AnyTool] = {}
        self._built_in = _BUILT_IN if with_built_in else {}
        self._with_installed = with_installed
        for tool in tools:
            self.register(tool)

    @classmethod
    def standard(cls) -> Toolbox:
        """The built-in tools and those that installed packages offer (entry point group ``holdfast.tools``)."""
        return cls(with_built_in=True, with_installed=True)

    def register(self, tool: AnyTool) -> None:
        name = tool.declaration.name
        if name in self._tools or name in self._built_in:
            raise UsageError(f"there is already a tool named {name!r}", hint="Give yours another name.")
        self._tools[name] = tool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({*self._tools, *self._built_in, *self._installed()}))

    def get_tool(self, name: str) -> AnyTool:
        if name not in self._tools and name in self._built_in:
            self._tools |= {tool.declaration.name: tool for tool in self._built_in[name]()}
        if name not in self._tools:
            entry_point = self._installed().get(name)
            if entry_point is None:
                raise self._unknown(name)
            self.register(_load(entry_point))
        return self._tools[name]

    def has_side_effects(self, name: str) -> bool:
        return self.get_tool(name).declaration.side_effects

    def declaration_for(self, step: Step) -> ToolDeclaration:
        """The tool's declaration, with what the step overrides."""
        if step.subplans:
            return ToolDeclaration(name=SUBPLANS_TOOL)  # each step inside has a declaration of its own
        said = {field: getattr(step, field) for field in _OVERRIDABLE}
        overrides = {field: value for field, value in said.items() if value is not None}
        return replace(self.get_tool(step.tool).declaration, **overrides)

    def arguments_for(self, step: Step) -> BaseModel | Record:
        """The step's arguments as the tool takes them; the UsageError's cause is pydantic's, with every location."""
        declaration = self.get_tool(step.tool).declaration
        try:
            return declaration.args.model_validate(step.args)
        except ValueError as error:
            raise UsageError(
                f"step {step.name!r}: {step.tool}: {_problems(error)}",
                hint=f"{step.tool} takes {_signature(declaration)}.",
            ) from error

    def problems(self, name: str, args: dict[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
        """What is wrong with a call of that tool: where in the step, and a sentence."""
        try:
            declaration = self.get_tool(name).declaration
        except UsageError as error:
            return [(("tool",), f"{error.message}. {error.hint}")]
        try:
            declaration.args.model_validate(args)
        except ValueError as error:
            if not _is_of_pydantic(error):
                return [(("args",), f"{error}")]
            return [(("args", *each["loc"]), _problem(each, declaration)) for each in error.errors()]
        return []

    def run(self, step: Step, context: ToolContext) -> ToolResult:
        result: object = self.get_tool(step.tool).run(self.arguments_for(step), context)
        if not isinstance(result, ToolResult):
            # A generator or a coroutine has not even begun.
            raise UsageError(
                f"the tool {step.tool} returned {result!r:.100} instead of a ToolResult: it may not have run",
                hint="Let its `run` return a ToolResult.",
            )
        return result

    def _installed(self) -> dict[str, EntryPoint]:
        if not self._with_installed:
            return {}
        from importlib.metadata import entry_points

        return {entry_point.name: entry_point for entry_point in entry_points(group=ENTRY_POINT_GROUP)}

    def _unknown(self, name: str) -> UsageError:
        from difflib import get_close_matches  # only for this, and slow to import

        near = get_close_matches(name, self.names, n=1)
        meant = f"Did you mean {near[0]}? " if near else ""
        return UsageError(f"there is no tool named {name!r}", hint=f"{meant}The tools are {', '.join(self.names)}.")


def _load(entry_point: EntryPoint) -> AnyTool:
    """The tool an installed package offers: a Tool object, or a class that makes one without arguments."""
    where = f"the tool {entry_point.name!r} ({entry_point.value})"
    try:
        loaded: Any = entry_point.load()
        tool = loaded() if isinstance(loaded, type) else loaded
    except Exception as error:
        raise UsageError(f"{where} cannot be loaded: {error}", hint="Repair or remove the package.") from error
    if not isinstance(tool, Tool) or not isinstance(tool.declaration, ToolDeclaration):
        raise UsageError(f"{where} is not a tool", hint="It needs a `declaration` and a `run(args, context)`.")
    if tool.declaration.name != entry_point.name:
        raise UsageError(f"{where} declares another name: {tool.declaration.name!r}")
    return tool


def _problem(error: ErrorDetails, declaration: ToolDeclaration) -> str:
    argument = ".".join(map(str, error["loc"]))
    if error["type"] == "missing":
        return f'the argument "{argument}" is missing; {declaration.name} takes {_signature(declaration)}'
    if error["type"] == "extra_forbidden":
        return f'unknown argument "{argument}"; {declaration.name} takes {_signature(declaration)}'
    return f'the argument "{argument}": {error["msg"]}'


def _is_of_pydantic(error: ValueError) -> TypeGuard[ValidationError]:
    """Arguments that are records raise the errors of msgspec, which have no list."""
    return hasattr(error, "errors")


def _problems(error: ValueError) -> str:
    if not _is_of_pydantic(error):
        return f"{error}"
    found = [(".".join(map(str, each["loc"])), each["msg"]) for each in error.errors()]
    return "; ".join(f"{where}: {what}" if where else what for where, what in found)


def _signature(declaration: ToolDeclaration) -> str:
    if issubclass(declaration.args, Record):
        return ", ".join(declaration.args.__struct_fields__)
    fields = declaration.args.model_fields.items()
    return ", ".join(name if field.is_required() else f"{name} (optional)" for name, field in fields) or "no arguments"
