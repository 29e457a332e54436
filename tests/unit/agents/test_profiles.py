"""Profiles of coding agents: found by the program's name, and what they give it on this machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.agents import profiles
from holdfast.agents.grant import Given, given_to, make_folders, refuse_reachable_daemons
from holdfast.agents.profiles import find_profile
from holdfast.cli.commands.run import run
from holdfast.errors import ConfigError, SandboxError, UsageError

SHIPPED = sorted(file.stem for file in Path(profiles.__file__).parent.glob("profiles/*.toml"))
DOCS = Path(__file__).parents[3] / "docs" / "reference" / "agents.md"


def given(tmp_path: Path, *argv: str, agent: str | None = None, **environment: str) -> Given | None:
    return given_to(argv, agent, environment=environment, user_home=tmp_path, home=tmp_path / "home")


def surely_given(tmp_path: Path, *argv: str, agent: str | None = None, **environment: str) -> Given:
    found = given(tmp_path, *argv, agent=agent, **environment)
    assert found is not None
    return found


def own_profile(tmp_path: Path, name: str, text: str) -> None:
    folder = tmp_path / "home" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.toml").write_text(text)


def test_there_is_a_profile_for_each_of_the_six() -> None:
    assert SHIPPED == ["aider", "claude", "codex", "gemini", "mini", "opencode"]


@pytest.mark.parametrize("name", SHIPPED)
def test_each_profile_is_found_by_the_names_of_its_programs_wherever_they_lie(tmp_path: Path, name: str) -> None:
    profile = find_profile(["true"], name, tmp_path)
    assert profile is not None
    for program in profile.programs:
        assert find_profile([f"/opt/bin/{program}", "-x"], None, tmp_path) == profile


@pytest.mark.parametrize("name", SHIPPED)
def test_the_help_and_the_pages_list_it(name: str) -> None:
    assert name in CliRunner().invoke(run, ["--help"]).output
    assert f"| `{name}` |" in DOCS.read_text()


@pytest.mark.parametrize("program", ["true", "", "title", "clau", "aude", "toml"])
def test_other_programs_have_none(tmp_path: Path, program: str) -> None:
    assert given(tmp_path, program) is None


def test_none_means_none(tmp_path: Path) -> None:
    assert given(tmp_path, "claude", agent="none") is None


def test_an_agent_that_is_not_known_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match='There is no agent "claud"; did you mean "claude"') as error:
        given(tmp_path, "true", agent="claud")
    assert ", ".join(SHIPPED) in (error.value.hint or "")


def test_a_profile_of_ones_own_is_chosen_by_program_or_name_and_replaces_ours(tmp_path: Path) -> None:
    own_profile(tmp_path, "robot", 'title = "Robot"\nprograms = ["rob"]\nfolders = ["~/.rob"]\n')
    own_profile(tmp_path, "claude", 'title = "My Claude"\nprograms = ["claude"]\n')
    assert surely_given(tmp_path, "rob").grant.folders == (f"{tmp_path}/.rob",)
    assert surely_given(tmp_path, "sh", agent="robot").grant.title == "Robot"
    assert surely_given(tmp_path, "claude").grant.title == "My Claude"
    assert surely_given(tmp_path, "claude").grant.allow_write == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('title = "R"\nprograms = ["rob"]\nfolder = ["~/.rob"]\n', "folder"),
        ('title = "R"\nprograms = "rob"\n', "array"),
        ('title = "R\nprograms = ["rob"]\n', "line"),
    ],
)
def test_a_file_that_is_no_profile_is_said_with_its_name(tmp_path: Path, text: str, reason: str) -> None:
    own_profile(tmp_path, "robot", text)
    with pytest.raises(ConfigError, match=f"robot.toml cannot be used: .*{reason}"):
        given(tmp_path, "rob")
    assert given(tmp_path, "true") is None


def test_a_profile_that_cannot_be_read_is_said_with_the_reason(tmp_path: Path) -> None:
    own_profile(tmp_path, "robot", "")
    file = tmp_path / "home" / "agents" / "robot.toml"
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="it is not UTF-8"):
        given(tmp_path, "x", agent="robot")
    file.unlink()
    file.mkdir()
    with pytest.raises(ConfigError, match="Is a directory"):
        given(tmp_path, "x", agent="robot")


def test_only_variables_that_are_set_are_passed(tmp_path: Path) -> None:
    found = surely_given(tmp_path, "claude", ANTHROPIC_API_KEY="k", AWS_SECRET_ACCESS_KEY="s", HOME="/h", OTHER="o")
    assert found.grant.pass_env == ("ANTHROPIC_API_KEY",)
    connected = surely_given(tmp_path, "claude", CLAUDE_CODE_SSE_PORT="1", CLAUDE_CODE_MAX_OUTPUT_TOKENS="1")
    assert connected.grant.pass_env == ("CLAUDE_CODE_MAX_OUTPUT_TOKENS",)
    bedrock = surely_given(tmp_path, "claude", CLAUDE_CODE_USE_BEDROCK="1", AWS_PROFILE="p")
    assert bedrock.grant.pass_env == ("AWS_PROFILE", "CLAUDE_CODE_USE_BEDROCK")


def test_a_variable_that_moves_the_folders_is_followed_and_passed(tmp_path: Path) -> None:
    assert surely_given(tmp_path, "claude").grant.allow_write == (f"{tmp_path}/.claude", f"{tmp_path}/.claude.json")
    moved = surely_given(tmp_path, "claude", CLAUDE_CONFIG_DIR="/elsewhere").grant
    assert (moved.allow_write, moved.pass_env) == (("/elsewhere",), ("CLAUDE_CONFIG_DIR",))
    assert surely_given(tmp_path, "codex", CODEX_HOME="in/the/sandbox").grant.folders == ()
    for variables, place in (
        ({}, f"{tmp_path}/.config/mini-swe-agent"),
        ({"XDG_CONFIG_HOME": "/x"}, "/x/mini-swe-agent"),
        ({"XDG_CONFIG_HOME": "/x", "MSWEA_GLOBAL_CONFIG_DIR": "/m"}, "/m"),
    ):
        grant = surely_given(tmp_path, "mini", **variables).grant
        assert (grant.folders, set(grant.pass_env)) == ((place,), set(variables))


def test_root_is_told_that_it_is_in_a_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for user, is_told in ((0, True), (1000, False)):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert ("IS_SANDBOX" in surely_given(tmp_path, "claude").grant.environment) is is_told


NO_DAEMON = ("-c", "features.daemon_auto_start=false")
CODEX = ("-c", 'sandbox_mode="danger-full-access"', *NO_DAEMON)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("codex", "exec", "x"), ("codex", *CODEX, "exec", "x")),
        (("/bin/codex",), ("/bin/codex", *CODEX)),
        (("npx", "-y", "@openai/codex@latest", "exec"), ("npx", "-y", "@openai/codex@latest", *CODEX, "exec")),
        (("codex", "--sandbox=read-only"), ("codex", *NO_DAEMON, "--sandbox=read-only")),
        (("codex", "exec", "-s", "read-only"), ("codex", *NO_DAEMON, "exec", "-s", "read-only")),
        (("codex", "--yolo", "--no-daemon"), ("codex", "--yolo", "--no-daemon")),
    ],
)
def test_arguments_come_after_the_program_unless_the_user_gave_them(
    tmp_path: Path, argv: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert surely_given(tmp_path, *argv, agent="codex").argv == expected


def test_folders_are_made_closed_to_others(tmp_path: Path) -> None:
    grant = surely_given(tmp_path, "codex").grant
    make_folders(grant)
    make_folders(grant)
    for folder in (tmp_path / ".codex", tmp_path / ".codex" / "app-server-control"):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / ".codex").write_text("a file")
    with pytest.raises(SandboxError, match=r"\.codex, which codex needs, cannot be made"):
        make_folders(surely_given(tmp_path, "codex").grant)


def test_a_daemon_outside_is_refused_if_its_socket_cannot_be_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = surely_given(tmp_path, "codex").grant
    make_folders(grant)
    refuse_reachable_daemons(grant, "no mounts")
    monkeypatch.chdir(tmp_path / ".codex" / "app-server-control")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s")  # a whole path may be longer than the address of a socket
        refuse_reachable_daemons(grant, None)
        with pytest.raises(SandboxError, match=r"would do the work outside of the sandbox.*hidden: no mounts"):
            refuse_reachable_daemons(grant, "no mounts")
