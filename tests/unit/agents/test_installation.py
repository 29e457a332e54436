from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.agents.installation.agents import AGENTS
from holdfast.agents.installation.files import Action
from holdfast.agents.installation.installing import Installed, install, uninstall
from holdfast.agents.installation.place import Place, Scope
from holdfast.agents.installation.plugin import plugin_files, write_plugin
from holdfast.agents.installation.program import HookProgram, is_ours
from holdfast.agents.installation.status import State, statuses
from holdfast.errors import ConfigError, NotFoundError, StateError, UsageError
from holdfast.model import Unprotected

PROGRAM = HookProgram(("/lib/holdfast/guard/hook-client",), "/lib/my python", Unprotected.BLOCK)
OTHER = HookProgram(("/elsewhere/holdfast/guard/hook-client",), "/lib/python", Unprotected.WARN)
CLAUDE, CODEX, GEMINI, OPENCODE = AGENTS
SETTINGS = {CLAUDE: ".claude/settings.json", CODEX: ".codex/hooks.json", GEMINI: ".gemini/settings.json"}
THEIRS = '{\n    "theirs": [1, 2],\n    "hooks": {"Other": []}\n}'

SCRIPTED_CODEX = f"""#!{sys.executable}
import hashlib, json, os, sys, tomllib
home = os.environ.get("CODEX_HOME") or os.path.join(os.environ["HOME"], ".codex")
def snake(name): return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "initialize":
        print(json.dumps({{"id": asked["id"], "result": {{"userAgent": "scripted"}}}}), flush=True)
    elif asked["method"] == "hooks/list":
        path = os.path.join(home, "hooks.json")
        try: trusted = tomllib.load(open(os.path.join(home, "config.toml"), "rb"))["hooks"]["state"]
        except (OSError, KeyError): trusted = {{}}
        found = []
        for event, groups in json.load(open(path))["hooks"].items():
            for at, group in enumerate(groups):
                for number, hook in enumerate(group["hooks"]):
                    key = f"{{path}}:{{snake(event)}}:{{at}}:{{number}}"
                    now = "sha256:" + hashlib.sha256(json.dumps(hook).encode()).hexdigest()
                    was = trusted.get(key, {{}}).get("trusted_hash")
                    state = "trusted" if was == now else "modified" if was else "untrusted"
                    found.append({{"key": key, "eventName": event, "command": hook["command"], "enabled": True,
                                  "currentHash": now, "trustStatus": state}})
        answer = {{"data": [{{"cwd": asked["params"]["cwds"][0], "hooks": found}}]}}
        print(json.dumps({{"method": "noise"}}), flush=True)
        print(json.dumps({{"id": asked["id"], "result": answer}}), flush=True)
"""


class User:
    """A user with a home, a project, and the agents that are on the path."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project, self.bin = folder / "me", folder / "me" / "app", folder / "bin"
        self.project.mkdir(parents=True)
        self.bin.mkdir()
        self.place = Place(
            self.home,
            {"PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(self.home)},
            self.project,
            folder / "holdfast",
        )

    def has(self, program: str, script: str = "#!/bin/sh\n") -> None:
        (self.bin / program).write_text(script)
        (self.bin / program).chmod(0o755)

    def write(self, name: str, text: str) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    def install(self, *names: str, program: HookProgram = PROGRAM, scope: Scope = Scope.USER) -> list[Installed]:
        return install(names, scope, self.place, program)

    def uninstall(self, *names: str, scope: Scope | None = None) -> list[Installed]:
        return uninstall(names, scope, self.place, PROGRAM)


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def contents(folder: Path) -> dict[str, tuple[int, str | bytes]]:
    """Every file with its mode and content, every link with its target, every folder with its mode."""
    found: dict[str, tuple[int, str | bytes]] = {}
    for path in folder.rglob("*"):
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else "folder"
        found[str(path.relative_to(folder))] = path.lstat().st_mode, content
    return found


def actions(done: list[Installed]) -> list[tuple[str, Action]]:
    return [(each.agent, change.action) for each in done for change in each.changes]


@pytest.mark.parametrize("scope", list(Scope))
def test_what_was_installed_is_taken_out_without_a_trace(user: User, scope: Scope) -> None:
    user.write(".claude/settings.json", THEIRS)
    user.write("app/.gemini/settings.json", f"// mine\n{THEIRS}\r\n")
    before = contents(user.home)
    assert actions(user.install(*AGENTS, scope=scope)) == [(name, Action.ADDED) for name in AGENTS]
    installed = contents(user.home)
    assert actions(user.install(*AGENTS, scope=scope)) == [(name, Action.UNCHANGED) for name in AGENTS]
    assert contents(user.home) == installed
    done = user.uninstall()
    assert [(each.agent, each.scope) for each in done] == [(name, scope) for name in AGENTS]
    assert all(change.is_exact for each in done for change in each.changes)
    assert contents(user.home) == before
    assert user.uninstall() == []
    assert not (user.place.home / "installation").exists()


@pytest.mark.parametrize("agent", SETTINGS)
def test_a_dry_run_says_what_would_be_done_and_changes_nothing(user: User, agent: str) -> None:
    user.write(SETTINGS[agent], THEIRS)
    before = contents(user.home)
    assert actions(install([agent], Scope.USER, user.place, PROGRAM, dry_run=True)) == [(agent, Action.ADDED)]
    assert contents(user.home) == before
    user.install(agent)
    installed = contents(user.home)
    assert actions(uninstall([agent], None, user.place, PROGRAM, dry_run=True)) == [(agent, Action.REMOVED)]
    assert contents(user.home) == installed


@pytest.mark.parametrize("agent", SETTINGS)
def test_only_the_hooks_are_taken_out_of_a_file_that_was_changed_since(user: User, agent: str) -> None:
    path = user.write(SETTINGS[agent], THEIRS)
    user.install(agent)
    path.write_text(path.read_text().replace("[1, 2]", "[1, 2, 3]"))
    (done,) = user.uninstall(agent)
    assert not done.changes[0].is_exact
    assert path.read_text() == THEIRS.replace("[1, 2]", "[1, 2, 3]")


@pytest.mark.parametrize("agent", AGENTS)
def test_another_installation_replaces_the_hooks_and_the_file_still_comes_back_as_it_was(
    user: User, agent: str
) -> None:
    if agent in SETTINGS:
        user.write(SETTINGS[agent], THEIRS)
    before = contents(user.home)
    user.install(agent)
    assert actions(user.install(agent, program=OTHER)) == [(agent, Action.UPDATED)]
    text = AGENTS[agent].path(Scope.USER, user.place).read_text()
    assert OTHER.client[0] in text
    assert PROGRAM.client[0] not in text
    user.uninstall(agent)
    assert contents(user.home) == before


def test_a_file_that_was_changed_between_two_installations_keeps_the_change(user: User) -> None:
    path = user.write(SETTINGS[CLAUDE], THEIRS)
    user.install(CLAUDE)
    path.write_text(path.read_text().replace("[1, 2]", "[]"))
    user.install(CLAUDE, program=OTHER)
    (done,) = user.uninstall(CLAUDE)
    assert done.changes[0].is_exact
    assert path.read_text() == THEIRS.replace("[1, 2]", "[]")


def test_a_file_that_we_made_and_others_wrote_into_stays_without_the_hooks(user: User) -> None:
    user.install(CLAUDE)
    path = user.home / SETTINGS[CLAUDE]
    path.write_text(json.dumps({"model": "opus", **json.loads(path.read_text())}))
    user.uninstall(CLAUDE)
    assert json.loads(path.read_text()) == {"model": "opus"}


def test_a_file_that_we_made_and_the_agent_wrote_anew_goes_again(user: User) -> None:
    user.install(CLAUDE)
    path = user.home / SETTINGS[CLAUDE]
    path.write_text(json.dumps(json.loads(path.read_text())))
    user.uninstall(CLAUDE)
    assert not path.exists()


@pytest.mark.parametrize("lost", ["record", "copy", "everything"])
def test_without_our_own_records_the_hooks_are_still_taken_out_and_nothing_else(user: User, lost: str) -> None:
    path = user.write(SETTINGS[CLAUDE], THEIRS)
    user.install(CLAUDE)
    for file in (user.place.home / "installation").rglob("*"):
        if file.is_file() and (lost == "everything" or file.name == {"record": "record.json", "copy": "before"}[lost]):
            file.unlink()
    user.uninstall(CLAUDE)
    assert json.loads(path.read_text()) == json.loads(THEIRS)


def test_a_process_that_died_before_it_replaced_the_file_leaves_nothing_that_confuses_the_next(user: User) -> None:
    path = user.write(SETTINGS[CLAUDE], THEIRS)
    user.install(CLAUDE)
    # The record is written, and the file is still what it was.
    path.write_text(THEIRS)
    assert user.uninstall(CLAUDE) == []
    assert path.read_text() == THEIRS
    user.install(CLAUDE)
    path.write_text(THEIRS.replace("[1, 2]", "[7]"))
    user.install(CLAUDE)
    user.uninstall(CLAUDE)
    assert path.read_text() == THEIRS.replace("[1, 2]", "[7]")


def test_links_and_modes_of_files_are_kept(user: User) -> None:
    real = user.write("dotfiles/claude.json", THEIRS)
    real.chmod(0o640)
    (user.home / ".claude").mkdir()
    link = user.home / SETTINGS[CLAUDE]
    link.symlink_to("../dotfiles/claude.json")
    for change in (user.install, user.uninstall):
        change(CLAUDE)
        assert os.readlink(link) == "../dotfiles/claude.json"
        assert real.stat().st_mode & 0o7777 == 0o640
    assert real.read_text() == THEIRS


def test_a_new_file_of_the_user_is_closed_to_others(user: User) -> None:
    user.install(CLAUDE)
    assert (user.home / SETTINGS[CLAUDE]).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("agent", "text"),
    [(CLAUDE, '{\n "a": 1,\n}\n'), (CODEX, '{\n "a": 1,\n // why\n}'), (GEMINI, '{ // why\n "a": 1\n "b": 2}')],
)
def test_a_broken_file_is_named_with_its_line_and_no_agent_is_changed(user: User, agent: str, text: str) -> None:
    path = user.write(SETTINGS[agent], text)
    before = contents(user.home)
    with pytest.raises(ConfigError, match=rf"{path.name}:3 cannot be edited"):
        user.install(*AGENTS)
    assert contents(user.home) == before
    with pytest.raises(ConfigError, match=rf"{path.name}:3 cannot be edited"):
        user.uninstall(agent)
    (found,) = statuses([agent], user.place, PROGRAM, {})
    assert found.places[0].state is State.BROKEN
    assert ":3 " in found.obstacles[0]


def test_a_plugin_of_somebody_else_with_our_name_is_left_alone(user: User) -> None:
    path = user.write(".config/opencode/plugins/holdfast.js", "export const Mine = 1\n")
    with pytest.raises(ConfigError, match="not one of ours"):
        user.install(OPENCODE)
    assert user.uninstall(OPENCODE) == []
    assert path.read_text() == "export const Mine = 1\n"


def test_without_names_the_agents_on_the_path_are_meant(user: User) -> None:
    with pytest.raises(NotFoundError):
        install([], Scope.USER, Place(user.home, {"PATH": str(user.bin)}, user.project, user.place.home), PROGRAM)
    user.has("gemini")
    only_ours = Place(user.home, {"PATH": str(user.bin)}, user.project, user.place.home)
    assert actions(install([], Scope.USER, only_ours, PROGRAM)) == [(GEMINI, Action.ADDED)]
    with pytest.raises(UsageError, match="opencode"):
        user.install("opencod")


def test_the_folders_that_variables_name_are_used(user: User) -> None:
    folders = {"CLAUDE_CONFIG_DIR": "c", "CODEX_HOME": "x", "XDG_CONFIG_HOME": "o"}
    variables = {name: str(user.home / folder) for name, folder in folders.items()}
    place = Place(user.home, {**user.place.environment, **variables}, user.project, user.place.home)
    install((CLAUDE, CODEX, OPENCODE), Scope.USER, place, PROGRAM)
    for name in ("c/settings.json", "x/hooks.json", "o/opencode/plugins/holdfast.js"):
        assert is_ours((user.home / name).read_text()), name


@pytest.mark.parametrize(("agent", "event"), [(CLAUDE, "PreToolUse"), (CODEX, "PreToolUse"), (GEMINI, "BeforeTool")])
@pytest.mark.parametrize("program", [PROGRAM, OTHER])
def test_only_the_hook_before_a_tool_blocks_and_only_if_that_is_wanted(
    user: User, agent: str, event: str, program: HookProgram
) -> None:
    user.install(agent, program=program)
    hooks = json.loads((user.home / SETTINGS[agent]).read_text())["hooks"]
    blocking = [name for name, groups in hooks.items() if "block" in json.dumps(groups)]
    assert blocking == ([event] if program.on_failure is Unprotected.BLOCK else [])
    assert ("onFailure" in json.dumps(hooks)) == (agent == CLAUDE and program is PROGRAM)


@pytest.mark.parametrize(("program", "code"), [(PROGRAM, 2), (OTHER, 127)])
def test_a_client_that_is_gone_blocks_a_tool_as_well(user: User, program: HookProgram, code: int) -> None:
    user.install(GEMINI, program=program)
    hooks = json.loads((user.home / SETTINGS[GEMINI]).read_text())["hooks"]
    command = hooks["BeforeTool"][0]["hooks"][0]["command"]
    assert subprocess.run(["sh", "-c", command], capture_output=True, check=False).returncode == code


def test_a_path_with_a_space_is_one_word_for_a_shell(user: User) -> None:
    user.install(GEMINI)
    hooks = json.loads((user.home / SETTINGS[GEMINI]).read_text())["hooks"]
    assert "--python '/lib/my python'" in hooks["BeforeTool"][0]["hooks"][0]["command"]


def test_trust_in_codex_is_written_beside_what_is_there_and_taken_out_exactly(user: User) -> None:
    user.has("codex", SCRIPTED_CODEX)
    config = user.write(".codex/config.toml", '# mine\nmodel = "x" # why\n\n[projects."/a"]\ntrust_level = "trusted"\n')
    before = contents(user.home)
    (untrusted,) = user.install(CODEX)
    assert untrusted.is_trusted is False
    (found,) = statuses([CODEX], user.place, client_that_is_there(user), {})
    assert any("does not trust" in each for each in found.obstacles)
    (trusted,) = install([CODEX], Scope.USER, user.place, PROGRAM, trust=True)
    assert trusted.is_trusted is True
    text = config.read_text()
    assert text.startswith('# mine\nmodel = "x" # why\n')
    assert len(tomllib.loads(text)["hooks"]["state"]) == 6
    # After another installation the hooks are not those that were trusted.
    (modified,) = user.install(CODEX, program=OTHER)
    assert modified.is_trusted is False
    (again,) = install([CODEX], Scope.USER, user.place, OTHER, trust=True)
    assert again.is_trusted is True
    user.uninstall(CODEX)
    assert contents(user.home) == before


def test_trust_in_codex_is_taken_out_of_a_file_that_was_changed_since(user: User) -> None:
    user.has("codex", SCRIPTED_CODEX)
    theirs = '[hooks.state."/other/hooks.json:stop:0:0"]\ntrusted_hash = "sha256:1"\n'
    config = user.write(".codex/config.toml", theirs)
    install([CODEX], Scope.USER, user.place, PROGRAM, trust=True)
    config.write_text(f'model = "y"\n{config.read_text()}')
    user.uninstall(CODEX)
    assert tomllib.loads(config.read_text()) == {"model": "y", **tomllib.loads(theirs)}


def test_trust_that_the_person_gave_in_codex_goes_with_the_hooks_and_that_in_other_hooks_stays(user: User) -> None:
    theirs = {"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "theirs"}]}]}}
    hooks = user.write(".codex/hooks.json", json.dumps(theirs))
    user.install(CODEX)
    states = "".join(
        f'[hooks.state."{hooks}:{place}"]\ntrusted_hash = "sha256:1"\n'
        for place in ("pre_tool_use:0:0", "pre_tool_use:1:0", "stop:0:0")
    )
    config = user.write(".codex/config.toml", f'model = "x"\n\n{states}')
    assert [change.path for each in user.uninstall(CODEX) for change in each.changes] == [config, hooks]
    assert list(tomllib.loads(config.read_text())["hooks"]["state"]) == [f"{hooks}:pre_tool_use:0:0"]
    assert json.loads(hooks.read_text()) == theirs


def test_trust_is_refused_if_codex_does_not_list_the_hooks(user: User) -> None:
    user.has("codex", '#!/bin/sh\nread a; read b; read c\necho \'{"id": 2, "result": {"data": []}}\'\n')
    with pytest.raises(StateError, match="does not list them"):
        install([CODEX], Scope.USER, user.place, PROGRAM, trust=True)


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\nread x; echo nonsense\n", "not a program"])
def test_a_codex_that_does_not_answer_is_no_trust(user: User, script: str) -> None:
    user.has("codex", script)
    (done,) = user.install(CODEX)
    assert done.is_trusted is None
    (found,) = statuses([CODEX], user.place, client_that_is_there(user), {})
    assert any("could not be asked" in each for each in found.obstacles)


def client_that_is_there(user: User) -> HookProgram:
    """The same program, at a place where something can be executed."""
    client = user.bin / "holdfast" / "guard" / "hook-client"
    client.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy("/bin/true", client)
    return HookProgram((str(client),), sys.executable, Unprotected.BLOCK)


def test_the_status_tells_what_is_installed_and_what_was_heard(user: User) -> None:
    program = client_that_is_there(user)
    user.has("claude")
    user.install(CLAUDE, program=program)
    user.install(GEMINI, program=OTHER, scope=Scope.PROJECT)
    at = datetime(2026, 11, 19, tzinfo=UTC)
    found = {each.agent: each for each in statuses([], user.place, program, {CLAUDE: (at, "prompt")})}
    states = {name: [place.state for place in each.places] for name, each in found.items()}
    assert states == {
        CLAUDE: [State.INSTALLED, State.ABSENT],
        CODEX: [State.ABSENT, State.ABSENT],
        GEMINI: [State.ABSENT, State.OUTDATED],
        OPENCODE: [State.ABSENT, State.ABSENT],
    }
    assert (found[CLAUDE].program, found[CLAUDE].seen_at, found[CLAUDE].seen_event) == (
        str(user.bin / "claude"),
        at,
        "prompt",
    )
    assert found[CLAUDE].obstacles == ()


def test_the_status_tells_what_keeps_hooks_from_running(user: User) -> None:
    user.write(SETTINGS[CLAUDE], '{"disableAllHooks": true}')
    user.write(SETTINGS[GEMINI], '{"hooksConfig": {"enabled": false}}')
    user.write("app/.gemini/settings.json", '{"hooksConfig": {"disabled": ["holdfast"]}}')
    user.install(CLAUDE, GEMINI)
    user.install(GEMINI, scope=Scope.PROJECT)
    found = [each.obstacles for each in statuses([CLAUDE, GEMINI], user.place, PROGRAM, {})]
    gone = "/lib/holdfast/guard/hook-client, which the hooks start, cannot be executed"
    assert found == [
        ("disableAllHooks is true, so no hook runs", gone),
        (
            "hooksConfig.enabled is false, so no hook runs",
            gone,
            "hooksConfig.disabled names holdfast, so its hooks do not run",
            gone,
            "gemini-cli does not trust this folder, so it ignores its hooks",
        ),
    ]


@pytest.mark.parametrize(
    ("folders", "settings", "variables", "is_trusted"),
    [
        ({}, {}, {}, False),
        ({"app": "TRUST_FOLDER"}, {}, {}, True),
        ({"app": "DO_NOT_TRUST", ".": "TRUST_FOLDER"}, {}, {}, False),
        ({".": "TRUST_FOLDER"}, {}, {}, True),
        ({"other": "TRUST_PARENT"}, {}, {}, True),
        ({"other": "TRUST_FOLDER"}, {}, {}, False),
        ({}, {"security": {"folderTrust": {"enabled": False}}}, {}, True),
        ({}, {}, {"GEMINI_CLI_TRUST_WORKSPACE": "true"}, True),
    ],
)
def test_the_hooks_of_a_project_that_gemini_does_not_trust_are_told_not_to_run(
    user: User, folders: dict[str, str], settings: dict[str, object], variables: dict[str, str], is_trusted: bool
) -> None:
    user.write(SETTINGS[GEMINI], json.dumps(settings))
    said = {os.path.normpath(user.home / name): value for name, value in folders.items()}
    user.write(".gemini/trustedFolders.json", json.dumps(said))
    program = client_that_is_there(user)
    user.install(GEMINI, program=program, scope=Scope.PROJECT)
    place = Place(user.home, {**user.place.environment, **variables}, user.project, user.place.home)
    (found,) = statuses([GEMINI], place, program, {})
    assert (found.obstacles == ()) == is_trusted


def test_the_plugin_of_claude_code_holds_the_hooks_and_the_server(tmp_path: Path) -> None:
    files = plugin_files(PROGRAM, ["/bin/holdfast", "mcp"], "1.2")
    folder = tmp_path / "plugin"
    write_plugin(folder, files)
    write_plugin(folder, files)
    manifest = json.loads((folder / ".claude-plugin/plugin.json").read_text())
    assert (manifest["name"], manifest["version"]) == ("holdfast", "1.2")
    servers = json.loads((folder / ".mcp.json").read_text())["mcpServers"]
    assert servers == {"holdfast": {"command": "/bin/holdfast", "args": ["mcp"]}}
    hooks = json.loads((folder / "hooks/hooks.json").read_text())["hooks"]
    assert hooks["PreToolUse"][0]["hooks"][0]["onFailure"] == "block"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    with pytest.raises(UsageError, match="something else"):
        write_plugin(tmp_path / "other", files)
    assert [each.name for each in (tmp_path / "other").iterdir()] == ["file"]
