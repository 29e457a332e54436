"""``holdfast plan``: create, run, show, roll back, correct and apply plans."""

from __future__ import annotations

import click

from holdfast.cli.invocation import LazyGroup, with_common_options

_COMMANDS = {
    "create": ("plan.create:create", "Create a plan from a file, without running it."),
    "execute": ("plan.execute:execute", "Run a plan, or continue it."),
    "resume": ("plan.resume:resume", "Continue after a crash, a failure, a cancel or a conflict."),
    "cancel": ("plan.cancel:cancel", "Stop a plan; you can continue it later."),
    "delete": ("plan.delete:delete", "Delete plans, their sandboxes and their checkpoints."),
    "prune": ("plan.prune:prune", "Delete plans that are no longer needed."),
    "status": ("plan.status:status", "Show the state of a plan."),
    "list": ("plan.list:list_plans", "List the plans of this project, newest first."),
    "rollback": ("plan.rollback:rollback", "Roll back to a checkpoint, or restore single files."),
    "keep": ("plan.keep:keep", "Make a moment of a plan its complete result."),
    "correct": ("plan.correct:correct", "Undo a decision and continue differently."),
    "tree": ("plan.tree:tree", "Show the decisions of a plan as a tree."),
    "explain": ("plan.explain:explain", "Explain one decision: reasons, changes, dependents."),
    "log": ("log:log", "Show the timeline of a plan as a graph."),
    "diff": ("plan.diff:diff", "Show what a plan changed."),
    "apply": ("plan.apply:apply", "Bring a plan's result into your files."),
    "unapply": ("plan.unapply:unapply", "Undo an apply."),
    "schema": ("plan.schema:schema", "Print the JSON Schema of plan files."),
}


_EXAMPLES = (
    ("holdfast plan execute plan.yaml", "Make a plan of a file and run it."),
    ("holdfast plan status", "How the newest plan is; also `holdfast status`."),
)


@click.group("plan", cls=LazyGroup, table=_COMMANDS, examples=_EXAMPLES, aliases={"undo": "unapply"})
@with_common_options
def group() -> None:
    """Create, run, roll back, correct and apply plans.

    PLAN_ID is a plan's id, a unique prefix of it, or `latest`: the newest plan of this project. All of these commands
    also work without the word plan. `undo` is another word for `unapply`.
    """
