"""SandboxCheckpoint: the snapshot of one sandbox, as it is kept in the catalogue of the content store."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationInfo, field_validator

from holdfast.model import Checkpoint, CheckpointGroup, Phase, Unheld
from holdfast.system.validity import refuse_unless_id, refuse_unless_utc

_Unheld = Annotated[
    Unheld,
    BeforeValidator(lambda value: value if isinstance(value, Unheld) else Unheld.model_validate(value)),
    PlainSerializer(Unheld.model_dump),
]


class SandboxCheckpoint(BaseModel):
    """The snapshot of one sandbox. The first seven fields are enough: the manager finds a recorded state by its id."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    checkpoint_id: str
    sandbox_id: str
    plan_id: str
    phase: Phase
    created_at: datetime
    metadata: dict[str, Any]
    snapshot_path: str
    """The sandbox the snapshot was taken of."""
    state_hash: str = Field(default="", pattern="^([0-9a-f]{64})?$")
    """Empty if unknown."""
    size_bytes: int = Field(default=0, ge=0)
    unheld: tuple[_Unheld, ...] = ()

    @field_validator("checkpoint_id", "plan_id")
    @classmethod
    def _is_id(cls, value: str, info: ValidationInfo) -> str:
        refuse_unless_id(str(info.field_name), value)
        return value

    @field_validator("sandbox_id", "snapshot_path")
    @classmethod
    def _is_named(cls, value: str, info: ValidationInfo) -> str:
        # Not ``min_length``: pydantic refuses to count characters of a path that is not valid UTF-8.
        if not value:
            raise ValueError(f"{info.field_name} is empty")
        return value

    @field_validator("created_at")
    @classmethod
    def _is_utc(cls, value: datetime, info: ValidationInfo) -> datetime:
        refuse_unless_utc(str(info.field_name), value)
        return value

    @classmethod
    def recorded(cls, checkpoint: Checkpoint, group: CheckpointGroup) -> Self:
        """The snapshot that a record describes."""
        return cls(
            checkpoint_id=checkpoint.checkpoint_id,
            sandbox_id=checkpoint.sandbox_ref,
            plan_id=checkpoint.plan_id,
            phase=checkpoint.metadata.phase,
            created_at=checkpoint.created_at,
            metadata={**checkpoint.metadata.model_dump(), "triggers": list(checkpoint.metadata.triggers)},
            snapshot_path=checkpoint.filesystem_path,
            state_hash=checkpoint.metadata.state_hash,
            size_bytes=checkpoint.size_bytes,
            unheld=group.unheld.get(checkpoint.resource_id, ()),
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls.model_validate(json.loads(text))
