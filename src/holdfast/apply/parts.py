"""A plan applied in parts: which paths of its result come now, and which stay for a later apply.

The rest is the difference between the end of the plan and its start, in which what was applied already is as it was
applied. That start is a state of its own: each apply of a part stores the next one, and its operation names it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from holdfast.checkpoints.chosen_paths import Chosen, chosen_among
from holdfast.checkpoints.service import CheckpointService
from holdfast.content.batch import Batch
from holdfast.content.difference import Difference, StateReader
from holdfast.content.format import DIRECTORY, Entry, State
from holdfast.content.grafting import grafted
from holdfast.db.journal import ApplyEntry, RealFilesEntry
from holdfast.errors import StateError, UsageError
from holdfast.model import CheckpointGroup, Operation, Plan
from holdfast.names import name_text
from holdfast.sandbox.databases import database_of
from holdfast.snapshot.selection import same
from holdfast.system.directories import ancestors, shown

Changes = Mapping[bytes, Entry | None]


class Part(msgspec.Struct, frozen=True):
    """What an apply of a part takes of the plan's result; nothing, if it is an apply of all that was left."""

    start: Mapping[str, str]
    """By resource the state from which the difference to the end of the plan was left until now."""
    taken: Mapping[str, Changes] = msgspec.field(default_factory=dict)
    """By resource what is applied now, with the folders that it needs."""
    only: tuple[str, ...] = ()
    """The paths that a person chose."""


def start_of_rest(plan: Plan, first: CheckpointGroup, service: CheckpointService) -> Mapping[str, str]:
    """By resource the state from which the difference to the end of the plan is left to be applied."""
    last = service.store.operations.applied(plan.plan_id)
    known = RealFilesEntry.of(last).states if last is not None else {}
    return {name: known.get(_key(name), state) for name, state in first.states.items()}


def _key(resource: str) -> str:
    """Under which key the entry of an operation names that state."""
    return f"{resource}/rest"


def store_rest(part: Part, reader: StateReader, batch: Batch) -> dict[str, str]:
    """Store the states from which the difference to the end of the plan will be left."""
    rest = {}
    for name, state in part.start.items():
        taken = part.taken.get(name)
        rest[_key(name)] = grafted(reader, batch, reader.state(state), taken) if taken else state
    return rest


def applied_in_part(operation: Operation) -> bool:
    """Whether it is an apply after which something of the plan's result was left, or the undoing of one."""
    return RealFilesEntry.of(operation).is_partial


def chosen_parts(plan: Plan, only: Sequence[str], left: Mapping[str, Sequence[Difference]]) -> Chosen:
    """The paths that a person chose of what is left; refuses what names nothing there, or more than one resource."""
    if plan.parent_plan_id is not None:
        raise UsageError("A subplan is applied as a whole.", hint="Leave `--only` out, or apply a part of its plan.")
    listed = {name: [each for each in found if not same(each.old, each.new)] for name, found in left.items()}
    nothing = "names nothing of the plan's result that is not applied yet"
    return chosen_among(plan, only, listed, lambda *_: False, otherwise=nothing, must_be_one=True)


def refuse_to_split(resource: str, chosen: Collection[bytes], rest: Sequence[Difference], result: State) -> None:
    """Refuse a part that cannot be applied without another one: both are one thing."""
    others = {each.path: each for each in rest if not same(each.old, each.new)}
    for group in (*result.links, *_databases({*chosen, *others})):
        here, there = [path for path in group if path in chosen], [path for path in group if path in others]
        if here and there:
            raise _is_split(resource, here[0], there)
    for path in chosen:
        above = next((each for each in ancestors(path) if each in others and _becomes_a_folder(others[each])), None)
        if above is not None:
            raise _is_split(resource, path, [above])


def _databases(paths: Iterable[bytes]) -> list[tuple[bytes, ...]]:
    """Databases with their logs, by their names."""
    found: dict[bytes, list[bytes]] = {}
    for path in sorted(paths):
        found.setdefault(database_of(path) or path, []).append(path)
    return [tuple(group) for group in found.values()]


def _becomes_a_folder(difference: Difference) -> bool:
    old, new = difference.old, difference.new
    return old is not None and new is not None and old.kind != DIRECTORY == new.kind


def _is_split(resource: str, path: bytes, others: Sequence[bytes]) -> StateError:
    listed = ", ".join(name_text(shown(each)) for each in others)
    return StateError(
        f"{resource}: {name_text(shown(path))} cannot be applied without {listed}; nothing was applied.",
        hint="They are one file, a database and its log, or a folder and what is in it. Name both with `--only`.",
    )


def with_folders_of(reader: StateReader, start: State, result: State, taken: Changes) -> Changes:
    """The changes with the folders that they need and that are not there at the start."""
    needed = {folder for path, entry in taken.items() if entry is not None for folder in ancestors(path)}
    missing = [folder for folder in needed - taken.keys() if _is_no_folder(reader.find(start, folder))]
    return {**taken, **{folder: reader.find(result, folder) for folder in missing}}


def _is_no_folder(entry: Entry | None) -> bool:
    return entry is None or entry.kind != DIRECTORY


def parts_applied(operations: Iterable[Operation]) -> tuple[str, ...]:
    """The paths of all that was applied in parts, as they were chosen, in the order of the applies."""
    entries = (ApplyEntry.of(operation) for operation in operations)
    return tuple(dict.fromkeys(path for entry in entries if entry.is_partial for path in entry.only))


def name_in_record(path: str) -> str:
    """Records are text, a path need not be."""
    return os.fsencode(path).decode(errors="backslashreplace")
