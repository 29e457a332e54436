"""The folders of a plan in the home: its sandboxes, and what an execution keeps beside them."""

from __future__ import annotations

from pathlib import Path

from holdfast.door import SOCKET
from holdfast.model import Plan

STANDING = ".beside"


def plan_folder(plan: Plan) -> Path:
    """The folder with the sandboxes of all its resources."""
    return Path(plan.resources[0].sandbox_path).parent


def temporary_folder(plan: Plan) -> Path:
    """The TMPDIR of its steps."""
    return plan_folder(plan) / ".tmp"


def cache_folder(plan: Plan) -> Path:
    """What package managers of its program download and build."""
    return plan_folder(plan) / ".caches"


def hiding_folder(plan: Plan) -> Path:
    """Empty folders that its program sees in place of others."""
    return plan_folder(plan) / ".hidden"


def standing_folder(plan: Plan) -> Path:
    """Folders that its program sees in place of those with a single file that it may write (``stand_in.py``)."""
    return plan_folder(plan) / STANDING


def door_place(plan: Plan) -> Path:
    """The socket at which the process that executes it can be asked for something."""
    return plan_folder(plan) / SOCKET


def conflict_folder(plan: Plan) -> Path:
    """The versions of files in conflict, by subplan."""
    return plan_folder(plan) / ".conflicts"
