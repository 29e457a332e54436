"""Paths that a person chooses, as ``PATH`` or ``RESOURCE:PATH``: what they stand for in the resources of a plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from holdfast.content.difference import Difference
from holdfast.errors import AmbiguousError, NotFoundError, UsageError
from holdfast.model import Plan, Resource
from holdfast.names import name_text
from holdfast.sandbox.protocol import sandbox_for
from holdfast.system.directories import shown, with_ancestors
from holdfast.system.paths import readings

Differing = Mapping[str, Sequence[Difference]]
"""By resource: what differs."""


class Chosen(msgspec.Struct, frozen=True):
    """By resource the chosen paths; what is below a path is chosen with it, and the empty path is all of it."""

    paths: Mapping[str, frozenset[bytes]]

    def of(self, resource: str, differences: Sequence[Difference]) -> list[Difference]:
        """Those of the differences that are chosen."""
        chosen = self.paths.get(resource, frozenset())
        return [each for each in differences if not chosen.isdisjoint(with_ancestors([each.path]))]


def chosen_among(
    plan: Plan,
    texts: Sequence[str],
    differing: Differing,
    exists: Callable[[Resource, bytes], bool],
    *,
    otherwise: str = "names nothing in the plan's sandboxes, and nothing that it changed",
    must_be_one: bool = False,
) -> Chosen:
    """What these texts choose of all that differs; refuses one that names nothing.

    ``exists`` says whether a path in which nothing differs is there at all; ``otherwise`` what is wrong if not.
    ``must_be_one``: refuses as well what is in
    several resources.
    """
    changed = {name: with_ancestors(each.path for each in listed) for name, listed in differing.items() if listed}
    found: dict[str, set[bytes]] = {}
    for text in texts:
        named = [
            (resource, path)
            for resource, path in resources_named(plan, text)
            if path in changed.get(resource.name, ()) or exists(resource, path)
        ]
        if not named:
            raise NotFoundError(
                f"'{name_text(text)}' {otherwise}.",
                hint=f"A path is relative to the root of its resource, as in `{_example(plan, differing)}`.",
            )
        if must_be_one and len(named) > 1:
            raise AmbiguousError(
                f"'{name_text(text)}' is in several resources.",
                hint=f"Say which one: {', '.join(_label(each.name, path) for each, path in named)}.",
            )
        for resource, path in named:
            _refuse_what_is_hidden(plan, resource, path)
            found.setdefault(resource.name, set()).add(path)
    return Chosen({name: frozenset(paths) for name, paths in found.items()})


def _example(plan: Plan, differing: Differing) -> str:
    """A path that could be named; something that differs, if anything does."""
    for name, listed in differing.items():
        for each in listed:
            return _label(name, each.path)
    return _label(plan.resources[0].name, b"")


def _label(resource: str, path: bytes) -> str:
    return f"{resource}:{name_text(shown(path))}"


def _refuse_what_is_hidden(plan: Plan, resource: Resource, path: bytes) -> None:
    if path and sandbox_for(plan, resource).hides(path):
        raise UsageError(
            f"{name_text(os.fsdecode(path))} of {resource.name} belongs to the sandbox's repository, and is no file of "
            "yours.",
            hint="Name files and folders of the work tree.",
        )


def resources_named(plan: Plan, text: str) -> Iterator[tuple[Resource, bytes]]:
    return ((plan.resource(name), path) for name, path in readings([each.name for each in plan.resources], text))
