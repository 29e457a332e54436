"""Settings: where they come from, which one wins, and what a wrong one is told."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.config.editing import set_value, unset_value
from holdfast.config.keys import KEYS, Scope, find_key
from holdfast.config.loading import (
    Layer,
    Settings,
    home_directory,
    load_settings,
    parse_overrides,
    project_file,
    user_file,
)
from holdfast.errors import ConfigError, UsageError
from holdfast.model import DEFAULT_TRIGGERS, Policy, Trigger

AUTO = "sandbox.checkpoint.auto-create-on"
MAX = "sandbox.checkpoint.max-checkpoints-per-plan"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


def load(home: Path, project: Path | None = None, **variables: str) -> Settings:
    return load_settings(home, project, variables)


# --- the layers


def test_without_any_file_the_defaults_hold(home: Path, project: Path) -> None:
    settings = load_settings(home / "not made yet", project, {})
    assert settings.auto_create_on == DEFAULT_TRIGGERS
    assert settings.max_checkpoints == 50
    assert settings.include_ignored == ()
    assert settings.output_limit_bytes == 65536
    assert settings.step_timeout_seconds is None
    assert settings.database_url is None
    assert settings.policy == Policy()
    assert {entry.origin.layer for entry in settings.entries()} == {Layer.DEFAULT}


def test_each_layer_wins_over_the_one_before(home: Path, project: Path) -> None:
    variables: dict[str, str] = {}
    overrides: dict[str, str] = {}

    def now() -> tuple[int, str]:
        settings = load_settings(home, project, variables, overrides)
        return settings.max_checkpoints, str(settings.get(MAX).origin)

    assert now() == (50, "default")
    (home / "config.toml").write_text("[sandbox.checkpoint]\nmax-checkpoints-per-plan = 11\n")
    assert now() == (11, f"user ({home}/config.toml)")
    (project / "holdfast.toml").write_text("sandbox.checkpoint.max-checkpoints-per-plan = 12\n")
    assert now() == (12, f"project ({project}/holdfast.toml)")
    variables["HOLDFAST_SANDBOX_CHECKPOINT_MAX_CHECKPOINTS_PER_PLAN"] = "13"
    assert now() == (13, "environment (HOLDFAST_SANDBOX_CHECKPOINT_MAX_CHECKPOINTS_PER_PLAN)")
    overrides[MAX] = "14"
    assert now() == (14, "argument (--config)")


def test_a_layer_that_says_nothing_leaves_the_one_below(home: Path, project: Path) -> None:
    (home / "config.toml").write_text('[step]\ntimeout = 60\noutput-limit = "1MB"\n')
    (project / "holdfast.toml").write_text("[step]\ntimeout = 1.5\n")
    settings = load(home, project)
    assert (settings.step_timeout_seconds, settings.output_limit_bytes) == (1.5, 1_000_000)


def test_outside_of_a_project_only_the_user_s_file_is_read(home: Path) -> None:
    (home / "config.toml").write_text("step.timeout = 5\n")
    assert load(home).step_timeout_seconds == 5


def test_settings_become_the_defaults_of_a_plan_s_policy(home: Path) -> None:
    settings = load_settings(home, None, {}, {AUTO: "on_error", MAX: "3"})
    assert settings.policy == Policy(max_checkpoints=3, auto_create_on=(Trigger.ON_ERROR,))


def test_python_callers_may_give_values_instead_of_text(home: Path) -> None:
    overrides = {AUTO: [], MAX: 7, "sandbox.include_ignored": ("a", "b"), "step.timeout": 2}
    settings = load_settings(home, None, {}, overrides)
    assert settings.auto_create_on == ()
    assert settings.max_checkpoints == 7
    assert settings.include_ignored == ("a", "b")
    assert settings.step_timeout_seconds == 2


@pytest.mark.parametrize("spelling", [MAX, "sandbox.checkpoint.max_checkpoints_per_plan", "max_checkpoints_per_plan"])
def test_the_documents_spelling_is_accepted_everywhere(home: Path, spelling: str) -> None:
    assert find_key(spelling) is KEYS[MAX]
    (home / "config.toml").write_text(f"{spelling} = 8\n")
    assert load(home).max_checkpoints == 8
    assert load_settings(home, None, {}, {spelling: "9"}).max_checkpoints == 9


# --- values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        (" ", ()),
        ("[]", ()),
        ("on_error", (Trigger.ON_ERROR,)),
        ("on_error, before_tool_execute", (Trigger.ON_ERROR, Trigger.ON_TOOL_WRITE)),
        ('["on_error", "before_step"]', (Trigger.ON_ERROR, Trigger.BEFORE_STEP)),
        ("['on_error', 'before_step',]", (Trigger.ON_ERROR, Trigger.BEFORE_STEP)),
        ("on_error,on_error", (Trigger.ON_ERROR,)),
    ],
)
def test_a_list_may_be_written_in_several_ways(home: Path, text: str, expected: tuple[Trigger, ...]) -> None:
    assert load(home, HOLDFAST_SANDBOX_CHECKPOINT_AUTO_CREATE_ON=text).auto_create_on == expected
    assert load_settings(home, None, {}, {AUTO: text}).auto_create_on == expected


def test_a_pattern_with_a_comma_fits_into_an_array(home: Path) -> None:
    settings = load(home, HOLDFAST_SANDBOX_INCLUDE_IGNORED='["{a,b}/*.env", ".venv/**"]')
    assert settings.include_ignored == ("{a,b}/*.env", ".venv/**")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", 1), ("65536", 65536), ("64KiB", 65536), ("64 kib", 65536), ("2KB", 2000), ("1MB", 10**6), ("1MiB", 2**20)],
)
def test_sizes_may_have_a_unit(home: Path, text: str, expected: int) -> None:
    assert load(home, HOLDFAST_STEP_OUTPUT_LIMIT=text).output_limit_bytes == expected


@pytest.mark.parametrize(("text", "expected"), [("5", 5.0), ("0.5", 0.5), ("1e3", 1000.0), ("none", None), ("", None)])
def test_a_timeout_is_seconds_or_none(home: Path, text: str, expected: float | None) -> None:
    (home / "config.toml").write_text("step.timeout = 60\n")
    assert load(home, HOLDFAST_STEP_TIMEOUT=text).step_timeout_seconds == expected


@pytest.mark.parametrize(
    ("text", "size_bytes", "files", "shown"),
    [
        ("2GB, 200000 files", 2_000_000_000, 200_000, "2GB, 200000 files"),
        ("10 files,1MiB", 1 << 20, 10, "1048576B, 10 files"),
        ("500MB", 500_000_000, None, "500MB"),
        ("1 file", None, 1, "1 files"),
        ("0", 0, None, "0GB"),
        ("none", None, None, "none"),
    ],
)
def test_a_limit_is_a_size_or_a_number_of_files_or_both(
    home: Path, text: str, size_bytes: int | None, files: int | None, shown: str
) -> None:
    settings = load(home, HOLDFAST_SANDBOX_COPY_IGNORED_LIMIT=text)
    limit = settings.copy_ignored_limit
    assert (limit.size_bytes, limit.files) == (size_bytes, files)
    assert settings.get("sandbox.copy-ignored-limit").shown == shown
    assert load(home, HOLDFAST_SANDBOX_COPY_IGNORED_LIMIT=shown).copy_ignored_limit == limit


WRONG_VALUES = [
    (AUTO, "on_eror", 'unknown trigger "on_eror" (valid: before_step, '),
    (AUTO, "on_error,", 'unknown trigger "" (valid: before_step, '),
    (AUTO, "[1]", "expected a list of texts"),
    (AUTO, "[on_error", "expected a list: words with commas"),
    (AUTO, "[" * 9999, "expected a list: words with commas"),
    (MAX, "1", "expected a whole number of at least 2"),
    (MAX, "many", "expected a whole number of at least 2"),
    (MAX, "5.0", "expected a whole number of at least 2"),
    (MAX, "9" * 5000, "expected a whole number of at least 2"),
    (MAX, "", "expected a whole number of at least 2"),
    ("sandbox.include-ignored", "../secret", 'expected patterns inside the resource, found "../secret"'),
    ("sandbox.include-ignored", "a/../../b", 'expected patterns inside the resource, found "a/../../b"'),
    ("sandbox.include-ignored", "#x", '"#x" is a comment'),
    ("sandbox.exclude", "!", 'expected patterns inside the resource, found "!"'),
    ("apply.include-ignored", "!../x", 'expected patterns inside the resource, found "!../x"'),
    ("sandbox.copy-ignored-limit", "2GB, 3GB", "expected a size, a number of files or both"),
    ("sandbox.copy-ignored-limit", "200,000 files", "expected a size, a number of files or both"),
    ("sandbox.copy-ignored-limit", "200,100 files", "expected a size, a number of files or both"),
    ("sandbox.copy-ignored-limit", "many files", "expected a number of bytes"),
    ("sandbox.include-ignored", "a,,b", 'expected patterns inside the resource, found ""'),
    ("step.output-limit", "64K", 'expected a number of bytes, such as 65536, "64KiB" or "1MB"'),
    ("step.output-limit", "-5", "expected a number of bytes"),
    ("step.output-limit", "0", "expected a whole number of at least 1 and at most 67108864"),
    ("step.output-limit", "1GB", "expected a whole number of at least 1 and at most 67108864"),
    ("step.timeout", "0", "expected seconds, more than 0"),
    ("step.timeout", "nan", "expected seconds, more than 0"),
    ("step.timeout", "inf", "expected seconds, more than 0"),
    ("step.timeout", "2000001", "expected seconds, more than 0"),
    ("step.timeout", "soon", "expected seconds, more than 0"),
    ("database.url", "localhost", "expected an address such as postgresql://host/name"),
    ("sandbox.confine", "maybe", "expected true or false"),
    ("sandbox.allow-write", "cache", 'expected absolute paths, or paths that begin with ~/, found "cache"'),
    ("sandbox.pass-env", "A B", 'expected names of environment variables, found "A B"'),
]


@pytest.mark.parametrize(("name", "text", "message"), WRONG_VALUES)
def test_a_wrong_value_is_refused_wherever_it_comes_from(home: Path, name: str, text: str, message: str) -> None:
    variable = KEYS[name].variable
    with pytest.raises(ConfigError) as caught:
        load_settings(home, None, {variable: text})
    assert caught.value.message.startswith(f"environment variable {variable}: {name}: {message}")
    assert caught.value.hint
    with pytest.raises(ConfigError) as caught:
        load_settings(home, None, {}, {name: text})
    assert caught.value.message.startswith(f"--config {name}: {name}: {message}")
    with pytest.raises(ConfigError) as caught:
        set_value(user_file(home), name, text)
    assert caught.value.message.startswith(f"{home}/config.toml: {name}: {message}")
    assert not (home / "config.toml").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[sandbox.checkpoint]\nauto-create-on = "on_error"\n', f":2: {AUTO}: expected a list of texts"),
        ("\n\nmax_checkpoints_per_plan = 1\n", f":3: {MAX}: expected a whole number of at least 2"),
        ("step = {timeout = true}\n", ":1: step.timeout: expected seconds"),
        ("[step]\noutput-limit = 1.5\n", ":2: step.output-limit: expected a whole number"),
        # The line is named only if no other line could be meant.
        ("[step]\n# timeout = 5\ntimeout = -5\n", ": step.timeout: expected seconds"),
        ("[database]\nurl = 5\n", ":2: database.url: expected an address"),
        ("[step]\ntimout = 5\n", ':2: there is no setting "step.timout"; did you mean "step.timeout"?'),
        ("[step.timeout]\nx = 5\n", ':2: there is no setting "step.timeout.x"'),
        ("step = 5\n", ':1: there is no setting "step"'),
        (
            "[sandbox.checkpoint]\nmax-checkpoints-per-plan = 5\nmax_checkpoints_per_plan = 6\n",
            (
                ':3: "sandbox.checkpoint.max_checkpoints_per_plan" was already given as '
                '"sandbox.checkpoint.max-checkpoints-per-plan"'
            ),
        ),
        ("[step\n", " is not valid TOML: Expected ']' at the end of a table declaration (at line 1, column 6)"),
        ("a = 1\na = 2\n", " is not valid TOML: Cannot overwrite a value (at line 2, column 6)"),
        ("a = " + "[" * 9999, " is nested too deeply"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(home: Path, text: str, message: str) -> None:
    (home / "config.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(home)
    assert caught.value.message.startswith(f"{home}/config.toml{message}")
    assert caught.value.exit_code == 9
    assert caught.value.hint


def test_what_cannot_be_read_as_a_file_of_settings_is_refused(home: Path, project: Path) -> None:
    (home / "config.toml").mkdir()
    with pytest.raises(ConfigError, match=r"config\.toml is not a file"):
        load(home)
    (project / "holdfast.toml").write_bytes(b"# \xff")
    with pytest.raises(ConfigError, match=r"holdfast\.toml is not UTF-8 text"):
        load_settings(project, project, {})
    (project / "file").write_text("")
    with pytest.raises(ConfigError, match=f"cannot be read: {os.strerror(20)}"):
        load_settings(project / "file", None, {})


def test_an_unknown_key_is_refused_with_the_known_ones(home: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(home, None, {}, {"step.timout": "5"})
    assert caught.value.message == 'there is no setting "step.timout"; did you mean "step.timeout"?'
    assert all(name in caught.value.hint for name in KEYS)


def test_a_misspelled_variable_is_refused_and_other_variables_are_not(home: Path) -> None:
    others = {"HOLDFAST_STEP": "build", "HOLDFAST_HOME": "/", "HOLDFAST_RESOURCE_APP": "/", "STEP_TIMEOU": "5"}
    assert load_settings(home, None, others).step_timeout_seconds is None
    with pytest.raises(ConfigError, match=r"HOLDFAST_STEP_TIMEOU; did you mean HOLDFAST_STEP_TIMEOUT\?"):
        load(home, HOLDFAST_STEP_TIMEOU="5")


def test_overrides_are_key_equals_value() -> None:
    assert parse_overrides(["step.timeout=5", " max_checkpoints_per_plan = 6", "step.timeout=a=b"]) == {
        "step.timeout": "a=b",
        MAX: " 6",
    }
    with pytest.raises(UsageError, match=r'"step\.timeout" is not KEY=VALUE'):
        parse_overrides(["step.timeout"])
    with pytest.raises(ConfigError, match='no setting "nope"'):
        parse_overrides(["nope=1"])


# --- whose setting it is


def test_a_project_may_not_say_where_the_records_go(home: Path, project: Path) -> None:
    (project / "holdfast.toml").write_text('[database]\nurl = "postgresql://elsewhere/x"\n')
    with pytest.raises(ConfigError) as caught:
        load(home, project)
    assert caught.value.message == (
        f"{project}/holdfast.toml:2: database.url may not be set by a project, only by its user"
    )
    with pytest.raises(ConfigError, match="may not be set by a project"):
        set_value(project_file(project), "database.url", "postgresql://elsewhere/x")
    assert unset_value(project_file(project), "database.url") is True
    assert load(home, project).database_url is None


def test_a_user_may_say_where_the_records_go(home: Path, project: Path) -> None:
    set_value(user_file(home), "database.url", "postgresql://here/x")
    assert load(home, project).database_url == "postgresql://here/x"
    assert load(home, project, HOLDFAST_DATABASE_URL="").database_url is None
    assert KEYS["database.url"].scope is Scope.USER


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:s3c@ret@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("postgresql://host/db?user=me&password=s3cret&x=1", "postgresql://host/db?user=me&password=***&x=1"),
        ("postgresql://me@host:5432/db", "postgresql://me@host:5432/db"),
    ],
)
def test_a_password_is_used_but_not_shown(home: Path, url: str, shown: str) -> None:
    settings = load(home, HOLDFAST_DATABASE_URL=url)
    assert settings.database_url == url
    assert settings.get("database.url").shown == shown


def test_every_setting_is_listed_with_value_and_origin(home: Path) -> None:
    entries = load(home, HOLDFAST_STEP_TIMEOUT="5").entries()
    assert [entry.key.name for entry in entries] == list(KEYS)
    shown = {entry.key.name: entry.shown for entry in entries}
    assert shown[AUTO] == [trigger.value for trigger in DEFAULT_TRIGGERS]
    assert (shown["step.timeout"], shown["database.url"], shown["sandbox.include-ignored"]) == (5.0, None, [])
    assert all(entry.key.description and entry.key.kind.name for entry in entries)


# --- editing


LAID_OUT = """\
# my settings

[sandbox.checkpoint]  # how often
max_checkpoints_per_plan = 11   # enough
auto-create-on = [
  "on_error",  # at least
]

[step]
# patience
timeout = 60
"""


def test_setting_a_value_leaves_comments_and_layout(home: Path) -> None:
    file = home / "config.toml"
    file.write_text(LAID_OUT)
    set_value(user_file(home), "step.timeout", "90")
    set_value(user_file(home), MAX, "12")
    assert file.read_text() == LAID_OUT.replace("timeout = 60", "timeout = 90").replace("= 11 ", "= 12 ")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing yet",
        LAID_OUT,
        "[sandbox]\ninclude-ignored = []\n",
        "sandbox.include-ignored = []",
        "[sandbox.checkpoint]\n[step]\n[sandbox]\ninclude-ignored = []\n",
        "step = {timeout = 5}\nsandbox = {}\n",
        "step.timeout = 5\r\n",
    ],
)
@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (AUTO, "on_error,before_step", ["on_error", "before_step"]),
        (AUTO, "", []),
        ("sandbox.include-ignored", '[".env"]', [".env"]),
        ("step.output-limit", "64KiB", "64KiB"),
        ("step.timeout", "none", "none"),
        ("database.url", "sqlite:///x", "sqlite:///x"),
    ],
)
def test_a_value_can_be_set_and_unset_in_any_file(
    home: Path, text: str, name: str, value: str, expected: object
) -> None:
    file = home / "config.toml"
    file.write_bytes(text.encode())
    before = load(home).entries()

    set_value(user_file(home), name, value)
    after = load(home)
    key = find_key(name)
    assert after.get(name).value == key.kind.check(expected)
    assert after.get(name).origin.layer is Layer.USER
    others = [entry for entry in before if entry.key is not key]
    assert [entry for entry in after.entries() if entry.key is not key] == others

    assert unset_value(user_file(home), name) is True
    assert load(home).get(name).origin.layer is Layer.DEFAULT
    assert [entry for entry in load(home).entries() if entry.key is not key] == others
    assert unset_value(user_file(home), name) is False


def test_setting_creates_home_and_file_for_the_user_alone(tmp_path: Path) -> None:
    home = tmp_path / "a" / "home"
    set_value(user_file(home), "step.timeout", "5")
    assert (home / "config.toml").read_text() == "[step]\ntimeout = 5\n"
    assert (home / "config.toml").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700
    assert os.listdir(home) == ["config.toml"]


def test_a_user_s_file_becomes_private_and_a_project_s_keeps_its_mode(home: Path, project: Path) -> None:
    for file in (home / "config.toml", project / "holdfast.toml"):
        file.write_text("")
        file.chmod(0o664)
    set_value(user_file(home), "step.timeout", "5")
    set_value(project_file(project), "step.timeout", "5")
    assert (home / "config.toml").stat().st_mode & 0o777 == 0o600
    assert (project / "holdfast.toml").stat().st_mode & 0o777 == 0o664


def test_a_user_s_link_is_followed_and_a_project_s_is_not(home: Path, project: Path, tmp_path: Path) -> None:
    mine, theirs = tmp_path / "dotfiles.toml", tmp_path / "elsewhere.toml"
    for target, link in ((mine, home / "config.toml"), (theirs, project / "holdfast.toml")):
        target.write_text("step.timeout = 1\n")
        link.symlink_to(target)
    set_value(user_file(home), "step.timeout", "5")
    set_value(project_file(project), "step.timeout", "5")
    assert (home / "config.toml").is_symlink()
    assert mine.read_text() == "step.timeout = 5\n"
    assert not (project / "holdfast.toml").is_symlink()
    assert theirs.read_text() == "step.timeout = 1\n"


def test_what_a_killed_editor_left_is_replaced_and_not_followed(home: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (home / ".config.toml.new").symlink_to(victim)
    set_value(user_file(home), "step.timeout", "5")
    assert victim.read_text() == "mine"
    assert os.listdir(home) == ["config.toml"]


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("sandbox.include-ignored", b"caf\xe9", "Write ? for each byte that is not UTF-8, or set it as"),
        ("sandbox.allow-write", b"/caf\xe9", "Set it as"),
    ],
)
def test_a_name_that_is_not_utf_8_is_not_written_into_a_file(home: Path, name: str, text: bytes, hint: str) -> None:
    with pytest.raises(ConfigError, match="is not UTF-8 text") as caught:
        set_value(user_file(home), name, os.fsdecode(text))
    assert caught.value.hint.startswith(hint)
    assert not user_file(home).path.exists()


def test_a_broken_file_is_not_edited(home: Path) -> None:
    file = home / "config.toml"
    for text in ("[step\n", "step = 5\n", "[[step]]\n", "[other]\nnot-equal-to-itself = nan\n"):
        file.write_text(text)
        with pytest.raises(ConfigError):
            set_value(user_file(home), "step.timeout", "5")
        assert file.read_text() == text


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/config\.toml cannot be written"):
        set_value(user_file(tmp_path / "file"), "step.timeout", "5")
    with pytest.raises(ConfigError, match=r"nowhere/holdfast\.toml cannot be written"):
        set_value(project_file(tmp_path / "nowhere"), "step.timeout", "5")


def test_editors_at_the_same_time_lose_nothing(home: Path) -> None:
    values = {"step.timeout": "5", "step.output-limit": "6", MAX: "7", "sandbox.include-ignored": "a", AUTO: "on_error"}
    for _ in range(5):
        (home / "config.toml").unlink(missing_ok=True)
        with ThreadPoolExecutor(len(values)) as pool:
            list(pool.map(lambda item: set_value(user_file(home), *item), values.items()))
        settings = load(home)
        assert {entry.key.name for entry in settings.entries() if entry.origin.layer is Layer.USER} == set(values)


def test_the_edited_file_is_plain_toml(home: Path) -> None:
    set_value(user_file(home), AUTO, "on_error")
    set_value(user_file(home), "sandbox.include_ignored", "a,b")
    assert tomllib.loads((home / "config.toml").read_text()) == {
        "sandbox": {"checkpoint": {"auto-create-on": ["on_error"]}, "include-ignored": ["a", "b"]}
    }


# --- the home


def test_home_is_what_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert home_directory({"HOLDFAST_HOME": "/some/where"}) == Path("/some/where")
    assert home_directory({"HOLDFAST_HOME": "here"}) == tmp_path / "here"


def test_home_is_else_the_platform_s_place_for_state() -> None:
    home = home_directory({"HOLDFAST_HOME": ""})
    assert home == home_directory({})
    assert home.is_absolute()
    assert home.name == "holdfast"


def test_reading_settings_does_not_import_the_editor_of_files() -> None:
    script = "import sys, holdfast.config; sys.exit('tomlkit' in sys.modules or 'click' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
