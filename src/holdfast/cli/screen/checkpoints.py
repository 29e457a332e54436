"""What stands below a list of checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.cli.output import Next
from holdfast.model import Plan

if TYPE_CHECKING:
    from holdfast import Holdfast


@dataclass(frozen=True)
class Footer:
    """What stands below a list of checkpoints."""

    root_id: str
    """Of the plan that is executed for it."""
    can_go_back: bool

    @classmethod
    def of(cls, holdfast: Holdfast, plan: Plan) -> Footer:
        return cls(holdfast.root_of(plan).plan_id, holdfast.can_go_back(plan))

    def commands(self, plan: Plan) -> list[Next]:
        looking = Next("look", f"holdfast checkpoint show --plan {plan.plan_id} CHECKPOINT")
        going_back = Next("go back", f"holdfast plan rollback {plan.plan_id} CHECKPOINT")
        return [looking, going_back] if self.can_go_back else [looking]
