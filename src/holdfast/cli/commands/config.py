"""``holdfast config``: show settings with their origin, and change them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.completion import complete_key
from holdfast.cli.invocation import Invocation, LazyGroup, command, no_pager_option, with_common_options
from holdfast.cli.output import Reply, Screen, wrapped
from holdfast.config.editing import set_value, unset_value
from holdfast.config.keys import find_key
from holdfast.config.loading import ConfigFile, Setting, project_file, user_file
from holdfast.names import name_text

if TYPE_CHECKING:
    from holdfast import Holdfast

_COMMANDS = {
    "list": ("config:list_settings", "List all settings, and where each value comes from."),
    "get": ("config:get", "Print the value of one setting."),
    "set": ("config:set_setting", "Change a setting."),
    "unset": ("config:unset", "Remove a setting from a file."),
}


_EXAMPLES = (
    ("holdfast config list", "All settings, with their origin."),
    ("holdfast config set sandbox.spares 0", "Change one for all your projects."),
)


@click.group("config", cls=LazyGroup, table=_COMMANDS, examples=_EXAMPLES)
@with_common_options
def group() -> None:
    """Show and change settings.

    Later places override earlier ones: default, your file, the project's holdfast.toml, environment, --config.
    """


_scope = click.option(
    "--scope",
    type=click.Choice(["user", "project"]),
    default="user",
    show_default=True,
    help="Which file: yours, or the project's holdfast.toml.",
)


@command(
    "list",
    only_looks=True,
    examples=(
        ("holdfast config list", "All settings, with their origin."),
        ("holdfast config list --format json", "The same for a program."),
    ),
)
@no_pager_option
def list_settings(invocation: Invocation) -> Reply:
    """List all settings, and where each value comes from."""
    with invocation.opened() as holdfast:
        settings = holdfast.settings.entries()
    data = {"settings": [_data(each) for each in settings]}
    return Reply(data, lambda screen: _show(screen, settings), is_long=True)


def _show(screen: Screen, settings: tuple[Setting, ...]) -> None:
    room = None if screen.width is None else screen.width - 2
    for each in settings:
        screen.line((each.key.name, "strong"), " = ", _text(each.shown))
        for line in wrapped(each.key.description, room):
            screen.line("  ", (line, "dim"))
        screen.line("  ", (f"from: {name_text(str(each.origin))}", "dim"))


def _data(setting: Setting) -> dict[str, Any]:
    return {
        "key": setting.key.name,
        "value": setting.shown,
        "origin": setting.origin.layer,
        "where": setting.origin.where,
        "type": setting.key.kind.name,
        "variable": setting.key.variable,
        "description": setting.key.description,
    }


def _text(value: Any) -> str:
    """The value as `config set` takes it."""
    if isinstance(value, list):
        return ",".join(value) if value else "[]"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


@command(
    "get",
    only_looks=True,
    examples=(
        ("holdfast config get sandbox.checkpoint.max-bytes", "How much content a plan may store."),
        ("holdfast config get sandbox.confine", "Whether steps are confined."),
    ),
)
@click.argument("key", shell_complete=complete_key)
def get(invocation: Invocation, key: str) -> Reply:
    """Print the value of one setting, in the form that `config set` takes."""
    with invocation.opened() as holdfast:
        setting = holdfast.settings.get(key)
    return Reply(_data(setting), lambda screen: screen.line(_text(setting.shown)))


@command(
    "set",
    examples=(
        ("holdfast config set step.timeout 600", "For all your projects."),
        ("holdfast config set --scope project sandbox.exclude build", "For this project."),
    ),
)
@_scope
@click.argument("key", shell_complete=complete_key)
@click.argument("value")
def set_setting(invocation: Invocation, scope: str, key: str, value: str) -> Reply:
    """Change a setting in your file, or in the project's. Write a list as words with commas between them."""
    with invocation.opened() as holdfast:
        file = _file(holdfast, scope)
        name = find_key(key).name
        set_value(file, name, value)
    with invocation.opened() as holdfast:
        setting = holdfast.settings.get(name)
    is_hidden = setting.origin.where != str(file.path)
    messages = (f"Not in force: {setting.origin} overrides it.",) if is_hidden else ()
    return Reply({**_data(setting), "file": file.path}, lambda screen: _show(screen, (setting,)), messages=messages)


@command(
    "unset",
    examples=(
        ("holdfast config unset step.timeout", "Use the default again."),
        ("holdfast config unset --scope project sandbox.exclude", "In the file of this project."),
    ),
)
@_scope
@click.argument("key", shell_complete=complete_key)
def unset(invocation: Invocation, scope: str, key: str) -> Reply:
    """Remove a setting from your file, or from the project's."""
    with invocation.opened() as holdfast:
        file = _file(holdfast, scope)
        name = find_key(key).name
        was_set = unset_value(file, name)
    with invocation.opened() as holdfast:
        setting = holdfast.settings.get(name)
    messages = () if was_set else (f"It was not set in {file.path}.",)
    data = {**_data(setting), "file": file.path, "was_set": was_set}
    return Reply(data, lambda screen: _show(screen, (setting,)), messages=messages)


def _file(holdfast: Holdfast, scope: str) -> ConfigFile:
    return user_file(holdfast.home) if scope == "user" else project_file(holdfast.project_root)
