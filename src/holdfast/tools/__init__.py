"""Tools: what the steps of a plan call, each with a declaration of what it does."""

from __future__ import annotations

from holdfast.tools.declaration import AnyTool, NoArgs, Tool, ToolArgs, ToolContext, ToolDeclaration, ToolResult
from holdfast.tools.toolbox import Toolbox

__all__ = ["AnyTool", "NoArgs", "Tool", "ToolArgs", "ToolContext", "ToolDeclaration", "ToolResult", "Toolbox"]
