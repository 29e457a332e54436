"""Plan files: makes a draft of a plan from YAML, or from the same values in code.

Errors name the place, a line and a column or the path of a value, and what was expected there.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.planfile.format import plan_file_schema
    from holdfast.planfile.loading import CheckStep, load_plan_file, load_steps_file, plan_from
    from holdfast.planfile.unstored import PlanDraft, ResourceDraft

__all__ = [
    "CheckStep",
    "PlanDraft",
    "ResourceDraft",
    "load_plan_file",
    "load_steps_file",
    "plan_file_schema",
    "plan_from",
]

_MODULES = {"PlanDraft": "unstored", "ResourceDraft": "unstored", "plan_file_schema": "format"}


def __getattr__(name: str) -> Any:
    """Imported when asked for: a plan for a program needs neither YAML nor pydantic, which take long to import."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'loading')}"), name)
