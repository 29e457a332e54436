"""What agents say through their hooks, recorded as sessions of the folder.

Everything here runs in one thread, in the order in which it was said: an agent asks before a call, and goes on when it
is answered, so what was said before is recorded before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from holdfast import CallBegun, CallEnded, Holdfast, Recording, SavedFirst, SessionInfo
from holdfast.agents.hooks.event import HookAnswer, HookEvent, HookKind
from holdfast.errors import NotFoundError
from holdfast.guard.agent_process import agent_process
from holdfast.guard.hearing import Heard, Listening
from holdfast.model import CheckpointGroup, Moment, Plan, RunStatus, StepRun
from holdfast.names import name_text

_PAGE = 20
_ENDS_ALL = frozenset((HookKind.PROMPT, HookKind.TURN_END, HookKind.SESSION_END))
"""After these an agent tells no more of the calls that have begun."""
_MAY_BE_RESUMED = frozenset((HookKind.SESSION_START, HookKind.PROMPT))
"""With one of these another process may go on with a session."""


class OpenSession:
    """A session that an agent goes on with, as this process knows it."""

    def __init__(self, plan_id: str, info: SessionInfo) -> None:
        self.plan_id, self.info = plan_id, info
        self.prompt_id: str | None = None
        self.running: list[StepRun] = []
        """The calls that have begun."""
        self.tools: dict[str, tuple[str, str]] = {}
        """The tool of each of them, and what it is about, by its run; not of those that an earlier process began."""
        self.beside: dict[str, list[StepRun]] = {}
        """The calls that ran at the same time as one, by its run."""
        self.decisions: dict[str, str] = {}
        """The decisions of calls by the agent's ids, for calls that are made inside of them."""
        self.untold_changes: list[str] = []
        """What a person undid or brought back, and the agent was not told yet."""
        self.head: str | None = None
        """The group that was recorded last; another one was made by a person."""
        self.is_begun = False
        self.over: list[tuple[StepRun, CallEnded, Sequence[StepRun]]] = []
        """Calls that have ended, to be recorded with the next hook if that was not possible yet."""

    def begin(self, run: StepRun, *, is_end_untold: bool) -> None:
        if is_end_untold:
            self.over.append((run, CallEnded(RunStatus.SUCCEEDED), ()))
            return
        for other in self.running:
            self.beside.setdefault(other.run_id, []).append(run)
            self.beside.setdefault(run.run_id, []).append(other)
        self.running.append(run)

    def end(self, runs: Sequence[StepRun], ended: CallEnded) -> None:
        self.over += [(run, ended, self.beside.pop(run.run_id, ())) for run in runs]
        self.running = [run for run in self.running if run not in runs]
        for run in runs:
            self.tools.pop(run.run_id, None)


class Sessions:
    def __init__(self, holdfast: Holdfast) -> None:
        self._holdfast, self._in_place = holdfast, holdfast.in_place
        self._open: dict[tuple[str, str], OpenSession] = {}
        self._watching = ExitStack()
        self._watched: Plan | None = None
        """A session of the folder; all of them have the same one."""
        self._is_remembered = True
        self._is_reading_first = False

    def close(self) -> None:
        self._watching.close()

    @property
    def names(self) -> list[str]:
        return [agent for agent, _ in self._open]

    @property
    def has_running_calls(self) -> bool:
        return any(each.running for each in self._open.values())

    def hear(self, heard: Heard, listening: Listening) -> HookAnswer:
        """Record what was said; the answer tells the agent what a person changed meanwhile."""
        event = heard.event
        if event.kind is HookKind.OTHER:
            return HookAnswer()
        try:
            session = self._session_for(event, heard.pid)
            self._hear(heard, session, listening)
        except NotFoundError:  # a person has deleted the session meanwhile
            del self._open[event.agent, event.session_id]
            session = self._session_for(event, heard.pid)
            self._hear(heard, session, listening)
        if not session.untold_changes or not listening.can_be_told():
            return HookAnswer()
        listed, session.untold_changes = "; ".join(session.untold_changes), []
        return HookAnswer(
            tell=f"The person changed files of this folder with Holdfast since your last call: {name_text(listed)}."
        )

    def save_first(self, event: HookEvent) -> SavedFirst | None:
        """Save what a call says that it writes, if the first checkpoint is still being taken; in any thread.

        None if the call has to wait for that: it may write anything.
        """
        is_sure = event.kind is HookKind.BEFORE_TOOL and bool(event.paths) and not event.reads_only
        return self._in_place.saved_first(event.paths) if is_sure and self._is_reading_first else None

    def _hear(self, heard: Heard, session: OpenSession, listening: Listening) -> None:
        event = heard.event
        if event.kind is HookKind.AFTER_TOOL:
            status = RunStatus.FAILED if event.is_failed else RunStatus.SUCCEEDED
            session.end(_ended(event, session), CallEnded(status, event.result))
        elif event.kind in _ENDS_ALL:
            session.end(session.running, CallEnded(RunStatus.INTERRUPTED))
        with self._in_place.recording(session.plan_id) as (plan, recording):
            self._watch(plan)
            session.untold_changes += self._changed_by_person(session, plan)
            if not session.is_begun:
                self._is_reading_first = plan.head_group_id is None
                try:
                    plan = recording.begin(plan, session.info)
                finally:
                    self._is_reading_first = False
                session.is_begun = True
            plan = _end_what_is_over(session, plan, recording)
            match event.kind:
                case HookKind.PROMPT:
                    plan, decision = recording.prompt(plan, event.prompt)
                    session.prompt_id = decision.decision_id
                case HookKind.BEFORE_TOOL if event.reads_only:
                    plan = recording.look(plan, _begun(event, session, self._in_place.folder), session.prompt_id)
                case HookKind.BEFORE_TOOL:
                    begun = _begun(event, session, self._in_place.folder)
                    plan, run = recording.before(plan, begun, session.prompt_id, session.running, heard.saved)
                    session.begin(run, is_end_untold=event.is_end_untold)
                    session.tools[run.run_id] = event.tool, event.what
                    session.decisions[event.call_id] = run.decision_id or ""
                    if listening.is_stopped():
                        session.end([run], CallEnded(RunStatus.INTERRUPTED))
                        plan = _end_what_is_over(session, plan, recording)
                case HookKind.SESSION_END:
                    plan = recording.end(plan)
                    session.is_begun = False
            session.head = plan.head_group_id

    def settle(self) -> None:
        """Record what was written in the folder by nobody that tells: a person, or a program of theirs."""
        if self.has_running_calls:
            return
        plan = self._in_place.begin(SessionInfo())
        with self._in_place.recording(plan.plan_id) as (plan, recording):
            self._watch(plan)
            if plan.head_group_id is None:
                recording.begin(plan)
                return
            recording.written(self._in_place.caught_up(plan, recording))

    def heard(self) -> object:
        """A value that changes whenever the folder does; None as long as it is not watched."""
        return self._holdfast.service.sandboxes.heard(self._watched) if self._watched is not None else None

    def remember(self) -> None:
        """Keep what is known of the folder for the next process, which otherwise would read every file again."""
        if not self._is_remembered:
            self._holdfast.service.manager.remember()
            self._is_remembered = True

    def _session_for(self, event: HookEvent, pid: int | None) -> OpenSession:
        key = (event.agent, event.session_id)
        session = self._open.get(key)
        if session is not None and event.kind not in _MAY_BE_RESUMED:
            return session
        known = session.info if session is not None else SessionInfo()
        process = agent_process(pid)
        info = SessionInfo(
            agent=event.agent,
            version=event.version or known.version,
            session_id=event.session_id,
            transcript=event.transcript or known.transcript,
            pid=process and process[0],
            process_started_at=process and process[1],
        )
        if session is None:
            session = self._open[key] = OpenSession(self._in_place.begin(info).plan_id, info)
            session.running = self._in_place.unfinished(session.plan_id)
            session.prompt_id = self._in_place.last_prompt_id(session.plan_id)
        elif (info.pid, info.process_started_at) != (known.pid, known.process_started_at):
            session.info, session.is_begun = info, False  # the person goes on with it in another process
        return session

    def _watch(self, plan: Plan) -> None:
        self._is_remembered = False
        if self._watched is None:
            self._watching.enter_context(self._holdfast.service.sandboxes.watching(plan))
            self._watched = plan

    def _changed_by_person(self, session: OpenSession, plan: Plan) -> list[str]:
        """What undo and redo did in this session since it was heard of last, oldest first."""
        if session.head is None or plan.head_group_id == session.head:
            return []
        titles = []
        for group in self._newer(plan, session.head):
            if not {Moment.UNDO.value, Moment.REDO.value}.isdisjoint(group.triggers):
                view = self._holdfast.service.checkpoints_at(group)[0]
                titles.append(view.metadata.title)
        return titles[::-1]

    def _newer(self, plan: Plan, known: str) -> Iterator[CheckpointGroup]:
        for group in self._holdfast.store.groups.newest_first(plan.plan_id, _PAGE):
            if group.group_id == known:
                return
            yield group


def _begun(event: HookEvent, session: OpenSession, folder: Path) -> CallBegun:
    inside = session.decisions.get(event.parent_call_id) if event.parent_call_id else None
    return CallBegun(
        event.tool, name_text(_relative(event.what or ", ".join(event.paths), folder)), event.call_id, inside
    )


def _relative(what: str, folder: Path) -> str:
    """Paths in the folder are read more easily without it."""
    return what.replace(f"{folder}/", "")


def _end_what_is_over(session: OpenSession, plan: Plan, recording: Recording) -> Plan:
    while session.over:
        plan = recording.after(plan, *session.over[0])
        del session.over[0]
    return plan


def _ended(event: HookEvent, session: OpenSession) -> list[StepRun]:
    """The call that has ended; if the agent gives no ids, the first about the same, or else the first of that tool."""
    if event.call_id:
        return [run for run in session.running if run.call_id == event.call_id][:1]
    of_tool = [run for run in session.running if session.tools.get(run.run_id, (event.tool,))[0] == event.tool]
    same = [run for run in of_tool if session.tools.get(run.run_id) == (event.tool, event.what)]
    return (same or of_tool)[:1]
