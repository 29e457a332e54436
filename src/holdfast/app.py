"""Holdfast: the parts put together, and the verbs that the command line and the Python API share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from holdfast import verbs
from holdfast.config.loading import Settings, home_directory, load_settings
from holdfast.db.store import Store
from holdfast.model import (
    CheckpointRetentionPolicy,
    CorrectionMode,
    Decision,
    Plan,
    PlanState,
    RollbackResult,
    RunSettings,
    Step,
)
from holdfast.parts import Declined, Outfit, Parts
from holdfast.plans.finding import LATEST, Plans, PlanStatus, project_root
from holdfast.system.once import once
from holdfast.system.progress import watched_by
from holdfast.views.checkpoints import CheckpointViews
from holdfast.views.content import ContentViews
from holdfast.views.decisions import DecisionViews
from holdfast.views.timeline import CheckpointView, MomentView, Timeline

if TYPE_CHECKING:
    from holdfast.apply.apply import ApplyResult
    from holdfast.apply.options import ApplyWishes
    from holdfast.apply.preview import ApplyPreview
    from holdfast.apply.unapply import UnapplyPreview
    from holdfast.checkpoints.releasing import HeldBack
    from holdfast.checkpoints.service import CheckpointService
    from holdfast.decisions.correct import CorrectionPreview, CorrectionResult
    from holdfast.events import Listener
    from holdfast.execution.executor import Choices, ExecutionResult
    from holdfast.execution.resume import ResumePreview
    from holdfast.locking import Locking
    from holdfast.planfile.content import PlanContent
    from holdfast.rollback.rollback import RollbackPreview
    from holdfast.tools import Toolbox
    from holdfast.verbs.deleting import DeletedPlans, DeletionPreview
    from holdfast.verbs.going_on import GoingOn
    from holdfast.verbs.in_place import InPlace
    from holdfast.verbs.rolling_back import RollingBack

__all__ = ["LATEST", "CheckpointView", "Declined", "Holdfast", "MomentView", "Outfit", "PlanStatus", "Timeline"]

# What a function imports is not needed by most commands: they start without it.


class Holdfast(AbstractContextManager["Holdfast"]):
    """All of Holdfast for one project. Nothing is opened before it is needed.

    The methods below create and change plans. What finds and shows them comes from ``Plans`` and the views.
    """

    def __init__(self, project: Path, home: Path, settings: Settings, environment: Mapping[str, str]) -> None:
        self.project_root, self.home, self.settings = project, home, settings
        self._parts = parts = Parts(project, home, settings, environment)
        self.allowed_paths, self.close = parts.allowed_paths, parts.close

        self._plans = plans = Plans(parts)
        self.find_plan, self.status = plans.find_plan, plans.status
        self.list_plans, self.plans_newest_first = plans.list_plans, plans.plans_newest_first
        self.count_plans, self.short_plan_ids = plans.count_plans, plans.short_ids
        self.plans_to_prune, self.project_roots = plans.plans_to_prune, plans.project_roots
        self.is_interrupted, self.is_done = plans.is_interrupted, plans.is_done
        self.conflicts, self.applied_parts = plans.conflicts, plans.applied_parts
        self.root_of, self.runs, self.program_run = plans.root_of, plans.runs, plans.program_run
        self.find_damaged_plan, self.delete_damaged = plans.find_damaged_plan, plans.delete_damaged

        self._views = views = CheckpointViews(parts, plans)
        self.checkpoints, self.checkpoint = views.checkpoints, views.checkpoint
        self.timeline, self.find_group = views.timeline, views.find_group
        self.damaged_checkpoints = views.damaged_checkpoints
        self.find_damaged_checkpoint = views.find_damaged_checkpoint
        self.can_roll_back, self.checkpoints_at = views.can_roll_back, views.checkpoints_at
        self.checkpoint_ids, self.count_checkpoints = views.checkpoint_ids, views.count_checkpoints
        self.display_id, self.lasting_id = views.display_id, views.lasting_id

        content = ContentViews(parts, plans, views)
        self.changes, self.changed_files = content.changes, content.changed_files
        self.diff, self.moment_changes = content.diff, content.moment_changes
        self.verify, self.held_back = content.verify, content.held_back
        self.result_of_attempt, self.content_bytes = content.result_of_attempt, content.content_bytes
        self.unfreed = content.unfreed

        decisions = DecisionViews(parts, plans)
        self.decisions, self.decision_tree = decisions.decisions, decisions.decision_tree
        self.find_decision, self.explain = decisions.find_decision, decisions.explain
        self.can_be_reverted = decisions.can_be_reverted

        self.watched_by = watched_by
        """Tell a watcher about all long work that this thread does meanwhile; None changes nothing."""

    @classmethod
    def open(
        cls,
        project: Path | None = None,
        *,
        home: Path | None = None,
        environment: Mapping[str, str] | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> Holdfast:
        """Open the project that contains ``project``, by default the current folder, with its settings."""
        variables = os.environ if environment is None else environment
        root = project_root(project or Path.cwd())
        folder = (home or home_directory(variables)).absolute()
        return cls(root, folder, load_settings(folder, root, variables, overrides or {}), variables)

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def store(self) -> Store:
        return self._parts.store

    @property
    def service(self) -> CheckpointService:
        return self._parts.service

    @property
    def tools(self) -> Toolbox:
        return self._parts.tools

    @tools.setter
    def tools(self, tools: Toolbox) -> None:
        self._parts.tools = tools

    @property
    def is_read_only(self) -> bool:
        """Whether the home exists and this user can only read it."""
        return self._parts.is_read_only

    @once
    def _locking(self) -> Locking:
        from holdfast.locking import Locking

        return Locking(self._parts, self._plans)

    @once
    def going_on(self) -> GoingOn:
        """From any moment of a plan: its files become the result, or a program goes on with them."""
        return verbs.going_on.GoingOn(self._parts, self._locking, self._views)

    @once
    def in_place(self) -> InPlace:
        """Sessions: what agents and people do in the project's real folder, recorded and undone there."""
        return verbs.in_place.InPlace(self._parts, self._plans, self._locking, self._views)

    # Creating and executing

    def create_plan(
        self,
        file: Path | None = None,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        **content: Unpack[PlanContent],
    ) -> Plan:
        """A plan from a file, or from the keys of one, with paths relative to the project's folder.

        ``include``, ``exclude``: patterns of files that the sandboxes get or lack, besides those of the settings.
        """
        from holdfast.plans.creating import create_plan

        return create_plan(file, content, include, exclude, self._parts)

    def create_program_plan(
        self,
        argv: Sequence[str],
        *,
        resources: Sequence[Path] = (),
        folder: Path | None = None,
        settings: RunSettings | None = None,
        name: str | None = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> Plan:
        """A plan of one step that runs a program in sandboxes of these folders, by default of the project.

        ``settings``: what the program is given whenever it runs. They are checked now, so that a wrong one leaves no
        plan behind. ``include`` and ``exclude`` are those of ``create_plan``.
        """
        from holdfast.plans.creating import create_program_plan

        return create_program_plan(
            argv, resources, folder or Path.cwd(), settings or RunSettings(), name, include, exclude, self._parts
        )

    def execute(
        self,
        reference: str,
        *,
        listener: Listener | None = None,
        cancelled: threading.Event | None = None,
        choices: Choices | None = None,
        outfit: Outfit | None = None,
        before_programs: Callable[[Plan, Sequence[Step]], None] | None = None,
    ) -> ExecutionResult:
        """Start the plan, or go on with it. A plan that is complete stays as it is.

        ``before_programs``: called with the programs of ``run`` that are about to start, from their beginning. If it
        raises an error, nothing is started.
        """
        cancelled, outfit = cancelled or threading.Event(), outfit or Outfit()
        return verbs.executing.execute_plan(
            reference, self._parts, self._locking, listener, cancelled, choices, outfit, before_programs
        )

    def resume_preview(
        self, reference: str, *, choices: Choices | None = None, is_dry_run: bool = True
    ) -> ResumePreview:
        """From where the plan would go on. Changes nothing, and refuses what ``execute`` would refuse.

        Without ``is_dry_run`` an execution follows, which may take the plan over from an owner that was suspended.
        """
        from holdfast.execution import preflight, resume, standing

        plan, parts = self.find_plan(reference), self._parts
        self._locking.root_for(self._locking.RESUME, plan, must_be_free=is_dry_run)
        parts.refuse_without_content(plan)
        preview = resume.preview_resume(plan, self.service, self.tools, choices or standing.Choices())
        preflight.refuse_what_is_gone(plan, preview.programs, parts.environment, parts.asked_paths)
        return preview

    def cancel(self, reference: str, *, patience_seconds: float = 30.0) -> Plan:
        """Stop a plan, also one that runs in another process. Everything is kept, and the plan can go on later."""
        locking, plan = self._locking, self.find_plan(reference)
        locking.root_for(locking.CANCEL, plan)
        locking.refuse_to_stop_what_is_done(plan)
        if not self._parts.is_shared:
            self._parts.refuse_read_only()
        if locking.stop_owner(plan.plan_id, patience_seconds):
            stopped = self.find_plan(plan.plan_id)
            locking.refuse_to_stop_what_is_done(stopped)
            if stopped.state is PlanState.CANCELLED:
                return stopped  # by the process that ran it; its content may be on another machine
        with locking.recovered(locking.CANCEL, plan.plan_id) as (plan, lease):
            locking.refuse_to_stop_what_is_done(plan)
            if plan.state is not PlanState.CANCELLED:
                plan = plan.changed(state=PlanState.CANCELLED, error=plan.error or "cancelled")
                with self.store.transaction(lease):
                    self.store.save(plan)
            return plan

    # Rolling back and correcting

    def rollback(
        self,
        reference: str,
        checkpoint: str,
        *,
        only: Sequence[str] = (),
        keeps_present: bool = True,
        confirm: Callable[[RollbackPreview], bool] | None = None,
        listener: Listener | None = None,
    ) -> RollbackResult | Declined:
        """Roll back to a checkpoint; with ``only`` restore just these paths (``PATH`` or ``RESOURCE:PATH``) from it.

        Single paths are restored also while another process executes the plan.

        ``keeps_present``: take a checkpoint of the present state first. Without one, what no checkpoint holds is lost;
        that is for a disk that has no room for it.
        """
        rolling = _rolling_back(self._parts, self._plans, self._locking, self._views)
        return rolling.rollback(reference, checkpoint, only, keeps_present, confirm, listener)

    def rollback_preview(
        self, reference: str, checkpoint: str, *, only: Sequence[str] = (), keeps_present: bool = True
    ) -> RollbackPreview:
        """What a rollback would do; changes nothing, and refuses what the rollback would refuse."""
        return _rolling_back(self._parts, self._plans, self._locking, self._views).preview(
            reference, checkpoint, only, keeps_present
        )

    def correct(
        self,
        decision_reference: str,
        *,
        guidance: str,
        mode: CorrectionMode = CorrectionMode.REVERT,
        steps_file: Path | None = None,
        confirm: Callable[[CorrectionPreview], bool] | None = None,
        listener: Listener | None = None,
    ) -> CorrectionResult | Declined:
        from holdfast.decisions.correct import CorrectionResult
        from holdfast.recovery import tell_set_aside

        decision, corrections = self.find_decision(decision_reference), self._parts.corrections
        is_interrupted = corrections.is_interrupted(decision, guidance)
        with (
            self._locking.recovered(self._locking.CORRECT, decision.plan_id, listener=listener) as (plan, lease),
            self.service.sandboxes.looking(),
        ):
            if is_interrupted:
                # The same correction was cut short, and recovery has finished it.
                return CorrectionResult(plan, None)
            preview = _preview_correction(self._parts, plan, decision, mode, steps_file)
            result = corrections.correct(lease, preview, guidance, self._parts.compensator(listener), confirm)
            if result is None:
                return Declined()
            tell_set_aside(listener or (lambda _: None), result.set_aside)
            return result

    def correction_preview(
        self,
        decision_reference: str,
        *,
        mode: CorrectionMode = CorrectionMode.REVERT,
        steps_file: Path | None = None,
    ) -> CorrectionPreview:
        """What a correction would do; changes nothing, and refuses what the correction would refuse."""
        decision = self.find_decision(decision_reference)
        plan = self._locking.idle(self._locking.CORRECT, decision.plan_id)
        with self.service.sandboxes.looking():
            return _preview_correction(self._parts, plan, decision, mode, steps_file)

    # Applying

    def apply(
        self,
        reference: str,
        *,
        confirm: Callable[[ApplyPreview], bool] | None = None,
        listener: Listener | None = None,
        **wishes: Unpack[ApplyWishes],
    ) -> ApplyResult | Declined:
        """Bring the result into the real files, or leave it on a new branch of the real repositories."""
        return verbs.applying.Applying(self._parts, self._locking).apply(reference, confirm, listener, **wishes)

    def apply_preview(self, reference: str, **wishes: Unpack[ApplyWishes]) -> ApplyPreview:
        """What ``apply`` would do; changes nothing, and refuses what ``apply`` would refuse."""
        return verbs.applying.Applying(self._parts, self._locking).apply_preview(reference, **wishes)

    def unapply(
        self,
        reference: str,
        *,
        confirm: Callable[[UnapplyPreview], bool] | None = None,
        listener: Listener | None = None,
    ) -> UnapplyPreview | Declined:
        """Put the real files back as they were before the plan was applied."""
        return verbs.applying.Applying(self._parts, self._locking).unapply(reference, confirm, listener)

    def unapply_preview(self, reference: str) -> UnapplyPreview:
        """What ``unapply`` would do; changes nothing."""
        return verbs.applying.Applying(self._parts, self._locking).unapply_preview(reference)

    # Taking checkpoints

    def create_checkpoint(
        self, reference: str, label: str | None = None, *, listener: Listener | None = None
    ) -> CheckpointView:
        """Take a checkpoint of the sandboxes as they are now; one with a label is never pruned.

        Also while another process executes the plan.
        """
        return _rolling_back(self._parts, self._plans, self._locking, self._views).create_checkpoint(
            reference, label, listener
        )

    # Deleting and freeing space. Recovery may take space, so it does not come first; the content it needs is kept.

    def delete(self, reference: str) -> Plan:
        """Delete a plan: its sandboxes, its records and the content that only it needs."""
        return verbs.deleting.Deletion(self._parts, self._plans, self._locking).delete(reference)

    def delete_plans(
        self, references: Sequence[str], *, confirm: Callable[[DeletionPreview], bool] | None = None
    ) -> DeletedPlans | Declined:
        """Delete several plans. If one cannot be deleted, it says why, and the others are deleted all the same.

        All are looked for first: if one does not exist, is a subplan or is in use, none is deleted.
        """
        return (
            verbs.deleting.Deletion(self._parts, self._plans, self._locking).delete_all(references, confirm)
            or Declined()
        )

    def delete_checkpoint(self, reference: str, checkpoint: str) -> int:
        """Delete a checkpoint and the others of its group, or a damaged one; how many were deleted."""
        damaged = self.find_damaged_checkpoint(reference, checkpoint)
        wanted = None if damaged else self._views.find_checkpoint(self.find_plan(reference), checkpoint)
        with (
            self._parts.reserve.given_up(),
            self._locking.locked(self._locking.DELETE_CHECKPOINT, reference) as (plan, _, lease),
        ):
            if damaged is not None:
                return self.service.pruning.delete_damaged(plan, lease, damaged)
            assert wanted is not None
            return self.service.pruning.delete(plan, lease, wanted)

    def prune(self, reference: str, keep: int | None = None) -> int:
        """Prune to ``keep`` checkpoints, or to what the plan's policy says; how many were deleted."""
        with self._parts.reserve.given_up(), self._locking.locked(self._locking.PRUNE, reference) as (plan, _, lease):
            policy = CheckpointRetentionPolicy(max_checkpoints=keep) if keep is not None else plan.policy.retention
            return self.service.prune_checkpoints(plan, lease, policy)

    def release(self, given_up: Sequence[HeldBack]) -> int:
        """Free the content that is kept for these plans, whose records are lost for good; the bytes freed."""
        self._parts.refuse_read_only()
        with self._parts.reserve.given_up():
            self.service.release.give_up(given_up)
            return self.service.garbage.collect()


def _rolling_back(parts: Parts, plans: Plans, locking: Locking, views: CheckpointViews) -> RollingBack:
    return verbs.rolling_back.RollingBack(parts, plans, locking, views)


def _preview_correction(
    parts: Parts, plan: Plan, decision: Decision, mode: CorrectionMode, steps_file: Path | None
) -> CorrectionPreview:
    from holdfast.plans.creating import load_steps

    steps = load_steps(steps_file, plan, parts) if steps_file is not None else None
    return parts.corrections.preview(plan, decision, mode, steps)
