"""The ids of checkpoints as they are shown: as short as they are unique."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.db.store import Store
from holdfast.names import SHORTEST_DISPLAY, display_ids


def display_ids_of(store: Store, plan_id: str, some: Collection[str]) -> dict[str, str]:
    """The ids of some checkpoints of a plan, each as short as it is unique now among all of the plan."""
    beside = store.checkpoints.ids_beside(plan_id, some, SHORTEST_DISPLAY)
    return display_ids([*some, *beside])
