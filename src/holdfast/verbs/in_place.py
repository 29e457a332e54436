"""Sessions in the project's real folder: found, recorded, looked at, undone and redone, each change under its lease."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from itertools import islice

import msgspec

from holdfast.agents.conversation import command_to_go_on
from holdfast.checkpoints.manual import take_manual_checkpoint
from holdfast.checkpoints.service import CheckpointService
from holdfast.db.store import Store
from holdfast.errors import ConflictError, NotFoundError, StateError
from holdfast.locking import Locking, Verb
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    Decision,
    Lease,
    Moment,
    Plan,
    Policy,
    Revision,
    SessionInfo,
    StepRun,
    now,
)
from holdfast.names import name_text
from holdfast.parts import Declined, Parts
from holdfast.plans.finding import Plans
from holdfast.sessions.blame import Blamed, blame
from holdfast.sessions.calls import Call, Prompt, calls_of, prompts_of
from holdfast.sessions.folder import resource_of
from holdfast.sessions.recording import Recording
from holdfast.sessions.saving_first import SavedFirst
from holdfast.sessions.undoing import Undo, UndoResult, Wish, carry_out, decide, refuse_conflicts
from holdfast.sessions.wishes import LastCall, Target, ToCheckpoint, wish_to_redo, wish_to_undo
from holdfast.system import folder_lock
from holdfast.system.ids import new_id
from holdfast.system.machine import process_of
from holdfast.views.checkpoints import CheckpointViews
from holdfast.views.timeline import CheckpointView

_PAUSE_SECONDS = 0.02
_MOST_MOMENTS = 200
"""How many checkpoints of a session are kept."""


class FolderMoment(msgspec.Struct, frozen=True):
    """A moment of one of the sessions of a folder."""

    view: CheckpointView
    plan: Plan
    call: Call | None
    """The call whose outcome it is."""


_WishIn = Callable[[Plan], Wish]
"""Makes the wish of a session as it is now, when its lease is held."""


class InPlace:
    """All sessions of one folder."""

    def __init__(self, parts: Parts, plans: Plans, locking: Locking, views: CheckpointViews) -> None:
        self._parts, self._plans, self._locking, self._views = parts, plans, locking, views
        self.folder = parts.project_root
        self.patience_seconds = 5.0
        """How long to wait for another process that records or undoes something in the same session."""

    @property
    def _store(self) -> Store:
        return self._parts.store

    @property
    def _service(self) -> CheckpointService:
        return self._parts.service

    # Finding and beginning

    def sessions(self) -> list[Plan]:
        """The sessions of this folder, newest first."""
        return [plan for plan in self._plans.plans_newest_first() if plan.is_session]

    def session(self, reference: str | None = None) -> Plan:
        """One session: by the id of its plan, by the agent's own id, or the one in which something happened last."""
        found = self.sessions()
        if not found:
            raise NotFoundError(
                f"Nothing was recorded in {name_text(str(self.folder))} yet.",
                hint="`holdfast agents install` records what coding agents do; `holdfast guard start` what you do.",
            )
        if reference is None:
            return max(found, key=lambda plan: plan.updated_at)
        for plan in found:
            if plan.session is not None and plan.session.session_id == reference:
                return plan
        plan = self._plans.find_plan(reference)
        if not plan.is_session:
            raise StateError(
                f"Plan {plan.plan_id} is no session.", hint="`holdfast plan rollback` goes back in a plan of steps."
            )
        return plan

    def begin(self, info: SessionInfo, name: str = "") -> Plan:
        """The session of that agent in this folder, made if there is none yet; nothing is recorded in it."""
        for plan in self.sessions():
            known = plan.session
            if known is not None and (known.agent, known.session_id) == (info.agent, info.session_id):
                return plan
        return self._made(info, name or _name(info))

    def begin_own(self) -> Plan:
        """The session of what a person and their programs write; refused if the folder cannot be recorded."""
        return self.begin(SessionInfo())

    def _made(self, info: SessionInfo, name: str) -> Plan:
        parts, store = self._parts, self._store
        parts.refuse_read_only()
        resource = resource_of(self.folder, user_home=parts.user_home, holdfast_home=parts.home)
        at, plan_id = now(), new_id()
        plan = Plan(
            plan_id=plan_id,
            project_id=store.plans.project_for(str(self.folder)).project_id,
            name=name,
            resources=(resource,),
            policy=Policy(max_checkpoints=_MOST_MOMENTS),
            session=info,
            active_decisions=((1, 1),),
            store_id=self._service.manager.objects.store_id,
            created_at=at,
            updated_at=at,
        )
        with store.transaction():
            plan = plan.model_copy(update={"sequence": store.plans.next_sequence()})
            store.insert(plan)
            store.insert(Revision(plan_id=plan_id, revision=1, steps=()))
            store.insert(Decision.root_of(plan))
        return plan

    # Recording

    @contextmanager
    def recording(self, plan_id: str) -> Iterator[tuple[Plan, Recording]]:
        """Record in a session, under its lease; what a dead process left in the folder is undone first.

        Meanwhile no other process changes the folder, so that nothing half done is recorded.
        """
        with (
            self._held(self._locking.RECORD, plan_id) as (plan, lease),
            folder_lock.reading([self.folder]),
        ):
            yield plan, Recording(self._service, lease)

    @contextmanager
    def _held(self, verb: Verb, plan_id: str) -> Iterator[tuple[Plan, Lease]]:
        """Its lease; hooks and undos take one only for moments, so they wait for each other."""
        with ExitStack() as held:
            yield self._entered(held, verb, plan_id)

    def _entered(self, held: ExitStack, verb: Verb, plan_id: str) -> tuple[Plan, Lease]:
        deadline = time.monotonic() + self.patience_seconds
        while True:
            try:
                return held.enter_context(self._locking.recovered(verb, plan_id))
            except ConflictError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def saved_first(self, paths: Sequence[str]) -> SavedFirst:
        """Save some files at once, while another thread takes the first checkpoint of the folder."""
        return SavedFirst(self._service.manager.sibling(), self.folder, paths)

    def unfinished(self, plan_id: str) -> list[StepRun]:
        """The calls of a session that have begun and not ended, as far as is known."""
        return self._store.runs.unfinished(plan_id)

    def caught_up(self, plan: Plan, recording: Recording) -> Plan:
        """The session after it has taken over what the others have recorded since."""
        heads = [
            group
            for other in self.sessions()
            if other.plan_id != plan.plan_id and other.head_group_id is not None
            if (group := self._store.find(CheckpointGroup, other.head_group_id, sound_only=True)) is not None
        ]
        own = self._store.find(CheckpointGroup, plan.head_group_id or "", sound_only=True)
        last = max(heads, key=lambda group: group.created_at, default=None)
        if last is None or (own is not None and own.created_at >= last.created_at):
            return plan
        return recording.catch_up(plan, last)

    def checkpoint(self, label: str | None = None) -> CheckpointView:
        """Take a checkpoint of the folder as it is now, in the session in which something happened last."""
        found = self.sessions()
        plan = max(found, key=lambda each: each.updated_at) if found else self.begin(SessionInfo())
        with (
            self._held(self._locking.RECORD, plan.plan_id) as (plan, lease),
            folder_lock.reading([self.folder]),
        ):
            if plan.head_group_id is None:
                plan = Recording(self._service, lease).begin(plan)
            plan = take_manual_checkpoint(plan, lease, self._service, label)
            return self._views.view_of(plan, self._store.get(Checkpoint, plan.last_checkpoint_id or ""))

    # Looking

    def calls(self, plan: Plan | None = None) -> list[Call]:
        """The calls of a session, by default of the one in which something happened last."""
        return calls_of(self._store, plan or self.session())

    def last_changed_at(self) -> datetime | None:
        """When the last call ended, of those in force that changed something."""
        last = self._last_change()
        return None if last is None else last[0]

    def prompts(self, plan: Plan) -> list[Prompt]:
        return prompts_of(self._store.decisions.of(plan.plan_id, sound_only=True))

    def moments(self, limit: int = 50) -> list[FolderMoment]:
        """The newest moments of all sessions of the folder, newest first."""
        found: list[FolderMoment] = []
        for plan in self.sessions():
            after = {each.after_id: each for each in calls_of(self._store, plan) if each.after_id}
            timeline = self._views.timeline(plan.plan_id, moments=limit)
            for each in islice(timeline.newest_first(), limit):
                call = after.get(each.group.group_id)
                found.append(FolderMoment(each.checkpoints[0], plan, call))
        return sorted(found, key=lambda each: _when(each.view), reverse=True)[:limit]

    def blame(self, path: str) -> list[Blamed]:
        """Who changed a file of the folder, and when; newest first."""
        return blame(path, self.sessions(), self._service)

    # Undoing

    def undo_preview(
        self,
        target: Target | None = None,
        *,
        session: str | None = None,
        only: Sequence[str] = (),
        force: bool = False,
    ) -> Undo:
        """What undoing would do; changes nothing in the folder, and refuses what undoing would refuse."""
        self._settle()
        return self._preview(*self._undo_wish(target or LastCall(), session, only), force)

    def undo(
        self,
        target: Target | None = None,
        *,
        session: str | None = None,
        only: Sequence[str] = (),
        force: bool = False,
        confirm: Callable[[Undo], bool] | None = None,
    ) -> UndoResult | Declined:
        """Undo calls in the folder. ``only``: restore just these paths from the checkpoint that ``target`` names."""
        self._settle()
        return self._change(*self._undo_wish(target or LastCall(), session, only), force, confirm)

    def redo_preview(self, *, session: str | None = None, force: bool = False) -> Undo:
        self._settle()
        return self._preview(*self._redo_wish(session), force)

    def redo(
        self, *, session: str | None = None, force: bool = False, confirm: Callable[[Undo], bool] | None = None
    ) -> UndoResult | Declined:
        """Bring back what the last undo took away, as far as that was not done yet."""
        self._settle()
        return self._change(*self._redo_wish(session), force, confirm)

    def restore_paths(
        self,
        checkpoint: str,
        paths: Sequence[str],
        *,
        confirm: Callable[[Undo], bool] | None = None,
    ) -> UndoResult | Declined:
        """Restore single files or folders from a checkpoint; ``redo`` takes that back."""
        return self.undo(ToCheckpoint(checkpoint), only=paths, confirm=confirm)

    def _preview(self, plan: Plan, wish_in: _WishIn, force: bool) -> Undo:
        self._refuse_running()
        plan = self._locking.idle(self._locking.UNDO, plan.plan_id)
        undo = decide(plan, wish_in(plan), self._service, force=force)
        refuse_conflicts(undo)
        return undo

    def _change(
        self, plan: Plan, wish_in: _WishIn, force: bool, confirm: Callable[[Undo], bool] | None
    ) -> UndoResult | Declined:
        self._refuse_running()
        with (
            self._parts.reserve.given_up_if_full(),
            self._held(self._locking.UNDO, plan.plan_id) as (plan, lease),
            self._service.sandboxes.looking(),
        ):
            wish = wish_in(plan)  # another process may have undone something until now
            undo = decide(plan, wish, self._service, force=force)
            refuse_conflicts(undo)
            if confirm is not None:
                if not confirm(undo):
                    return Declined()
                self._service.sandboxes.look_again(plan)  # the answer may have taken long
                undo = decide(plan, wish, self._service, force=force)
            return carry_out(undo, lease, self._service, self._refuse_running)

    def how_to_go_on(self, result: UndoResult) -> str | None:
        """The command that continues the agent's conversation from before what was undone, if it has one."""
        info, first = result.plan.session, next(iter(result.calls), None)
        if info is None or first is None or result.moment is not Moment.UNDO:
            return None
        return command_to_go_on(info.agent, info.session_id, info.transcript, first.call_id)

    def _undo_wish(self, target: Target, session: str | None, only: Sequence[str]) -> tuple[Plan, _WishIn]:
        plan, checkpoint = self._meant(target, session)

        def wish_in(plan: Plan) -> Wish:
            if only:
                assert checkpoint is not None
                group = self._store.get(CheckpointGroup, checkpoint.group_id)
                title = f"restored {', '.join(map(name_text, only))} from {checkpoint.checkpoint_id}"
                return Wish(Moment.UNDO, title, (), (), group, only=tuple(only))
            others = [call for other in self.sessions() if other.plan_id != plan.plan_id for call in self.calls(other)]
            return wish_to_undo(plan, target, self._service, others, checkpoint)

        return plan, wish_in

    def _meant(self, target: Target, session: str | None) -> tuple[Plan, Checkpoint | None]:
        if not isinstance(target, ToCheckpoint):
            return self._session_for(target, session), None
        if session is not None:
            plan = self.session(session)
            return plan, self._views.find_checkpoint(plan, target.reference)
        plan = self.session()
        try:
            return plan, self._views.find_checkpoint(plan, target.reference)
        except StateError:  # it belongs to another plan, perhaps to another session of this folder
            view = self._views.checkpoint(target.reference)
            other = self._store.get(Plan, view.checkpoint.plan_id)
            if not any(each.plan_id == other.plan_id for each in self.sessions()):
                raise
            return other, view.checkpoint

    def _session_for(self, target: Target, session: str | None) -> Plan:
        """Without a word about the session, the last call that changed something is meant, whoever made it."""
        last = self._last_change() if session is None and isinstance(target, LastCall) else None
        return self.session(session) if last is None else last[1]

    def _last_change(self) -> tuple[datetime, Plan] | None:
        found = [
            (call.finished_at or call.started_at, plan)
            for plan in self.sessions()
            for call in self.calls(plan)
            if call.changed_something and not call.is_undone
        ]
        return max(found, key=lambda each: each[0], default=None)

    def _redo_wish(self, session: str | None) -> tuple[Plan, _WishIn]:
        plans = [self.session(session)] if session is not None else self.sessions()
        found = [(plan, wish) for plan in plans if (wish := wish_to_redo(plan, self._service)) is not None]
        if not found:
            raise _nothing_to_redo()
        plan = max(found, key=lambda each: each[1].target.created_at)[0]

        def wish_in(plan: Plan) -> Wish:
            wish = wish_to_redo(plan, self._service)
            if wish is None:
                raise _nothing_to_redo()
            return wish

        return plan, wish_in

    def _settle(self) -> None:
        """Put right what was cut short. What no agent is left to end has ended: what is there now is its work."""
        for plan in self.sessions():
            dead = [] if is_alive(plan) else self.unfinished(plan.plan_id)
            if dead or self._store.operations.unfinished(plan.plan_id):
                with self.recording(plan.plan_id) as (current, recording):
                    recording.interrupt(current, dead)

    def _refuse_running(self) -> None:
        """While a call runs, it is unknown what it is going to change."""
        for plan in self.sessions():
            if self.unfinished(plan.plan_id) and is_alive(plan):
                call = next(each for each in self.calls(plan) if each.is_running)
                raise ConflictError(
                    f"{call.title} of {_name(plan.session)} is running in this folder; nothing was changed.",
                    hint="Wait until it has ended, or stop the agent; then run the command again.",
                )


def _nothing_to_redo() -> StateError:
    return StateError("Nothing was undone that is not back already.", hint="`holdfast log` shows what happened.")


def is_alive(plan: Plan) -> bool:
    """Whether the agent of the session may still be there; if its process is not known, it may."""
    info = plan.session
    if info is None or info.pid is None:
        return True
    process = process_of(info.pid)
    return process is not None and process.started_at == info.process_started_at


def _name(info: SessionInfo | None) -> str:
    if info is None or not info.agent:
        return "what you and your programs write"
    return f"{info.agent} {info.version}".rstrip()


def _when(view: CheckpointView) -> tuple[datetime, int]:
    return view.group.created_at, view.group.sequence
