"""What ends a run."""

from __future__ import annotations

from typing import Any


class Submitted(Exception):
    def __init__(self, *messages: dict[str, Any]) -> None:
        super().__init__()
        self.messages = messages
