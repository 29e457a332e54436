"""How long the names in a plan may be, and texts that were shortened to a line."""

from __future__ import annotations

LONGEST_RESOURCE_NAME = 80
LONGEST_DERIVED_NAME = 80


def shortened(text: str, length: int = 40) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"
