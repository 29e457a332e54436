"""Holdfast: the parts put together, and the verbs that the command line and the Python API share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.loading import Settings, home_directory, load_settings
from holdfast.db.store import Store
from holdfast.errors import HoldfastError, StateError, UsageError
from holdfast.model import CheckpointRetentionPolicy, Decision, Moment, Plan, PlanState, RollbackResult
from holdfast.parts import Outfit, Parts
from holdfast.plans import LATEST, Plans, PlanStatus, project_root
from holdfast.system.once import once
from holdfast.system.reserve import full_disk
from holdfast.views import CheckpointView, Views

if TYPE_CHECKING:
    from holdfast.apply.apply import ApplyResult
    from holdfast.apply.preview import ApplyOptions, ApplyPreview
    from holdfast.apply.unapply import UnapplyPreview
    from holdfast.checkpoints.releasing import HeldBack
    from holdfast.checkpoints.service import CheckpointService
    from holdfast.decisions.correct import CorrectionPreview
    from holdfast.events import Listener
    from holdfast.execution.executor import Choices, ExecutionResult
    from holdfast.execution.resume import ResumePreview
    from holdfast.locking import Locking
    from holdfast.rollback.rollback import RollbackPreview
    from holdfast.tools import Toolbox

__all__ = ["LATEST", "CheckpointView", "Declined", "Holdfast", "Outfit", "PlanStatus"]

# What is imported in a function below is not needed by every command: most start without it.


@dataclass(frozen=True)
class Declined:
    """The person was asked and said no; nothing was changed."""


class Holdfast:
    """All of Holdfast for one project. Nothing is opened before it is needed.

    What is done to plans are methods; what only finds, shows or makes them comes from ``Plans`` and ``Views``.
    """

    def __init__(self, project: Path, home: Path, settings: Settings, environment: Mapping[str, str]) -> None:
        self.project_root, self.home, self.settings = project, home, settings
        self._parts = parts = Parts(project, home, settings, environment)
        self.allowed_paths = parts.allowed_paths

        self._plans = plans = Plans(parts)
        self.create_plan = plans.create_plan
        self.create_program_plan = plans.create_program_plan
        self.find_plan = plans.find_plan
        self.list_plans = plans.list_plans
        self.status = plans.status
        self.is_interrupted = plans.is_interrupted
        self.conflicts = plans.conflicts
        self.is_done = plans.is_done
        self.root_of = plans.root_of
        self.runs = plans.runs
        self.project_roots = plans.project_roots
        self.find_damaged_plan = plans.find_damaged_plan

        self._views = views = Views(parts, plans)
        self.checkpoints = views.checkpoints
        self.checkpoint = views.checkpoint
        self.damaged_checkpoints = views.damaged_checkpoints
        self.find_damaged_checkpoint = views.find_damaged_checkpoint
        self.can_go_back = views.can_go_back
        self.checkpoint_ids = views.checkpoint_ids
        self.checkpoints_at = views.checkpoints_at
        self.count_checkpoints = views.count_checkpoints
        self.find_group = views.find_group
        self.changed_files = views.changed_files
        self.changes = views.changes
        self.diff = views.diff
        self.result_of_attempt = views.result_of_attempt
        self.verify = views.verify
        self.held_back = views.held_back
        self.content_bytes = views.content_bytes
        self.watched_by = views.watched_by
        self.decisions = views.decisions
        self.decision_tree = views.decision_tree
        self.find_decision = views.find_decision
        self.explain = views.explain
        self.can_be_reverted = views.can_be_reverted

    @classmethod
    def open(
        cls,
        project: Path | None = None,
        *,
        home: Path | None = None,
        environment: Mapping[str, str] | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> Holdfast:
        """For the project around ``project`` (by default the current folder), with its settings."""
        variables = os.environ if environment is None else environment
        root = project_root(project or Path.cwd())
        folder = (home or home_directory(variables)).absolute()
        return cls(root, folder, load_settings(folder, root, variables, overrides or {}), variables)

    def close(self) -> None:
        self._parts.close()

    def __enter__(self) -> Holdfast:
        return self

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
        """Whether the home is there, and this user can only look at it."""
        return self._parts.is_read_only

    @property
    def skipped_records(self) -> Sequence[str]:
        """What answers since it was opened have left out, because the records are damaged."""
        return self.store.skipped

    @once
    def _locking(self) -> Locking:
        from holdfast.locking import Locking

        return Locking(self._parts, self._plans)

    # Executing

    def execute(
        self,
        reference: str,
        *,
        listener: Listener | None = None,
        cancelled: threading.Event | None = None,
        choices: Choices | None = None,
        outfit: Outfit | None = None,
    ) -> ExecutionResult:
        """Start the plan, or go on with it; what is complete stays as it is."""
        from holdfast.execution.beginning import with_all_sandboxes
        from holdfast.execution.executor import ExecutionResult
        from holdfast.execution.preflight import check_plan, check_space
        from holdfast.system.stopping import Stopped, stoppable

        cancelled, parts = cancelled or threading.Event(), self._parts
        changing = self._locking.changing(
            self._locking.EXECUTE, reference, on_stop_request=cancelled.set, listener=listener
        )
        with ExitStack() as room, changing as (plan, lease):
            executor = parts.executor(listener, cancelled, choices, outfit)
            is_done = plan.state in (PlanState.COMPLETE, PlanState.APPLIED)
            try:
                # What is done can no longer be stopped.
                with nullcontext() if is_done else stoppable(cancelled):
                    plan, made = with_all_sandboxes(plan, lease, parts.service, listener or (lambda _: None))
                    if plan.head_group_id is None:
                        check_plan(plan, parts.tools, self.home)
                        check_space(plan, self.home, self.settings.include_ignored)
            except Stopped:
                return executor.stopped_at_the_start(plan, lease)
            if plan.state in (PlanState.COMPLETE, PlanState.APPLIED):
                return ExecutionResult(plan, was_done=True, made_anew=made)
            if plan.head_group_id is None:
                self._locking.put_right_around(plan, listener)
            try:
                result = executor.execute(plan, lease)
                return replace(result, made_anew=(*made, *result.made_anew))
            except (HoldfastError, OSError) as error:
                full = full_disk(error, self.home)
                if full is None:
                    raise
                room.enter_context(parts.reserve.given_up())
                out = self._locking.way_out(plan)
                with suppress(HoldfastError):  # then the next command finds it interrupted
                    executor.broken_off(plan, lease, f"{full.message} {out}".strip())
                raise full from error

    def resume_preview(
        self, reference: str, *, choices: Choices | None = None, is_dry_run: bool = True
    ) -> ResumePreview:
        """From where the plan would go on; changes nothing, and refuses what going on would refuse.

        Not a dry run: going on follows, which takes the plan over from an owner that was stopped and forgotten.
        """
        from holdfast.db.lease import refuse_if_held
        from holdfast.execution.resume import preview_resume
        from holdfast.execution.standing import Choices

        plan = self.find_plan(reference)
        root = self._locking.root_for(self._locking.RESUME, plan)
        if is_dry_run:
            refuse_if_held(self.store, root.plan_id)
        self._parts.refuse_without_content(plan)
        return preview_resume(plan, self.service, self.tools, choices or Choices())

    def cancel(self, reference: str, *, patience_seconds: float = 30.0) -> Plan:
        """Stop a plan, also one that runs in another process; everything is kept, and it can go on later."""
        from holdfast.locking import is_stopped_on_request, refuse_to_stop_what_is_done

        plan = self.find_plan(reference)
        self._locking.root_for(self._locking.CANCEL, plan)
        refuse_to_stop_what_is_done(plan)
        if not self._parts.is_shared:
            self._parts.refuse_read_only()
        if is_stopped_on_request(plan.plan_id, self.store, patience_seconds):
            stopped = self.find_plan(plan.plan_id)
            refuse_to_stop_what_is_done(stopped)
            if stopped.state is PlanState.CANCELLED:
                return stopped  # by the process that ran it; its content may be on another machine
        with self._locking.changing(self._locking.CANCEL, plan.plan_id) as (plan, lease):
            refuse_to_stop_what_is_done(plan)
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
        confirm: Callable[[RollbackPreview], bool] = lambda _: True,
        listener: Listener | None = None,
    ) -> RollbackResult | Declined:
        """Roll back to a checkpoint; with ``only`` restore just these paths (``PATH`` or ``RESOURCE:PATH``) from it.

        ``keeps_present``: the state that is left gets a checkpoint of its own. Without it, what no checkpoint holds is
        lost: for a disk that has no room for it.
        """
        from holdfast.rollback.paths import restore_paths
        from holdfast.rollback.rollback import roll_back

        _refuse_only_unkept(only, keeps_present)
        wanted = self._views.find_checkpoint(self.find_plan(reference), checkpoint)
        with (
            self._parts.reserve.given_up_if_full(),
            self._locking.changing(self._locking.ROLLBACK, reference, listener=listener) as (plan, lease),
            _watching(self.service, plan, keeps_present),
        ):
            if only:
                return restore_paths(plan, lease, self.service, wanted, only, confirm) or Declined()
            # The result tells what came of effects outside, so the listener does not.
            compensate, parts = self._parts.compensator(), (self.service, self.tools)
            done = roll_back(plan, lease, *parts, wanted, compensate, confirm, keeps_present=keeps_present)
            return done or Declined()

    def rollback_preview(
        self, reference: str, checkpoint: str, *, only: Sequence[str] = (), keeps_present: bool = True
    ) -> RollbackPreview:
        """What a rollback would do; changes nothing, and refuses what the rollback would refuse."""
        from holdfast.rollback.paths import preview_restore
        from holdfast.rollback.rollback import decide_rollback, preview_rollback

        _refuse_only_unkept(only, keeps_present)
        with self._parts.reserve.given_up_if_full():
            plan = self._locking.at_rest(self._locking.ROLLBACK, reference)
            wanted = self._views.find_checkpoint(plan, checkpoint)
            with self._locking.telling_way_out(plan), _watching(self.service, plan, keeps_present):
                if only:
                    return preview_restore(plan, self.service, wanted, only)
                decision = decide_rollback(plan, self.service, wanted, keeps_present=keeps_present)
                return preview_rollback(decision, self.service, self.tools)

    def correct(
        self,
        decision_reference: str,
        *,
        guidance: str,
        mode: str = "revert",
        steps_file: Path | None = None,
        confirm: Callable[[CorrectionPreview], bool] = lambda _: True,
        listener: Listener | None = None,
    ) -> Plan | Declined:
        from holdfast.decisions.correct import CorrectionService
        from holdfast.locking import tell_set_aside

        decision = self.find_decision(decision_reference)
        corrections = CorrectionService(self.service, self.tools)
        under_way = corrections.is_under_way(decision, guidance)
        with (
            self._locking.changing(self._locking.CORRECT, decision.plan_id, listener=listener) as (plan, lease),
            _watching(self.service, plan),
        ):
            if under_way:
                return plan  # it was cut short, and is finished now
            preview = _preview_correction(self._parts, plan, decision, mode, steps_file)
            if not confirm(preview):
                return Declined()
            if mode == "append":
                return corrections.append(lease, preview, guidance)
            result = corrections.revert(lease, preview, guidance, self._parts.compensator(listener))
            tell_set_aside(listener, result.set_aside)
            return result.plan

    def correction_preview(
        self, decision_reference: str, *, mode: str = "revert", steps_file: Path | None = None
    ) -> CorrectionPreview:
        """What a correction would do; changes nothing, and refuses what the correction would refuse."""
        decision = self.find_decision(decision_reference)
        plan = self._locking.at_rest(self._locking.CORRECT, decision.plan_id)
        with _watching(self.service, plan):
            return _preview_correction(self._parts, plan, decision, mode, steps_file)

    # Applying

    def apply(
        self,
        reference: str,
        *,
        commit: bool = True,
        branch: str | None = None,
        confirm: Callable[[ApplyPreview], bool] = lambda _: True,
        listener: Listener | None = None,
    ) -> ApplyResult | Declined:
        """Bring the result into the real files, or leave it on a new branch of the real repositories."""
        from holdfast.apply.apply import apply_plan

        options = _apply_options(self.settings, commit, branch)
        with (
            self._locking.changing(self._locking.APPLY, reference, listener=listener) as (plan, lease),
            _watching(self.service, plan),
        ):
            self._locking.put_right_around(plan, listener)
            return apply_plan(plan, lease, self.service, options, confirm) or Declined()

    def apply_preview(self, reference: str, *, commit: bool = True, branch: str | None = None) -> ApplyPreview:
        """What applying would do; refuses whatever it would refuse, and changes nothing."""
        from holdfast.apply.preview import preview_apply

        plan = self._locking.at_rest(self._locking.APPLY, reference)
        return preview_apply(plan, self.service, _apply_options(self.settings, commit, branch))

    def unapply(
        self,
        reference: str,
        *,
        confirm: Callable[[UnapplyPreview], bool] = lambda _: True,
        listener: Listener | None = None,
    ) -> UnapplyPreview | Declined:
        """Put the real files back as they were before the plan was applied."""
        from holdfast.apply.unapply import unapply_plan

        with self._locking.changing(self._locking.UNAPPLY, reference, listener=listener) as (plan, lease):
            self._locking.put_right_around(plan, listener)
            return unapply_plan(plan, lease, self.service, confirm) or Declined()

    def unapply_preview(self, reference: str) -> UnapplyPreview:
        """What that would do; changes nothing."""
        from holdfast.apply.unapply import preview_unapply

        return preview_unapply(self._locking.at_rest(self._locking.UNAPPLY, reference), self.service)

    # Taking checkpoints

    def create_checkpoint(
        self, reference: str, label: str | None = None, *, listener: Listener | None = None
    ) -> CheckpointView:
        """Take a checkpoint of the sandboxes as they are now; one with a label is never pruned."""
        from holdfast.checkpoints.recorder import Occasion
        from holdfast.checkpoints.references import refuse_label

        with self._locking.changing(self._locking.CREATE_CHECKPOINT, reference, listener=listener) as (plan, lease):
            if plan.head_group_id is None:
                raise StateError(
                    f"Plan {plan.plan_id} has no sandboxes yet.", hint=f"Run `holdfast plan execute {plan.plan_id}`."
                )
            self.service.sandboxes.refuse_missing(plan)
            if label is not None:
                refuse_label(label)
                if any(each.metadata.label == label for each in self.service.list_checkpoints(plan.plan_id)):
                    raise UsageError(f"There is a checkpoint labelled {label!r} already.", hint="Choose another label.")
            occasion = Occasion((Moment.MANUAL,), source="user", reason="asked for by a person", label=label)
            plan = self.service.create_checkpoint(plan, lease, occasion)
        return self.checkpoint(plan.last_checkpoint_id or "", plan.plan_id)

    # Deleting and freeing space. What something cut short needs is kept; putting it right may take space.

    def delete(self, reference: str) -> Plan:
        """Forget a plan: its sandboxes, its records and the content only it needs."""
        from holdfast.deleting import delete_plan

        with self._parts.reserve.given_up():
            with self._locking.holding(self._locking.DELETE, reference) as (plan, _, lease):
                delete_plan(plan, list(self._plans.below(plan)), lease, self._parts)
            self.service.garbage.collect()
        return plan

    def delete_damaged(self, plan_id: str) -> None:
        """Forget such a plan; what its record says is not relied on."""
        from holdfast.deleting import delete_damaged_plan

        self._parts.refuse_read_only()
        with self._parts.reserve.given_up():
            delete_damaged_plan(plan_id, self._parts)
            self.service.garbage.collect()

    def delete_checkpoint(self, reference: str, checkpoint: str) -> int:
        """Delete it with those of the same moment, or a damaged one as far as that is needed; how many went."""
        damaged = self.find_damaged_checkpoint(reference, checkpoint)
        wanted = None if damaged else self._views.find_checkpoint(self.find_plan(reference), checkpoint)
        with (
            self._parts.reserve.given_up(),
            self._locking.holding(self._locking.DELETE_CHECKPOINT, reference) as (plan, _, lease),
        ):
            if damaged is not None:
                return self.service.pruning.delete_damaged(plan, lease, damaged)
            assert wanted is not None
            return self.service.pruning.delete(plan, lease, wanted)

    def prune(self, reference: str, keep: int | None = None) -> int:
        """Prune to ``keep`` checkpoints, or to what the plan's policy says; how many went."""
        with self._parts.reserve.given_up(), self._locking.holding(self._locking.PRUNE, reference) as (plan, _, lease):
            policy = CheckpointRetentionPolicy(max_checkpoints=keep) if keep is not None else plan.policy.retention
            return self.service.prune_checkpoints(plan, lease, policy)

    def release(self, given_up: Sequence[HeldBack]) -> int:
        """Give up what is kept for these plans, because their records are gone for ever; the bytes freed."""
        self._parts.refuse_read_only()
        with self._parts.reserve.given_up():
            self.service.release.give_up(given_up)
            return self.service.garbage.collect()

    @property
    def unfreed(self) -> str | None:
        """Why the content that the last ``prune``, ``delete`` or ``delete_checkpoint`` gave up is still there."""
        return self.service.garbage.unfreed


def _apply_options(settings: Settings, commit: bool, branch: str | None) -> ApplyOptions:
    from holdfast.apply.preview import ApplyOptions

    if branch is not None and not commit:
        raise UsageError("A branch is a commit: `--branch` and `--no-commit` exclude each other.", hint="Use one.")
    return ApplyOptions(commit=commit, branch=branch, include_ignored=settings.include_ignored)


def _watching(service: CheckpointService, plan: Plan, keeps_present: bool = True) -> AbstractContextManager[None]:
    """While the sandboxes are watched, each tree is scanned as a whole only once."""
    return service.sandboxes.watching(plan) if keeps_present else nullcontext()


def _refuse_only_unkept(only: Sequence[str], keeps_present: bool) -> None:
    if only and not keeps_present:
        raise UsageError(
            "Single paths are restored with the present state kept.",
            hint="Leave out either `--only` or `--without-keeping`.",
        )


def _preview_correction(
    parts: Parts, plan: Plan, decision: Decision, mode: str, steps_file: Path | None
) -> CorrectionPreview:
    from holdfast.decisions.correct import CorrectionService
    from holdfast.execution.preflight import check_steps
    from holdfast.planfile import load_steps_file

    corrections, steps = CorrectionService(parts.service, parts.tools), None
    if steps_file is not None:
        names = [resource.name for resource in plan.resources]
        steps = load_steps_file(steps_file, resources=names, check_step=parts.step_problems)
        check_steps(plan.changed(steps=steps), parts.tools)
    if mode != "append":
        return corrections.preview_revert(plan, decision, steps)
    if steps is None:
        raise UsageError("Appending needs new steps.", hint="Give them with `--with FILE`.")
    return corrections.preview_append(plan, decision, steps)
