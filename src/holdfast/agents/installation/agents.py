"""What is written for each agent, and where."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from holdfast.agents.hooks.event import HookKind
from holdfast.agents.installation.files import ConfigFile
from holdfast.agents.installation.json_hooks import Hook, JsonHooks
from holdfast.agents.installation.json_text import BrokenText
from holdfast.agents.installation.place import Place, Scope
from holdfast.agents.installation.program import HookProgram, is_ours
from holdfast.errors import UsageError
from holdfast.names import did_you_mean, name_text


class _Limits(NamedTuple):
    """How long the agent waits, and how much sooner the client gives up and says so itself."""

    agent: int
    client: float


_TOOL, _OTHER = _Limits(60, 58), _Limits(30, 25)
_NAME = "holdfast"
"""Of our hooks, where hooks have names."""
_PLUGIN = Path(__file__).with_name("opencode.js")


class InstalledAgent(Protocol):
    """An agent that hooks can be installed for."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def program(self) -> str:
        """The command that starts it."""

    @property
    def path(self) -> Callable[[Scope, Place], Path]:
        """Where its hooks are."""

    def file(self, scope: Scope, place: Place, program: HookProgram) -> ConfigFile: ...

    def is_complete(self, text: str, program: HookProgram) -> bool | None:
        """Whether all our hooks are there, as they would be installed now; None if there are none."""

    def obstacle(self, text: str) -> str:
        """What in its settings keeps hooks from running; empty if nothing does."""


Events = Mapping[str, tuple[HookKind, _Limits]]


class _JsonAgent(msgspec.Struct, frozen=True, eq=False):
    """An agent whose hooks are in a JSON file."""

    name: str
    title: str
    program: str
    events: Events
    path: Callable[[Scope, Place], Path]
    hook: Callable[[str, HookKind, _Limits, HookProgram], Hook]
    """The hook of this agent, for an event of that kind."""
    obstacle_in: Callable[[Mapping[str, Any]], str] = lambda _: ""
    with_comments: bool = False

    def hooks(self, program: HookProgram) -> dict[str, Hook]:
        return {event: self.hook(self.name, kind, limits, program) for event, (kind, limits) in self.events.items()}

    def file(self, scope: Scope, place: Place, program: HookProgram) -> ConfigFile:
        edits = JsonHooks(with_comments=self.with_comments)
        return ConfigFile(
            self.path(scope, place),
            place.home,
            added=lambda text: edits.added(text, self.hooks(program)),
            cleared=edits.cleared,
            is_private=scope is Scope.USER,
        )

    def is_complete(self, text: str, program: HookProgram) -> bool | None:
        ours = JsonHooks(with_comments=self.with_comments).ours(text)
        return ours == self.hooks(program) if ours else None

    def obstacle(self, text: str) -> str:
        return self.obstacle_in(JsonHooks(with_comments=self.with_comments).settings(text))


def _path_of_claude(scope: Scope, place: Place) -> Path:
    """In a project the file that is not shared: the paths of the hooks are those of this machine."""
    if scope is Scope.PROJECT:
        return place.project / ".claude" / "settings.local.json"
    return place.folder("CLAUDE_CONFIG_DIR", ".claude") / "settings.json"


def _claude_hook(agent: str, kind: HookKind, limits: _Limits, program: HookProgram) -> Hook:
    """Started without a shell."""
    first, *rest = program.words(agent, kind, limits.client)
    # Also if the client itself is gone, or is killed.
    policy = {"onFailure": "block"} if program.blocks(kind) else {}
    return {"type": "command", "command": first, "args": rest, "timeout": limits.agent, **policy}


def _obstacle_of_claude(settings: Mapping[str, Any]) -> str:
    return "disableAllHooks is true, so no hook runs" if settings.get("disableAllHooks") is True else ""


def codex_folder(scope: Scope, place: Place) -> Path:
    return place.project / ".codex" if scope is Scope.PROJECT else place.folder("CODEX_HOME", ".codex")


def _codex_hook(agent: str, kind: HookKind, limits: _Limits, program: HookProgram) -> Hook:
    return {"type": "command", "command": program.command(agent, kind, limits.client), "timeout": limits.agent}


def _path_of_gemini(scope: Scope, place: Place) -> Path:
    return (place.project if scope is Scope.PROJECT else place.user_home) / ".gemini" / "settings.json"


def _gemini_hook(agent: str, kind: HookKind, limits: _Limits, program: HookProgram) -> Hook:
    """Its times are in milliseconds."""
    command = program.command(agent, kind, limits.client)
    return {"name": _NAME, "type": "command", "command": command, "timeout": int(limits.agent * 1000)}


def _obstacle_of_gemini(settings: Mapping[str, Any]) -> str:
    known = settings.get("hooksConfig")
    if not isinstance(known, dict):
        return ""
    if known.get("enabled") is False:
        return "hooksConfig.enabled is false, so no hook runs"
    disabled = known.get("disabled")
    is_off = isinstance(disabled, list) and _NAME in disabled
    return f"hooksConfig.disabled names {_NAME}, so its hooks do not run" if is_off else ""


CLAUDE_CODE = _JsonAgent(
    "claude-code",
    "Claude Code",
    "claude",
    {
        "SessionStart": (HookKind.SESSION_START, _OTHER),
        "UserPromptSubmit": (HookKind.PROMPT, _OTHER),
        "PreToolUse": (HookKind.BEFORE_TOOL, _TOOL),
        "PostToolUse": (HookKind.AFTER_TOOL, _TOOL),
        "PostToolUseFailure": (HookKind.AFTER_TOOL, _TOOL),
        "Stop": (HookKind.TURN_END, _OTHER),
        # It ends 1.5 seconds later, whatever its hooks do.
        "SessionEnd": (HookKind.SESSION_END, _Limits(2, 1.2)),
    },
    _path_of_claude,
    _claude_hook,
    _obstacle_of_claude,
)
CODEX = _JsonAgent(
    "codex",
    "codex",
    "codex",
    {
        "SessionStart": (HookKind.SESSION_START, _OTHER),
        "UserPromptSubmit": (HookKind.PROMPT, _OTHER),
        "PreToolUse": (HookKind.BEFORE_TOOL, _TOOL),
        "PostToolUse": (HookKind.AFTER_TOOL, _TOOL),
        "Stop": (HookKind.TURN_END, _OTHER),
        "SessionEnd": (HookKind.SESSION_END, _Limits(1, 0.8)),
    },
    lambda scope, place: codex_folder(scope, place) / "hooks.json",
    _codex_hook,
)
GEMINI_CLI = _JsonAgent(
    "gemini-cli",
    "gemini-cli",
    "gemini",
    {
        "SessionStart": (HookKind.SESSION_START, _OTHER),
        "BeforeAgent": (HookKind.PROMPT, _OTHER),
        "BeforeTool": (HookKind.BEFORE_TOOL, _TOOL),
        "AfterTool": (HookKind.AFTER_TOOL, _TOOL),
        "AfterAgent": (HookKind.TURN_END, _OTHER),
        "SessionEnd": (HookKind.SESSION_END, _Limits(2, 1.2)),
    },
    _path_of_gemini,
    _gemini_hook,
    _obstacle_of_gemini,
    with_comments=True,
)


class OpenCode:
    """Its hooks are a plugin: a file of our own."""

    name, title, program = "opencode", "opencode", "opencode"

    def path(self, scope: Scope, place: Place) -> Path:
        if scope is Scope.PROJECT:
            folder = place.project / ".opencode"
        else:
            folder = place.folder("XDG_CONFIG_HOME", ".config") / "opencode"
        return folder / "plugins" / "holdfast.js"

    def file(self, scope: Scope, place: Place, program: HookProgram) -> ConfigFile:
        return ConfigFile(
            self.path(scope, place),
            place.home,
            added=lambda text: self._plugin(program) if not text else _not_ours(text),
            cleared=lambda text, _: "" if is_ours(text) else text,
        )

    def _plugin(self, program: HookProgram) -> str:
        limits = json.dumps({"tool": _TOOL.client, "end": 1.2, "other": _OTHER.client})
        filled = {
            '["@CLIENT@"]': json.dumps([*program.client, "--agent", self.name, "--python", program.python]),
            '"@ON_FAILURE@"': json.dumps(program.on_failure),
            '"@LIMITS@"': limits,
        }
        text = _PLUGIN.read_text(encoding="utf-8")
        for mark, value in filled.items():
            text = text.replace(mark, value)
        return text

    def is_complete(self, text: str, program: HookProgram) -> bool | None:
        return text == self._plugin(program) if is_ours(text) else None

    def obstacle(self, text: str) -> str:  # noqa: ARG002 - others look into the text
        return ""


def _not_ours(text: str) -> str:
    raise BrokenText("the file is not one of ours", text, 0)


_ALL: tuple[InstalledAgent, ...] = (CLAUDE_CODE, CODEX, GEMINI_CLI, OpenCode())
AGENTS = {each.name: each for each in _ALL}


def agent_named(name: str) -> InstalledAgent:
    if name not in AGENTS:
        raise UsageError(
            f'There are no hooks for "{name_text(name)}"{did_you_mean(name, AGENTS)}',
            hint=f"The agents are {', '.join(AGENTS)}. For any other, `holdfast mcp` is a server of tools.",
        )
    return AGENTS[name]
