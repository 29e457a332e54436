"""SandboxCheckpoint: one sandbox's snapshot, as the manager takes it and keeps it in the content store's catalogue."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from holdfast.model import Phase, Unheld

_Unheld = Annotated[
    Unheld,
    BeforeValidator(lambda value: value if isinstance(value, Unheld) else Unheld.model_validate(value)),
    PlainSerializer(Unheld.model_dump),
]


class SandboxCheckpoint(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    checkpoint_id: str
    sandbox_id: str
    plan_id: str
    phase: Phase
    created_at: datetime
    metadata: dict[str, Any]
    snapshot_path: str
    """The sandbox the snapshot was taken of."""
    state_hash: str
    size_bytes: int
    unheld: tuple[_Unheld, ...] = ()

    def to_json(self) -> str:
        """In ASCII, with escapes: Python's form of a name that is not UTF-8 is nothing that UTF-8 could hold."""
        return json.dumps(self.model_dump(mode="json"), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls.model_validate(json.loads(text))
