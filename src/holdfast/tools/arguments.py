"""The arguments of tools, checked by pydantic."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator


class ToolArgs(BaseModel):
    """The arguments of a tool; every field has a description."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        """A lone surrogate, which YAML and JSON can express, cannot be written to a file or passed to a command."""
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise ValueError("contains a lone surrogate, which is not a character") from error
        return value


class NoArgs(ToolArgs):
    """For a tool that takes no arguments."""
