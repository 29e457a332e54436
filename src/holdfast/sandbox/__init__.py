"""Sandboxes: private copies of real resources behind one small protocol."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.model import Plan, Resource, ResourceType
from holdfast.sandbox.directory import DirectorySandbox
from holdfast.sandbox.git_worktree import GitWorktreeSandbox
from holdfast.sandbox.protocol import Sandbox


def sandbox_for(plan: Plan, resource: Resource, *, include_ignored: Collection[str] = ()) -> Sandbox:
    if resource.type is ResourceType.GIT:
        return GitWorktreeSandbox(plan.plan_id, resource, include_ignored=include_ignored)
    return DirectorySandbox(resource)
