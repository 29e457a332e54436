from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pydantic import BaseModel

from holdfast.errors import PlanFileError, SandboxError, StateError
from holdfast.events import CheckpointTaken, Event, StepFinished, StepPrinted, StepStarted, Validating
from holdfast.model import DecisionType, Phase, PlanState, RunStatus
from holdfast.snapshot.scan.scan import Scan
from holdfast.tools import ToolContext, ToolDeclaration, ToolResult
from tests.support.workshop import Workshop, files, run


def test_a_plan_runs_in_its_sandboxes_and_leaves_the_real_files_alone(workshop: Workshop) -> None:
    plan = workshop.create(
        run("echo 2 > version.txt"), {"tool": "write_file", "resource": "data", "args": {"path": "n", "content": "x"}}
    )
    result = workshop.open().execute(plan.plan_id)
    assert result.succeeded
    assert (result.plan.phase, result.plan.last_completed_step) == (Phase.EXECUTE, 1)
    assert files(workshop.sandbox(plan)) == {"version.txt": "2\n"}
    assert files(workshop.sandbox(plan, "data")) == {"n": "x", "orders.csv": "1;2\n"}
    assert files(workshop.app) == {"version.txt": "1\n"}
    assert files(workshop.data) == {"orders.csv": "1;2\n"}


def test_every_write_and_decision_gets_a_group_at_its_moment(workshop: Workshop) -> None:
    plan = workshop.create(run("echo 2 > version.txt"), run("cat version.txt", writes=False))
    workshop.open().execute(plan.plan_id)
    assert workshop.moments(plan) == [
        ("pre_execute",),
        ("on_tool_write", "on_decision"),
        ("on_tool_write_complete",),
        ("on_decision",),
        ("post_execute",),
    ]


def test_without_triggers_only_the_phases_are_kept(workshop: Workshop) -> None:
    plan = workshop.create(run("echo 2 > version.txt"), policy={"auto_create_on": []})
    assert workshop.open().execute(plan.plan_id).succeeded
    assert workshop.moments(plan) == [("pre_execute",), ("post_execute",)]


def test_before_step_is_named_with_the_triggers_of_the_same_moment(workshop: Workshop) -> None:
    plan = workshop.create(run("true"), policy={"auto_create_on": ["before_step", "before_tool_execute"]})
    workshop.open().execute(plan.plan_id)
    assert workshop.moments(plan) == [("pre_execute",), ("before_step", "on_tool_write"), ("post_execute",)]


def test_a_group_has_a_row_for_each_resource_that_changed_and_one_if_none_did(workshop: Workshop) -> None:
    both = 'echo 2 > version.txt; echo 3 > "$HOLDFAST_RESOURCE_DATA/orders.csv"'
    plan = workshop.create(run("true", resource="data"), run(both))
    workshop.open().execute(plan.plan_id)
    rows = [
        (each.metadata.step, each.resource_id, each.size_bytes > 0) for each in _after_steps(workshop, plan.plan_id)
    ]
    assert rows == [("true", "data", False), (both, "app", True), (both, "data", True)]


def _after_steps(workshop: Workshop, plan_id: str) -> list:
    listed = workshop.open().service.list_checkpoints(plan_id)
    return [each for each in listed if each.checkpoint_type == "on_tool_write_complete"]


def test_a_failed_step_is_kept_and_taken_back(workshop: Workshop) -> None:
    plan = workshop.create(run("echo 2 > version.txt"), run("echo broken > version.txt; echo why; exit 3"))
    result = workshop.open().execute(plan.plan_id)
    assert not result.succeeded
    assert result.plan.state is PlanState.ERRORED
    assert "step 2" in (result.plan.error or "")
    assert result.failed_run is not None
    assert (result.failed_run.exit_code, result.failed_run.output) == (3, "why\n")
    assert files(workshop.sandbox(plan)) == {"version.txt": "2\n"}
    assert result.failure_group is not None
    assert result.failure_group.triggers == ("on_error",)
    # The failed state can be had again.
    opened = workshop.open()
    opened.rollback(plan.plan_id, opened.store.checkpoints.of_group(result.failure_group.group_id)[0].checkpoint_id)
    assert files(workshop.sandbox(plan)) == {"version.txt": "broken\n"}


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ({"on_failure": "keep"}, "broken\n"),
        ({"on_failure": "rollback_to_start"}, "1\n"),
        ({"rollback_enabled": False}, "broken\n"),
        ({"auto_create_on": []}, "broken\n"),
    ],
)
def test_the_policy_says_what_a_failure_leaves(workshop: Workshop, policy: dict, left: str) -> None:
    plan = workshop.create(run("echo 2 > version.txt"), run("echo broken > version.txt; exit 1"), policy=policy)
    result = workshop.open().execute(plan.plan_id)
    assert result.plan.state is PlanState.ERRORED
    assert files(workshop.sandbox(plan)) == {"version.txt": left}


def test_executing_an_errored_plan_goes_on_at_the_failed_step(workshop: Workshop) -> None:
    plan = workshop.create(run("echo one >> log"), run("test -e allowed"), run("echo three >> log"))
    assert not workshop.open().execute(plan.plan_id).succeeded
    (workshop.sandbox(plan) / "allowed").touch()
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan))["log"] == "one\nthree\n"


def test_executing_a_complete_plan_changes_nothing(workshop: Workshop) -> None:
    plan = workshop.create(run("echo one >> log"))
    workshop.open().execute(plan.plan_id)
    before = workshop.groups(plan)
    assert workshop.open().execute(plan.plan_id).succeeded
    assert workshop.groups(plan) == before
    assert files(workshop.sandbox(plan))["log"] == "one\n"


def test_a_step_is_tried_again_exactly_as_often_as_asked_each_time_from_a_clean_state(workshop: Workshop) -> None:
    # The count is outside of the sandboxes, so that going back does not take it back.
    count = workshop.outside / "count"
    plan = workshop.create(run(f"echo x >> {count}; echo dirt >> log; exit 1", retries=2))
    result = workshop.open().execute(plan.plan_id)
    assert count.read_text() == "x\n" * 3
    assert not result.succeeded
    assert "log" not in files(workshop.sandbox(plan))
    runs = workshop.open().store.runs.of(plan.plan_id)
    assert [(each.try_number, each.status) for each in runs] == [(number, RunStatus.FAILED) for number in (1, 2, 3)]


def test_a_retry_that_succeeds_lets_the_plan_go_on(workshop: Workshop) -> None:
    flag = workshop.outside / "flag"
    command = f"echo dirt >> log; test -e {flag} && exit 0; touch {flag}; exit 1"
    plan = workshop.create(run(command, retries=1), run("cat log", writes=False))
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan))["log"] == "dirt\n"


def test_validation_decides_whether_the_result_stands(workshop: Workshop) -> None:
    plan = workshop.create(run("echo 2 > version.txt"), validate=["grep -q 2 version.txt", "echo no; test -e missing"])
    result = workshop.open().execute(plan.plan_id)
    assert result.plan.state is PlanState.ERRORED
    assert result.failed_run is not None
    assert result.failed_run.output == "no\n"
    verdicts = [d for d in workshop.open().decisions(plan.plan_id) if d.type is DecisionType.VALIDATION_RESPONSE]
    assert [verdict.chosen for verdict in verdicts] == ["yes", "no"]
    (workshop.sandbox(plan) / "missing").touch()
    assert workshop.open().execute(plan.plan_id).succeeded


def test_what_happens_is_told_in_order(workshop: Workshop) -> None:
    plan = workshop.create(run("echo hello"), validate=["true"])
    told: list[Event] = []
    workshop.open().execute(plan.plan_id, listener=told.append)
    kinds = [type(event) for event in told if isinstance(event, StepStarted | StepPrinted | StepFinished | Validating)]
    assert kinds == [StepStarted, StepPrinted, StepFinished, Validating, StepStarted, StepFinished]
    taken = [event for event in told if isinstance(event, CheckpointTaken)]
    assert [event.group for event in taken] == workshop.groups(plan)


def test_a_step_sees_its_place_and_not_our_secrets(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    monkeypatch.setenv("LC_TIME", "C")
    plan = workshop.create(run("env > seen"))
    workshop.open().execute(plan.plan_id)
    seen = dict(line.partition("=")[::2] for line in files(workshop.sandbox(plan))["seen"].splitlines())
    assert seen["HOLDFAST_PLAN_ID"] == plan.plan_id
    assert seen["HOLDFAST_STEP"] == "0"
    assert seen["HOLDFAST_RESOURCE_DATA"] == str(workshop.data)
    assert seen["LC_TIME"] == "C"
    assert "SECRET_TOKEN" not in seen


def test_a_variable_that_the_user_lists_reaches_the_step(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    plan = workshop.create(run('printf "%s" "$SECRET_TOKEN" > seen'))
    workshop.open(sandbox__pass_env="PATH,SECRET_*").execute(plan.plan_id)
    assert files(workshop.sandbox(plan))["seen"] == "hush"


def test_every_step_finds_its_temporary_folder_empty(workshop: Workshop) -> None:
    plan = workshop.create(run('echo x > "$TMPDIR/left"'), run('ls -A "$TMPDIR" > seen'))
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan))["seen"] == ""


def test_cancelling_stops_the_step_and_the_plan_can_go_on(workshop: Workshop) -> None:
    plan = workshop.create(run("echo half > half; sleep 60"), run("echo done > done"))
    cancelled = threading.Event()

    def stop(event: Event) -> None:
        if isinstance(event, StepStarted):
            cancelled.set()

    result = workshop.open().execute(plan.plan_id, listener=stop, cancelled=cancelled)
    assert result.plan.state is PlanState.CANCELLED
    (workshop.sandbox(plan) / "half").write_text("half")
    steps = workshop.steps_file(run("test ! -e half"), run("echo done > done"))
    opened = workshop.open()
    decision = next(d for d in opened.decisions(plan.plan_id) if d.step_index == 0)
    opened.correct(decision.decision_id, guidance="do not sleep", steps_file=steps)
    assert workshop.open().execute(plan.plan_id).succeeded


@pytest.mark.parametrize("path", ["f", "new/deep/f"])
def test_a_step_that_writes_a_file_is_not_scanned_as_a_whole_even_if_it_makes_directories(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    plan = workshop.create({"tool": "write_file", "args": {"path": path, "content": "1"}}, run("true"))
    scans: list[Scan] = []
    seen: list[int] = []
    scan_everything = Scan.scan_everything
    monkeypatch.setattr(Scan, "scan_everything", lambda scan: (scans.append(scan), scan_everything(scan)))

    def listen(event: Event) -> None:
        if isinstance(event, StepStarted | StepFinished):
            seen.append(len(scans))

    result = workshop.open().execute(plan.plan_id, listener=listen)
    assert result.succeeded
    assert seen[0] == seen[1]
    assert (workshop.sandbox(plan) / path).read_text() == "1"


def test_a_plan_that_is_stopped_between_two_steps_starts_no_other(workshop: Workshop) -> None:
    plan = workshop.create({"tool": "write_file", "args": {"path": "one", "content": "1"}}, run("echo 2 > two"))
    cancelled = threading.Event()

    def stop(event: Event) -> None:
        if isinstance(event, StepFinished):
            cancelled.set()

    result = workshop.open().execute(plan.plan_id, listener=stop, cancelled=cancelled)
    assert (result.plan.state, result.plan.last_completed_step) == (PlanState.CANCELLED, 0)
    assert "two" not in files(workshop.sandbox(plan))
    assert workshop.open().execute(plan.plan_id).succeeded


def test_an_interrupted_step_starts_again_from_the_state_before_it(workshop: Workshop) -> None:
    gate = workshop.outside / "gate"
    plan = workshop.create(run(f"echo x >> log; test -e {gate} || sleep 60"))
    cancelled = threading.Event()
    result = workshop.open().execute(
        plan.plan_id, listener=lambda event: _stop_when_started(event, cancelled), cancelled=cancelled
    )
    assert result.plan.state is PlanState.CANCELLED
    gate.touch()
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan))["log"] == "x\n"


def _stop_when_started(event: Event, cancelled: threading.Event) -> None:
    if isinstance(event, StepStarted):
        cancelled.set()


class _Boom(BaseModel):
    pass


class _Raising:
    declaration = ToolDeclaration(name="raising", args=_Boom)

    def run(self, args: _Boom, context: ToolContext) -> ToolResult:
        (context.root / "trace").write_text("was here")
        raise ValueError("no good")


def test_a_tool_that_raises_is_a_failed_step(workshop: Workshop) -> None:
    opened = workshop.open()
    opened.tools.register(_Raising())
    plan = opened.create_plan(workshop.plan_file({"tool": "raising"}))
    result = opened.execute(plan.plan_id)
    assert result.plan.state is PlanState.ERRORED
    assert "ValueError: no good" in (result.plan.error or "")
    assert "trace" not in files(workshop.sandbox(plan))


def test_a_write_never_happens_unprotected(workshop: Workshop) -> None:
    """If the checkpoint before a step cannot be taken, the step does not run."""
    plan = workshop.create(run("echo 2 > version.txt"), run("echo 3 > version.txt; touch reached"))
    opened = workshop.open()

    def break_the_store(event: Event) -> None:
        if isinstance(event, StepFinished) and event.index == 0:
            (workshop.sandbox(plan) / "to be kept").write_text("by somebody else\n")
            opened.service.manager.objects.close()

    with pytest.raises(Exception, match="closed"):
        opened.execute(plan.plan_id, listener=break_the_store)
    assert not (workshop.sandbox(plan) / "reached").exists()


def test_a_writing_tool_that_cannot_be_checkpointed_is_refused_unless_the_policy_allows_it(workshop: Workshop) -> None:
    step = run("true", checkpointable=False)
    with pytest.raises(StateError, match="no checkpoint can hold"):
        workshop.create(step)
    assert workshop.create(step, policy={"require_checkpoints": False}).plan_id


def test_problems_of_tools_are_named_with_their_line(workshop: Workshop) -> None:
    with pytest.raises(PlanFileError) as caught:
        workshop.create({"tool": "edit_fil"}, {"tool": "write_file", "args": {"path": "x"}})
    assert "edit_file" in caught.value.message
    assert 'the argument "content" is missing' in caught.value.message
    assert workshop.open().list_plans() == []


def test_a_resource_that_is_no_repository_is_refused_and_nothing_is_recorded(
    workshop: Workshop, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    with pytest.raises(SandboxError, match="not a git repository"):
        workshop.create(run("true"), resources={"app": {"type": "git", "path": "plain"}})
    assert workshop.open().list_plans() == []


@pytest.fixture
def two_steps(workshop: Workshop) -> str:
    return workshop.create(run("echo a > a"), run("echo b > b")).plan_id


def test_a_sandbox_that_something_removed_is_made_anew_from_its_checkpoint(workshop: Workshop, two_steps: str) -> None:
    import shutil

    plan = workshop.open().execute(two_steps).plan
    opened = workshop.open()
    opened.rollback(two_steps, opened.checkpoints(two_steps)[-3].checkpoint.checkpoint_id)
    shutil.rmtree(workshop.sandbox(plan))
    assert workshop.open().execute(two_steps).succeeded
    assert files(workshop.sandbox(plan)) == {"a": "a\n", "b": "b\n", "version.txt": "1\n"}
