"""Tools: what the steps of a plan call, each with a declaration of what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.tools.declaration import AnyTool, Tool, ToolContext, ToolDeclaration, ToolResult
from holdfast.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from holdfast.tools.arguments import NoArgs, ToolArgs

__all__ = ["AnyTool", "NoArgs", "Tool", "ToolArgs", "ToolContext", "ToolDeclaration", "ToolResult", "Toolbox"]


def __getattr__(name: str) -> Any:
    """Arguments are checked by pydantic, which is imported when it is needed."""
    if name not in ("NoArgs", "ToolArgs"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.tools import arguments

    return getattr(arguments, name)
