"""``holdfast guard``: the resident process that records what happens in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from holdfast.cli.invocation import Invocation, LazyGroup, command, with_common_options
from holdfast.cli.output import Next, Reply, Screen, show_facts, show_next, show_table
from holdfast.guard import asking
from holdfast.names import name_text

_COMMANDS = {
    "start": ("guard:start", "Record everything that is written in this folder."),
    "stop": ("guard:stop", "End the guard of this folder."),
    "status": ("guard:status", "Show whether a guard is there, and what it does."),
    "list": ("guard:list_guards", "List the guards of all folders."),
}
_EXAMPLES = (
    ("holdfast guard start", "From now on you can undo what you, or a script, write here."),
    ("holdfast guard status", "Whether a guard is there."),
)


@click.group("guard", cls=LazyGroup, table=_COMMANDS, examples=_EXAMPLES)
@with_common_options
def group() -> None:
    """Record what happens in your folder.

    The hooks of an agent start the guard by themselves. Started here, it also takes a checkpoint whenever something was
    written and then nothing for a moment, so that `holdfast undo` works for a person or a script as well.
    """


@command(
    "start",
    examples=(
        ("holdfast guard start", "Record what is written in this project."),
        ("holdfast guard start --project .", "The same, with the folder named."),
    ),
)
def start(invocation: Invocation) -> Reply:
    """Record everything that is written in this folder, until `guard stop` or until nothing happened for 30 minutes."""
    with invocation.opened() as holdfast:
        holdfast.in_place.begin_own()
        found = asking.start(holdfast.home, holdfast.project_root)

    def show(screen: Screen) -> None:
        screen.line(("Recording ", "good"), name_text(found["folder"]), f", process {found['pid']}.")
        commands = [("undo", "holdfast undo"), ("timeline", "holdfast log"), ("stop", "holdfast guard stop")]
        show_next(screen, [Next(*each) for each in commands])

    return Reply(found, show)


@command(
    "stop",
    examples=(
        ("holdfast guard stop", "End the guard of this folder."),
        ("holdfast guard stop --project .", "The same, with the folder named."),
    ),
)
def stop(invocation: Invocation) -> Reply:
    """End the guard of this folder. What it recorded stays; the next hook of an agent starts it again."""
    with invocation.opened() as holdfast:
        was_there = asking.stop(holdfast.home, holdfast.project_root)
        folder = str(holdfast.project_root)
    text = "Stopped." if was_there else f"No guard is there for {name_text(folder)}."
    return Reply({"folder": folder, "was_running": was_there}, lambda screen: screen.line(text))


@command(
    "status",
    only_looks=True,
    examples=(
        ("holdfast guard status", "Whether a guard is there for this folder."),
        ("holdfast guard status --format json", "The same for a program."),
    ),
)
def status(invocation: Invocation) -> Reply:
    """Show whether a guard is there for this folder, and what it does."""
    with invocation.opened() as holdfast:
        folder = holdfast.project_root
        found = asking.status_of(holdfast.home, folder)

    def show(screen: Screen) -> None:
        if found is None:
            screen.line(f"No guard is there for {name_text(str(folder))}.")
            show_next(screen, [Next("start it", "holdfast guard start")])
            return
        show_facts(screen, _facts(found))

    return Reply({"folder": str(folder), "running": found is not None, **(found or {})}, show)


def _facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    what = "everything that is written" if found["records_writes"] else "what agents do"
    return [
        ("folder", name_text(found["folder"])),
        ("process", str(found["pid"])),
        ("records", what),
        ("agents", ", ".join(found["agents"]) or "none yet"),
        ("idle for", f"{found['idle_seconds']} s"),
    ]


@command(
    "list",
    only_looks=True,
    examples=(
        ("holdfast guard list", "The guards of all folders."),
        ("holdfast guard list --format json", "The same for a program."),
    ),
)
def list_guards(invocation: Invocation) -> Reply:
    """List the guards of all folders."""
    with invocation.opened() as holdfast:
        folders = {plan.resources[0].path for plan in holdfast.plans_newest_first(everywhere=True) if plan.is_session}
        found = list(asking.running(holdfast.home, map(Path, sorted(folders))))

    def show(screen: Screen) -> None:
        if not found:
            screen.line("No guard is there.")
        show_table(screen, [[name_text(each["folder"]), str(each["pid"])] for each in found], flexible=0)

    return Reply({"guards": found}, show)
