"""Shell completion of plans, checkpoints, decisions and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation
from holdfast.config.keys import KEYS

if TYPE_CHECKING:
    # Every command imports this module, and few calls complete anything.
    from click.shell_completion import CompletionItem

_MOST = 50
Completer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def _quietly(offered: Callable[[Invocation, click.Context], Iterable[tuple[str, str]]]) -> Completer:
    """A completer that offers nothing if there is an error: the shell would print it into the typed line."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        with suppress(Exception):
            invocation = context.ensure_object(Invocation)
            wanted = incomplete.lower()
            items = [each for each in offered(invocation, context) if each[0].lower().startswith(wanted)]
            return [CompletionItem(value, help=about) for value, about in items[:_MOST]]
        return []

    return complete


def _plans(invocation: Invocation, _: click.Context) -> Iterable[tuple[str, str]]:
    with invocation.opened() as holdfast:
        plans = [(plan.plan_id, f"{plan.state}: {plan.name}") for plan in holdfast.list_plans(limit=_MOST)]
    return [*plans, ("latest", "the newest plan")]


def _checkpoints(invocation: Invocation, context: click.Context) -> Iterable[tuple[str, str]]:
    from holdfast import checkpoint_title

    with invocation.opened() as holdfast:
        views = holdfast.checkpoints(_plan_named_in(context))
    titled = [(view, checkpoint_title(view.checkpoint, view.group)) for view in views]
    labels = [(view.group.label, title) for view, title in titled if view.group.label]
    moments = [("@", "the present moment"), ("@-1", "the moment before"), ("start", "the first moment")]
    return [*((view.display_id, title) for view, title in reversed(titled)), *labels, *moments]


def _plan_named_in(context: click.Context) -> str:
    """The plan that the typed line names so far: as an argument, with ``run --in``, or before a checkpoint."""
    named = context.params
    return str(named.get("plan") or named.get("in_plan") or next(iter(named.get("words") or ()), "latest"))


def _decisions(invocation: Invocation, _: click.Context) -> Iterable[tuple[str, str]]:
    with invocation.opened() as holdfast:
        decisions = holdfast.decisions("latest")
    return [(each.decision_id, each.chosen) for each in reversed(decisions) if not each.is_superseded]


def _keys(_: Invocation, __: click.Context) -> Iterable[tuple[str, str]]:
    return [(key.name, key.description) for key in KEYS.values()]


complete_plan = _quietly(_plans)
complete_checkpoint = _quietly(_checkpoints)
complete_decision = _quietly(_decisions)
complete_key = _quietly(_keys)


def complete_plan_or_file(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    files = [str(path) for pattern in ("*.yaml", "*.yml") for path in sorted(Path().glob(pattern))]
    plans = complete_plan(context, parameter, incomplete)
    return [*(CompletionItem(name) for name in files if name.startswith(incomplete)), *plans]
