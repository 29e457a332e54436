"""Locking: gives a verb the plan that it changes, under the plan's lease, and recovered if the verb needs that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from holdfast.checkpoints.history import command_to_recover, goes_on_with_parent
from holdfast.db.access import in_use
from holdfast.db.lease import end_if_stopped, holder_of, leased, refuse_if_held
from holdfast.db.store import Store
from holdfast.errors import ConflictError, HoldfastError, StateError
from holdfast.events import Listener
from holdfast.model import Lease, OperationKind, Plan, PlanState
from holdfast.names import name_text
from holdfast.parts import Parts, has_sandbox
from holdfast.plans.finding import Plans
from holdfast.system.progress import watched_by
from holdfast.system.reserve import full_disk


class Verb(msgspec.Struct, frozen=True):
    """A command that changes a plan, and what it needs."""

    name: str
    """The command as it is typed, without the program's name; stored in the lease."""
    is_for_subplans: bool = False
    """It can be done to a single subplan. It takes the lease of the whole plan all the same."""
    may_lack_content: bool = False
    """It can be done without the saved content of the plan, unless recovery needs the content."""
    uses_real_folders: bool = False
    """Changes of its real folders that other plans began and dead processes left are undone first."""
    is_for_sessions: bool = False
    """It can be done to a session, which has no steps and no sandbox of its own."""
    hint_for_subplan: Callable[[Parts, Plan, Plan], str] | None = None
    """The hint of the refusal for a subplan, made from the subplan and the root plan. None: run it for the root."""


def _roll_back_the_root(_parts: Parts, _subplan: Plan, root: Plan) -> str:
    return f"Roll back the whole plan: `holdfast checkpoint list {root.plan_id}` lists its checkpoints."


def _correct_what_spawned_it(parts: Parts, subplan: Plan, root: Plan) -> str:
    found = parts.corrections.correctable_for(subplan, parts.store.decisions.of(subplan.plan_id)[0])
    if found is None:
        return f"Correct a decision of the whole plan that is in force: `holdfast plan tree {root.plan_id}`."
    options = "--mode revert --guidance TEXT"
    return f"Correct the decision that spawned it: `holdfast plan correct {options} {found.decision_id}`."


class Locking:
    """Gives verbs the plans that they change. While a verb has a plan, no other process changes it."""

    EXECUTE = Verb("plan execute")
    RESUME = Verb("plan resume")
    CANCEL = Verb("plan cancel")
    ROLLBACK = Verb("plan rollback", hint_for_subplan=_roll_back_the_root)
    KEEP = Verb("plan keep", hint_for_subplan=_roll_back_the_root)
    RUN_IN = Verb("run --in")
    UNDO = Verb("undo", is_for_sessions=True, uses_real_folders=True)
    RECORD = Verb("guard", is_for_sessions=True, uses_real_folders=True)
    CORRECT = Verb("plan correct", hint_for_subplan=_correct_what_spawned_it)
    APPLY = Verb("plan apply", is_for_subplans=True, uses_real_folders=True)
    UNAPPLY = Verb("plan unapply", is_for_subplans=True, uses_real_folders=True)
    DELETE = Verb("plan delete", is_for_sessions=True, may_lack_content=True)
    CREATE_CHECKPOINT = Verb("checkpoint create", is_for_sessions=True)
    DELETE_CHECKPOINT = Verb("checkpoint delete", is_for_sessions=True, is_for_subplans=True)
    PRUNE = Verb("checkpoint prune", is_for_sessions=True, is_for_subplans=True)

    def __init__(self, parts: Parts, plans: Plans) -> None:
        self._parts, self._plans = parts, plans

    @contextmanager
    def locked(
        self, verb: Verb, reference: str, on_stop_request: Callable[[], None] | None = None
    ) -> Iterator[tuple[Plan, Plan, Lease]]:
        """Hold the lease meanwhile. Yields the plan and its root as a dead process may have left them, and the lease.

        For verbs that only free space. Recovery may take space, so they leave it to the next verb.
        """
        plan = self._plans.find_plan(reference)
        self._parts.refuse_read_only()
        if not verb.may_lack_content or self._deletion_needs_content(plan):
            self._parts.refuse_without_content(plan)
        root = self.root_for(verb, plan)
        try:
            with (
                self.with_way_out(root),
                leased(self._parts.store, root.plan_id, verb.name, on_stop_request=on_stop_request) as lease,
            ):
                self._parts.service.keep_for(root, lease)
                yield plan, root, lease
        except OSError as error:
            full = full_disk(error, self._parts.home)
            if full is None:
                raise
            raise full from error

    @contextmanager
    def recovered(
        self,
        verb: Verb,
        reference: str,
        *,
        on_stop_request: Callable[[], None] | None = None,
        listener: Listener | None = None,
    ) -> Iterator[tuple[Plan, Lease]]:
        """Hold the lease meanwhile. Yields the plan, after everything a dead process left is finished or undone."""
        # Not for verbs that only free space: they start without it.
        from holdfast.recovery import Recovery, undo_changes_of_dead_processes

        with watched_by(listener), self.locked(verb, reference, on_stop_request) as (plan, root, lease):
            service, tell = self._parts.service, listener or (lambda _: None)
            recovery = Recovery(service, lease, lambda: self._parts.compensator(listener), tell)
            root = recovery.recover(root.plan_id)
            plan = root if root.plan_id == plan.plan_id else service.store.get(Plan, plan.plan_id)
            if verb.uses_real_folders:
                undo_changes_of_dead_processes(plan, service, tell)
            yield plan, lease

    def idle(self, verb: Verb, reference: str) -> Plan:
        """The plan for a preview. Refused while a process works on it, or if it has to be recovered first."""
        plan = self._plans.find_plan(reference)
        self._parts.refuse_read_only()
        self._parts.refuse_without_content(plan)
        root = self.root_for(verb, plan, must_be_free=True)
        for each in (root, *self._plans.below(root)):
            _refuse_cut_short(each, root, self._parts.store)
        return plan

    def root_for(self, verb: Verb, plan: Plan, *, must_be_free: bool = False) -> Plan:
        """The plan whose lease the verb needs. Refused if the verb cannot be done to a single subplan.

        ``must_be_free``: refused as well while a process holds the lease.
        """
        root = self._parts.store.plans.root_of(plan)
        if root.is_session and not verb.is_for_sessions:
            raise _not_for_sessions(verb, root)
        if root != plan and not verb.is_for_subplans:
            hint = f"Run the command for the whole plan: `holdfast {verb.name} {root.plan_id}`."
            if verb.hint_for_subplan is not None:
                hint = verb.hint_for_subplan(self._parts, plan, root)
            raise StateError(goes_on_with_parent(plan), hint=hint)
        if must_be_free:
            refuse_if_held(self._parts.store, root.plan_id)
        return root

    def _deletion_needs_content(self, plan: Plan) -> bool:
        """Whether real files have to be restored first, or the sandboxes of the plan may be on another machine."""
        operations = self._parts.store.operations
        plans = (plan, *self._plans.below(plan))
        begun = {operation.kind for each in plans for operation in operations.unfinished(each.plan_id)}
        is_begun = not begun.isdisjoint((OperationKind.APPLY, OperationKind.UNAPPLY, OperationKind.UNDO))
        may_be_elsewhere = self._parts.is_shared and plan.head_group_id is not None and not has_sandbox(plan)
        return is_begun or may_be_elsewhere

    # On a full disk

    @contextmanager
    def with_way_out(self, plan: Plan) -> Iterator[None]:
        """If the disk is full, add to the hint of the error how to free space with this plan."""
        try:
            yield
        except HoldfastError as error:
            if full_disk(error, self._parts.home) is not None:
                error.hint = f"{error.hint} {self.way_out(plan)}".strip()
            raise

    def way_out(self, plan: Plan) -> str:
        """How to free space with a plan whose sandboxes hold more than a checkpoint has room for."""
        plan = self._parts.store.get(Plan, plan.plan_id)
        if plan.head_group_id is None or plan.state is PlanState.APPLIED:
            return ""
        places = ", ".join(resource.sandbox_path for resource in plan.resources)
        by_hand = f"You can also delete what you do not need from the sandboxes: {places}."
        last = self._parts.store.checkpoints.of_group(plan.head_group_id)
        if not last or not plan.policy.rollback_enabled:
            return by_hand
        return (
            f"A rollback that does not keep what is in the sandboxes now takes no space: "
            f"`holdfast plan rollback --without-keeping {plan.plan_id} {last[0].checkpoint_id}`. {by_hand}"
        )

    # Stopping a plan that runs in another process

    def stop_owner(self, plan_id: str, patience_seconds: float) -> bool:
        """Ask the process that works on the plan, on any machine, to stop, and wait until it has ended.

        False if no process was asked. An owner that cannot be asked is waited for. One that is suspended and has been
        silent for long is killed.
        """
        store = self._parts.store
        deadline, was_asked = time.monotonic() + patience_seconds, False
        while True:
            end_if_stopped(store, plan_id)
            holder = holder_of(store, plan_id)
            if holder is None:
                return was_asked
            if holder.can_be_stopped:
                # None: it has ended meanwhile, perhaps because of an earlier request.
                was_asked = store.leases.request_stop(plan_id) is not None or was_asked
            if time.monotonic() > deadline:
                raise _not_stopped_yet(holder)
            time.sleep(0.1)

    @staticmethod
    def refuse_to_stop_what_is_done(plan: Plan) -> None:
        if plan.state in (PlanState.COMPLETE, PlanState.APPLIED):
            raise StateError(
                f"Plan {plan.plan_id} is {plan.state}: there is nothing to stop.",
                hint=f"See what it made with `holdfast plan diff {plan.plan_id}`.",
            )


def _not_for_sessions(verb: Verb, plan: Plan) -> StateError:
    return StateError(
        f"Plan {plan.plan_id} is a session in {name_text(plan.resources[0].path)}: it has no steps to run and nothing "
        f"to apply, so `{verb.name}` does not fit.",
        hint="Undo with `holdfast undo` (`--call N`, `--prompt N`, or a checkpoint); `holdfast redo` takes that back.",
    )


def _refuse_cut_short(plan: Plan, root: Plan, store: Store) -> None:
    """Refuse a preview of a plan that has to be recovered first; only a command that changes the plan does that."""
    for operation in store.operations.unfinished(plan.plan_id):
        raise StateError(
            f"The {operation.kind.noun} of plan {plan.plan_id} was cut short.",
            hint=f"Run `{command_to_recover(root)}`: it recovers the plan first.",
        )
    if plan.state is PlanState.PROCESSING and not plan.is_session:
        raise StateError(
            f"The execution of plan {plan.plan_id} was cut short.",
            hint=f"Run `holdfast plan resume {root.plan_id}`: it recovers the plan first.",
        )


def _not_stopped_yet(holder: Lease) -> ConflictError:
    if not holder.can_be_stopped:
        return in_use(holder)
    return ConflictError(
        f"Plan {holder.plan_id} was asked to stop and has not stopped yet; it will as soon as it can.",
        hint=f"See which process works on it with `holdfast plan status {holder.plan_id}`.",
    )
