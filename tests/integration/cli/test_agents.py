"""Coding agents under `holdfast run`, played by scripts that do what the real ones do to their files and sockets."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from pathlib import Path

import pytest

from holdfast.execution import view
from holdfast.process.confinement import landlock_abi
from tests.integration.cli.project import Ended, Project, wait_until

pytestmark = pytest.mark.skipif(
    landlock_abi() < 3 or view.same_path_refusal() is not None, reason="nothing can be confined or mounted here"
)
OWN_PATH = ("--config", "sandbox.view=own-path")


class Scripted:
    """A user with a home of their own, and agents that are shell scripts."""

    def __init__(self, project: Project) -> None:
        self.project, self.user, self.bin = project, project.folder / "user", project.folder / "bin"
        self.user.mkdir()
        self.bin.mkdir()

    def agent(self, name: str, script: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / name).chmod(0o755)

    def run(self, *arguments: str, **variables: str) -> Ended:
        own = {"HOME": str(self.user), "PATH": f"{self.bin}:{os.environ['PATH']}"}
        return self.project.run("run", *arguments, variables={**own, **variables}, cwd=self.project.app)

    def data(self, *arguments: str, **variables: str) -> dict[str, object]:
        ended = self.run("--format", "json", *arguments, **variables)
        assert ended.exit_code == 0, ended
        found: dict[str, object] = ended.data
        return {**found, "said": ended.stderr}


@pytest.fixture
def scripted(project: Project) -> Scripted:
    return Scripted(project)


CLAUDE = """
set -e
mkdir -p ~/.claude/projects/app && echo hello >> ~/.claude/projects/app/session.jsonl
mkdir ~/.claude.json.lock
cat ~/.claude.json 2>/dev/null || true
printf '{"starts": %s}' "$1" > ~/.claude.json.tmp.1
mv ~/.claude.json.tmp.1 ~/.claude.json
rmdir ~/.claude.json.lock
echo "key=$ANTHROPIC_API_KEY,$OTHER"
echo 2 > version.txt
"""


def test_an_agent_writes_and_replaces_what_is_its_own_and_one_line_says_so(scripted: Scripted) -> None:
    scripted.agent("claude", CLAUDE)
    for number in (1, 2):
        ended = scripted.run("--", "claude", str(number), ANTHROPIC_API_KEY="k", OTHER="o")
        assert ended.exit_code == 0, ended
        assert ended.stdout.endswith("key=k,\n")
        assert json.loads((scripted.user / ".claude.json").read_text()) == {"starts": number}
        assert "Claude Code: may write ~/.claude, ~/.claude.json; sees ANTHROPIC_API_KEY" in ended.stderr
        assert "refused" not in ended.stderr
    assert ended.stdout.startswith('{"starts": 1}')
    assert (scripted.user / ".claude" / "projects" / "app" / "session.jsonl").read_text() == "hello\nhello\n"
    assert sorted(each.name for each in scripted.user.iterdir()) == [".claude", ".claude.json"]
    status = scripted.project.run("plan", "status", "--format", "json", cwd=scripted.project.app).data
    assert str(scripted.user / ".claude.json") in status["outside_of_rollback"]


def test_without_its_profile_nothing_is_allowed(scripted: Scripted) -> None:
    scripted.agent("claude", CLAUDE)
    ended = scripted.run("--agent", "none", "--", "claude", "1", ANTHROPIC_API_KEY="k")
    assert ended.exit_code != 0
    assert not list(scripted.user.iterdir())
    assert "Claude Code" not in ended.stderr
    assert f"--allow-write {scripted.user / '.claude'}" in " ".join(ended.stderr.split())


def test_a_profile_is_chosen_by_name_for_a_program_that_starts_the_agent(scripted: Scripted) -> None:
    scripted.agent("start", 'echo "$@"; touch ~/.codex/log')
    data = scripted.data("--agent", "codex", "--", "start", "codex", "exec")
    assert data["agent"] == "codex"
    assert data["said"] == 'codex -c sandbox_mode="danger-full-access" -c features.daemon_auto_start=false exec\n'


def test_an_agent_that_is_not_known_is_refused_before_anything_is_made(scripted: Scripted) -> None:
    ended = scripted.run("--agent", "claud", "--", "true")
    assert ended.exit_code == 2
    assert 'There is no agent "claud"; did you mean "claude"?' in ended.stderr
    assert not list(scripted.project.home.glob("sandboxes/*"))


def test_the_rest_of_the_home_cannot_be_changed_and_what_appears_beside_the_file_is_said(scripted: Scripted) -> None:
    for name in (".bashrc", ".ssh/id"):
        (scripted.user / name).parent.mkdir(exist_ok=True)
        (scripted.user / name).write_text("mine\n")
    (scripted.user / ".profile").symlink_to(".bashrc")
    attempts = (
        *("echo x >> ~/.bashrc", "rm -f ~/.bashrc", "mv ~/.ssh ~/.s", "echo x > ~/.ssh/id", "touch ~/.ssh/new"),
        *("chmod 777 ~/.bashrc", "rm -f ~/.profile; echo x > ~/.profile", "echo only here > ~/report.txt"),
    )
    scripted.agent("claude", "\n".join(attempts))
    data = scripted.data("--", "claude")
    assert sorted(each.name for each in scripted.user.iterdir()) == [".bashrc", ".claude", ".profile", ".ssh"]
    assert (scripted.user / ".bashrc").stat().st_mode & 0o077 == 0o044
    assert (scripted.user / ".profile").read_text() == (scripted.user / ".ssh" / "id").read_text() == "mine\n"
    refused = {each["path"]: each for each in data["refused_writes"]}  # type: ignore[attr-defined]
    assert refused[str(scripted.user / ".bashrc")]["allow_write"] == str(scripted.user / ".bashrc")
    report = refused[str(scripted.user / "report.txt")]
    assert "nobody else sees it" in report["reason"]
    (kept,) = scripted.project.home.glob("sandboxes/*/.beside/0/seen/report.txt")
    assert str(kept) in report["reason"]
    assert kept.read_text() == "only here\n"


def test_a_file_that_is_allowed_by_hand_can_be_replaced_too(scripted: Scripted) -> None:
    outside = scripted.project.folder / "with a blank\nand a line"
    outside.mkdir()
    (outside / "notes").write_text("1")
    script = f"cd {shlex.quote(str(outside))} && mkdir notes.lock && echo 2 > notes.tmp && mv notes.tmp notes"
    assert scripted.run("--allow-write", str(outside / "notes"), "--", "sh", "-c", script).exit_code == 0
    assert (outside / "notes").read_text() == "2\n"
    assert [each.name for each in outside.iterdir()] == ["notes"]


def test_where_nothing_is_mounted_a_file_may_be_written_and_not_replaced(scripted: Scripted) -> None:
    (scripted.user / ".claude.json").write_text("1")
    scripted.agent("claude", "echo 2 > ~/.claude.json; mkdir ~/.claude.json.lock; true")
    data = scripted.data(*OWN_PATH, "--", "claude")
    assert (scripted.user / ".claude.json").read_text() == "2\n"
    (refused,) = data["refused_writes"]  # type: ignore[misc]
    assert refused["path"] == str(scripted.user / ".claude.json.lock")


@pytest.mark.parametrize("way", [("plan", "delete", "--yes", "latest"), ("plan", "execute", "latest")])
def test_what_a_killed_run_changed_in_the_file_comes_back_with_the_next_command(
    scripted: Scripted, way: tuple[str, ...]
) -> None:
    scripted.agent("claude", "test -e ~/.claude/done || { echo 2 > ~/.claude.json; touch ~/.claude/done; sleep 60; }")
    variables = {"HOME": str(scripted.user), "PATH": f"{scripted.bin}:{os.environ['PATH']}"}
    project = scripted.project
    environment = {**project.environment, **variables}
    with project.start("run", "--", "claude", cwd=project.app, env=environment) as process:
        wait_until((scripted.user / ".claude" / "done").exists)
        process.kill()
    assert not (scripted.user / ".claude.json").exists()
    ended = project.run(*way, variables=variables, cwd=project.app)
    assert ended.exit_code == 0, ended
    assert (scripted.user / ".claude.json").read_text() == "2\n"


def test_refused_writes_are_shown_once_whatever_the_exit_code(scripted: Scripted) -> None:
    place = scripted.project.folder / "elsewhere"
    place.mkdir()
    for code in (0, 3):
        script = f"for i in 1 2 3; do touch {place}/f$i; done; exit {code}"
        ended = scripted.run("--", "sh", "-c", script)
        assert ended.exit_code == code
        assert ended.stderr.count(f"--allow-write {place}") == 1
    (refused,) = scripted.data("--", "sh", "-c", f"touch {place}/f; true")["refused_writes"]  # type: ignore[misc]
    assert refused == {"path": f"{place}/f", "allow_write": str(place), "reason": None}


def test_a_place_that_does_not_exist_is_refused_before_anything_is_copied(scripted: Scripted) -> None:
    ended = scripted.run("--allow-write", str(scripted.user / "missing"), "--", "true")
    assert ended.exit_code == 2
    assert "missing does not exist" in ended.stderr
    assert not list(scripted.project.home.glob("sandboxes/*"))


def test_caches_of_package_managers_are_private_and_go_with_the_plan(scripted: Scripted) -> None:
    script = 'mkdir "$PIP_CACHE_DIR" && echo x > "$PIP_CACHE_DIR/x" && mkdir -p "$npm_config_cache/_cacache"'
    plan = scripted.data("--", "sh", "-c", script)["plan_id"]
    folder = scripted.project.home / "sandboxes" / str(plan) / ".caches"
    assert sorted(each.name for each in folder.iterdir()) == ["cargo", "npm", "pip"]
    assert not list(scripted.user.iterdir())
    assert scripted.project.run("plan", "delete", "--yes", str(plan), cwd=scripted.project.app).exit_code == 0
    assert not folder.exists()
    (scripted.user / ".npm").mkdir()
    allowed = scripted.data("--allow-write", str(scripted.user / ".npm"), "--", "sh", "-c", "echo $npm_config_cache.")
    assert allowed["said"] == ".\n"


CONNECT = "import socket; socket.socket(socket.AF_UNIX).connect('app-server-control.sock')"


def test_a_daemon_of_the_agent_outside_cannot_be_reached(scripted: Scripted) -> None:
    control = scripted.user / ".codex" / "app-server-control"
    control.mkdir(parents=True)
    connect = f'cd ~/.codex/app-server-control && {shlex.quote(sys.executable)} -I -c "{CONNECT}"'
    scripted.agent("codex", f"ls -A ~/.codex/app-server-control; {connect} 2> /dev/null && echo reached; true")
    with socket.socket(socket.AF_UNIX) as daemon:
        here = os.open(control, os.O_RDONLY)
        try:
            daemon.bind(f"/proc/self/fd/{here}/app-server-control.sock")
        finally:
            os.close(here)
        daemon.listen()
        for options in ((), OWN_PATH, ("--config", "sandbox.confine=false")):
            assert scripted.data(*options, "--", "codex")["said"] == ""
        reached = scripted.data("--agent", "none", "--", "codex")["said"]
    assert reached == "app-server-control.sock\nreached\n"


def test_an_agent_that_reads_repositories_itself_is_not_led_back_to_the_sandbox(scripted: Scripted) -> None:
    scripted.agent("aider", "cat .git/objects/info/alternates; git log --format=%s")
    *places, subject = str(scripted.data("--", "aider")["said"]).splitlines()
    assert subject == "the first commit"
    assert places
    assert not any(Path(each).is_relative_to(scripted.project.app) for each in places)
    assert scripted.data("--agent", "none", "--", "aider")["said"] == "\n".join(
        [f"{scripted.project.app}/.git/objects", *_with_last_plan(scripted, places), "the first commit\n"]
    )
    own = scripted.data(*OWN_PATH, "--", "aider")["said"]
    assert str(own).startswith(f"{scripted.project.app}/.git/objects\n")


def _with_last_plan(scripted: Scripted, places: list[str]) -> list[str]:
    """These places in the folder of the plan that ran last."""
    plan = scripted.project.run("plan", "status", "--format", "json", cwd=scripted.project.app).data["plan_id"]
    return [str(scripted.project.home / "sandboxes" / plan / Path(*Path(each).parts[-3:])) for each in places]


def test_a_profile_of_ones_own_is_used(scripted: Scripted) -> None:
    (scripted.project.home / "agents").mkdir(parents=True)
    profile = 'title = "Robot"\nprograms = ["rob"]\nfolders = ["~/.rob"]\n[variables]\nROB_SANDBOX = "off"\n'
    (scripted.project.home / "agents" / "robot.toml").write_text(profile)
    scripted.agent("rob", "echo $ROB_SANDBOX > ~/.rob/log")
    assert scripted.run("--", "rob").exit_code == 0
    assert (scripted.user / ".rob" / "log").read_text() == "off\n"


def test_a_plan_file_cannot_grant_itself_anything(scripted: Scripted) -> None:
    grant = "grant: {title: x, folders: ['~']}"
    for step in (f"  - {{tool: program, args: {{argv: ['true']}}, {grant}}}\n", f"  - {{run: 'true', {grant}}}\n"):
        ended = scripted.project.run("plan", "create", str(scripted.project.plan(step)))
        assert ended.exit_code != 0
        assert "grant" in ended.stderr
