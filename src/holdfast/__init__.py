"""Holdfast runs plans in private sandboxes, checkpoints every write, and takes you back to any of them, exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.errors import HoldfastError

__all__ = ["Holdfast", "HoldfastError"]


def __getattr__(name: str) -> object:
    """Imported when asked for: the command line starts without most of it."""
    if name == "Holdfast":
        from holdfast.app import Holdfast

        return Holdfast
    if name == "HoldfastError":
        from holdfast.errors import HoldfastError

        return HoldfastError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
