"""The programs of ``holdfast run`` that an execution would start, and whether what they were given is still there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast.errors import ConfigError, StateError
from holdfast.execution.standing import AfterInterruption, Choices
from holdfast.model import Plan, Step
from holdfast.names import name_text
from holdfast.process.environment import unset_variables


def programs_to_start(plan: Plan, choices: Choices) -> tuple[Step, ...]:
    """The programs among the steps that remain. A step that is skipped is not one of them."""
    is_skipped = choices.interrupted_step is AfterInterruption.SKIP
    return tuple(step for step in plan.steps[plan.next_step + is_skipped :] if step.is_program)


def refuse_what_is_gone(
    plan: Plan,
    programs: Sequence[Step],
    environment: Mapping[str, str],
    allowed_paths: Callable[[Sequence[str]], Sequence[Path]],
) -> None:
    """Refuse to start programs without a variable, or a place to write to, that they were given when they were made."""
    for step in programs:
        given = step.run_settings
        if given is None:
            continue
        if unset := unset_variables(given.pass_env, environment):
            listed = ", ".join(map(name_text, unset))
            raise StateError(
                f"The variable {listed} is not set now, but this program was given it: {name_text(step.name)}. "
                "Nothing was started.",
                hint=f"Set and export it, then run the command again. {_otherwise(plan)}",
            )
        try:
            allowed_paths(given.allow_write)
        except ConfigError as error:
            raise StateError(
                f"{error.message} This program was allowed to write there: {name_text(step.name)}. "
                "Nothing was started.",
                hint=f"Put it back, then run the command again. {_otherwise(plan)}",
            ) from error


def _otherwise(plan: Plan) -> str:
    return f"`holdfast run --in {plan.plan_id} --pass-env NAME -- COMMAND` goes on with only what you name."
