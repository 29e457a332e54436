"""``holdfast plan``: make plans, run them, look at them, go back, correct, apply."""

from __future__ import annotations

import click

from holdfast.cli.invocation import LazyGroup, with_common_options

_COMMANDS = {
    "create": ("plan.create:create", "Make a plan from a file, without running it."),
    "execute": ("plan.execute:execute", "Run a plan, or go on with it."),
    "resume": ("plan.resume:resume", "Go on after a crash, a kill, a failure or a cancel."),
    "cancel": ("plan.cancel:cancel", "Stop a plan; it can go on later."),
    "delete": ("plan.delete:delete", "Forget a plan, its sandboxes and its checkpoints."),
    "status": ("plan.status:status", "Where a plan stands."),
    "list": ("plan.list:list_plans", "The plans of this project, newest first."),
    "rollback": ("plan.rollback:rollback", "Go back to a checkpoint, or restore single files of it."),
    "correct": ("plan.correct:correct", "Undo a decision and go on differently."),
    "tree": ("plan.tree:tree", "The decisions of a plan as a tree."),
    "explain": ("plan.explain:explain", "One decision: why, what it changed, what depends on it."),
    "log": ("log:log", "The timeline of a plan as a graph."),
    "diff": ("plan.diff:diff", "What a plan changed."),
    "apply": ("plan.apply:apply", "Bring a plan's result into your files."),
    "unapply": ("plan.unapply:unapply", "Take an apply back."),
    "schema": ("plan.schema:schema", "The JSON Schema of plan files."),
}


@click.group("plan", cls=LazyGroup, table=_COMMANDS)
@with_common_options
def group() -> None:
    """Make plans, run them, go back, correct, apply.

    PLAN_ID is a plan's id, a unique beginning of it, or `latest`: the newest plan of this project.
    """
