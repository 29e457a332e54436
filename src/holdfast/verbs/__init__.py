"""What verbs of ``Holdfast`` do. A module is imported when it is first used: most commands need one, or none."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.verbs import applying, deleting, executing, going_on, in_place, rolling_back

__all__ = ["applying", "deleting", "executing", "going_on", "in_place", "rolling_back"]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
