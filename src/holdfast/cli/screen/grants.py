"""What the profile of an agent allowed a program, and which writes were refused to it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from holdfast.cli.output import Screen, show_facts, wrapped
from holdfast.model import Grant, RefusedWrite, Step
from holdfast.names import name_text


def show_grants(screen: Screen, step: Step) -> None:
    if step.grant is not None:
        show_facts(screen, [("agent  ", _grant_text(step.grant))])


def _grant_text(grant: Grant) -> str:
    home = str(Path.home())
    places = [name_text(f"~{each[len(home) :]}" if each.startswith(f"{home}/") else each) for each in grant.allow_write]
    parts = [f"may write {', '.join(places)}"] if places else []
    parts += [f"sees {', '.join(map(name_text, grant.pass_env))}"] if grant.pass_env else []
    return f"{grant.title}: {'; '.join(parts)}. `--agent none` allows nothing."


def show_refused(screen: Screen, refused: Sequence[RefusedWrite]) -> None:
    """Each refused write, with what would have allowed it."""
    for each in refused:
        for number, line in enumerate(line for said in _lines(each) for line in wrapped(said, _room(screen))):
            screen.line(("refused  " if number == 0 else "         ", "warn"), line)


def _room(screen: Screen) -> int | None:
    return None if screen.width is None else screen.width - len("refused  ")


def _lines(refused: RefusedWrite) -> Iterator[str]:
    if refused.allow is None:
        yield f"writing {name_text(refused.path)}: {name_text(refused.reason)}"
        return
    made = " once it exists" if refused.is_missing else ""
    yield f"writing {name_text(refused.path)}; allowed by `{_option(refused)}`{made}"


def _option(refused: RefusedWrite) -> str:
    return f"--allow-write {shlex.quote(name_text(refused.allow or ''))}"


def refused_data(refused: RefusedWrite) -> dict[str, Any]:
    return {"path": refused.path, "allow_write": refused.allow, "reason": refused.reason or None}
