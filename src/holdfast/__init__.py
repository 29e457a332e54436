"""Holdfast runs plans in private sandboxes, checkpoints every write, and takes you back to any of them, exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.app import CheckpointView, Declined, Holdfast, MomentView, Outfit, PlanStatus, Timeline
    from holdfast.apply.apply import ApplyResult
    from holdfast.apply.options import ApplyWishes
    from holdfast.apply.preview import ApplyPreview
    from holdfast.apply.unapply import UnapplyPreview
    from holdfast.checkpoints.file_diffs import FileDiff
    from holdfast.checkpoints.releasing import HeldBack
    from holdfast.checkpoints.service import CheckpointService
    from holdfast.checkpoints.titles import checkpoint_title
    from holdfast.checkpoints.verification import VerifyResult
    from holdfast.decisions.correct import CorrectionPreview, CorrectionResult, CorrectionService
    from holdfast.decisions.explain import Explanation
    from holdfast.decisions.tree import DecisionCheckpoint, DecisionNode, DecisionTree
    from holdfast.door.asking import mark
    from holdfast.errors import CheckpointNotFoundError, HoldfastError, NotFoundError
    from holdfast.execution.executor import AfterInterruption, Choices, ExecutionResult, PlanExecutor
    from holdfast.execution.resume import ResumePreview
    from holdfast.model import (
        Checkpoint,
        CheckpointRetentionPolicy,
        CorrectionMode,
        RollbackResult,
        RunSettings,
        SessionInfo,
    )
    from holdfast.planfile.content import PlanContent, StepContent
    from holdfast.process.confinement import Confinement
    from holdfast.process.passthrough import Passthrough
    from holdfast.rollback.rollback import RollbackPreview
    from holdfast.sessions.blame import Blamed
    from holdfast.sessions.calls import Call, Prompt
    from holdfast.sessions.recording import CallBegun, CallEnded, Recording
    from holdfast.sessions.saving_first import SavedFirst
    from holdfast.sessions.undoing import Undo, UndoConflict, UndoResult
    from holdfast.sessions.wishes import CallNumber, LastCall, OnlyCall, PromptNumber, ToCheckpoint
    from holdfast.snapshot.manager import CheckpointManager
    from holdfast.snapshot.sandbox_checkpoint import SandboxCheckpoint
    from holdfast.verbs.deleting import DeletedPlans, DeletionPreview
    from holdfast.verbs.in_place import FolderMoment, InPlace
    from holdfast.views.moment_changes import MomentChange, MomentChanges

__all__ = [
    "AfterInterruption",
    "ApplyPreview",
    "ApplyResult",
    "ApplyWishes",
    "Blamed",
    "Call",
    "CallBegun",
    "CallEnded",
    "CallNumber",
    "Checkpoint",
    "CheckpointManager",
    "CheckpointNotFoundError",
    "CheckpointRetentionPolicy",
    "CheckpointService",
    "CheckpointView",
    "Choices",
    "Confinement",
    "CorrectionMode",
    "CorrectionPreview",
    "CorrectionResult",
    "CorrectionService",
    "DecisionCheckpoint",
    "DecisionNode",
    "DecisionTree",
    "Declined",
    "DeletedPlans",
    "DeletionPreview",
    "ExecutionResult",
    "Explanation",
    "FileDiff",
    "FolderMoment",
    "HeldBack",
    "Holdfast",
    "HoldfastError",
    "InPlace",
    "LastCall",
    "MomentChange",
    "MomentChanges",
    "MomentView",
    "NotFoundError",
    "OnlyCall",
    "Outfit",
    "Passthrough",
    "PlanContent",
    "PlanExecutor",
    "PlanStatus",
    "Prompt",
    "PromptNumber",
    "Recording",
    "ResumePreview",
    "RollbackPreview",
    "RollbackResult",
    "RunSettings",
    "SandboxCheckpoint",
    "SavedFirst",
    "SessionInfo",
    "StepContent",
    "Timeline",
    "ToCheckpoint",
    "UnapplyPreview",
    "Undo",
    "UndoConflict",
    "UndoResult",
    "VerifyResult",
    "checkpoint_title",
    "mark",
]

_MODULES = {
    "app": ("CheckpointView", "Declined", "Holdfast", "MomentView", "Outfit", "PlanStatus", "Timeline"),
    "apply.apply": ("ApplyResult",),
    "apply.options": ("ApplyWishes",),
    "apply.preview": ("ApplyPreview",),
    "apply.unapply": ("UnapplyPreview",),
    "checkpoints.file_diffs": ("FileDiff",),
    "checkpoints.releasing": ("HeldBack",),
    "checkpoints.service": ("CheckpointService", "VerifyResult"),
    "checkpoints.titles": ("checkpoint_title",),
    "decisions.correct": ("CorrectionPreview", "CorrectionResult", "CorrectionService"),
    "decisions.explain": ("Explanation",),
    "decisions.tree": ("DecisionCheckpoint", "DecisionNode", "DecisionTree"),
    "verbs.deleting": ("DeletedPlans", "DeletionPreview"),
    "verbs.in_place": ("FolderMoment", "InPlace"),
    "door.asking": ("mark",),
    "errors": ("CheckpointNotFoundError", "HoldfastError", "NotFoundError"),
    "execution.executor": ("AfterInterruption", "Choices", "ExecutionResult", "PlanExecutor"),
    "execution.resume": ("ResumePreview",),
    "model": (
        "Checkpoint",
        "CheckpointRetentionPolicy",
        "CorrectionMode",
        "RollbackResult",
        "RunSettings",
        "SessionInfo",
    ),
    "planfile.content": ("PlanContent", "StepContent"),
    "process.confinement": ("Confinement",),
    "process.passthrough": ("Passthrough",),
    "rollback.rollback": ("RollbackPreview",),
    "sessions.blame": ("Blamed",),
    "sessions.calls": ("Call", "Prompt"),
    "sessions.recording": ("CallBegun", "CallEnded", "Recording"),
    "sessions.saving_first": ("SavedFirst",),
    "sessions.undoing": ("Undo", "UndoConflict", "UndoResult"),
    "sessions.wishes": ("CallNumber", "LastCall", "OnlyCall", "PromptNumber", "ToCheckpoint"),
    "snapshot.manager": ("CheckpointManager",),
    "snapshot.sandbox_checkpoint": ("SandboxCheckpoint",),
    "views.moment_changes": ("MomentChange", "MomentChanges"),
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
