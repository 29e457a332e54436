"""The hooks and the MCP server as a plugin of Claude Code: a folder that can be loaded, shared and validated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from holdfast.agents.installation.agents import CLAUDE_CODE
from holdfast.agents.installation.program import HookProgram
from holdfast.errors import ConfigError, UsageError, described
from holdfast.names import name_text
from holdfast.system.small_files import replace_text

_MANIFEST = Path(".claude-plugin", "plugin.json")
_DESCRIPTION = "Every prompt and every tool call, shell commands included, becomes a point that you can go back to."
_README = """# Holdfast

{description} This plugin tells Holdfast about them through hooks, and gives Claude tools to look at the points and to
go back to one of them. `holdfast undo` takes back the last call that changed something, `holdfast log` shows them all.

The hooks start the program of the Holdfast that wrote this folder, by its path, so the plugin works on this machine
only. Holdfast itself must stay installed.
"""


def plugin_files(program: HookProgram, server: Sequence[str], version: str) -> dict[Path, str]:
    """The files of the plugin; ``server`` are the words that start the MCP server."""
    manifest = {
        "name": "holdfast",
        "version": version,
        "description": _DESCRIPTION,
        "author": {"name": "The Holdfast authors"},
        "license": "Apache-2.0",
    }
    servers = {"holdfast": {"command": server[0], "args": list(server[1:])}}
    hooks = {event: [{"hooks": [hook]}] for event, hook in CLAUDE_CODE.hooks(program).items()}
    return {
        _MANIFEST: _document(manifest),
        Path("hooks", "hooks.json"): _document({"hooks": hooks}),
        Path(".mcp.json"): _document({"mcpServers": servers}),
        Path("README.md"): _README.format(description=_DESCRIPTION),
    }


def write_plugin(folder: Path, files: dict[Path, str]) -> None:
    """Write it into a folder that is new, empty, or one of our plugins."""
    try:
        if folder.exists() and any(folder.iterdir()) and not _is_ours(folder):
            raise UsageError(
                f"{name_text(str(folder))} holds something else.", hint="Name a folder that is new, or is empty."
            )
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            replace_text(folder / path, text)
    except OSError as error:
        raise ConfigError(f"{described(error)}.", hint="Name a folder that you can write to.") from error


def _is_ours(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("name") == "holdfast"


def _document(content: object) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
