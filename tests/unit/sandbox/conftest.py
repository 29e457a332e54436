from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.model import CopyRules, Plan, Resource, ResourceType, now
from holdfast.sandbox.protocol import Sandbox, sandbox_for
from holdfast.system.ids import new_id
from tests.support.places import person

__all__ = ["person"]


class Bench:
    """Makes sandboxes of real resources."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan_id = new_id()
        self.home = folder / "home" / "sandboxes" / self.plan_id

    def sandbox(self, kind: ResourceType, path: Path, rules: CopyRules = CopyRules()) -> Sandbox:  # noqa: B008 - frozen
        place = str(self.home / "app")
        resource = Resource(name="app", type=kind, path=str(path), sandbox_path=place, copy_rules=rules)
        plan = Plan(
            plan_id=self.plan_id, project_id="p", name="p", resources=(resource,), created_at=now(), updated_at=now()
        )
        return sandbox_for(plan, resource)

    def git(self, path: Path, rules: CopyRules = CopyRules()) -> Sandbox:  # noqa: B008 - frozen
        return self.sandbox(ResourceType.GIT, path, rules)

    def directory(self, path: Path) -> Sandbox:
        return self.sandbox(ResourceType.DIRECTORY, path)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
