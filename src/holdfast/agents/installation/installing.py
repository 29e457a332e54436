"""Installing the hooks of agents, and taking them out again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.agents.installation.agents import AGENTS, CODEX, InstalledAgent, agent_named, codex_folder
from holdfast.agents.installation.codex_trust import (
    TrustedHook,
    hooks_of_codex,
    keys_of_ours,
    with_trust,
    without_trust,
)
from holdfast.agents.installation.files import Action, ConfigFile, FileChange
from holdfast.agents.installation.place import Place, Scope
from holdfast.agents.installation.program import HookProgram
from holdfast.errors import NotFoundError, StateError


class Installed(msgspec.Struct, frozen=True):
    """What was done for one agent."""

    agent: str
    title: str
    scope: Scope
    changes: tuple[FileChange, ...]
    is_trusted: bool | None = None
    """Whether the agent will run the hooks; None if it asks for no trust, or was not asked."""


def find_program(agent: InstalledAgent, place: Place) -> str | None:
    """The program that the person starts; None if it is not on the path."""
    return shutil.which(agent.program, path=place.environment.get("PATH", os.defpath))


def install(
    names: Sequence[str],
    scope: Scope,
    place: Place,
    program: HookProgram,
    *,
    trust: bool = False,
    dry_run: bool = False,
) -> list[Installed]:
    """Install the hooks of these agents, or of all that are on this machine; nothing if one file cannot be edited."""
    chosen = [agent_named(name) for name in names] or [each for each in AGENTS.values() if find_program(each, place)]
    if not chosen:
        raise NotFoundError(
            "None of the agents with hooks is on this machine.",
            hint=f"Name one, to install its hooks all the same: {', '.join(AGENTS)}.",
        )
    files = {each.name: each.file(scope, place, program) for each in chosen}
    for file in files.values():
        file.install(dry_run=True)
    return [_installed(each, files[each.name], scope, place, trust=trust, dry_run=dry_run) for each in chosen]


def _installed(
    agent: InstalledAgent, file: ConfigFile, scope: Scope, place: Place, *, trust: bool, dry_run: bool
) -> Installed:
    changes = [file.install(dry_run=dry_run)]
    if agent is not CODEX or dry_run:
        return Installed(agent.name, agent.title, scope, tuple(changes))
    if trust:
        hooks = _hooks_to_trust(file.path, place)
        changes.append(_trust_file(scope, place, file, hooks).install())
    return Installed(agent.name, agent.title, scope, tuple(changes), is_trusted(file.path, place))


def is_trusted(hooks_file: Path, place: Place) -> bool | None:
    """Whether codex runs all our hooks in that file; None if it does not say."""
    hooks = _hooks_of_codex(hooks_file, place)
    return None if hooks is None else bool(hooks) and all(each.runs for each in hooks)


def _trust_file(scope: Scope, place: Place, hooks_file: ConfigFile, hooks: Sequence[TrustedHook]) -> ConfigFile:
    """codex keeps trust in the user's own configuration, also that in the hooks of a project."""
    keys = hooks_file.read(lambda text: keys_of_ours(hooks_file.path, text))
    return ConfigFile(
        codex_folder(Scope.USER, place) / "config.toml",
        place.home,
        added=lambda text: with_trust(text, hooks),
        cleared=lambda text, before: without_trust(text, keys, before),
        is_private=True,
        purpose=f"trust {scope}",
    )


def _hooks_of_codex(file: Path, place: Place) -> list[TrustedHook] | None:
    """Our hooks in that file; None if codex does not say."""
    program = find_program(CODEX, place)
    found = hooks_of_codex(program, place.project, place.environment) if program is not None else None
    return None if found is None else [each for each in found if each.key.startswith(f"{file}:")]


def _hooks_to_trust(file: Path, place: Place) -> list[TrustedHook]:
    found = _hooks_of_codex(file, place)
    if not found:
        raise StateError(
            "The hooks are installed, but codex does not list them, so nothing could be marked as trusted.",
            hint="Start codex in this folder and look at `/hooks`; a project's hooks count only in a trusted project.",
        )
    return found


def uninstall(
    names: Sequence[str],
    scope: Scope | None,
    place: Place,
    program: HookProgram,
    *,
    dry_run: bool = False,
) -> list[Installed]:
    """Take the hooks of these agents, or of all, out again: of the user and of the project if no scope is named."""
    chosen = [agent_named(name) for name in names] or list(AGENTS.values())
    found = []
    for agent in chosen:
        for each in [scope] if scope is not None else list(Scope):
            files = [agent.file(each, place, program)]
            if agent is CODEX:
                # First, because where our hooks are says which trust is in them.
                files.insert(0, _trust_file(each, place, files[0], ()))
            changes = tuple(
                change for file in files if (change := file.uninstall(dry_run=dry_run)).action is Action.REMOVED
            )
            if changes:
                found.append(Installed(agent.name, agent.title, each, changes))
    return found
