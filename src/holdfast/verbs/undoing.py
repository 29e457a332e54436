"""Undoing and redoing calls in the project's real folder, under the lease of their session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.agents.conversation import command_to_go_on
from holdfast.errors import ConflictError, StateError
from holdfast.locking import Locking
from holdfast.model import Checkpoint, CheckpointGroup, Moment, Plan
from holdfast.names import name_text
from holdfast.parts import Declined, Parts
from holdfast.sessions.calls import name_of
from holdfast.sessions.undoing import (
    Undo,
    UndoResult,
    Wish,
    carry_out,
    decide,
    refuse_conflicts,
    refuse_nothing,
    unrecorded_undo,
)
from holdfast.sessions.wishes import LastCall, Target, ToCheckpoint, wish_to_redo, wish_to_undo
from holdfast.system.machine import process_of
from holdfast.views.checkpoints import CheckpointViews

if TYPE_CHECKING:
    from holdfast.verbs.in_place import InPlace

_WishIn = Callable[[Plan], Wish]
"""Makes the wish of a session as it is now, when its lease is held."""


class Undoing:
    def __init__(self, folder: InPlace, parts: Parts, locking: Locking, views: CheckpointViews) -> None:
        self._folder, self._parts, self._locking, self._views = folder, parts, locking, views

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
        plan = self._locking.idle(Locking.UNDO, plan.plan_id)
        undo = decide(plan, wish_in(plan), self._parts.service, force=force)
        refuse_conflicts(undo)
        return undo

    def _change(
        self, plan: Plan, wish_in: _WishIn, force: bool, confirm: Callable[[Undo], bool] | None
    ) -> UndoResult | Declined:
        self._refuse_running()
        with (
            self._parts.reserve.given_up_if_full(),
            self._folder.held(Locking.UNDO, plan.plan_id) as (plan, lease),
            self._parts.service.sandboxes.looking(),
        ):
            wish = wish_in(plan)  # another process may have undone something until now
            undo = decide(plan, wish, self._parts.service, force=force)
            refuse_conflicts(undo)
            refuse_nothing(undo)
            if confirm is not None:
                if not confirm(undo):
                    return Declined()
                self._parts.service.sandboxes.look_again(plan)  # the answer may have taken long
                undo = decide(plan, wish, self._parts.service, force=force)
            return carry_out(undo, lease, self._parts.service, self._refuse_running)

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
                group = self._parts.store.get(CheckpointGroup, checkpoint.group_id)
                title = f"restored {', '.join(map(name_text, only))} from {checkpoint.checkpoint_id}"
                return Wish(Moment.UNDO, title, (), (), group, only=tuple(only))
            others = [each for each in self._folder.sessions() if each.plan_id != plan.plan_id]
            calls = [call for other in others for call in self._folder.calls(other)]
            return wish_to_undo(plan, target, self._parts.service, calls, checkpoint)

        return plan, wish_in

    def _meant(self, target: Target, session: str | None) -> tuple[Plan, Checkpoint | None]:
        if not isinstance(target, ToCheckpoint):
            return self._session_for(target, session), None
        if session is not None:
            plan = self._folder.session(session)
            return plan, self._views.find_checkpoint(plan, target.reference)
        plan = self._folder.session()
        try:
            return plan, self._views.find_checkpoint(plan, target.reference)
        except StateError:  # it belongs to another plan, perhaps to another session of this folder
            view = self._views.checkpoint(target.reference)
            other = self._parts.store.get(Plan, view.checkpoint.plan_id)
            if not any(each.plan_id == other.plan_id for each in self._folder.sessions()):
                raise
            return other, view.checkpoint

    def _session_for(self, target: Target, session: str | None) -> Plan:
        """Without a word about the session, the last call that changed something is meant, whoever made it."""
        last = self._folder.last_change() if session is None and isinstance(target, LastCall) else None
        return self._folder.session(session) if last is None else last[1]

    def _redo_wish(self, session: str | None) -> tuple[Plan, _WishIn]:
        plans = [self._folder.session(session)] if session is not None else self._folder.sessions()
        found = [(plan, wish) for plan in plans if (wish := wish_to_redo(plan, self._parts.service)) is not None]
        if not found:
            raise _nothing_to_redo()
        plan = max(found, key=lambda each: each[1].target.created_at)[0]

        def wish_in(plan: Plan) -> Wish:
            wish = wish_to_redo(plan, self._parts.service)
            if wish is None:
                raise _nothing_to_redo()
            return wish

        return plan, wish_in

    def _settle(self) -> None:
        """Put right what was cut short. What no agent is left to end has ended: what is there now is its work."""
        for plan in self._folder.sessions():
            dead = [] if is_alive(plan) else self._folder.unfinished(plan.plan_id)
            is_cut_short = bool(self._parts.store.operations.unfinished(plan.plan_id))
            if dead or is_cut_short or unrecorded_undo(plan, self._parts.service) is not None:
                with self._folder.recording(plan.plan_id) as (current, recording):
                    recording.interrupt(current, dead)

    def _refuse_running(self) -> None:
        """While a call runs, it is unknown what it is going to change."""
        for plan in self._folder.sessions():
            if self._folder.unfinished(plan.plan_id) and is_alive(plan):
                # None: it has ended since, or its record is damaged.
                call = next((each for each in self._folder.calls(plan) if each.is_running), None)
                title = call.title if call is not None else "A call"
                raise ConflictError(
                    f"{title} of {name_of(plan.session)} is running in this folder; nothing was changed.",
                    hint="Wait until it has ended, or stop the agent; then run the command again. A call that you "
                    "interrupted counts as ended with your next prompt.",
                )


def _nothing_to_redo() -> StateError:
    return StateError(
        "Nothing was undone that is not back already and can still be brought back.",
        hint="`holdfast log` shows what happened.",
    )


def is_alive(plan: Plan) -> bool:
    """Whether the agent of the session may still be there; if its process is not known, it may."""
    info = plan.session
    if info is None or info.pid is None:
        return True
    process = process_of(info.pid)
    return process is not None and process.started_at == info.process_started_at
