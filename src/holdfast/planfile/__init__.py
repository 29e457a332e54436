"""Plan files: makes a draft of a plan from YAML, or from the same values in code.

Errors name the place, a line and a column or the path of a value, and what was expected there.
"""

from __future__ import annotations

from holdfast.planfile.draft import PlanDraft, ResourceDraft
from holdfast.planfile.format import plan_file_schema
from holdfast.planfile.loading import CheckStep, load_plan_file, load_steps_file, plan_from

__all__ = [
    "CheckStep",
    "PlanDraft",
    "ResourceDraft",
    "load_plan_file",
    "load_steps_file",
    "plan_file_schema",
    "plan_from",
]
