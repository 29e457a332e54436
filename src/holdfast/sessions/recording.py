"""Recording a session: its prompts, its calls with the files before and after each, and what a person wrote.

The caller holds the lease of the session's plan. A state that is the same makes no new checkpoint; then a prompt or a
call is recorded alone. Content comes first, the record of a call second: a call of which only the beginning is known
was interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.checkpoints.correction import next_decision
from holdfast.checkpoints.recorder import Occasion
from holdfast.checkpoints.service import CheckpointService
from holdfast.checkpoints.titles import shortened
from holdfast.model import (
    CheckpointGroup,
    Decision,
    DecisionSpec,
    DecisionType,
    Lease,
    Moment,
    Phase,
    Plan,
    PlanState,
    Record,
    RunStatus,
    SessionInfo,
    StepRun,
    Trigger,
    now,
)
from holdfast.sessions.saving_first import SavedFirst
from holdfast.system.ids import new_id

_PROMPT = "What is asked?"
_LONGEST_OUTPUT = 4_000
_LONGEST_WHAT = 1_000


class CallBegun(msgspec.Struct, frozen=True):
    """A call that is about to start."""

    tool: str
    what: str = ""
    """The command, or the paths."""
    call_id: str = ""
    """As the agent calls it."""
    inside: str | None = None
    """The decision of the call of a subagent that makes this one; None for one that follows from the prompt."""


class CallEnded(msgspec.Struct, frozen=True):
    status: RunStatus
    output: str = ""


class Recording:
    """Records what happens in one session."""

    def __init__(self, service: CheckpointService, lease: Lease) -> None:
        self._service, self._store, self._lease = service, service.store, lease

    def begin(self, plan: Plan, info: SessionInfo | None = None) -> Plan:
        """Take the first checkpoint, if there is none yet, and note that the session goes on.

        ``info``: what is known of the agent now, if it is another process than before.
        """
        if info is not None:
            plan = plan.changed(session=info)
        if plan.state is not PlanState.PROCESSING:
            plan = plan.changed(phase=Phase.EXECUTE, state=PlanState.PROCESSING)
        occasion = Occasion((Moment.PRE_EXECUTE,), source=_source(plan), title="the beginning of the session")
        if plan.head_group_id is None:
            return self._service.create_checkpoint(plan, self._lease, occasion)
        self._save(plan)
        self._service.prune_checkpoints(plan, self._lease, plan.policy.retention)  # what became too old meanwhile
        return plan

    def prompt(self, plan: Plan, text: str) -> tuple[Plan, Decision]:
        decision = self._decision(plan, DecisionType.USER_INTERVENTION, _PROMPT, text.strip() or "(nothing)")
        occasion = Occasion(
            (Trigger.ON_DECISION,),
            source=_source(plan),
            title=f"before the prompt: {shortened(text)}",
            decision_id=decision.decision_id,
        )
        plan = self._take(plan.decided(decision.sequence, decision.sequence), occasion, [decision])
        return plan, decision

    def look(self, plan: Plan, call: CallBegun, parent: str | None) -> Plan:
        """Note a call that only reads."""
        decision = self._call_decision(plan, call, parent)
        plan = plan.decided(decision.sequence, decision.sequence)
        self._save(decision, plan)
        return plan

    def before(
        self,
        plan: Plan,
        call: CallBegun,
        parent: str | None,
        running: Sequence[StepRun] = (),
        saved: SavedFirst | None = None,
    ) -> tuple[Plan, StepRun]:
        """``running``: calls that have not ended, and may have changed something already. ``saved``: what this one is
        about to touch, if it did not wait for this."""
        decision = self._call_decision(plan, call, parent)
        number = self._next_number(plan)
        run = StepRun(
            run_id=new_id(),
            plan_id=plan.plan_id,
            sequence=self._store.next_sequence(StepRun, plan.plan_id),
            step_index=number - 1,
            step=_name(call),
            attempt=plan.attempt,
            decision_id=decision.decision_id,
            call_id=call.call_id or None,
            started_at=now(),
        )
        occasion = Occasion(
            (Trigger.ON_TOOL_WRITE,),
            source=call.tool,
            title=f"{_during(running)}before call {number}: {_name(call)}",
            decision_id=decision.decision_id,
        )
        plan = plan.decided(decision.sequence, decision.sequence)
        if saved is None:
            plan = self._take(plan, occasion, [decision])
        else:
            self._save(decision, plan)
            plan = self._as_saved(plan, occasion, saved)
        run = run.model_copy(update={"group_before_id": plan.head_group_id, "started_at": now()})
        self._save(run)
        return plan, run

    def _as_saved(self, plan: Plan, occasion: Occasion, saved: SavedFirst) -> Plan:
        """The state before a call that has begun already: the last one, with the files that were saved first."""
        manager, name = self._service.manager, plan.resources[0].name
        head = self._store.get(CheckpointGroup, plan.head_group_id or "")
        with manager.storing() as batch:
            state = saved.state_before(manager, batch, head.states[name])
            batch.commit()
            if state == head.states[name]:
                return plan
            why = "the call began while the first checkpoint was taken; the files that it names were saved before"
            known = head.model_copy(update={"states": {name: state}})
            return self._service.adopt(plan, self._lease, msgspec.structs.replace(occasion, reason=why), known)

    def after(self, plan: Plan, run: StepRun, ended: CallEnded, beside: Sequence[StepRun] = ()) -> Plan:
        """``beside``: calls that ran at the same time, so that it is unknown which of them changed what."""
        known = self._store.find(StepRun, run.run_id)
        if known is not None and known.finished_at is not None:
            return plan  # another process has ended it, because its agent had died; it may be undone since
        occasion = Occasion(
            (Trigger.ON_TOOL_WRITE_COMPLETE,),
            source=run.step.partition(" ")[0],
            title=_title(run, beside),
            decision_id=run.decision_id,
        )
        output = ended.output[-_LONGEST_OUTPUT:]
        done = {
            "status": ended.status,
            "output": output,
            "output_bytes": len(ended.output.encode(errors="replace")),
            "finished_at": now(),
        }
        plan = self._take(plan, occasion, [])
        # Something that it changed may have been recorded when another call began or ended.
        if self._differ(plan.head_group_id, run.group_before_id):
            done["group_after_id"] = plan.head_group_id
        self._save(run.model_copy(update=done))
        return plan

    def interrupt(self, plan: Plan, runs: Sequence[StepRun]) -> Plan:
        """End calls of which the agent will tell no more; what they changed since is theirs."""
        for run in runs:
            plan = self.after(plan, run, CallEnded(RunStatus.INTERRUPTED))
        return plan

    def written(self, plan: Plan) -> Plan:
        """Record what a person, or a program of theirs, wrote since the last checkpoint; nothing if that is nothing."""
        head = plan.head_group_id
        call = CallBegun("", "")
        decision = self._call_decision(plan, call, None)
        number = self._next_number(plan)
        occasion = Occasion(
            (Moment.SETTLED,), source="guard", title=f"change {number}", decision_id=decision.decision_id
        )
        plan_after = self._service.create_checkpoint(
            plan.decided(decision.sequence, decision.sequence),
            self._lease,
            occasion,
            records=[decision],
            only_if_changed=True,
        )
        if plan_after.head_group_id == head:
            return plan
        at = now()
        self._save(
            StepRun(
                run_id=new_id(),
                plan_id=plan.plan_id,
                sequence=self._store.next_sequence(StepRun, plan.plan_id),
                step_index=number - 1,
                step="written",
                attempt=plan.attempt,
                decision_id=decision.decision_id,
                group_before_id=head,
                group_after_id=plan_after.head_group_id,
                status=RunStatus.SUCCEEDED,
                started_at=at,
                finished_at=at,
            )
        )
        return plan_after

    def catch_up(self, plan: Plan, known: CheckpointGroup) -> Plan:
        """Note a state of the folder that another session has recorded, so that it is not taken for news."""
        name = plan.resources[0].name
        head = self._store.find(CheckpointGroup, plan.head_group_id or "", sound_only=True)
        if head is not None and head.states[name] == known.states[name]:
            return plan
        occasion = Occasion((Moment.MANUAL,), source="guard", title="as another session left it")
        return self._service.adopt(plan, self._lease, occasion, known)

    def end(self, plan: Plan) -> Plan:
        """The agent has ended the session; it may come back to it."""
        occasion = Occasion((Moment.POST_EXECUTE,), source=_source(plan), title="the end of the session")
        return self._take(plan.changed(state=PlanState.COMPLETE), occasion, [])

    def _take(self, plan: Plan, occasion: Occasion, records: Sequence[Record]) -> Plan:
        """A checkpoint if anything changed; plan and records are saved in any case."""
        head = plan.head_group_id
        plan = self._service.create_checkpoint(plan, self._lease, occasion, records=records, only_if_changed=True)
        if plan.head_group_id == head:
            self._save(*records, plan)
        return plan

    def _differ(self, group_id: str | None, other_id: str | None) -> bool:
        """Whether the files are others; a checkpoint that somebody asked for is a new group of the same files."""
        if group_id == other_id:
            return False
        one, other = (self._store.find(CheckpointGroup, each or "", sound_only=True) for each in (group_id, other_id))
        return one is None or other is None or one.states != other.states

    def _save(self, *records: Record) -> None:
        with self._store.transaction(self._lease):
            for record in records:
                self._store.save(record)

    def _decision(
        self, plan: Plan, kind: DecisionType, question: str, chosen: str, parent: str | None = None
    ) -> Decision:
        spec = DecisionSpec(type=kind, question=question, chosen=chosen)
        return next_decision(self._store, plan, spec, None, parent)

    def _call_decision(self, plan: Plan, call: CallBegun, parent: str | None) -> Decision:
        chosen = call.what[:_LONGEST_WHAT]
        return self._decision(plan, DecisionType.TOOL_INVOCATION, call.tool, chosen, call.inside or parent)

    def _next_number(self, plan: Plan) -> int:
        last = self._store.runs.latest(plan.plan_id)
        return 1 if last is None else last.step_index + 2


def _name(call: CallBegun) -> str:
    return f"{call.tool} {shortened(call.what)}".rstrip()


def _during(running: Sequence[StepRun]) -> str:
    return f"during {_calls(running)}, " if running else ""


def _title(run: StepRun, beside: Sequence[StepRun]) -> str:
    if not beside:
        return f"call {run.step_index + 1}: {run.step}"
    together = sorted((run, *beside), key=lambda each: each.step_index)
    return f"{_calls(together)}, at the same time: {', '.join(each.step for each in together)}"


def _calls(runs: Sequence[StepRun]) -> str:
    numbers = [str(each.step_index + 1) for each in runs]
    if len(numbers) == 1:
        return f"call {numbers[0]}"
    return f"calls {', '.join(numbers[:-1])} and {numbers[-1]}"


def _source(plan: Plan) -> str:
    return (plan.session.agent if plan.session else "") or "user"
