"""Tries ``holdfast mcp`` with real clients: ``python -m tools.mcp_clients [NAME...]``, also a part of ``make agents``.

Uses the agents of ``tools.agents``, with the scripted model and with our hooks. Each must offer our tools to the model,
which takes a checkpoint, spoils a file in the shell, restores it, and lists the moments. The inspector's command line
lists and calls the tools, too.
"""

from __future__ import annotations

import json
import os
import subprocess  # nosec B404
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from holdfast.app import Holdfast
from tools.agents import AGENTS, BUILD, HOLDFAST, NODE, Agent, install, run_to_end, try_all
from tools.scripted_model import ScriptedModel, Turn, serving

_INSPECTOR = "@modelcontextprotocol/inspector"
_LABEL = "by the model"
_SPOIL = "echo spoilt > notes.txt; echo new > new.txt"
_TOOLS = ("checkpoint", "timeline", "show", "diff", "restore", "rewind", "undo_rewind")


@dataclass(frozen=True)
class McpClient:
    agent: str
    """Its name in ``tools.agents``."""
    prefix: str
    """What it puts before the names of our tools."""
    hooks: tuple[str, ...]
    """How our hooks are installed for it."""
    shell: str
    argument: str
    """Its tool for commands, and the name of the command in it."""
    options: Callable[[], Sequence[str]] = tuple
    """What is added to its command line."""
    settings: Callable[[dict[str, str]], None] = lambda _: None
    """Adds us to its files in the home, given by name."""
    variables: Callable[[dict[str, str]], None] = lambda _: None
    """The same for its environment."""


def _claude_options() -> Sequence[str]:
    server = {"command": str(HOLDFAST), "args": ["mcp"]}
    return "--mcp-config", json.dumps({"mcpServers": {"holdfast": server}}), "--strict-mcp-config"


def _codex_options() -> Sequence[str]:
    return "-s", "danger-full-access"


def _gemini_options() -> Sequence[str]:
    return ("--skip-trust",)


def _codex_settings(files: dict[str, str]) -> None:
    server = f'[mcp_servers.holdfast]\ncommand = "{HOLDFAST}"\nargs = ["mcp"]\nenv_vars = ["HOLDFAST_HOME"]\n'
    # To newer models it offers tools only as functions for a script, which is not what is tried here.
    model = 'model = "gpt-5"\n'
    files[".codex/config.toml"] = (
        f'{model}{files[".codex/config.toml"]}{server}default_tools_approval_mode = "approve"\n'
    )


def _gemini_settings(files: dict[str, str]) -> None:
    name = ".gemini/settings.json"
    server = {"command": str(HOLDFAST), "args": ["mcp"], "trust": True}
    files[name] = json.dumps({**json.loads(files[name]), "mcpServers": {"holdfast": server}})


def _opencode_variables(variables: dict[str, str]) -> None:
    name = "OPENCODE_CONFIG_CONTENT"
    server = {"type": "local", "command": [str(HOLDFAST), "mcp"]}
    variables[name] = json.dumps({**json.loads(variables[name]), "mcp": {"holdfast": server}})


CLIENTS = (
    McpClient("claude", "mcp__holdfast__", ("claude-code",), "Bash", "command", options=_claude_options),
    McpClient("codex", "", ("--trust", "codex"), "exec_command", "cmd", _codex_options, settings=_codex_settings),
    McpClient(
        "gemini", "mcp_holdfast_", ("gemini-cli",), "run_shell_command", "command", _gemini_options, _gemini_settings
    ),
    McpClient("opencode", "holdfast_", ("opencode",), "bash", "command", variables=_opencode_variables),
)


def problems_of(client: McpClient, folder: Path) -> list[str]:
    agent = next(each for each in AGENTS if each.name == client.agent)
    project, user = folder / "project", folder / "user"
    project.mkdir()
    user.mkdir()
    (project / "notes.txt").write_text("ideas\n")
    subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
    model = ScriptedModel(
        (
            Turn("I keep it.", f"{client.prefix}checkpoint", {"label": _LABEL}),
            Turn("I work.", client.shell, {client.argument: _SPOIL, "description": "work"}),
            Turn("I restore.", f"{client.prefix}restore", {"from": _LABEL, "paths": ["notes.txt"]}),
            Turn("I look.", f"{client.prefix}timeline", {"limit": 5}),
            Turn("All done."),
        )
    )
    with serving(model) as address:
        environment = _environment(agent, client, address, user, folder)
        installed = run_to_end([str(HOLDFAST), "agents", "install", *client.hooks], project, environment)
        if installed.returncode:
            return [installed.stderr]
        *command, last = agent.command
        at = len(command) - (command[-1] == "-p")  # its value is the task
        ended = run_to_end([*command[:at], *client.options(), *command[at:], last], project, environment)
        run_to_end([str(HOLDFAST), "guard", "stop"], project, environment)
    said = json.dumps([body for _, body in model.requests])
    found = [f"{tool} was not offered" for tool in _TOOLS if f'"{client.prefix}{tool}"' not in said]
    if _LABEL not in _labels(project, folder / "home"):
        found.append("no checkpoint was taken")
    if (project / "notes.txt").read_text() != "ideas\n" or not (project / "new.txt").exists():
        found.append("the file was not restored, or more than that")
    if "newest first" not in said:
        found.append("the timeline did not come back to the model")
    return [*found, ended.stdout[-1500:], ended.stderr[-1500:]] if found else []


def _environment(agent: Agent, client: McpClient, address: str, user: Path, folder: Path) -> dict[str, str]:
    files = dict(agent.settings(address))
    client.settings(files)
    for name, content in files.items():
        (user / name).parent.mkdir(parents=True, exist_ok=True)
        (user / name).write_text(content)
    variables = dict(agent.variables(address))
    client.variables(variables)
    path = os.pathsep.join((str(agent.folder), os.environ.get("PATH", os.defpath)))
    own = {"HOME": str(user), "PATH": path, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "IS_SANDBOX": "1"}
    return {**own, "HOLDFAST_HOME": str(folder / "home"), **variables}


def _labels(project: Path, home: Path) -> set[str | None]:
    with Holdfast.open(project, home=home, environment={}) as holdfast:
        return {each.view.group.label for each in holdfast.in_place.moments()}


def problems_of_inspector(folder: Path) -> list[str]:
    """The inspector checks what the server sends against its own schemas."""
    project = folder / "project"
    project.mkdir()
    environment = {**os.environ, "HOLDFAST_HOME": str(folder / "home")}
    calls = (("tools/list",), ("tools/call", "--tool-name", "checkpoint", "--tool-arg", f"label={_LABEL}"))
    for call in calls:
        command = [str(NODE / "mcp-inspector"), "--cli", str(HOLDFAST), "mcp", "--method", *call]
        ended = run_to_end(command, project, environment)
        if ended.returncode:
            return [f"{call[0]} ended with {ended.returncode}", ended.stdout[-1500:], ended.stderr[-1500:]]
    return [] if _LABEL in _labels(project, folder / "home") else ["no checkpoint was taken"]


def _install_inspector() -> None:
    if not (NODE / "mcp-inspector").exists():
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(BUILD), _INSPECTOR]
        subprocess.run(command, check=True)


def main(names: Sequence[str]) -> int:
    trials: dict[str, Callable[[Path], list[str]]] = {
        **{each.agent: partial(problems_of, each) for each in CLIENTS},
        "inspector": problems_of_inspector,
    }
    chosen = {name: trial for name, trial in trials.items() if not names or name in names}
    install([each for each in AGENTS if each.name in chosen])
    if "inspector" in chosen:
        _install_inspector()
    return try_all(chosen.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
