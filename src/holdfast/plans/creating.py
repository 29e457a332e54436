"""Creating plans, from a plan file or for one program, and reading new steps for a plan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.agents.grant import given_to, make_folders, refuse_reachable_daemons
from holdfast.config.keys import refuse_patterns
from holdfast.config.loading import Settings
from holdfast.errors import ConfigError, UsageError
from holdfast.execution.extras import places_of
from holdfast.execution.preflight import check_plan, check_steps
from holdfast.execution.view import same_path_refusal
from holdfast.model import CopyRules, Decision, Plan, Resource, ResourceType, Revision, RunSettings, Step, now
from holdfast.parts import Parts
from holdfast.planfile.program import program_draft, program_step
from holdfast.planfile.unstored import PlanDraft
from holdfast.plans.finding import project_root
from holdfast.process.confinement import allowed_paths
from holdfast.process.environment import passed_variables, refuse_unknown_program, refuse_what_cannot_be_passed
from holdfast.system.ids import new_id


def _copy_rules(draft: PlanDraft, include: Sequence[str], exclude: Sequence[str], settings: Settings) -> CopyRules:
    refuse_patterns("--include", include)
    refuse_patterns("--exclude", exclude)
    if (include or exclude) and not any(each.type is ResourceType.GIT for each in draft.resources):
        raise UsageError(
            "A folder that is not a git repository is always copied whole, without `--include` and `--exclude`.",
            hint="Leave them out.",
        )
    return settings.copy_rules(include, exclude)


def create_plan(
    file: Path | None, content: Mapping[str, Any], include: Sequence[str], exclude: Sequence[str], parts: Parts
) -> Plan:
    """From a file, or from the content that a file in the project's folder would have."""
    from holdfast.planfile import load_plan_file, plan_from

    defaults, check_step = parts.settings.policy, parts.tools.problems
    if file is None:
        draft = plan_from(content, parts.project_root, defaults=defaults, check_step=check_step)
    elif content:
        raise UsageError(
            "A plan comes either from a file or from values, not from both.",
            hint=f"Leave out either the file or {', '.join(content)}.",
        )
    else:
        draft = load_plan_file(file, defaults=defaults, check_step=check_step)
    return _created(draft, _copy_rules(draft, include, exclude, parts.settings), parts)


def create_program_plan(
    argv: Sequence[str],
    resources: Sequence[Path],
    folder: Path,
    settings: RunSettings,
    name: str | None,
    include: Sequence[str],
    exclude: Sequence[str],
    parts: Parts,
) -> Plan:
    settings = checked_settings(settings, parts)
    places = resources or (project_root(folder),)
    draft = program_draft(argv, places, folder, parts.settings.policy, settings, name, now())
    rules = _copy_rules(draft, include, exclude, parts.settings)
    (step,) = draft.steps
    root = next(each.path for each in draft.resources if each.name == step.resource)
    refuse_unknown_program(argv[0], _search_path(settings, parts), root / step.args["folder"], root)
    return _created(draft.model_copy(update={"steps": (_with_grant(step, settings.agent, parts),)}), rules, parts)


def _with_grant(step: Step, agent: str, parts: Parts) -> Step:
    """The step with what the profile of an agent gives its program; the folders that this one needs are made.

    ``agent``: the name of a profile, ``none``, or nothing for the one of the program.
    """
    argv, home = step.args["argv"], parts.home
    given = given_to(argv, agent or None, environment=parts.environment, user_home=parts.user_home, home=home)
    if given is None:
        return step
    make_folders(given.grant)
    refuse_reachable_daemons(given.grant, same_path_refusal())
    places = tuple(map(str, places_of(given.grant)))
    allowed_paths(places, user_home=parts.user_home, holdfast_home=home, origin=f"The agent {given.grant.title}")
    return step.model_copy(update={"args": {**step.args, "argv": list(given.argv)}, "granted": given.grant})


def create_program_step(argv: Sequence[str], plan: Plan, folder: Path, settings: RunSettings, parts: Parts) -> Step:
    """A step that runs a program in the sandboxes of a plan; it may be one that exists only there."""
    settings = checked_settings(settings, parts)
    folders = {each.name: Path(each.path) for each in plan.resources}
    step = program_step(argv, folders, folder, settings)
    root = Path(plan.resource(step.resource).sandbox_path)
    refuse_unknown_program(argv[0], _search_path(settings, parts), root / step.args["folder"], root)
    return _with_grant(step, settings.agent, parts)


def checked_settings(settings: RunSettings, parts: Parts) -> RunSettings:
    """The settings with the real paths of the places; refused if a variable is not set or a place not there."""
    refuse_what_cannot_be_passed(settings.pass_env, parts.environment)
    parts.allowed_paths()
    try:
        places = parts.asked_paths(settings.allow_write)
    except ConfigError as error:
        raise UsageError(error.message, hint=error.hint) from error
    return settings.model_copy(update={"allow_write": tuple(map(str, places))})


def _search_path(settings: RunSettings, parts: Parts) -> str:
    """The PATH that the program sees."""
    seen = passed_variables(parts.environment, (*parts.settings.pass_env, *settings.pass_env))
    return seen.get("PATH", os.defpath)


def _created(draft: PlanDraft, rules: CopyRules, parts: Parts) -> Plan:
    store = parts.store
    parts.refuse_read_only()
    plan_id = new_id()
    at = now()
    plan = Plan(
        plan_id=plan_id,
        project_id=store.plans.project_for(str(parts.project_root)).project_id,
        name=draft.name,
        resources=tuple(
            Resource(
                name=each.name,
                type=each.type,
                path=str(each.path),
                sandbox_path=str(parts.home / "sandboxes" / plan_id / each.name),
                copy_rules=rules,
            )
            for each in draft.resources
        ),
        policy=draft.policy,
        validation=draft.validation,
        steps=draft.steps,
        active_decisions=((1, 1),),
        source_file=str(draft.source_file or ""),
        store_id=parts.service.manager.objects.store_id,
        created_at=at,
        updated_at=at,
    )
    check_plan(plan, parts.tools, parts.home)
    with store.transaction():
        plan = plan.model_copy(update={"sequence": store.plans.next_sequence()})
        store.insert(plan)
        store.insert(Revision(plan_id=plan_id, revision=1, steps=plan.steps))
        store.insert(Decision.root_of(plan))
    return plan


def load_steps(file: Path, plan: Plan, parts: Parts) -> tuple[Step, ...]:
    """The steps of a file, checked against the resources of the plan and the tools."""
    from holdfast.planfile import load_steps_file

    names = [resource.name for resource in plan.resources]
    steps = load_steps_file(file, resources=names, check_step=parts.tools.problems)
    check_steps(plan.changed(steps=steps), parts.tools)
    return steps
