"""``holdfast plan schema``: print the JSON Schema of plan files."""

from __future__ import annotations

import json
from typing import Any

from holdfast.cli.invocation import Invocation, command
from holdfast.cli.output import Reply
from holdfast.planfile import plan_file_schema


@command(
    "schema",
    only_looks=True,
    examples=(
        ("holdfast plan schema > plan.schema.json", "A file for your editor."),
        ("holdfast plan schema --format yaml", "The schema as YAML."),
    ),
)
def schema(invocation: Invocation) -> Reply:  # noqa: ARG001 - every command gets it
    """Print the JSON Schema of plan files, for editors: holdfast plan schema > plan.schema.json."""
    found: dict[str, Any] = plan_file_schema()
    return Reply({"schema": found}, lambda screen: screen.line(json.dumps(found, indent=2)))
