"""TakenSnapshot: what the manager knows of a snapshot that it has just taken.

A ``SandboxCheckpoint`` without pydantic, whose import would take longer than most checkpoints.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from holdfast.model import Phase, Record, Unheld


class TakenSnapshot(Record, frozen=True, kw_only=True):
    """The fields of a ``SandboxCheckpoint``."""

    checkpoint_id: str
    sandbox_id: str
    plan_id: str
    phase: Phase
    created_at: datetime
    metadata: dict[str, Any]
    snapshot_path: str
    state_hash: str
    size_bytes: int
    unheld: tuple[Unheld, ...]

    def to_json(self) -> str:
        """What ``SandboxCheckpoint.from_json`` reads; in ASCII, because names need not be UTF-8."""
        return json.dumps(self.model_dump(mode="json"), separators=(",", ":"))
