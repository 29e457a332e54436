from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.model import Step
from holdfast.tools import Toolbox, ToolContext, ToolResult


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A sandbox, with something beside it that must never be reached."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("untouched")
    sandbox = tmp_path / "sandbox"
    sandbox.mkdir()
    return sandbox


@pytest.fixture
def outside(root: Path) -> Path:
    return root.parent / "outside"


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
