"""Tries real coding agents under ``holdfast run``: ``python -m tools.agents [NAME...]``, or ``make agents``.

Installs them from their registries into ``build/agents``, and runs each with a scripted model on a scratch project, in
a home of its own: it makes a file and removes another one. Then the files, the conversation and, for Claude Code,
``--continue`` are checked. After that the same as a person does it, on a terminal (tmux): the task is typed, and the
agent is ended with its keys. Only the installation needs a network.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess  # nosec B404
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from tools.scripted_model import ScriptedModel, Turn, serving

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "agents"
NODE, PYTHON = BUILD / "node_modules" / ".bin", BUILD / "venv" / "bin"
HOLDFAST = Path(sys.executable).with_name("holdfast")
_PATIENCE_SECONDS = 180
_BETWEEN_KEYS_SECONDS = 0.7
_TASK, _MORE = "do the work", "and now say what you did"
_DONE = Turn("All done.")


@dataclass(frozen=True)
class Typed:
    """How a person uses it on a terminal."""

    command: tuple[str, ...]
    first: str = ""
    """It asks this before it begins; Enter answers it."""
    ready: str = ""
    """What it shows when the task can be typed."""
    send: tuple[str, ...] = ("Enter",)
    done: str = "All done."
    end: tuple[str, ...] = ("C-c", "C-c")


@dataclass(frozen=True)
class Agent:
    name: str
    package: str
    folder: Path
    """Where its program is installed."""
    command: tuple[str, ...]
    turns: Callable[[Path], Sequence[Turn]]
    """What the model says, for a project in that folder."""
    variables: Callable[[str], Mapping[str, str]]
    """What it needs to find a model at that address, as its user would have it in the environment."""
    conversation: str
    """A pattern of files in the home, of which there must be one afterwards."""
    more: tuple[str, ...] = ()
    """How it continues the conversation."""
    settings: Callable[[str], Mapping[str, str]] = lambda _: {}
    """Files in the home that say where the model is, if variables do not, and what a person answers only once."""
    typed: Typed = Typed(())


def _claude(folder: Path) -> Sequence[Turn]:
    new = {"file_path": str(folder / "new.py"), "content": "x = 1\n"}
    remove = {"command": "rm notes.txt", "description": "remove"}
    return Turn("I write.", "Write", new), Turn("I remove.", "Bash", remove), _DONE


def _codex(_: Path) -> Sequence[Turn]:
    return (
        Turn("I write.", "exec_command", {"cmd": "echo 'x = 1' > new.py"}),
        Turn("I remove.", "exec_command", {"cmd": "rm notes.txt"}),
        _DONE,
    )


def _gemini(_: Path) -> Sequence[Turn]:
    new = {"file_path": "new.py", "content": "x = 1\n"}
    remove = {"command": "rm notes.txt", "description": "remove"}
    return Turn("I write.", "write_file", new), Turn("I remove.", "run_shell_command", remove), _DONE


def _opencode(folder: Path) -> Sequence[Turn]:
    new = {"filePath": str(folder / "new.py"), "content": "x = 1\n"}
    remove = {"command": "rm notes.txt", "description": "remove"}
    return Turn("I write.", "write", new), Turn("I remove.", "bash", remove), _DONE


def _aider(_: Path) -> Sequence[Turn]:
    return (Turn("I write.\n\nnew.py\n```python\nx = 1\n```\n"),)


def _mini(_: Path) -> Sequence[Turn]:
    end = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
    work = "echo 'x = 1' > new.py; rm notes.txt"
    return Turn("I work.", "bash", {"command": work}), Turn("I end.", "bash", {"command": end}), _DONE


def _claude_settings(_: str) -> Mapping[str, str]:
    known_key = {"approved": ["x"], "rejected": list[str]()}
    return {".claude.json": json.dumps({"hasCompletedOnboarding": True, "customApiKeyResponses": known_key})}


def _opencode_settings(address: str) -> str:
    provider = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": f"{address}/v1", "apiKey": "x"}}
    models = {"scripted": {"name": "scripted", "tool_call": True, "limit": {"context": 100000, "output": 1000}}}
    known = {"provider": {"scripted": {**provider, "models": models}}, "model": "scripted/scripted"}
    return json.dumps({**known, "small_model": "scripted/scripted", "permission": "allow"})


def _codex_settings(address: str) -> Mapping[str, str]:
    provider = f'name = "scripted"\nbase_url = "{address}/v1"\nwire_api = "responses"\nenv_key = "OPENAI_API_KEY"\n'
    return {".codex/config.toml": f'model_provider = "scripted"\n[model_providers.scripted]\n{provider}'}


def _gemini_settings(_: str) -> Mapping[str, str]:
    return {".gemini/settings.json": json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}})}


_AIDER = (
    *("aider", "--model", "openai/scripted", "--yes-always", "--edit-format", "whole", "--map-tokens", "0"),
    *("--no-check-update", "--no-show-model-warnings", "--analytics-disable"),
)

AGENTS = (
    Agent(
        "claude",
        "@anthropic-ai/claude-code",
        NODE,
        ("claude", "-p", "--permission-mode", "bypassPermissions", _TASK),
        _claude,
        lambda address: {"ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": "x"},
        ".claude/projects/*/*.jsonl",
        ("claude", "-p", "--continue", _MORE),
        _claude_settings,
        Typed(("claude", "--permission-mode", "acceptEdits"), "Yes, I trust this folder", "accept edits on"),
    ),
    Agent(
        "codex",
        "@openai/codex",
        NODE,
        ("codex", "exec", _TASK),
        _codex,
        lambda _: {"OPENAI_API_KEY": "x"},
        ".codex/sessions/*/*/*/*.jsonl",
        settings=_codex_settings,
        typed=Typed(("codex",), "Trust and continue", "Ask Codex to do anything"),
    ),
    Agent(
        "gemini",
        "@google/gemini-cli",
        NODE,
        ("gemini", "--yolo", "-p", _TASK),
        _gemini,
        lambda address: {"GOOGLE_GEMINI_BASE_URL": address, "GEMINI_API_KEY": "x"},
        ".gemini/tmp/*/chats/*",
        settings=_gemini_settings,
        typed=Typed(("gemini", "--yolo"), ready="Type your message"),
    ),
    Agent(
        "opencode",
        "opencode-ai",
        NODE,
        ("opencode", "run", _TASK),
        _opencode,
        lambda address: {"OPENCODE_CONFIG_CONTENT": _opencode_settings(address), "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        ".local/share/opencode/**/*",
        typed=Typed(("opencode",), ready="Ask anything", end=("C-c",)),
    ),
    Agent(
        "aider",
        "aider-chat",
        PYTHON,
        (*_AIDER, "--message", _TASK, "new.py"),
        _aider,
        lambda address: {"OPENAI_API_BASE": f"{address}/v1", "OPENAI_API_KEY": "x"},
        ".aider",
        typed=Typed((*_AIDER, "new.py"), ready="new.py\n>", done="Applied edit to new.py", end=("C-d",)),
    ),
    Agent(
        "mini",
        "mini-swe-agent",
        PYTHON,
        ("mini", "--yolo", "--exit-immediately", "-m", "openai/scripted", "-t", _TASK),
        _mini,
        lambda address: {
            "OPENAI_API_BASE": f"{address}/v1",
            "OPENAI_API_KEY": "x",
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
        },
        ".config/mini-swe-agent/*",
        typed=Typed(
            ("mini", "--yolo", "-m", "openai/scripted"),
            ready="What do you want to do",
            send=("Escape", "Enter"),
            done="Agent wants to finish",
            end=("Enter",),
        ),
    ),
)


def install(agents: Sequence[Agent]) -> None:
    """Install what is missing; the newest versions, because these are the ones that people have."""
    if shutil.which("tmux") is None:
        sys.exit("The agents are tried on a terminal, too: install tmux first.")
    BUILD.mkdir(parents=True, exist_ok=True)
    for agent in agents:
        if (agent.folder / agent.command[0]).exists():
            continue
        if agent.folder == NODE:
            _run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(BUILD), agent.package])
        else:
            if not PYTHON.exists():
                _run([sys.executable, "-m", "venv", str(PYTHON.parent)])
            _run([str(PYTHON / "python"), "-m", "pip", "install", "--quiet", agent.package])


def _run(command: Sequence[str], cwd: Path | None = None) -> None:
    subprocess.run(command, check=True, cwd=cwd)


class Trial:
    """One agent on a scratch project, in a home of its own."""

    def __init__(self, agent: Agent, folder: Path) -> None:
        self.agent, self.home, self.project = agent, folder / "user", folder / "user" / "project"
        self.project.mkdir(parents=True)
        for name, text in (("app.py", 'print("hello")\n'), ("notes.txt", "ideas\n")):
            (self.project / name).write_text(text)
        git = ("git", "-c", "user.name=A", "-c", "user.email=a@localhost")
        for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "first")):
            _run([*git, *words], cwd=self.project)

    def problems(self) -> list[str]:
        model = ScriptedModel(self.agent.turns(self.project))
        with serving(model) as address:
            environment = self._environment(address)
            found = self._problems_of_work(self._holdfast(environment, self.agent.command))
            if self.agent.more and not found:
                before = len(model.requests)
                self._holdfast(environment, self.agent.more)
                if _TASK not in json.dumps([body for _, body in model.requests[before:]]):
                    found.append("the conversation was not continued")
        return found

    def _environment(self, address: str) -> dict[str, str]:
        for name, content in self.agent.settings(address).items():
            (self.home / name).parent.mkdir(exist_ok=True)
            (self.home / name).write_text(content)
        kept = {name: os.environ[name] for name in ("LANG", "TERM") if name in os.environ}
        path = os.pathsep.join((str(self.agent.folder), os.environ.get("PATH", os.defpath)))
        own = {"HOME": str(self.home), "PATH": path, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        return {**kept, **own, **self.agent.variables(address)}

    def _holdfast(self, environment: Mapping[str, str], command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        words = [str(HOLDFAST), "run", "--format", "json", "--", *command]
        return run_to_end(words, self.project, environment)

    def _problems_of_work(self, ended: subprocess.CompletedProcess[str]) -> list[str]:
        try:
            data = json.loads(ended.stdout)["data"]
            changes = {each["file"] for each in data["changes"]}
        except (ValueError, KeyError, TypeError):
            return [f"it ended with {ended.returncode}: {ended.stdout}\n{ended.stderr}"]
        found = [] if ended.returncode == 0 else [f"it ended with {ended.returncode}: {ended.stderr[-2000:]}"]
        found += [f"refused: {each['path']}" for each in data["refused_writes"]]
        return found + self._problems_of_files(changes, ended.stderr[-2000:])

    def _problems_of_files(self, changes: Collection[str], said: str) -> list[str]:
        found = []
        if "new.py" not in changes:
            found.append(f"new.py was not made; the changes are {changes}\n{said}")
        if (self.project / "new.py").exists() or not (self.project / "notes.txt").exists():
            found.append("the real files were changed")
        if not any(self.home.glob(self.agent.conversation)):
            found.append(f"nothing is in {self.agent.conversation}")
        return found

    def problems_when_typed(self) -> list[str]:
        """The same on a terminal, with the keys of a person."""
        typed = self.agent.typed
        with serving(ScriptedModel(self.agent.turns(self.project))) as address:
            environment = {**self._environment(address), "TERM": "xterm-256color"}
            with Terminal([str(HOLDFAST), "run", "--", *typed.command], self.project, environment) as terminal:
                if (typed.first and not terminal.answers(typed.first)) or not terminal.shows(typed.ready):
                    return [f"it did not begin:\n{terminal.screen()}"]
                terminal.press("-l", _TASK)
                for key in typed.send:
                    terminal.press(key)
                if not terminal.shows(typed.done):
                    return [f"it did not do its work:\n{terminal.screen()}"]
                for key in typed.end:
                    terminal.press(key)
                if not terminal.shows("holdfast plan apply"):
                    return [f"it did not end with a summary:\n{terminal.screen()}"]
                words = [str(HOLDFAST), "diff", "--format", "json"]
                compared = subprocess.run(words, cwd=self.project, env=environment, capture_output=True, check=True)
                files = {each["file"] for each in json.loads(compared.stdout)["data"]["files"]}
                return self._problems_of_files(files, terminal.screen())


class Terminal:
    """A command on a terminal of its own, 120 columns wide."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._name = f"holdfast-{folder.parents[1].name}"  # of its own: a server that ends still accepts commands
        # tmux runs what it starts in the environment of its server.
        words = ["env", "-i", *(f"{name}={value}" for name, value in environment.items()), *command]
        # So that its last words can be read, also if it has ended before the last key.
        shell = f"trap : INT; {shlex.join(words)}; while :; do sleep 60; done"
        self._start = ("new-session", "-d", "-x", "120", "-y", "50", "-c", str(folder), shell)

    def __enter__(self) -> Terminal:
        self._tmux(*self._start)
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")

    def _tmux(self, *words: str) -> str:
        return subprocess.run(
            ["tmux", "-f", os.devnull, "-L", self._name, *words], capture_output=True, text=True, check=False
        ).stdout

    def screen(self) -> str:
        return "\n".join(line.rstrip() for line in self._tmux("capture-pane", "-p").splitlines() if line.strip())

    def press(self, *keys: str) -> None:
        time.sleep(_BETWEEN_KEYS_SECONDS)  # some take keys that come at once for pasted text
        self._tmux("send-keys", *keys)

    def shows(self, text: str) -> bool:
        """Whether it shows that in time, and then nothing else for a moment."""
        deadline, before = time.monotonic() + _PATIENCE_SECONDS, ""
        while time.monotonic() < deadline:
            now = self.screen()
            if text in now and now == before:
                return True
            before = now
            time.sleep(_BETWEEN_KEYS_SECONDS)
        return False

    def answers(self, question: str) -> bool:
        is_asked = self.shows(question)
        self.press("Enter")
        return is_asked


def main(names: Sequence[str]) -> int:
    agents = [each for each in AGENTS if not names or each.name in names]
    install(agents)
    ways = (("once", _problems), ("typed", _problems_when_typed))
    return try_all(
        (f"{agent.name:<10}{way:<7}", partial(tried, agent)) for agent, (way, tried) in product(agents, ways)
    )


def _problems(agent: Agent, folder: Path) -> list[str]:
    return Trial(agent, folder).problems()


def _problems_when_typed(agent: Agent, folder: Path) -> list[str]:
    return Trial(agent, folder).problems_when_typed()


def run_to_end(command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE_SECONDS,
    )


def try_all(trials: Iterable[tuple[str, Callable[[Path], list[str]]]]) -> int:
    """Each in a new folder; prints how it went, and returns the exit code of them all."""
    failed = False
    for name, trial in trials:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-agent-"))
        try:
            problems = trial(folder)
        except subprocess.TimeoutExpired as error:
            problems = [f"it did not end: {error}"]
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        failed = failed or bool(problems)
        sys.stdout.write("\n  ".join([f"{name:<10}{'failed' if problems else 'ok'}", *problems]) + "\n")
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
