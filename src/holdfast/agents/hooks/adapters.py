"""The adapter of each agent, by the name that its hooks give."""

from __future__ import annotations

from holdfast.agents.hooks.claude_code import ClaudeCode
from holdfast.agents.hooks.codex import Codex
from holdfast.agents.hooks.event import Adapter
from holdfast.agents.hooks.gemini_cli import GeminiCli
from holdfast.agents.hooks.opencode import OpenCode
from holdfast.errors import UsageError
from holdfast.names import did_you_mean, name_text

_ALL: tuple[Adapter, ...] = (ClaudeCode(), Codex(), GeminiCli(), OpenCode())
ADAPTERS = {each.name: each for each in _ALL}


def adapter_for(name: str) -> Adapter:
    if name not in ADAPTERS:
        raise UsageError(
            f'There are no hooks of "{name_text(name)}"{did_you_mean(name, ADAPTERS)}',
            hint=f"The agents with hooks are {', '.join(ADAPTERS)}.",
        )
    return ADAPTERS[name]
