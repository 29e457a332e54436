"""One call of the command line: the options that every command takes, and Holdfast opened with them."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.output import Format, PlainScreen, Reply, Screen, can_ask, screen_for, wrapped, write_text
from holdfast.errors import StateError, UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from holdfast import Declined, Holdfast

PROGRAM = "holdfast"
T = TypeVar("T")


class Invocation:
    def __init__(self) -> None:
        self.command = ""
        self.only_looks = True
        """The command changes nothing, so it can be repeated."""
        self.format: Format | None = None
        self.project: Path | None = None
        self.home: Path | None = None
        self.overrides: list[str] = []
        self.uses_pager = True
        self.output_is_taken = False
        """Standard output belongs to the program that the command runs."""
        self.started = datetime.now(UTC)
        self._clock = time.monotonic()
        self.lost: tuple[str, OSError] | None = None
        """The stream to which not all output of that program could be written, and the error."""
        self._stack = ExitStack()

    @property
    def seconds(self) -> float:
        """How long the command has taken so far."""
        return time.monotonic() - self._clock

    @property
    def is_for_programs(self) -> bool:
        return self.format is not None and self.format.is_for_programs

    @cached_property
    def screen(self) -> Screen:
        """Where text for people goes: standard error if standard output is used for something else."""
        if self.is_for_programs:
            return PlainScreen(sys.stderr)
        return screen_for(self.format, os.environ, is_for_errors=self.output_is_taken)

    def limit(self, asked: int | None) -> int | None:
        """How many entries are listed, if ``limit_option`` was this; None for all."""
        if asked is None and self.screen.width is not None:
            return _MOST_ON_TERMINAL
        return asked or None

    def close(self) -> None:
        self._stack.close()
        if "screen" in self.__dict__:
            self.screen.close()

    def open(self) -> Holdfast:
        """Holdfast, open until the reply has been shown: for a command that reads while it shows."""
        return self._stack.enter_context(self.opened())

    def until_the_end(self, context: AbstractContextManager[object]) -> None:
        """Leave the context after the reply has been shown."""
        self._stack.enter_context(context)

    @contextmanager
    def opened(self) -> Iterator[Holdfast]:
        from holdfast.app import Holdfast
        from holdfast.cli.screen.bar import Bar
        from holdfast.config.loading import parse_overrides

        watcher = Bar(self.screen) if self.screen.is_live else None
        with (
            Holdfast.open(self.project, home=self.home, overrides=parse_overrides(self.overrides)) as holdfast,
            holdfast.watched_by(watcher),
        ):
            yield holdfast

    def refuse_to_guess(self, yes: bool) -> None:
        """Without a terminal to ask on, only ``--yes`` counts as consent."""
        if yes or can_ask():
            return
        raise UsageError(
            f"`{PROGRAM} {self.command}` asks before it acts, and there is no terminal to ask on; nothing was changed.",
            hint="Add --yes to confirm in advance.",
        )

    def asking(self, question: Callable[[T], str], yes: bool) -> Callable[[T], bool] | None:
        """A function that asks about a preview; None if ``--yes`` has answered already."""
        return None if yes else lambda preview: self.ask(question(preview))

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask unless ``yes``, and end the command if the answer is no."""
        if not yes and not self.ask(question):
            raise _declined()

    def ask(self, question: str) -> bool:
        """Ask on standard error, because standard output holds only the result."""
        self.screen.close()
        write_text(sys.stderr, "\n".join(wrapped(f"{question} [y/N]", self.screen.width)) + " ")
        answer = sys.stdin.readline()
        if not answer.endswith("\n"):
            write_text(sys.stderr, "\n")
        return answer.strip().lower() in ("y", "yes")


class NamedPath(click.Path):
    """A path that is not empty: an empty one, the value of an unset variable, would mean the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty.", param, ctx)
        return super().convert(value, param, ctx)


class FileOrInput(NamedPath):
    """The path of a file that is read, or ``-`` for standard input."""

    name = "file"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert("/dev/stdin" if value == "-" else value, param, ctx)


def _remember(name: str, convert: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None:
            setattr(context.ensure_object(Invocation), name, convert(value))

    return callback


def _remember_overrides(context: click.Context, _: click.Parameter, value: tuple[str, ...]) -> None:
    context.ensure_object(Invocation).overrides += value


def with_common_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--format``, ``--project``, ``--home`` and ``--config``, which every command and every group takes."""
    # The help lists a command's own options before these.
    own: list[click.Parameter] = getattr(function, "__click_params__", [])
    function.__dict__["__click_params__"] = []
    for option in (
        click.option(
            "--config",
            metavar="KEY=VALUE",
            multiple=True,
            expose_value=False,
            callback=_remember_overrides,
            help="Override a setting for this call only; see `holdfast config list`.",
        ),
        click.option(
            "--home",
            type=NamedPath(file_okay=False),
            metavar="PATH",
            expose_value=False,
            callback=_remember("home", Path),
            help="The folder where Holdfast stores everything; overrides HOLDFAST_HOME.",
        ),
        click.option(
            "--project",
            type=click.Path(exists=True, file_okay=False),
            metavar="PATH",
            expose_value=False,
            callback=_remember("project", Path),
            help="Use the project in this folder instead of the current one.",
        ),
        click.option(
            "--format",
            type=click.Choice([each.value for each in Format]),
            metavar="FORMAT",
            expose_value=False,
            callback=_remember("format", Format),
            help="Output format: rich, plain, json or yaml; by default rich on a terminal and plain elsewhere.",
        ),
    ):
        function = option(function)
    function.__dict__["__click_params__"] += own
    return function


_MOST_ON_TERMINAL = 100
_MOST = 1_000_000_000
"""Databases refuse larger limits."""


class Limit(click.IntRange):
    """A number, or ``all``, which becomes 0."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return 0 if value == "all" else super().convert(value, param, ctx)


def limit_option(things: str) -> Callable[[Callable[..., Reply]], Callable[..., Reply]]:
    """``--limit``; ``Invocation.limit`` tells what it means."""
    text = f"Only the N newest {things}; by default all, and on a terminal {_MOST_ON_TERMINAL}."
    return click.option("--limit", "-n", "asked", type=Limit(1, _MOST), metavar="N|all", help=text)


no_pager_option = click.option(
    "--no-pager",
    is_flag=True,
    expose_value=False,
    callback=lambda context, _, value: setattr(context.ensure_object(Invocation), "uses_pager", not value),
    help="Print directly; otherwise a terminal shows long output in $HOLDFAST_PAGER, $PAGER or less.",
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
include_option = click.option(
    "--include", multiple=True, metavar="PATTERN", help="Files ignored by git that the sandbox gets in any case."
)
exclude_option = click.option(
    "--exclude", multiple=True, metavar="PATTERN", help="Ignored and untracked files that the sandbox does not get."
)


def unless_declined(result: T | Declined) -> T:
    """The result of a verb that asks first; raises if the answer was no."""
    from holdfast import Declined

    if isinstance(result, Declined):
        raise _declined()
    return result


def _declined() -> Exception:
    return StateError("You said no; nothing was changed.")


Examples = Sequence[tuple[str, str]]
"""Command lines, and what each of them does."""


class CommandWithExamples(click.Command):
    """Its ``--help`` ends with examples."""

    examples: Examples = ()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        if self.examples:
            with formatter.section("Examples"):
                for line, purpose in self.examples:
                    # Not folded, so that it can be copied.
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")
                    with formatter.indentation():
                        formatter.write_text(purpose)


class LazyGroup(CommandWithExamples, click.Group):
    """A group that imports only the command that is called, and lists its commands in the order of the table.

    ``table``: for each name, the place of the command as ``module:attribute`` below ``holdfast.cli.commands``, and its
    summary; the attribute of a group is ``group``. ``short``: the group in it whose commands can be called without the
    name of that group. ``aliases``: other words for commands of this group.
    """

    def __init__(
        self,
        *,
        table: Mapping[str, tuple[str, str]],
        examples: Examples = (),
        short: str | None = None,
        aliases: Mapping[str, str] = {},
        **attributes: Any,
    ) -> None:
        listed = {name: click.Command(name, short_help=summary) for name, (_, summary) in table.items()}
        super().__init__(commands=listed, **attributes)
        self.examples, self._table, self._short, self._aliases = examples, table, short, aliases

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self._table)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        meant = self._aliases.get(args[0], args[0])
        if meant in self._table or meant.startswith("-"):
            name, listed, rest = super().resolve_command(ctx, [meant, *args[1:]])
            return name, self.imported(name) if listed and name else None, rest
        shortened = self._shortened()
        meant = meant if shortened is None else shortened._aliases.get(meant, meant)
        if shortened is not None and meant in shortened.names():
            return f"{self._short} {meant}", shortened.imported(meant), args[1:]
        if ctx.resilient_parsing:
            return None, None, args
        raise click.UsageError(f"No such command {args[0]!r}.{self._guess(ctx, args)}", ctx=ctx)

    def _guess(self, ctx: click.Context, args: Sequence[str]) -> str:
        from holdfast.cli.guessing import did_you_mean_command  # rarely needed, and slow to import

        root = ctx.find_root().command
        assert isinstance(root, LazyGroup)
        return did_you_mean_command(root, self, tuple(command_name(ctx).split()), args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        shortened = self._shortened()
        others = [] if shortened is None else shortened._table.items()
        return super().shell_complete(ctx, incomplete) + [
            CompletionItem(name, help=summary)
            for name, (_, summary) in others
            if name not in self._table and name.startswith(incomplete)
        ]

    def names(self) -> list[str]:
        """Everything that can follow it, also the commands that are called without the name of their group."""
        shortened = self._shortened()
        return [*self._table, *(shortened._table if shortened is not None else ())]

    def paths(self) -> Iterator[tuple[str, ...]]:
        """The names of all commands and groups below it, each with those of the groups that lead to it."""
        for name in self._table:
            yield (name,)
            below = self.group_named(name)
            if below is not None:
                yield from ((name, *path) for path in below.paths())

    def group_named(self, name: str) -> LazyGroup | None:
        place, _ = self._table.get(name, ("", ""))
        if not place.endswith(":group"):
            return None
        group = self.imported(name)
        assert isinstance(group, LazyGroup)
        return group

    def imported(self, name: str) -> click.Command:
        module, _, attribute = self._table[name][0].partition(":")
        found = getattr(importlib.import_module(f"holdfast.cli.commands.{module}"), attribute)
        assert isinstance(found, click.Command)
        return found

    def _shortened(self) -> LazyGroup | None:
        return self.group_named(self._short) if self._short is not None else None


class WithPaths(CommandWithExamples):
    """A command that takes paths after ``--``: they become its parameter ``paths``, whatever they look like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        paths = tuple(args[end + 1 :])
        rest = super().parse_args(ctx, args[:end])
        ctx.params["paths"] = paths
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- PATH...]"]


def command(
    name: str,
    *,
    examples: Examples = (),
    only_looks: bool = False,
    cls: type[CommandWithExamples] = CommandWithExamples,
    **attributes: Any,
) -> Callable[[Callable[..., Reply]], click.Command]:
    """Make a command of a function that takes the ``Invocation`` and the parameters, and returns a ``Reply``.

    ``only_looks``: the command changes nothing, so it can be repeated. ``examples``: two of how it is called.
    """

    def make(function: Callable[..., Reply]) -> click.Command:
        @wraps(function)
        def call(**parameters: Any) -> Reply:
            context = click.get_current_context()
            invocation = context.ensure_object(Invocation)
            invocation.command, invocation.only_looks = command_name(context), only_looks
            return function(invocation, **parameters)

        made = click.command(name, cls=cls, **attributes)(with_common_options(call))
        made.examples = examples
        return made

    return make


def command_name(context: click.Context | None) -> str:
    return context.command_path.removeprefix(PROGRAM).strip() if context else ""
