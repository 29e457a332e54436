"""``holdfast agents``, as a person types it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.integration.cli.project import Ended, Project

SETTINGS = '{\n  "model": "opus"\n}\n'


class Person:
    """With a home of their own, and Claude Code on the path."""

    def __init__(self, project: Project) -> None:
        self.project, self.home, self.bin = project, project.folder / "me", project.folder / "bin"
        self.settings = self.home / ".claude" / "settings.json"
        self.settings.parent.mkdir(parents=True)
        self.settings.write_text(SETTINGS)
        self.bin.mkdir()
        (self.bin / "claude").write_text("#!/bin/sh\n")
        (self.bin / "claude").chmod(0o755)

    def run(self, *arguments: str) -> Ended:
        own = {"HOME": str(self.home), "PATH": f"{self.bin}:/usr/bin:/bin"}
        return self.project.run("agents", *arguments, variables=own, cwd=self.project.app)

    def data(self, *arguments: str) -> dict[str, object]:
        ended = self.run(*arguments, "--format", "json")
        assert ended.exit_code == 0, ended
        found: dict[str, object] = ended.data
        return found


@pytest.fixture
def person(project: Project) -> Person:
    return Person(project)


def test_hooks_are_installed_shown_and_taken_out_again(person: Person) -> None:
    installed = person.run("install")
    assert installed.exit_code == 0, installed
    assert f"A  Claude Code  {person.settings}" in installed.stdout
    hooks = json.loads(person.settings.read_text())["hooks"]
    client = hooks["PreToolUse"][0]["hooks"][0]["command"]
    assert stat.S_IMODE(os.stat(client).st_mode) & 0o111 or client.endswith("python")

    shown = person.run("status", "claude-code")
    assert (shown.exit_code, "installed  for the user" in shown.stdout) == (0, True), shown
    assert "not heard of in this folder yet" in shown.stdout

    removed = person.run("uninstall")
    assert (removed.exit_code, "D  Claude Code" in removed.stdout) == (0, True), removed
    assert person.settings.read_text() == SETTINGS
    assert "There are no hooks of Holdfast" in person.run("uninstall").stdout


def test_the_same_is_said_to_programs(person: Person) -> None:
    (agent,) = person.data("install", "claude-code", "--scope", "project")["agents"]  # type: ignore[misc]
    path = person.project.app / ".claude" / "settings.local.json"
    change = {"path": str(path), "action": "added", "copy": None, "is_exact": True}
    assert agent == {"agent": "claude-code", "scope": "project", "is_trusted": None, "changes": [change]}
    (status,) = person.data("status", "claude-code")["agents"]  # type: ignore[misc]
    assert [(each["scope"], each["state"]) for each in status["places"]] == [
        ("user", "absent"),
        ("project", "installed"),
    ]
    assert status["is_installed"] is True
    assert status["last_event_at"] is None
    assert person.settings.read_text() == SETTINGS


def test_the_setting_says_what_happens_without_a_checkpoint(person: Person) -> None:
    person.run("install")
    assert '"onFailure": "block"' in person.settings.read_text()
    warned = person.run("install", "--config", "agents.on-failure=warn")
    assert warned.exit_code == 0, warned
    assert "block" not in person.settings.read_text()
    wrong = person.run("install", "--config", "agents.on-failure=perhaps")
    assert (wrong.exit_code, "expected block or warn" in wrong.stderr) == (9, True), wrong


def test_hooks_that_cannot_run_are_an_exit_code(person: Person) -> None:
    person.settings.write_text('{"disableAllHooks": true}')
    person.run("install")
    status = person.run("status")
    assert (status.exit_code, "disableAllHooks is true, so no hook runs." in status.stdout) == (1, True), status


def test_a_dry_run_changes_nothing(person: Person) -> None:
    ended = person.run("install", "--dry-run")
    assert (ended.exit_code, "Nothing was changed." in ended.stdout) == (0, True), ended
    assert person.settings.read_text() == SETTINGS


def test_a_plugin_is_written_instead(person: Person, tmp_path: Path) -> None:
    folder = tmp_path / "a plugin"
    ended = person.run("install", "claude-code", "--plugin", str(folder))
    assert ended.exit_code == 0, ended
    assert f"claude plugin validate '{folder}'" in ended.stdout
    server = json.loads((folder / ".mcp.json").read_text())["mcpServers"]["holdfast"]
    assert server["args"][-1] == "mcp"
    assert person.settings.read_text() == SETTINGS
    for arguments in (("--plugin", str(folder)), ("codex", "--plugin", str(folder)), ("claude-code", "--trust")):
        assert person.run("install", *arguments).exit_code == 2
