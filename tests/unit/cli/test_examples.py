"""The examples at the end of every ``--help``: each is a command line that is understood."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holdfast.cli.invocation import PROGRAM, CommandWithExamples, LazyGroup
from holdfast.cli.main import cli


def commands(group: LazyGroup = cli, path: str = PROGRAM) -> Iterator[tuple[str, click.Command]]:
    """Every command and every group, with all words that call it."""
    yield path, group
    for name in group.names() if group is not cli else group.list_commands(click.Context(group)):
        below = group.group_named(name)
        if below is not None:
            yield from commands(below, f"{path} {name}")
        else:
            yield f"{path} {name}", group.imported(name)


ALL = dict(commands())


def parsed(line: str) -> str:
    """The command that a command line calls; raises if there is anything wrong in it."""
    words = shlex.split(line.removeprefix('eval "$(').removesuffix(')"').partition(" > ")[0])
    assert words[0] == PROGRAM
    command: click.Command = cli
    context = cli.make_context(PROGRAM, words[1:])
    while isinstance(command, LazyGroup):
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command, context = found, found.make_context(name, rest, parent=context)
    return context.command_path


def test_every_command_is_looked_at() -> None:
    assert {"holdfast", "holdfast plan", "holdfast run", "holdfast plan diff", "holdfast config set"} <= ALL.keys()
    assert len(ALL) > 30


@pytest.mark.parametrize("name", ALL)
def test_help_ends_with_two_examples_that_can_be_typed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ALL[name]
    assert isinstance(command, CommandWithExamples)
    with click.Context(command, info_name=name, terminal_width=80) as context:
        shown = command.get_help(context)

    assert len(command.examples) == 2
    called = {parsed(line) for line, _ in command.examples}
    if not isinstance(command, LazyGroup):
        assert called <= {name, "holdfast log"}
    ending = shown.partition("\nExamples:\n")[2]
    assert ending.splitlines() == [each for line, text in command.examples for each in (f"  {line}", f"    {text}")]


def test_an_example_with_an_option_that_does_not_exist_would_be_found() -> None:
    with pytest.raises(click.UsageError, match="No such option"):
        parsed("holdfast plan status --everything")
