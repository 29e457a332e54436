"""The model: plans, steps, decisions, checkpoints, groups, operations and leases as frozen values.

A change is a new value (``plan.advanced_past(step)``), which one transaction then saves.

One module, although it is long: these values are made of each other, and what needs one needs most of the others.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta, field

from holdfast.system.ids import new_id
from holdfast.system.validity import refuse_unless_at_least, refuse_unless_id, refuse_unless_utc


def now() -> datetime:
    return datetime.now(UTC)


Ranges = tuple[tuple[int, int], ...]
"""Numbers as ranges from first to last, both included."""


def extended(ranges: Ranges, first: int, last: int) -> Ranges:
    if last < first:
        return ranges
    if ranges and ranges[-1][1] == first - 1:
        return (*ranges[:-1], (ranges[-1][0], last))
    return (*ranges, (first, last))


def is_within(number: int, ranges: Ranges) -> bool:
    return any(first <= number <= last for first, last in ranges)


def numbers_of(ranges: Ranges) -> Iterator[int]:
    return (number for first, last in ranges for number in range(first, last + 1))


def ranges_of(numbers: Iterable[int]) -> Ranges:
    found: Ranges = ()
    for number in sorted(numbers):
        found = extended(found, number, number)
    return found


def less(ranges: Ranges, numbers: Collection[int]) -> Ranges:
    return ranges_of(number for number in numbers_of(ranges) if number not in numbers)


_PREPARED: set[type] = set()
_preparing = threading.Lock()


def _prepare(kind: type) -> None:
    """Let msgspec find out the types of the fields, in one thread: another must not see them half found out."""
    with _preparing:
        msgspec.json.Decoder(kind)
        _PREPARED.add(kind)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen value with named fields. What comes from outside is checked by ``model_validate``.

    An unknown field is left out: a later version may have stored it.

    Not a pydantic model, because importing pydantic takes longer than the rest of a command that changes nothing. The
    names of the methods are pydantic's.
    """

    @classmethod
    def model_validate(cls, fields: object) -> Self:
        """The record that these fields describe, or a ``msgspec.ValidationError``."""
        if cls not in _PREPARED:
            _prepare(cls)
        return msgspec.convert(fields, cls, builtin_types=(datetime,))

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        return msgspec.structs.replace(self, **update)

    def model_dump(
        self, *, mode: Literal["python", "json"] = "python", exclude: Collection[str] = ()
    ) -> dict[str, Any]:
        """The fields by name; with mode ``json`` all of it in what JSON has."""
        if mode == "json":
            dumped: dict[str, Any] = msgspec.to_builtins(self)
        else:
            dumped = {name: _dumped(getattr(self, name)) for name in self.__struct_fields__}
        return {name: value for name, value in dumped.items() if name not in exclude}


def _dumped(value: Any) -> Any:
    if isinstance(value, Record):
        return value.model_dump()
    if isinstance(value, tuple | list):
        return type(value)(map(_dumped, value))
    if isinstance(value, dict):
        return {key: _dumped(each) for key, each in value.items()}
    return value


class Phase(StrEnum):
    STRATEGIZE = "strategize"
    EXECUTE = "execute"
    APPLY = "apply"


class PlanState(StrEnum):
    QUEUED = "queued"
    PROCESSING = "processing"
    COMPLETE = "complete"
    ERRORED = "errored"
    CANCELLED = "cancelled"
    APPLIED = "applied"
    CONSTRAINED = "constrained"


class DecisionType(StrEnum):
    PROMPT_DEFINITION = "prompt_definition"
    INVARIANT_ENFORCED = "invariant_enforced"
    STRATEGY_CHOICE = "strategy_choice"
    RESOURCE_SELECTION = "resource_selection"
    SUBPLAN_SPAWN = "subplan_spawn"
    SUBPLAN_PARALLEL_SPAWN = "subplan_parallel_spawn"
    IMPLEMENTATION_CHOICE = "implementation_choice"
    TOOL_INVOCATION = "tool_invocation"
    ERROR_RECOVERY = "error_recovery"
    VALIDATION_RESPONSE = "validation_response"
    USER_INTERVENTION = "user_intervention"


class Trigger(StrEnum):
    """The moments at which a checkpoint is taken automatically, as configured."""

    BEFORE_STEP = "before_step"
    ON_TOOL_WRITE = "on_tool_write"
    ON_TOOL_WRITE_COMPLETE = "on_tool_write_complete"
    ON_DECISION = "on_decision"
    ON_SUBPLAN_SPAWN = "on_subplan_spawn"
    AFTER_SUBPLAN = "after_subplan"
    ON_ERROR = "on_error"


class Moment(StrEnum):
    """Moments at which a group is always recorded, whatever the configuration says."""

    PRE_EXECUTE = "pre_execute"
    POST_EXECUTE = "post_execute"
    PRE_APPLY = "pre_apply"
    BEFORE_ROLLBACK = "before_rollback"
    ROLLBACK = "rollback"
    RESTORE_PATHS = "restore_paths"
    MANUAL = "manual"
    SETTLED = "settled"
    """A running program had written something, and then nothing for a moment."""
    UNDO = "undo"
    REDO = "redo"


CHECKPOINT_TYPES = frozenset(each.value for kinds in (Trigger, Moment) for each in kinds)
DEFAULT_TRIGGERS = (
    Trigger.ON_TOOL_WRITE,
    Trigger.ON_TOOL_WRITE_COMPLETE,
    Trigger.ON_DECISION,
    Trigger.ON_SUBPLAN_SPAWN,
    Trigger.AFTER_SUBPLAN,
    Trigger.ON_ERROR,
)
DEFAULT_MAX_CHECKPOINTS = 50
DEFAULT_PASSED_VARIABLES = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM", "NO_COLOR",
)  # fmt: skip
"""The variables of the user's environment that a step sees; the others may hold secrets."""
DEFAULT_SETTLE_SECONDS = 2.0
SUBPLANS_TOOL = "subplans"
PROGRAM_TOOL = "program"
SHELL_TOOL = "shell"
NO_AGENT = "none"
"""Stands for no profile of an agent, where the name of one is asked for."""
BUILT_IN_TOOLS = frozenset(
    (SHELL_TOOL, PROGRAM_TOOL, "write_file", "edit_file", "delete_file", "apply_patch", "python")
)
"""The built-in tools without side effects: what a rollback asks about them is known without importing them."""


class ResourceType(StrEnum):
    GIT = "git"
    DIRECTORY = "directory"


class Strategy(StrEnum):
    """How a resource's sandbox is made."""

    GIT_WORKTREE = "git_worktree"
    FILESYSTEM_COPY = "filesystem_copy"
    IN_PLACE = "in_place"
    """The real folder itself: nothing is copied, and nothing is applied."""


STRATEGY_OF = {ResourceType.GIT: Strategy.GIT_WORKTREE, ResourceType.DIRECTORY: Strategy.FILESYSTEM_COPY}


class CorrectionMode(StrEnum):
    REVERT = "revert"
    """Undo the decision and everything that followed from it."""
    APPEND = "append"
    """Undo nothing, and add steps at the end."""


class View(StrEnum):
    """Where the processes of a step find a sandbox."""

    SAME_PATH = "same-path"
    """At the place of the real folder."""
    OWN_PATH = "own-path"
    """At its own place, in Holdfast's home."""


class OnFailure(StrEnum):
    ROLLBACK = "rollback"
    ROLLBACK_TO_START = "rollback_to_start"
    KEEP = "keep"


class MergeStrategy(StrEnum):
    THREE_WAY = "three_way"
    FAIL_ON_CONFLICT = "fail_on_conflict"
    LAST_WINS = "last_wins"


class Policy(Record, frozen=True, kw_only=True):
    """What a plan does about checkpoints and failures."""

    on_failure: OnFailure = OnFailure.ROLLBACK
    rollback_enabled: bool = True
    require_checkpoints: bool = True
    max_checkpoints: Annotated[int, Meta(ge=2)] = DEFAULT_MAX_CHECKPOINTS
    auto_create_on: tuple[Trigger, ...] = DEFAULT_TRIGGERS

    @property
    def retention(self) -> CheckpointRetentionPolicy:
        return CheckpointRetentionPolicy(max_checkpoints=self.max_checkpoints)

    @property
    def rolls_back_on_failure(self) -> bool:
        return self.rollback_enabled and self.on_failure is not OnFailure.KEEP

    @property
    def rolls_back_to_start(self) -> bool:
        return self.rollback_enabled and self.on_failure is OnFailure.ROLLBACK_TO_START


class CheckpointRetentionPolicy(Record, frozen=True, kw_only=True):
    """How much of a plan's history is kept; the first, the last and labelled checkpoints always are."""

    max_checkpoints: int = DEFAULT_MAX_CHECKPOINTS

    def __post_init__(self) -> None:
        refuse_unless_at_least(1, "max_checkpoints", self.max_checkpoints)


class Unheld(Record, frozen=True, kw_only=True):
    """A path that a snapshot or a sandbox could not hold, and why."""

    path: str
    reason: str


class Unprotected(StrEnum):
    """What happens to a tool of an agent if no checkpoint can be taken before it."""

    BLOCK = "block"
    WARN = "warn"


class CopyLimit(Record, frozen=True, kw_only=True):
    """How much of what git ignores is copied into a sandbox without being asked for; None is no limit."""

    size_bytes: int | None = None
    files: int | None = None


DEFAULT_COPY_LIMIT = CopyLimit(size_bytes=2 * 1000**3, files=200_000)


class CopyRules(Record, frozen=True, kw_only=True):
    """Which files that git ignores or does not track a sandbox gets; a plan keeps the rules of its creation.

    Patterns are in the syntax of a ``.gitignore``. A file that git tracks is always copied.
    """

    include: tuple[str, ...] = ()
    """Ignored files that are copied whatever the limit and ``exclude`` say."""
    exclude: tuple[str, ...] = ()
    """Ignored and untracked files that are left out."""
    limit: CopyLimit = DEFAULT_COPY_LIMIT


class Resource(Record, frozen=True, kw_only=True):
    """A real folder that a plan works on, and its private sandbox; the name is its id in the plan."""

    name: str
    type: ResourceType
    path: str
    sandbox_path: str
    base: dict[str, str] = field(default_factory=dict)
    """What the sandbox started from; for git the ``commit`` and the ``branch`` that were checked out."""
    left_out: tuple[Unheld, ...] = ()
    """What was not copied into the sandbox; it is not touched by apply either."""
    copy_rules: CopyRules = CopyRules()
    """Of a git resource: what its sandbox gets besides the tracked files."""
    view: View | None = None
    """Where the steps of the last execution found the sandbox; None before the first."""
    in_place: bool | msgspec.UnsetType = msgspec.UNSET
    """There is no private copy: ``sandbox_path`` is the real folder. Other resources are stored without it, byte for
    byte as by earlier versions."""

    @property
    def is_in_place(self) -> bool:
        return self.in_place is True

    @property
    def strategy(self) -> Strategy:
        return Strategy.IN_PLACE if self.is_in_place else STRATEGY_OF[self.type]


class DecisionSpec(Record, frozen=True, kw_only=True):
    """A decision as a plan file or a tool states it, before it is recorded."""

    type: DecisionType
    question: str
    chosen: str
    alternatives: tuple[str, ...] = ()
    rationale: str = ""
    confidence: Annotated[float, Meta(ge=0, le=1)] | None = None


class Compensation(Record, frozen=True, kw_only=True):
    """The call of a tool that undoes what a step did outside of the sandboxes."""

    tool: str
    args: dict[str, Any] = field(default_factory=dict)


class RunSettings(Record, frozen=True, kw_only=True):
    """What the program of ``holdfast run`` is given. Its step keeps this, so that it gets the same when it runs again.

    The values of variables are never stored.
    """

    pass_env: tuple[str, ...] = ()
    """Names of variables that it sees besides those of the settings; ``*`` stands for any characters."""
    allow_write: tuple[str, ...] = ()
    """Where it may write besides its sandboxes and what the settings allow: absolute paths."""
    settle_seconds: float | None = None
    """Take a checkpoint whenever it has written something and then paused for this long."""
    has_terminal: bool = False
    """It was started on a terminal, and may ask a person something."""
    agent: str = ""
    """The name of the profile that was asked for, or ``NO_AGENT``; empty for the one of the program."""


class RefusedWrite(msgspec.Struct, frozen=True):
    """A write that was refused to a program, and what would have allowed it."""

    path: str
    allow: str | None
    """What to allow; None if it cannot be allowed."""
    is_missing: bool = False
    """It has to be made first."""
    reason: str = ""
    """Why it cannot be allowed."""


class Grant(Record, frozen=True, kw_only=True):
    """What the profile of an agent adds to a run of it; paths are those of this user."""

    title: str
    pass_env: tuple[str, ...] = ()
    """The variables that were set."""
    folders: tuple[str, ...] = ()
    """Where it may write."""
    files: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    """Folders that it finds empty, because a process outside listens to sockets in them."""
    reads_git: bool = False
    """It reads repositories without git, and would follow borrowed objects that lead to the sandbox itself for ever."""

    @property
    def allow_write(self) -> tuple[str, ...]:
        return (*self.folders, *self.files)


class Step(Record, frozen=True, kw_only=True):
    """One call of a tool. What is None is taken from the tool's own declaration."""

    name: str
    tool: str
    args: dict[str, Any] = field(default_factory=dict)
    resource: str
    writes: bool | None = None
    checkpointable: bool | None = None
    side_effects: bool | None = None
    idempotent: bool | None = None
    timeout_seconds: float | None = None
    retries: Annotated[int, Meta(ge=0)] = 0
    decision: DecisionSpec | None = None
    compensate: Compensation | None = None
    subplans: tuple[Subplan, ...] = ()
    """What a step whose tool is ``SUBPLANS_TOOL`` runs instead of a tool."""
    parallel: Annotated[int, Meta(ge=1)] = 1
    """How many of the subplans run at the same time."""
    merge: MergeStrategy = MergeStrategy.THREE_WAY
    settings: RunSettings | msgspec.UnsetType = msgspec.UNSET
    """Of a program: what it is given. Other steps are stored without it, byte for byte as by earlier versions."""
    granted: Grant | msgspec.UnsetType = msgspec.UNSET
    """What the profile of an agent adds. Only ``holdfast run`` sets it: a plan file, which may come with a project,
    cannot allow itself anything. Other steps are stored without it, byte for byte as by earlier versions."""

    @property
    def is_program(self) -> bool:
        """A program as ``holdfast run`` starts it: what it made is worth having, however it ended."""
        return self.tool == PROGRAM_TOOL

    @property
    def run_settings(self) -> RunSettings | None:
        """What the program is given; None for other steps, and if an earlier version stored the step."""
        return None if self.settings is msgspec.UNSET else self.settings

    @property
    def grant(self) -> Grant | None:
        return None if self.granted is msgspec.UNSET else self.granted

    @property
    def is_interactive(self) -> bool:
        """A program that was started on a terminal."""
        return self.is_program and self.run_settings is not None and self.run_settings.has_terminal


class Subplan(Record, frozen=True, kw_only=True):
    """A list of steps that runs as a plan of its own, in sandboxes of its own, inside a step."""

    name: str
    steps: tuple[Step, ...]


def all_steps(steps: Iterable[Step]) -> Iterator[Step]:
    """These steps and those of their subplans, however deep."""
    for step in steps:
        yield step
        for subplan in step.subplans:
            yield from all_steps(subplan.steps)


class SessionInfo(Record, frozen=True, kw_only=True):
    """Who works in a real folder, if a plan records that: an agent, or a person and their programs."""

    agent: str = ""
    """The name of the agent; empty for a person."""
    version: str = ""
    session_id: str = ""
    """As the agent calls its session."""
    transcript: str = ""
    """Where the agent keeps the conversation."""
    pid: int | None = None
    """The agent's process, if it is known."""
    process_started_at: float | None = None


class Plan(Record, frozen=True, kw_only=True):
    plan_id: str
    project_id: str
    name: str
    phase: Phase = Phase.STRATEGIZE
    state: PlanState = PlanState.QUEUED
    attempt: int = 1
    revision: int = 1
    """Which list of steps is in force; a correction that brings new steps makes a new revision."""
    resources: tuple[Resource, ...]
    policy: Policy = Policy()
    validation: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    last_completed_step: int = -1
    active_decisions: Ranges = ()
    """Sequence numbers of the decisions that led to where the plan is; all others are superseded or under way."""
    last_checkpoint_id: str | None = None
    head_group_id: str | None = None
    parent_plan_id: str | None = None
    spawn_decision_id: str | None = None
    """Of a subplan: the decision of its parent that spawned it."""
    merged_states: dict[str, str] | None = None
    """Of a subplan: the states of its parent's resources after its result came into them."""
    is_superseded: bool | None = None
    """Of a subplan: the decision that spawned it is superseded, and so is what it did."""
    is_cancelled_by_rollback: bool | None = None
    """Of a subplan: a rollback of its parent cancelled it, so undoing that rollback revives it."""
    boot_id: str | None = None
    """The boot of the machine in which the sandboxes were last changed; what a power cut lost since is restored."""
    guidance: str = ""
    error: str | None = None
    source_file: str = ""
    store_id: str = ""
    """The content store that holds this plan's snapshots."""
    sequence: int | None = None
    """Its number among all plans, in order of creation; None for a subplan, or if an earlier version created it."""
    session: SessionInfo | None = None
    """Of a session, which records what happens in a real folder: it has no steps, and its calls are decisions."""
    created_at: datetime
    updated_at: datetime

    @property
    def is_session(self) -> bool:
        return self.session is not None

    @property
    def next_step(self) -> int:
        return self.last_completed_step + 1

    @property
    def is_finished(self) -> bool:
        return self.next_step >= len(self.steps)

    def interrupted_step(self, run: StepRun | None) -> Step | None:
        """The step that this run did not finish; None if the run has ended, or is that of a validation."""
        if run is None or run.status not in (RunStatus.INTERRUPTED, RunStatus.RUNNING):
            return None
        return self.steps[run.step_index] if run.step_index < len(self.steps) else None

    def resource(self, name: str) -> Resource:
        return next(resource for resource in self.resources if resource.name == name)

    def changed(self, **fields: Any) -> Plan:
        return self.model_copy(update={**fields, "updated_at": now()})

    def advanced_past(self, step_index: int, decisions: Iterable[int]) -> Plan:
        plan = self.changed(last_completed_step=step_index)
        for sequence in decisions:
            plan = plan.decided(sequence, sequence)
        return plan

    def decided(self, first: int, last: int) -> Plan:
        return self.changed(active_decisions=extended(self.active_decisions, first, last))


class Revision(Record, frozen=True, kw_only=True):
    """One list of steps of a plan; kept, so that a rollback restores the steps as well."""

    plan_id: str
    revision: int
    steps: tuple[Step, ...]


class Decision(Record, frozen=True, kw_only=True):
    decision_id: str
    plan_id: str
    parent_decision_id: str | None = None
    sequence: int
    type: DecisionType
    question: str
    chosen: str
    alternatives: tuple[str, ...] = ()
    rationale: str = ""
    confidence: float | None = None
    is_correction: bool = False
    is_superseded: bool = False
    step_index: int | None = None
    attempt: int = 1
    created_at: datetime

    @classmethod
    def root_of(cls, plan: Plan) -> Decision:
        """The first decision of every plan, from which all others follow."""
        return cls(
            decision_id=new_id(),
            plan_id=plan.plan_id,
            sequence=1,
            type=DecisionType.PROMPT_DEFINITION,
            question="What is to be done?",
            chosen=plan.steps[0].name if plan.steps and plan.steps[0].is_program else plan.name,
            created_at=plan.created_at,
        )


class RunStatus(StrEnum):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    CONSTRAINED = "constrained"
    """Results of subplans conflict, and a person has to resolve that before the step can go on."""


class Conflict(Record, frozen=True, kw_only=True):
    """A path at which the result of a subplan conflicts with its parent."""

    resource: str
    path: str
    subplan: str
    reason: str
    is_marked: bool
    """The file holds both versions of the lines, between marks; otherwise it is as it was before the merge."""
    kept: tuple[str, ...]
    """Where the versions of both sides are kept."""


class StepRun(Record, frozen=True, kw_only=True):
    """One run of a step or a validation: what it printed and how it ended."""

    run_id: str
    plan_id: str
    sequence: int
    step_index: int
    step: str
    attempt: int
    try_number: int = 1
    decision_id: str | None = None
    group_before_id: str | None = None
    status: RunStatus = RunStatus.RUNNING
    exit_code: int | None = None
    output: str = ""
    output_bytes: int = 0
    """How much it printed in all; ``output`` keeps the end of it."""
    error: str | None = None
    is_superseded: bool = False
    conflicts: tuple[Conflict, ...] | None = None
    """What a person has to resolve, if it is constrained."""
    compensation: str | None = None
    """How undoing its effects outside of the sandboxes ended, in words; None before that was tried."""
    is_compensated: bool | None = None
    """These effects were undone; None before that was tried."""
    group_after_id: str | None = None
    """Of a call in a session: the group with what it changed; None if it changed nothing."""
    call_id: str | None = None
    """Of a call in a session: as the agent calls it."""
    started_at: datetime
    finished_at: datetime | None = None


class CheckpointGroup(Record, frozen=True, kw_only=True):
    """One moment of a plan over all its resources: their states and the plan's position."""

    group_id: str
    plan_id: str
    sequence: int
    parent_group_id: str | None = None
    restored_group_id: str | None = None
    triggers: tuple[str, ...]
    reason: str = ""
    source: str = ""
    phase: Phase
    step_index: int | None = None
    step: str | None = None
    decision_id: str | None = None
    label: str | None = None
    attempt: int
    revision: int
    last_completed_step: int
    active_decisions: Ranges
    """The plan's decisions in force; if this is the half-done work of a step, also those of the step."""
    states: dict[str, str]
    """State hash of every resource, also of those that did not change."""
    unheld: dict[str, tuple[Unheld, ...]] = field(default_factory=dict)
    """What the snapshots could not hold, by resource."""
    created_at: datetime

    def without(self, decisions: Collection[int]) -> CheckpointGroup:
        return self.model_copy(update={"active_decisions": less(self.active_decisions, decisions)})


class GitHead(Record, frozen=True, kw_only=True):
    """Where HEAD of a repository was."""

    commit: str | None
    """None before the first commit."""
    branch: str | None
    """None if it was detached."""


class CheckpointMetadata(Record, frozen=True, kw_only=True):
    """Why a checkpoint was taken; what has a default was not stored by earlier versions."""

    title: str = ""
    reason: str
    source: str
    phase: Phase
    step_index: int | None
    step: str | None
    state_hash: str
    label: str | None
    triggers: tuple[str, ...]
    git: GitHead | None = None
    """Of a git resource."""


class Checkpoint(Record, frozen=True, kw_only=True):
    """A row of ``checkpoint_metadata``: one resource at one moment."""

    checkpoint_id: str
    plan_id: str
    group_id: str
    sequence: int
    sandbox_ref: str
    resource_id: str
    checkpoint_type: str
    decision_id: str | None = None
    filesystem_path: str
    size_bytes: int
    """New content this checkpoint added to the store."""
    metadata: CheckpointMetadata
    created_at: datetime

    def __post_init__(self) -> None:
        refuse_unless_id("checkpoint_id", self.checkpoint_id)
        refuse_unless_id("plan_id", self.plan_id)
        refuse_unless_id("group_id", self.group_id)
        if self.decision_id is not None:
            refuse_unless_id("decision_id", self.decision_id)
        refuse_unless_utc("created_at", self.created_at)
        refuse_unless_at_least(0, "size_bytes", self.size_bytes)
        if self.checkpoint_type not in CHECKPOINT_TYPES:
            raise ValueError(f"checkpoint_type is unknown: {self.checkpoint_type!r}")


class DamagedCheckpoint(Record, frozen=True, kw_only=True):
    """A row of ``checkpoint_metadata`` that is damaged, or whose group's record is damaged.

    Its id is what it is listed and deleted by; nothing else of it is relied on.
    """

    checkpoint_id: str
    plan_id: str
    group_id: str
    """What the row says. If it is the group that is damaged, that group."""
    is_group: bool
    """The record of the group is damaged, so that no rollback to it is possible."""
    sequence: int
    """What the row says, to be listed in its place; 0 if it says nothing."""
    problem: str


class OperationKind(StrEnum):
    ROLLBACK = "rollback"
    RESTORE_PATHS = "restore_paths"
    APPLY = "apply"
    UNAPPLY = "unapply"
    UNDO = "undo"
    """The real folder of a session is changed; so does ``redo``."""

    @property
    def noun(self) -> str:
        """For a sentence: "restore of paths", "apply"."""
        return self.replace("_", " of ")


class OperationState(StrEnum):
    BEGUN = "begun"
    DONE = "done"
    UNDONE = "undone"


class Operation(Record, frozen=True, kw_only=True):
    """A journal entry: a change of several things that must be finished or undone as one."""

    operation_id: str
    plan_id: str
    kind: OperationKind
    state: OperationState = OperationState.BEGUN
    data: dict[str, Any]
    """What only ``holdfast.db.journal`` writes and reads, as an entry of its kind."""
    created_at: datetime
    finished_at: datetime | None = None

    def ended(self, state: OperationState) -> Operation:
        return self.model_copy(update={"state": state, "finished_at": now()})


class Lease(Record, frozen=True, kw_only=True):
    """Which process may change a plan now. The token grows with every owner, so an outdated owner is noticed."""

    plan_id: str
    token: int
    owner: str | None
    host: str = ""
    pid: int = 0
    process_started_at: float = 0.0
    """As ``machine.Process`` has it."""
    boot_id: str | None = None
    pid_namespace: str | None = None
    machine_id: str | None = None
    """As ``identity`` has it; None if an earlier version took the lease."""
    command: str = ""
    acquired_at: datetime
    heartbeat_at: datetime
    stop_requested: bool | None = None
    """The owner was asked to stop."""

    listens: bool | None = None
    """The owner listens to a request to stop; None if an earlier version took the lease."""

    @property
    def can_be_stopped(self) -> bool:
        """Whether it makes sense to ask the owner to stop. One that does not listen ends soon."""
        return self.listens is not False


class Project(Record, frozen=True, kw_only=True):
    project_id: str
    root: str
    created_at: datetime


class FileChange(Record, frozen=True, kw_only=True):
    """What a rollback or an apply does to one path."""

    resource: str
    file: str
    action: Literal["restored", "removed", "added", "changed", "merged"]
    is_ignored: bool = False
    """Of what a plan changed in its sandbox: git ignores the file."""


class Correction(Record, frozen=True, kw_only=True):
    """What a person decided instead: the guidance, and the plan's whole list of steps if it changes."""

    question: str
    guidance: str
    alternatives: tuple[str, ...] = ()
    parent_decision_id: str | None = None
    steps: tuple[Step, ...] | None = None
    undone: tuple[int, ...] = ()
    """Sequence numbers of decisions that are undone although the checkpoint it goes back to holds them."""
    is_result: bool | msgspec.UnsetType = msgspec.UNSET
    """What it goes back to is the complete result, as a person said: nothing is run or validated. Others are stored
    without it, byte for byte as by earlier versions."""


class SideEffect(Record, frozen=True, kw_only=True):
    """A run that declared effects outside of the sandboxes, which a rollback does not undo by itself."""

    step: str
    step_index: int
    run_id: str
    note: str = ""
    """How undoing it ended, if the step says how to undo it."""


class RollbackImpact(Record, frozen=True, kw_only=True):
    child_plans_invalidated: int = 0
    sandbox: str
    decisions_after_cp: int
    tool_calls_after_cp: int
    side_effects_not_undone: tuple[SideEffect, ...] = ()
    compensated: tuple[SideEffect, ...] = ()
    """Effects that a command of the step itself undoes."""
    effects_gone: tuple[SideEffect, ...] = ()
    """Of steps that count as done again, because a rollback is undone: what that rollback had undone outside."""
    child_plans_applied: tuple[str, ...] = ()
    """Subplans among what is undone whose result is in the real files already, and stays there."""


class RollbackResult(Record, frozen=True, kw_only=True):
    plan: Plan
    checkpoint: Checkpoint
    left_group_id: str | None
    """The group that keeps the state this rollback left; rolling back to it undoes the rollback."""
    changes: tuple[FileChange, ...]
    repositories: tuple[str, ...] = ()
    """Resources whose HEAD, branches or tags changed."""
    set_aside: tuple[str, ...] = ()
    """Where files were moved that no snapshot could hold and that were in the way; they are never deleted."""
    impact: RollbackImpact
    checkpoints_remaining: int
    only: tuple[str, ...] = ()
    """The paths that were restored, if not all of the checkpoint was; the plan's position and decisions then stay."""
    is_unkept: bool = False
    """The state before was not kept, as requested: this rollback cannot be undone."""
    lost: tuple[str, ...] = ()
    """What was lost, because no checkpoint holds it: ``RESOURCE:PATH``."""

    @property
    def files_reverted(self) -> int:
        return len(self.changes)
