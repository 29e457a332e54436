"""What steps did outside of the sandboxes is undone by their own commands when a rollback undoes the steps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.errors import PlanFileError, SandboxError, StateError
from holdfast.events import Compensating, Event
from holdfast.model import OperationKind, Plan, PlanState, RollbackResult
from tests.support.workshop import Died, Workshop, files, run


@pytest.fixture
def plan(workshop: Workshop) -> Plan:
    """Three steps; two do something outside and say how it is undone."""
    log = workshop.outside / "log"
    made = workshop.create(
        run(f"echo 1 > one; echo do 1 >> {log}", name="first", side_effects=True, compensate=f"echo undo 1 >> {log}"),
        run("echo 2 > two"),
        run(
            f"echo 3 > three; echo do 3 >> {log}",
            name="third",
            side_effects=True,
            compensate={"tool": "shell", "args": {"command": f"cat three > /dev/null && echo undo 3 >> {log}"}},
        ),
    )
    return workshop.open().execute(made.plan_id).plan


def log(workshop: Workshop) -> list[str]:
    return (workshop.outside / "log").read_text().splitlines()


def first_checkpoint(opened: Holdfast, plan: Plan) -> str:
    return opened.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id


def test_a_rollback_undoes_the_last_first_while_their_files_are_still_there(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    result = opened.rollback(plan.plan_id, first_checkpoint(opened, plan))
    assert isinstance(result, RollbackResult)
    assert log(workshop) == ["do 1", "do 3", "undo 3", "undo 1"]
    assert files(workshop.sandbox(plan)) == {"version.txt": "1\n"}
    assert [each.step for each in result.impact.compensated] == ["third", "first"]
    assert result.impact.side_effects_not_undone == ()


def test_only_steps_that_are_undone_are_compensated(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    before_second = next(
        each.checkpoint.checkpoint_id for each in opened.checkpoints(plan.plan_id) if each.group.step_index == 1
    )
    opened.rollback(plan.plan_id, before_second)
    assert log(workshop) == ["do 1", "do 3", "undo 3"]


def test_a_step_that_never_ran_is_not_compensated_because_a_validation_ran_in_its_place(workshop: Workshop) -> None:
    made = workshop.create(run("echo 1 > one"), validate=["test -e one"])
    opened = workshop.open()
    opened.execute(made.plan_id)
    never_ran = run("true", name="test -e one", side_effects=True, compensate=f"echo undo >> {workshop.outside}/log")
    decision = opened.decisions(made.plan_id)[-1].decision_id
    opened.correct(decision, guidance="more", mode="append", steps_file=workshop.steps_file(never_ran))
    result = opened.rollback(made.plan_id, first_checkpoint(opened, made))
    assert isinstance(result, RollbackResult)
    assert not (workshop.outside / "log").exists()
    assert (result.impact.compensated, result.impact.side_effects_not_undone) == ((), ())


def test_a_dry_run_says_what_would_be_undone_and_undoes_nothing(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    preview = opened.rollback_preview(plan.plan_id, first_checkpoint(opened, plan))
    assert [(each.step, each.note) for each in preview.expected.impact.compensated] == [
        ("third", "to be done"),
        ("first", "to be done"),
    ]
    assert log(workshop) == ["do 1", "do 3"]


def test_undoing_the_rollback_says_which_effects_stay_undone(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    result = opened.rollback(plan.plan_id, first_checkpoint(opened, plan))
    assert isinstance(result, RollbackResult)
    assert result.impact.effects_gone == ()
    undone = opened.rollback(plan.plan_id, result.left_group_id or "")
    assert isinstance(undone, RollbackResult)
    assert [(each.step, each.note) for each in undone.impact.effects_gone] == [("first", "done"), ("third", "done")]


def test_a_compensation_that_fails_is_told_and_does_not_stop_the_rollback(workshop: Workshop) -> None:
    made = workshop.create(run("echo 1 > one", name="send", side_effects=True, compensate="echo no luck; exit 5"))
    opened = workshop.open()
    opened.execute(made.plan_id)
    result = opened.rollback(made.plan_id, first_checkpoint(opened, made))
    assert isinstance(result, RollbackResult)
    [effect] = result.impact.side_effects_not_undone
    assert (effect.step, effect.note) == ("send", "failed: the command ended with exit code 5")
    assert files(workshop.sandbox(made)) == {"version.txt": "1\n"}


def test_a_correction_compensates_as_well(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    third = next(each for each in opened.decisions(plan.plan_id) if each.step_index == 2)
    opened.correct(third.decision_id, guidance="do not send it")
    assert log(workshop) == ["do 1", "do 3", "undo 3"]


def test_going_back_to_the_start_after_a_failure_compensates(workshop: Workshop) -> None:
    log_file = workshop.outside / "log"
    made = workshop.create(
        run(f"echo do >> {log_file}", side_effects=True, compensate=f"echo undo >> {log_file}"),
        run("false"),
        policy={"on_failure": "rollback_to_start"},
    )
    workshop.open().execute(made.plan_id)
    assert log(workshop) == ["do", "undo"]


def test_a_request_to_stop_lets_a_compensation_come_to_its_end(workshop: Workshop) -> None:
    log_file, stop = workshop.outside / "log", threading.Event()
    made = workshop.create(
        run(f"echo do >> {log_file}", side_effects=True, compensate=f"sleep 0.5; echo undo >> {log_file}"),
        run("false"),
        policy={"on_failure": "rollback_to_start"},
    )

    def listen(event: Event) -> None:
        if isinstance(event, Compensating):
            stop.set()

    result = workshop.open().execute(made.plan_id, listener=listen, cancelled=stop)
    assert log(workshop) == ["do", "undo"]
    [effects] = result.effects
    assert [each.note for each in effects.compensated] == ["done"]


def test_a_rollback_killed_while_it_compensates_does_not_undo_anything_twice(workshop: Workshop) -> None:
    log_file, started = workshop.outside / "log", workshop.outside / "started"
    made = workshop.create(
        run("true", name="first", side_effects=True, compensate=f"echo undo 1 >> {log_file}"),
        run(
            "true",
            name="second",
            side_effects=True,
            compensate=f"echo undo 2 >> {log_file}; touch {started}; sleep 60",
        ),
        run("true", name="third", side_effects=True, compensate=f"echo undo 3 >> {log_file}"),
    )
    opened = workshop.open()
    opened.execute(made.plan_id)
    target = first_checkpoint(opened, made)
    words = [sys.executable, "-m", "holdfast", "--home", str(workshop.home), "plan", "rollback", "--yes"]
    process = subprocess.Popen([*words, made.plan_id, target], cwd=workshop.app, stdout=subprocess.DEVNULL)
    _wait_for(started, process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    result = workshop.open().rollback(made.plan_id, target)
    assert isinstance(result, RollbackResult)
    assert log(workshop) == ["undo 3", "undo 2", "undo 1"]
    notes = {each.step: each.compensation for each in workshop.open().store.runs.of(made.plan_id)}
    assert notes == {
        "first": "done",
        "second": "begun; whether it was done is not known",
        "third": "done",
    }


def _wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)


@pytest.mark.parametrize("next_verb", ["apply", "execute"])
def test_a_rollback_that_fails_after_compensating_is_finished_by_the_next_command(
    workshop: Workshop, plan: Plan, next_verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = workshop.open()
    with monkeypatch.context() as patched:
        patched.setattr(opened.service.manager, "restore", _refused)
        with pytest.raises(SandboxError, match="Operation not permitted") as refusal:
            opened.rollback(plan.plan_id, first_checkpoint(opened, plan))
    assert "step 1 (first): done" in refusal.value.message
    assert "step 3 (third): done" in refusal.value.message
    assert "finishes the rollback first" in refusal.value.hint
    assert opened.status(plan.plan_id).cut_short == (OperationKind.ROLLBACK,)
    if next_verb == "apply":
        with pytest.raises(StateError, match="queued"):
            workshop.open().apply(plan.plan_id)
        assert files(workshop.sandbox(plan)) == {"version.txt": "1\n"}
        assert log(workshop) == ["do 1", "do 3", "undo 3", "undo 1"]
    else:
        assert workshop.open().execute(plan.plan_id).succeeded
        assert log(workshop) == ["do 1", "do 3", "undo 3", "undo 1", "do 1", "do 3"]


def test_a_rollback_that_fails_and_had_nothing_to_compensate_is_put_back(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = workshop.create(run("echo 1 > one"))
    opened = workshop.open()
    opened.execute(made.plan_id)
    whole, calls = opened.service.manager.restore, []

    def refused_once(*words: Any, **options: Any) -> Any:
        calls.append(words)
        return _refused() if len(calls) == 1 else whole(*words, **options)

    with monkeypatch.context() as patched:
        patched.setattr(opened.service.manager, "restore", refused_once)
        with pytest.raises(SandboxError, match="Operation not permitted"):
            opened.rollback(made.plan_id, first_checkpoint(opened, made))
    assert opened.status(made.plan_id).cut_short == ()
    assert opened.find_plan(made.plan_id).state is PlanState.COMPLETE


def _refused(*_: Any, **__: Any) -> Any:
    raise SandboxError("Restoring the sandbox failed: Operation not permitted.", hint="Check its permissions.")


def test_a_compensation_that_is_no_call_is_refused_with_its_place(workshop: Workshop) -> None:
    with pytest.raises(PlanFileError, match='unknown argument "comand"'):
        workshop.create(run("true", compensate={"tool": "shell", "args": {"comand": "true"}}))
    with pytest.raises(PlanFileError, match="expected a mapping, found a list"):
        workshop.create(run("true", compensate=["true"]))


@pytest.mark.parametrize("dies_in", ["keep_present", "_restore_and_record"])
def test_killed_around_compensating_a_step_is_never_done_with_its_effect_undone(
    workshop: Workshop, dies_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right before it is sure that the step is undone, and right after its effect was."""
    log_file, flag = workshop.outside / "log", workshop.outside / "flag"
    plan = workshop.create(
        run(
            f"echo 1 > one; echo do >> {log_file}",
            name="first",
            side_effects=True,
            compensate=f"echo undo >> {log_file}",
        ),
        run(f"test -e {flag}"),
        policy={"on_failure": "rollback_to_start"},
    )
    opened = workshop.open()

    def die(*_: object, **__: object) -> None:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(opened.service.rollback, dies_in, die)
        with pytest.raises(Died):
            opened.execute(plan.plan_id)
    flag.touch()
    assert workshop.open().execute(plan.plan_id).succeeded
    done = log(workshop)
    assert done in (["do"], ["do", "undo", "do"])
    assert files(workshop.sandbox(plan))["one"] == "1\n"


def test_what_is_decided_while_a_step_is_compensated_is_superseded_with_the_step(workshop: Workshop) -> None:
    deciding = 'c.record_decision(type="implementation_choice", question="?", chosen="!")'
    undoing = f"echo 'def step(c): {deciding}' > undo.py"
    compensate = {"tool": "python", "args": {"callable": "undo:step"}}
    opened = workshop.open()
    plan = opened.execute(workshop.create(run(undoing, side_effects=True, compensate=compensate)).plan_id).plan
    result = opened.rollback(plan.plan_id, first_checkpoint(opened, plan))
    assert isinstance(result, RollbackResult)
    assert [each.note for each in result.impact.compensated] == ["done"]
    assert [each.is_superseded for each in opened.decisions(plan.plan_id) if each.chosen == "!"] == [True]
