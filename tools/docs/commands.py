"""The reference of all commands, made from the commands themselves: ``python -m tools.docs.commands``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from holdfast.cli.invocation import CommandWithExamples
from holdfast.cli.main import cli
from tools.docs.pages import DOCS

PAGE = DOCS / "reference" / "commands.md"
_COMMON = ("format", "project", "home", "config")
_BEGINNING = """\
# Commands

<!-- Made by `python -m tools.docs.commands` from the commands themselves; edit them, not this page. -->

What each command says with `--help` (or `-h`). How they end: [exit-codes.md](exit-codes.md).

`PLAN_ID` is an id, a unique prefix of one, or `latest`, the newest plan of this project. `CHECKPOINT_ID` is an id, a
display id (`cp_...`), a unique prefix of one, a label, or a moment: `@`, `@-2`, `@{10 minutes ago}`, `start`.
`DECISION_ID` is an id or a unique prefix of one.

Every command of `holdfast plan` also works without the word plan: `holdfast status` is `holdfast plan status`. The
name of the command in an answer for programs is the long one in both cases.

`holdfast --version` prints the version.

## Options of every command
"""


def reference() -> str:
    """The whole page."""
    parts = [_BEGINNING, _options(cli, common=True)]
    for name, command in _commands(cli, "holdfast"):
        parts += ["", f"## {name}", "", f"`{_usage(name, command)}`", "", _help(command)]
        if own := _options(command, common=False):
            parts += ["", own]
        parts += ["", *_examples(command)]
    return "\n".join(parts) + "\n"


def _commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    with click.Context(group) as context:
        for name in group.list_commands(context):
            _, command, _ = group.resolve_command(context, [name])
            if command is None or command.hidden:
                continue
            if isinstance(command, click.Group):
                yield from _commands(command, f"{path} {name}")
            else:
                yield f"{path} {name}", command


def _usage(name: str, command: click.Command) -> str:
    with click.Context(command, info_name=name) as context:
        return " ".join([name, *command.collect_usage_pieces(context)])


def _help(command: click.Command) -> str:
    return inspect.cleandoc(command.help or command.short_help or "")


def _examples(command: click.Command) -> list[str]:
    assert isinstance(command, CommandWithExamples)
    lines = [each for line, purpose in command.examples for each in (f"# {purpose}", line)]
    return ["```", *lines, "```"]


def _options(command: click.Command, *, common: bool) -> str:
    rows = []
    with click.Context(command) as context:
        for parameter in command.params:
            if not isinstance(parameter, click.Option) or parameter.hidden or parameter.name == "version":
                continue
            if (parameter.name in _COMMON) is common:
                record = parameter.get_help_record(context)
                assert record is not None
                rows.append(f"| `{record[0].replace('|', chr(92) + '|')}` | {' '.join(record[1].split())} |")
    return "\n".join(["| option | |", "|---|---|", *rows]) if rows else ""


if __name__ == "__main__":
    PAGE.write_text(reference())
