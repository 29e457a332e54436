"""Whether the hooks of agents really run: what is installed, what keeps it from running, and what was heard of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path

import msgspec

from holdfast.agents.installation.agents import AGENTS, CODEX, GEMINI_CLI, InstalledAgent, agent_named
from holdfast.agents.installation.gemini_trust import trusts_project
from holdfast.agents.installation.installing import find_program, is_trusted
from holdfast.agents.installation.json_text import BrokenText
from holdfast.agents.installation.place import Place, Scope
from holdfast.agents.installation.program import HookProgram
from holdfast.errors import ConfigError
from holdfast.names import name_text


class State(StrEnum):
    INSTALLED = "installed"
    OUTDATED = "outdated"
    """Installed, but not as this installation of Holdfast would do it now."""
    ABSENT = "absent"
    BROKEN = "broken"
    """The file cannot be read, also by the agent."""


class PlaceStatus(msgspec.Struct, frozen=True):
    """What is in one file of an agent."""

    scope: Scope
    path: Path
    state: State
    obstacles: tuple[str, ...] = ()
    """What keeps hooks that are installed from running."""


class AgentStatus(msgspec.Struct, frozen=True):
    agent: str
    title: str
    program: str | None
    """The program that starts it; None if it is not on the path."""
    places: tuple[PlaceStatus, ...]
    seen_at: datetime | None = None
    """When its hooks were last heard of in this folder."""
    seen_event: str = ""

    @property
    def is_installed(self) -> bool:
        return any(each.state in (State.INSTALLED, State.OUTDATED) for each in self.places)

    @property
    def obstacles(self) -> tuple[str, ...]:
        return tuple(obstacle for each in self.places for obstacle in each.obstacles)


def statuses(
    names: Sequence[str], place: Place, program: HookProgram, seen: Mapping[str, tuple[datetime, str]]
) -> list[AgentStatus]:
    """How it is with these agents, or with all; ``seen`` says when each was last heard of in this folder."""
    chosen = [agent_named(name) for name in names] or list(AGENTS.values())
    return [_status(each, place, program, *seen.get(each.name, (None, ""))) for each in chosen]


def _status(
    agent: InstalledAgent, place: Place, program: HookProgram, seen_at: datetime | None, seen_event: str
) -> AgentStatus:
    places = tuple(_at(agent, scope, place, program) for scope in Scope)
    return AgentStatus(agent.name, agent.title, find_program(agent, place), places, seen_at, seen_event)


def _at(agent: InstalledAgent, scope: Scope, place: Place, program: HookProgram) -> PlaceStatus:
    file = agent.file(scope, place, program)
    try:
        text = file.text() or ""
        complete = agent.is_complete(text, program)
        obstacle = agent.obstacle(text)
    except ConfigError as error:
        return PlaceStatus(scope, file.path, State.BROKEN, (error.message,))
    except BrokenText as error:
        reason = f"{name_text(str(file.path))}:{error.line} cannot be read by {agent.title}: {error.reason}"
        return PlaceStatus(scope, file.path, State.BROKEN, (reason,))
    if complete is None:
        return PlaceStatus(scope, file.path, State.ABSENT)
    obstacles = [obstacle] if obstacle else []
    if not os.access(program.client[0], os.X_OK):
        obstacles.append(f"{name_text(program.client[0])}, which the hooks start, cannot be executed")
    if agent is GEMINI_CLI and scope is Scope.PROJECT and not trusts_project(place):
        obstacles.append("gemini-cli does not trust this folder, so it ignores its hooks")
    if agent is CODEX and (not_trusted := _without_trust(file.path, place)):
        obstacles.append(not_trusted)
    return PlaceStatus(scope, file.path, State.INSTALLED if complete else State.OUTDATED, tuple(obstacles))


def _without_trust(hooks_file: Path, place: Place) -> str:
    trusted = is_trusted(hooks_file, place)
    if trusted is None:
        return "codex could not be asked whether it trusts the hooks; it does not run those that it does not trust"
    return "" if trusted else "codex does not trust these hooks, so it does not run them"
