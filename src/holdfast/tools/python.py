"""The tool that calls a Python function, in a process of its own, with a context that reaches back to the executor."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
from pydantic import Field, JsonValue

from holdfast.errors import HoldfastError
from holdfast.model import DecisionSpec
from holdfast.process.mount import seen_at
from holdfast.tools import python_child
from holdfast.tools.arguments import ToolArgs
from holdfast.tools.declaration import ToolContext, ToolDeclaration, ToolResult
from holdfast.tools.running import result_of, run_in


class PythonArgs(ToolArgs):
    callable: str = Field(
        pattern=r"^[^\W\d][\w.]*:[^\W\d][\w.]*$",
        description="The function, as module:function; the sandbox's root comes first on the import path.",
    )
    kwargs: dict[str, JsonValue] = Field(default_factory=dict, description="Its keyword arguments, after the context.")


class Python:
    """Calls a function with a context and keyword arguments; an exception fails the step."""

    declaration = ToolDeclaration(name="python", args=PythonArgs)

    def run(self, args: PythonArgs, context: ToolContext) -> ToolResult:
        missing = _missing_in_view(context)
        if missing is not None:
            return ToolResult.failed(
                f"{missing} is not in the sandbox: Holdfast runs from the real folder, and this was not copied"
            )
        counterpart = _Counterpart(args, context)
        # -P: neither the directory of the script nor the sandbox may shadow what the child itself imports.
        child = [sys.executable, "-P", python_child.__file__]
        result = run_in(context, child, requests=counterpart.answer)
        raised = counterpart.raised and f"{args.callable} raised {counterpart.raised}"
        return result_of(result, args.callable, context, failure=raised)


def _missing_in_view(context: ToolContext) -> str | None:
    """What the child needs and would not find, because Holdfast is installed in a folder that a sandbox covers."""
    needed = (sys.executable, python_child.__file__)
    return next((each for each in needed if not seen_at(Path(each), context.mounts).exists()), None)


class _Counterpart:
    """Answers the child of one run. Our own errors are sent to it; any other is a defect and ends the run."""

    def __init__(self, args: PythonArgs, context: ToolContext) -> None:
        self._args = args
        self._context = context
        self.raised: str | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._answer(request)
        except msgspec.ValidationError as error:
            return {"error": f"this is not a valid decision: {error}"}
        except HoldfastError as error:
            return {"error": error.message}

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request:
            case {"request": "call"}:
                return self._args.model_dump(mode="json")
            case {"request": "record_decision", "decision": dict(decision)}:
                _refuse_unknown_fields(decision)
                return {"id": self._context.record_decision(DecisionSpec.model_validate(decision))}
            case {"request": "checkpoint", "label": str() | None as label}:
                return {"id": self._context.checkpoint(label)}
            case {"request": "raised", "error": str(error)}:
                self.raised = error
                return {}
        return {"error": "no such request"}


def _refuse_unknown_fields(decision: dict[str, Any]) -> None:
    unknown = sorted(decision.keys() - set(DecisionSpec.__struct_fields__))
    if unknown:
        raise msgspec.ValidationError(f"Object contains unknown field `{unknown[0]}`")
