"""Sessions in the project's real folder: found, recorded and looked at; ``undoing`` undoes what they recorded."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from itertools import islice

import msgspec

from holdfast.checkpoints.manual import take_manual_checkpoint
from holdfast.checkpoints.service import CheckpointService
from holdfast.db.store import Store
from holdfast.errors import ConflictError, NotFoundError, StateError
from holdfast.locking import Locking, Verb
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    Decision,
    DecisionType,
    Lease,
    Plan,
    Policy,
    Revision,
    SessionInfo,
    StepRun,
    now,
)
from holdfast.names import name_text
from holdfast.parts import Parts
from holdfast.plans.finding import Plans
from holdfast.sessions.blame import Blamed, blame
from holdfast.sessions.calls import Call, Prompt, calls_of, name_of, prompts_of
from holdfast.sessions.folder import resource_of
from holdfast.sessions.recording import Recording
from holdfast.sessions.saving_first import SavedFirst, TooMuch
from holdfast.system import folder_lock
from holdfast.system.ids import new_id
from holdfast.verbs.undoing import Undoing
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


class InPlace:
    """All sessions of one folder."""

    def __init__(self, parts: Parts, plans: Plans, locking: Locking, views: CheckpointViews) -> None:
        self._parts, self._plans, self._locking, self._views = parts, plans, locking, views
        undoing = Undoing(self, parts, locking, views)
        self.undo, self.undo_preview, self.redo = undoing.undo, undoing.undo_preview, undoing.redo
        self.redo_preview, self.restore_paths = undoing.redo_preview, undoing.restore_paths
        self.how_to_go_on = undoing.how_to_go_on
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
        return self._made(info, name or name_of(info))

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
            self.held(self._locking.RECORD, plan_id) as (plan, lease),
            folder_lock.reading([self.folder]),
        ):
            yield plan, Recording(self._service, lease)

    @contextmanager
    def held(self, verb: Verb, plan_id: str) -> Iterator[tuple[Plan, Lease]]:
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

    def saved_first(self, paths: Sequence[str]) -> SavedFirst | None:
        """Save some files at once, while another thread takes the first checkpoint; None if they are too large."""
        try:
            return SavedFirst(self.folder, paths)
        except TooMuch:
            return None

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
            self.held(self._locking.RECORD, plan.plan_id) as (plan, lease),
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
        last = self.last_change()
        return None if last is None else last[0]

    def last_prompt_id(self, plan_id: str) -> str | None:
        """The decision of the last prompt of a session."""
        prompts = self._store.decisions.of_type(plan_id, DecisionType.USER_INTERVENTION)
        return prompts[-1].decision_id if prompts else None

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

    def last_change(self) -> tuple[datetime, Plan] | None:
        found = [
            (call.finished_at or call.started_at, plan)
            for plan in self.sessions()
            for call in self.calls(plan)
            if call.changed_something and not call.is_undone
        ]
        return max(found, key=lambda each: each[0], default=None)


def _when(view: CheckpointView) -> tuple[datetime, int]:
    return view.group.created_at, view.group.sequence
