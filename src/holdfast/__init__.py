"""Holdfast runs plans in private sandboxes, checkpoints every write, and takes you back to any of them, exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.checkpoints.service import CheckpointService
    from holdfast.decisions.correct import CorrectionService
    from holdfast.errors import CheckpointNotFoundError, HoldfastError, NotFoundError
    from holdfast.execution.executor import PlanExecutor
    from holdfast.model import Checkpoint, CheckpointRetentionPolicy, RollbackResult
    from holdfast.snapshot.manager import CheckpointManager
    from holdfast.snapshot.sandbox_checkpoint import SandboxCheckpoint

__all__ = [
    "Checkpoint",
    "CheckpointManager",
    "CheckpointNotFoundError",
    "CheckpointRetentionPolicy",
    "CheckpointService",
    "CorrectionService",
    "Holdfast",
    "HoldfastError",
    "NotFoundError",
    "PlanExecutor",
    "RollbackResult",
    "SandboxCheckpoint",
]

_MODULES = {
    "app": ("Holdfast",),
    "checkpoints.service": ("CheckpointService",),
    "decisions.correct": ("CorrectionService",),
    "errors": ("CheckpointNotFoundError", "HoldfastError", "NotFoundError"),
    "execution.executor": ("PlanExecutor",),
    "model": ("Checkpoint", "CheckpointRetentionPolicy", "RollbackResult"),
    "snapshot.manager": ("CheckpointManager",),
    "snapshot.sandbox_checkpoint": ("SandboxCheckpoint",),
}


def __getattr__(name: str) -> object:
    """Imported when asked for: the command line starts without most of it."""
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
