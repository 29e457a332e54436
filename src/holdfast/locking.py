"""Locking a plan: the verbs that change one, the lease they need, and what is put right before they begin."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.checkpoints.history import goes_on_with_parent
from holdfast.db.access import in_use
from holdfast.db.lease import end_if_stopped, holder_of, leased, refuse_if_held
from holdfast.db.store import Store
from holdfast.errors import ConflictError, ContentError, DatabaseFullError, HoldfastError, StateError
from holdfast.events import RealFilesPutBack, SetAside
from holdfast.model import Lease, Operation, OperationKind, OperationState, Plan, PlanState
from holdfast.parts import Parts, has_sandbox
from holdfast.plans import Plans
from holdfast.system.progress import watched_by
from holdfast.system.reserve import full_disk

if TYPE_CHECKING:
    from holdfast.events import Listener
    from holdfast.recovery import Recovery

_PUTTING_RIGHT = "a command on the same folder"
"""What a lease says of a command that only undoes what the plan began in a folder of another plan."""

# What is imported in a function below is not needed by what only frees space.


@dataclass(frozen=True)
class Verb:
    """A command that changes a plan, and what it needs."""

    name: str
    """As it is typed, and as its lease says."""
    is_for_subplans: bool = False
    """It may be done to a subplan by itself; it takes the lease of the whole plan all the same."""
    may_lack_content: bool = False
    """It may be done without the content of the plan, unless something has to be put right with it first."""
    instead: Callable[[Parts, Plan, Plan], str] | None = None
    """The hint for a subplan, from it and the plan at its root; None if the command is for the latter."""


def _go_back_in_the_whole_plan(_parts: Parts, _subplan: Plan, root: Plan) -> str:
    return f"Go back in the whole plan: `holdfast checkpoint list {root.plan_id}` tells where to."


def _correct_what_spawned_it(parts: Parts, subplan: Plan, root: Plan) -> str:
    from holdfast.decisions.correct import CorrectionService

    corrections = CorrectionService(parts.service, parts.tools)
    found = corrections.correctable_for(subplan, parts.store.decisions.of(subplan.plan_id)[0])
    if found is None:
        return f"Correct a decision of the whole plan that is in force: `holdfast plan tree {root.plan_id}`."
    options = "--mode revert --guidance TEXT"
    return f"Correct the decision that spawned it: `holdfast plan correct {options} {found.decision_id}`."


class Locking:
    """Gives a verb the plan that it changes, ours alone meanwhile."""

    EXECUTE = Verb("plan execute")
    RESUME = Verb("plan resume")
    CANCEL = Verb("plan cancel")
    ROLLBACK = Verb("plan rollback", instead=_go_back_in_the_whole_plan)
    CORRECT = Verb("plan correct", instead=_correct_what_spawned_it)
    APPLY = Verb("plan apply", is_for_subplans=True)
    UNAPPLY = Verb("plan unapply", is_for_subplans=True)
    DELETE = Verb("plan delete", may_lack_content=True)
    CREATE_CHECKPOINT = Verb("checkpoint create")
    DELETE_CHECKPOINT = Verb("checkpoint delete", is_for_subplans=True)
    PRUNE = Verb("checkpoint prune", is_for_subplans=True)

    def __init__(self, parts: Parts, plans: Plans) -> None:
        self._parts, self._plans = parts, plans

    @contextmanager
    def changing(
        self,
        verb: Verb,
        reference: str,
        *,
        on_stop_request: Callable[[], None] = lambda: None,
        listener: Listener | None = None,
    ) -> Iterator[tuple[Plan, Lease]]:
        """The plan, with everything put right that a dead process left."""
        from holdfast.apply.real_folders import unmark_settled
        from holdfast.recovery import recover

        with watched_by(listener), self.holding(verb, reference, on_stop_request) as (plan, root, lease):
            recoveries, service = self._recoveries(listener), self._parts.service
            root = recover(root.plan_id, lease, service, recoveries, listener or (lambda _: None))
            unmark_settled(root, service)
            yield root if root.plan_id == plan.plan_id else service.store.get(Plan, plan.plan_id), lease

    @contextmanager
    def holding(
        self, verb: Verb, reference: str, on_stop_request: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[Plan, Plan, Lease]]:
        """The plan and the one whose lease it needs, as a dead process may have left them."""
        plan = self._plans.find_plan(reference)
        self._parts.refuse_read_only()
        if not verb.may_lack_content or self._takes_content_to_delete(plan):
            self._parts.refuse_without_content(plan)
        root = self.root_for(verb, plan)
        try:
            with (
                self.telling_way_out(root),
                leased(self._parts.store, root.plan_id, verb.name, on_stop_request=on_stop_request) as lease,
            ):
                self._keep_for(root, lease)
                yield plan, root, lease
        except OSError as error:
            full = full_disk(error, self._parts.home)
            if full is None:
                raise
            raise full from error

    def at_rest(self, verb: Verb, reference: str) -> Plan:
        """The plan, only to be looked at; refused while a process works on it, or if something was cut short."""
        from holdfast.recovery import refuse_cut_short

        plan = self._plans.find_plan(reference)
        self._parts.refuse_read_only()
        self._parts.refuse_without_content(plan)
        root = self.root_for(verb, plan)
        refuse_if_held(self._parts.store, root.plan_id)
        for each in (root, *self._plans.below(root)):
            refuse_cut_short(each, root, self._parts.service)
        return plan

    def root_for(self, verb: Verb, plan: Plan) -> Plan:
        """The plan whose lease the verb needs; refuses what is not done to a subplan by itself."""
        root = self._parts.store.plans.root_of(plan)
        if root == plan or verb.is_for_subplans:
            return root
        if verb.instead is not None:
            hint = verb.instead(self._parts, plan, root)
        else:
            hint = f"Run the command for the whole plan: `holdfast {verb.name} {root.plan_id}`."
        raise StateError(goes_on_with_parent(plan), hint=hint)

    def _takes_content_to_delete(self, plan: Plan) -> bool:
        """Real files have to be put back first, or the plan is another machine's, whose sandboxes would stay there."""
        operations = self._parts.store.operations
        plans = (plan, *self._plans.below(plan))
        begun = {operation.kind for each in plans for operation in operations.unfinished(each.plan_id)}
        is_begun = not begun.isdisjoint((OperationKind.APPLY, OperationKind.UNAPPLY))
        may_be_elsewhere = self._parts.is_shared and plan.head_group_id is not None and not has_sandbox(plan)
        return is_begun or may_be_elsewhere

    def _keep_for(self, root: Plan, lease: Lease) -> None:
        """Note whose content may come, as well as can be: if that fails, content cannot be stored either."""
        if root.store_id == self._parts.service.manager.objects.store_id:
            with suppress(DatabaseFullError, ContentError):
                self._parts.service.keep_for(lease)

    # Putting right

    def _recoveries(self, listener: Listener | None) -> dict[OperationKind, Recovery]:
        from holdfast.rollback.paths import finish_restore

        service = self._parts.service

        def finish_rollback(plan: Plan, lease: Lease, operation: Operation) -> Plan:
            result = service.rollback.finish(plan, lease, operation, self._parts.compensator(listener))
            tell_set_aside(listener, result.set_aside)
            return result.plan

        def finish_paths(plan: Plan, lease: Lease, operation: Operation) -> Plan:
            plan, set_aside = finish_restore(plan, lease, service, operation)
            tell_set_aside(listener, set_aside)
            return plan

        return {
            OperationKind.ROLLBACK: finish_rollback,
            OperationKind.RESTORE_PATHS: finish_paths,
            OperationKind.APPLY: self._undo,
            OperationKind.UNAPPLY: self._undo,
        }

    def _undo(self, plan: Plan, lease: Lease, operation: Operation) -> Plan:
        from holdfast.apply.undo import undo_change

        return undo_change(plan, lease, self._parts.service, operation)

    def put_right_around(self, plan: Plan, listener: Listener | None) -> None:
        """Undo what dead processes began to change in the plan's real folders, whichever plans they worked for.

        A process that is alive has the folders locked, and is waited for when they are used.
        """
        from holdfast.apply.real_folders import unfinished_in

        store = self._parts.store
        for other, operation in unfinished_in(plan.resources, self._parts.service):
            root = store.plans.root_of(other)
            if holder_of(store, root.plan_id) is not None:
                continue
            with leased(store, root.plan_id, _PUTTING_RIGHT) as lease:
                self._keep_for(root, lease)
                found = store.get(Operation, operation.operation_id)
                if found.state is OperationState.BEGUN:
                    self._undo(store.get(Plan, other.plan_id), lease, found)
                    if listener is not None:
                        listener(RealFilesPutBack(other, operation.kind))

    # On a full disk

    @contextmanager
    def telling_way_out(self, plan: Plan) -> Iterator[None]:
        """On a full disk: say how the plan gets out of it."""
        try:
            yield
        except HoldfastError as error:
            if full_disk(error, self._parts.home) is not None and (out := self.way_out(plan)) not in error.hint:
                error.hint = f"{error.hint} {out}".strip()
            raise

    def way_out(self, plan: Plan) -> str:
        """What helps a plan whose sandboxes hold so much that there is no room to keep it."""
        plan = self._parts.store.get(Plan, plan.plan_id)
        if plan.head_group_id is None or plan.state is PlanState.APPLIED:
            return ""
        places = ", ".join(resource.sandbox_path for resource in plan.resources)
        by_hand = f"What is not needed can also be removed from the sandboxes by hand: {places}."
        last = self._parts.store.checkpoints.of_group(plan.head_group_id)
        if not last or not plan.policy.rollback_enabled:
            return by_hand
        return (
            f"Going back without keeping what is in the sandboxes now takes no space: "
            f"`holdfast plan rollback --without-keeping {plan.plan_id} {last[0].checkpoint_id}`. {by_hand}"
        )


def tell_set_aside(listener: Listener | None, places: tuple[str, ...]) -> None:
    if listener is not None and places:
        listener(SetAside(places))


def refuse_to_stop_what_is_done(plan: Plan) -> None:
    if plan.state in (PlanState.COMPLETE, PlanState.APPLIED):
        raise StateError(
            f"Plan {plan.plan_id} is {plan.state}: there is nothing to stop.",
            hint=f"See what it made with `holdfast plan diff {plan.plan_id}`.",
        )


def is_stopped_on_request(plan_id: str, store: Store, patience_seconds: float) -> bool:
    """Whether a process was at work on the plan, was asked to stop, on whichever machine, and is gone now.

    One that does not hear such a request is waited for; one that was stopped and forgotten is ended.
    """
    deadline, was_asked = time.monotonic() + patience_seconds, False
    while True:
        end_if_stopped(store, plan_id)
        holder = holder_of(store, plan_id)
        if holder is None:
            return was_asked
        if holder.can_be_stopped:
            # Asked once more, it may have just ended.
            was_asked = store.leases.request_stop(plan_id) is not None or was_asked
        if time.monotonic() > deadline:
            raise _not_stopped_yet(holder)
        time.sleep(0.1)


def _not_stopped_yet(holder: Lease) -> ConflictError:
    if not holder.can_be_stopped:
        return in_use(holder)
    return ConflictError(
        f"Plan {holder.plan_id} was asked to stop and has not done so yet; it will as soon as it can.",
        hint=f"See who works on it with `holdfast plan status {holder.plan_id}`.",
    )
