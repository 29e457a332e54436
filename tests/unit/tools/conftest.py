from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.model import Step
from holdfast.tools import Toolbox, ToolContext, ToolResult
from tests.support.places import outside, sandbox_root

__all__ = ["outside", "sandbox_root"]


@pytest.fixture
def use(root: Path) -> Callable[..., ToolResult]:
    """Run a tool in the sandbox."""

    def use(tool: str, **args: Any) -> ToolResult:
        context = ToolContext(
            root=root,
            environment=dict(os.environ),
            record_decision=lambda _: "no decision",
            checkpoint=lambda _: "no checkpoint",
        )
        step = Step(name="a step", tool=tool, args=args, resource="app")
        return Toolbox.standard().run(step, context)

    return use
