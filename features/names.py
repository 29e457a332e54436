"""The names that scenarios use for ids nobody knows beforehand, and paths into the answers of commands."""

from __future__ import annotations

import re

MOMENTS = {"start": "pre_execute", "end": "post_execute", "failure": "on_error"}
AROUND_A_STEP = {"before": "on_decision", "after": "on_tool_write_complete"}


def named(context, text):
    """The text with names in braces, like {before step 2} or {plan}, replaced by the ids they stand for."""
    return re.sub(r"\{([^{}\"]+)\}", lambda found: identifier(context, found[1]), text)


def identifier(context, name):
    scratch = context.scratch
    if name in context.noted:
        return context.noted[name]
    if name.startswith("the beginning of "):
        return identifier(context, name.removeprefix("the beginning of "))[:-1]
    if name == "project":
        return str(scratch.root)
    if name == "plan":
        return scratch.sandboxes().name
    if name in MOMENTS:
        return next(each for each in scratch.groups() if MOMENTS[name] in each["triggers"])["checkpoint_id"]
    if rest := re.fullmatch(r"rest (\d+)", name):
        return [each for each in scratch.groups() if "settled" in each["triggers"]][int(rest[1]) - 1]["checkpoint_id"]
    moment = re.fullmatch(r"(before|after|decision of) step (\d+)", name)
    assert moment, f"nobody knows what {{{name}}} is"
    group = scratch.checkpoint(AROUND_A_STEP.get(moment[1], "on_decision"), int(moment[2]))
    return group["decision_id" if moment[1] == "decision of" else "checkpoint_id"]


def value_at(data, path):
    """``steps[1].state`` and the like; a trailing ``.length`` counts."""
    for part in re.findall(r"[^.\[\]]+", path):
        data = len(data) if part == "length" else data[int(part) if isinstance(data, list) else part]
    return data
