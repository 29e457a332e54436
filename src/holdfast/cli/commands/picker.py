"""``holdfast log -i``: choose a moment and what to do with it; the command line's own questions come before it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.commands.plan.keep import keep_moment
from holdfast.cli.commands.plan.rollback import roll_back
from holdfast.cli.invocation import Invocation
from holdfast.cli.output import Format, Reply
from holdfast.cli.screen.picker.picking import Choice, Entry, Picker
from holdfast.cli.screen.picker.raw_terminal import RawTerminal, can_pick
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast import Holdfast, Timeline
    from holdfast.model import Plan

Act = Callable[[Invocation, "Holdfast", "Plan", Choice], Reply]


class Verb(NamedTuple):
    entry: Entry
    act: Act


def _roll_back(invocation: Invocation, holdfast: Holdfast, plan: Plan, choice: Choice) -> Reply:
    return roll_back(invocation, holdfast, plan.plan_id, _checkpoint(holdfast, plan, choice))


def _keep(invocation: Invocation, holdfast: Holdfast, plan: Plan, choice: Choice) -> Reply:
    return keep_moment(invocation, holdfast, plan.plan_id, _checkpoint(holdfast, plan, choice))


def _restore(invocation: Invocation, holdfast: Holdfast, plan: Plan, choice: Choice) -> Reply:
    has_several = len(plan.resources) > 1
    only = [f"{each.resource}:{each.path}" if has_several or ":" in each.path else each.path for each in choice.files]
    return roll_back(invocation, holdfast, plan.plan_id, _checkpoint(holdfast, plan, choice), only=only)


# What the menu offers for a moment.
_VERBS = (
    Verb(
        Entry("roll back", "the whole plan: files, position, decisions", lambda h, p, m: h.can_roll_back(p, m.group)),
        _roll_back,
    ),
    Verb(
        Entry("restore files", "choose them; everything else stays", lambda h, p, _: h.can_roll_back(p), True),
        _restore,
    ),
    Verb(
        Entry("keep", "make its files the complete result", lambda h, p, m: h.can_roll_back(p, m.group)),
        _keep,
    ),
)


def pick(invocation: Invocation, holdfast: Holdfast, timeline: Timeline) -> Reply:
    """Let a person choose on the terminal, and do it once the terminal is as it was."""
    if invocation.is_for_programs or invocation.format is Format.PLAIN:
        raise UsageError(
            f"`log -i` draws on a terminal, and has no output in the format {invocation.format}.",
            hint="Leave out -i; `holdfast log --stat` lists what each moment changed.",
        )
    if not can_pick():
        raise UsageError(
            "`log -i` needs a terminal for its input and its output.",
            hint="Leave out -i; `holdfast log --stat` lists what each moment changed.",
        )
    picker = Picker(holdfast, timeline, [verb.entry for verb in _VERBS])
    terminal = RawTerminal(with_colour=not os.environ.get("NO_COLOR"))
    # A bar for long work would be drawn into the picture.
    with holdfast.watched_by(lambda _: None), terminal.opened():
        choice = picker.pick(terminal)
    if choice is None:
        return Reply({}, lambda _: None)
    invocation.only_looks = False
    act = next(verb.act for verb in _VERBS if verb.entry is choice.entry)
    return act(invocation, holdfast, timeline.plan, choice)


def _checkpoint(holdfast: Holdfast, plan: Plan, choice: Choice) -> str:
    """As short as the log shows it, because the question names it."""
    return holdfast.lasting_id(plan.plan_id, choice.moment.checkpoints[0].checkpoint.checkpoint_id)
