"""``holdfast agents``: install the hooks of coding agents, take them out, and see whether they run."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.agents.installation.agents import AGENTS
from holdfast.agents.installation.files import Action, FileChange
from holdfast.agents.installation.installing import Installed, install, uninstall
from holdfast.agents.installation.place import Place, Scope
from holdfast.agents.installation.plugin import plugin_files, write_plugin
from holdfast.agents.installation.program import HookProgram
from holdfast.agents.installation.status import AgentStatus, State, statuses
from holdfast.cli.invocation import PROGRAM, Invocation, LazyGroup, NamedPath, command, with_common_options
from holdfast.cli.output import NOTHING_CHANGED, Next, Reply, Screen, Span, show_next, time_text
from holdfast.config.loading import home_directory
from holdfast.errors import EXIT_STEP_FAILED, UsageError
from holdfast.guard.location import client_words
from holdfast.guard.seen import last_seen
from holdfast.names import name_text

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from holdfast import Holdfast

_COMMANDS = {
    "install": ("agents:install_hooks", "Let agents tell Holdfast what they do."),
    "uninstall": ("agents:uninstall_hooks", "Take the hooks out again."),
    "status": ("agents:status", "See whether the hooks of each agent run."),
}
_EXAMPLES = (
    ("holdfast agents install claude-code", "Every tool call of Claude Code can be undone from now on."),
    ("holdfast agents status", "Which agents tell Holdfast what they do."),
)
_STYLES = {State.INSTALLED: "good", State.OUTDATED: "warn", State.BROKEN: "bad", State.ABSENT: "dim"}


@click.group("agents", cls=LazyGroup, table=_COMMANDS, examples=_EXAMPLES)
@with_common_options
def group() -> None:
    """Install hooks, by which coding agents that work directly in your folders tell Holdfast what they do.

    Then each prompt and each tool call is a point that `holdfast undo` can go back to. The agents are claude-code,
    codex, gemini-cli and opencode.
    """


def _complete_agent(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in AGENTS if name.startswith(incomplete)]


_agents_argument = click.argument("agents", nargs=-1, metavar="[AGENT]...", shell_complete=_complete_agent)
_dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be changed.")


def _scope_option(default: str) -> Callable[[Callable[..., Reply]], Callable[..., Reply]]:
    return click.option(
        "--scope",
        type=click.Choice([each.value for each in Scope]),
        help=f"Whose hooks: those for all your folders, or those for this project; by default {default}.",
    )


def _program(holdfast: Holdfast) -> HookProgram:
    return HookProgram(client_words(), sys.executable, holdfast.settings.on_failure)


def _place(holdfast: Holdfast) -> Place:
    return Place(Path.home(), os.environ, holdfast.project_root, holdfast.home)


@command(
    "install",
    examples=(
        ("holdfast agents install", "For all agents that are on this machine."),
        ("holdfast agents install codex --trust", "Also tell codex that you trust these hooks."),
    ),
)
@_scope_option("those for all your folders")
@click.option("--trust", is_flag=True, help="Mark the hooks as trusted in codex, which runs no others.")
@click.option(
    "--plugin",
    type=NamedPath(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="For Claude Code: write a plugin into this folder, and change nothing else.",
)
@_dry_run_option
@_agents_argument
def install_hooks(
    invocation: Invocation,
    agents: tuple[str, ...],
    scope: str | None,
    trust: bool,
    plugin: Path | None,
    dry_run: bool,
) -> Reply:
    """Let agents tell Holdfast what they do: write hooks into their configuration, beside what is there.

    Without names, for all agents that are on this machine. A copy of each file is kept, and `holdfast agents uninstall`
    brings the file back as it was. Run it again after you have changed agents.on-failure, or moved Holdfast.
    """
    if trust and agents and "codex" not in agents:
        raise UsageError("--trust is for codex only.", hint="Name codex, or leave --trust out.")
    if plugin is not None and (agents != ("claude-code",) or scope is not None or trust):
        hint = f"Write `holdfast agents install claude-code --plugin {name_text(str(plugin))}`."
        raise UsageError("--plugin is for claude-code, and goes with no other option than --dry-run.", hint=hint)
    with invocation.opened() as holdfast:
        if plugin is not None:
            return _install_plugin(_program(holdfast), plugin, dry_run=dry_run)
        done = install(
            agents, Scope(scope or Scope.USER), _place(holdfast), _program(holdfast), trust=trust, dry_run=dry_run
        )
        messages = (*_untrusted(done), *_other_home(holdfast))

    def show(screen: Screen) -> None:
        _show_done(screen, done, dry_run=dry_run)
        if not dry_run:
            show_next(screen, (Next("see whether they run", "holdfast agents status"),))

    return Reply(_data(done, dry_run=dry_run), show, messages=messages)


def _install_plugin(program: HookProgram, folder: Path, *, dry_run: bool) -> Reply:
    beside = Path(sys.executable).with_name(PROGRAM)
    start = [str(beside)] if beside.exists() else [sys.executable, "-m", "holdfast"]
    files = plugin_files(program, [*start, "mcp"], version("holdfast"))
    if not dry_run:
        write_plugin(folder, files)
    data = {"dry_run": dry_run, "plugin": folder.absolute(), "files": [str(each) for each in files]}

    def show(screen: Screen) -> None:
        for each in files:
            screen.line(("A  ", "good"), name_text(str(folder / each)))
        if not dry_run:
            command = f"claude --plugin-dir {shlex.quote(str(folder))}"
            show_next(
                screen,
                (Next("check it", f"claude plugin validate {shlex.quote(str(folder))}"), Next("use it", command)),
            )

    return Reply(data, show)


def _untrusted(done: Sequence[Installed]) -> tuple[str, ...]:
    """What to do about an agent that will not run the hooks, although they are installed."""
    review = "Start codex, which asks you to review them, or run `holdfast agents install codex --trust`."
    is_needed = any(each.is_trusted is False for each in done)
    return (f"codex does not run hooks that you have not trusted. {review}",) if is_needed else ()


def _other_home(holdfast: Holdfast) -> tuple[str, ...]:
    usual = home_directory(os.environ)
    if usual == holdfast.home:
        return ()
    return (f"The hooks use {name_text(str(usual))}, unless HOLDFAST_HOME says otherwise where the agent is started.",)


@command(
    "uninstall",
    examples=(
        ("holdfast agents uninstall", "Of all agents."),
        ("holdfast agents uninstall codex --scope project", "Only those of codex for this project."),
    ),
)
@_scope_option("both")
@_dry_run_option
@_agents_argument
def uninstall_hooks(invocation: Invocation, agents: tuple[str, ...], scope: str | None, dry_run: bool) -> Reply:
    """Take the hooks out of the configuration of agents again.

    A file that was not changed since is again what it was, byte for byte; from any other, only the hooks are taken.
    """
    with invocation.opened() as holdfast:
        chosen = Scope(scope) if scope is not None else None
        done = uninstall(agents, chosen, _place(holdfast), _program(holdfast), dry_run=dry_run)
    return Reply(_data(done, dry_run=dry_run), lambda screen: _show_done(screen, done, dry_run=dry_run))


_SIGNS = {Action.ADDED: ("A  ", "good"), Action.UPDATED: ("M  ", "warn"), Action.REMOVED: ("D  ", "bad")}


def _show_done(screen: Screen, done: Sequence[Installed], *, dry_run: bool) -> None:
    changes = [(each, change) for each in done for change in each.changes if change.action in _SIGNS]
    for each, change in changes:
        screen.line(_SIGNS[change.action], each.title, "  ", name_text(str(change.path)), _note(change))
    for each in done:
        if all(change.action is Action.UNCHANGED for change in each.changes):
            screen.line("   ", each.title, "  ", (f"the hooks are in {name_text(str(each.changes[0].path))}", "dim"))
    if not done or (dry_run and changes):
        screen.line(NOTHING_CHANGED if done else f"There are no hooks of Holdfast. {NOTHING_CHANGED}")


def _note(change: FileChange) -> Span:
    if change.copy is not None:
        return f"  as it was: {name_text(str(change.copy))}", "dim"
    if change.action is Action.REMOVED:
        exactly = (
            "it is again what it was" if change.is_exact else "it was changed since, so only the hooks were taken out"
        )
        return f"  {exactly}", "dim"
    return ""


def _data(done: Sequence[Installed], *, dry_run: bool) -> dict[str, Any]:
    agents = [
        {
            "agent": each.agent,
            "scope": each.scope,
            "is_trusted": each.is_trusted,
            "changes": [
                {"path": change.path, "action": change.action, "copy": change.copy, "is_exact": change.is_exact}
                for change in each.changes
            ],
        }
        for each in done
    ]
    return {"dry_run": dry_run, "agents": agents}


@command(
    "status",
    only_looks=True,
    examples=(
        ("holdfast agents status", "All agents, in this folder."),
        ("holdfast agents status codex --format json", "One of them, for a program."),
    ),
)
@_agents_argument
def status(invocation: Invocation, agents: tuple[str, ...]) -> Reply:
    """See whether the hooks of agents are installed, what keeps them from running, and when they were last heard of.

    Exit code 1 if hooks are installed that cannot run.
    """
    with invocation.opened() as holdfast:
        seen = {agent: (each.at, each.event) for agent, each in last_seen(holdfast.home, holdfast.project_root).items()}
        found = statuses(agents, _place(holdfast), _program(holdfast), seen)
    data = {"agents": [_status_data(each) for each in found]}
    cannot_run = any(each.is_installed and each.obstacles for each in found)
    return Reply(data, lambda screen: _show_status(screen, found), EXIT_STEP_FAILED if cannot_run else 0)


def _status_data(status: AgentStatus) -> dict[str, Any]:
    return {
        "agent": status.agent,
        "program": status.program,
        "is_installed": status.is_installed,
        "places": [
            {"scope": each.scope, "path": each.path, "state": each.state, "obstacles": each.obstacles}
            for each in status.places
        ],
        "last_event_at": status.seen_at,
        "last_event": status.seen_event or None,
    }


def _show_status(screen: Screen, found: Sequence[AgentStatus]) -> None:
    for each in found:
        screen.line((each.title, "strong"), ("" if each.program else "  not on the path", "dim"))
        shown = [place for place in each.places if place.state is not State.ABSENT]
        for place in shown:
            screen.line(
                "  ",
                (place.state, _STYLES[place.state]),
                f"  for the {place.scope}  ",
                (name_text(str(place.path)), "dim"),
            )
            for obstacle in place.obstacles:
                screen.line("    ", (f"{obstacle}.", "bad"))
        if not shown:
            screen.line("  ", ("no hooks", "dim"))
        elif each.seen_at is not None:
            screen.line("  last heard of in this folder: ", time_text(each.seen_at), ("  " + each.seen_event, "dim"))
        else:
            screen.line("  not heard of in this folder yet")
