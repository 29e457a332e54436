"""The sandboxes of a plan, all together: what is in them, whether they are there, and turned into recorded states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from holdfast.checkpoints.changes import States
from holdfast.checkpoints.history import History
from holdfast.checkpoints.unkept import restore_unkept
from holdfast.db.store import Store
from holdfast.errors import HoldfastError, SandboxError, StateError
from holdfast.model import CheckpointGroup, Plan, PlanState, Resource
from holdfast.names import name_text
from holdfast.sandbox import sandbox_for
from holdfast.sandbox.making import made_whole
from holdfast.snapshot.inspected import was_only_inspected
from holdfast.snapshot.manager import CheckpointManager, aside_of
from holdfast.snapshot.restore.write import Restored
from holdfast.snapshot.sandbox_checkpoint import SandboxCheckpoint
from holdfast.system.place import is_missing


class Sandboxes:
    def __init__(self, store: Store, manager: CheckpointManager) -> None:
        self._store, self._manager = store, manager

    # What is in them

    def watching(self, plan: Plan) -> AbstractContextManager[None]:
        """While this lasts, looking at the sandboxes costs what changed and not what there is."""
        return self._manager.watching(Path(resource.sandbox_path) for resource in plan.resources)

    def heard(self, plan: Plan) -> tuple[int | str, ...]:
        """Something that is another whenever the sandboxes have changed, as cheap as can be had."""
        paths = [Path(resource.sandbox_path) for resource in plan.resources]
        heard = [self._manager.event_bytes(path) for path in paths]
        return tuple(
            self._manager.state_of(path, thorough=False) if number is None else number
            for path, number in zip(paths, heard, strict=True)
        )

    def states_now(self, plan: Plan, *, thorough: bool = True) -> dict[str, str]:
        """What is in the sandboxes now; ``thorough``: every file is looked at, whatever the kernel told."""
        return {
            resource.name: self._manager.state_of(Path(resource.sandbox_path), thorough=thorough)
            for resource in plan.resources
        }

    def changed_since(self, plan: Plan, recorded: States, *, thorough: bool = False) -> tuple[str, ...]:
        """The resources whose sandboxes are no longer what was recorded; looking into one does not change it.

        One that is gone counts as unchanged: it is made again as it was recorded.
        """
        with self._manager.storing():
            there = [each for each in plan.resources if not is_missing(Path(each.sandbox_path))]
            found = {each.name: self._manager.state_of(Path(each.sandbox_path), thorough=thorough) for each in there}
            changed = [resource for resource in there if found[resource.name] != recorded[resource.name]]
            reader = self._manager.reader
            return tuple(
                each.name
                for each in changed
                if not was_only_inspected(reader, sandbox_for(plan, each), recorded[each.name], found[each.name])
            )

    # Whether they can be used

    def check(self, plan: Plan) -> None:
        """Refuse to restore anything into sandboxes that are gone, or whose result is in the real files already."""
        if plan.state is PlanState.APPLIED:
            raise StateError(
                f"Plan {plan.plan_id} is applied: its result is in the real files and a rollback would not reach them.",
                hint=f"Take it out of them first: `holdfast plan unapply {plan.plan_id}`.",
            )
        self.refuse_missing(plan)

    def refuse_missing(self, plan: Plan) -> None:
        """Refuse what needs a sandbox that is gone; only going on with the plan makes it again."""
        for resource in plan.resources:
            if is_missing(Path(resource.sandbox_path)):
                raise SandboxError(
                    f"The sandbox of resource {resource.name!r} is missing: {resource.sandbox_path}.",
                    hint=f"Its checkpoints are safe. {self._how_it_is_made_again(plan)}",
                )

    def _how_it_is_made_again(self, plan: Plan) -> str:
        root_id = self._store.plans.root_of(plan).plan_id
        goes_on = "" if plan.state in (PlanState.COMPLETE, PlanState.CONSTRAINED) else " and goes on with the plan"
        making = f"`holdfast plan resume {root_id}` makes it anew{goes_on}; then run this command again."
        if History(self._store, plan).is_recorded:
            return making
        return (
            f"{making} The last one does not hold all that steps did: "
            f"`holdfast plan resume --dry-run {root_id}` tells what is run again."
        )

    def check_content(self, plan: Plan, states: States) -> None:
        """Refuse if content that these states need is missing or damaged."""
        for resource in plan.resources:
            self._manager.check(Path(resource.sandbox_path), states[resource.name])

    def keep_sound(self, plan: Plan, left: States, target: States) -> None:
        """Refuse if the sandboxes, which are in the states ``left``, could not come back from ``target``.

        What of that is damaged in the store is stored again from the sandboxes.
        """
        for resource in plan.resources:
            self._manager.ensure_recoverable(Path(resource.sandbox_path), left[resource.name], target[resource.name])

    def in_the_way(self, plan: Plan, group: CheckpointGroup) -> tuple[str, ...]:
        """What restoring the group would set aside, because no snapshot can hold it."""
        found: list[str] = []
        for resource in plan.resources:
            unheld = {each.path for each in group.unheld.get(resource.name, ())}
            path = Path(resource.sandbox_path)
            found += map(str, self._manager.in_the_way(path, group.states[resource.name], unheld))
        return tuple(found)

    # Made and restored

    def make_again(self, resource: Resource, state: str) -> None:
        """Make a sandbox that is gone again, whole or not at all.

        One that is there counts as what was recorded, so a part of one must never stand in its place.
        """
        path = Path(resource.sandbox_path)
        self._manager.forget(path)
        with made_whole(path) as unfinished:
            unfinished.mkdir(mode=0o700)
            self._manager.restore(unfinished, state, aside=aside_of(path), name=path.name)
            self._manager.forget(unfinished)

    def make_empty(self, plan: Plan) -> None:
        """If a sandbox is gone, make an empty one that the restore to come will fill."""
        for resource in plan.resources:
            path = Path(resource.sandbox_path)
            if is_missing(path):
                self._manager.forget(path)
                path.mkdir(parents=True, mode=0o700)

    def restore_states(self, plan: Plan, states: Mapping[str, str]) -> tuple[str, ...]:
        """Turn the sandboxes into these states, and say where what stood in the way was set aside.

        Whoever calls has made sure that what is there now is kept or not needed.
        """

        def restore(resource: Resource, aside: Path) -> Restored:
            return self._manager.restore(Path(resource.sandbox_path), states[resource.name], aside=aside)[1]

        return _restore_each(plan.resources, restore)

    def restore_group(self, plan: Plan, group: CheckpointGroup, *, is_unkept: bool = False) -> tuple[str, ...]:
        """The same with what a group holds; ``is_unkept``: what is there now is kept nowhere."""

        def restore(resource: Resource, aside: Path) -> Restored:
            return restore_unkept(self._manager, resource, group, aside)

        return _restore_each(plan.resources, restore if is_unkept else self._from(group))

    def restore_one(self, resource: Resource, group: CheckpointGroup) -> None:
        _restore_each((resource,), self._from(group))

    def _from(self, group: CheckpointGroup) -> Callable[[Resource, Path], Restored]:
        return lambda resource, aside: self._manager.rollback_to(
            SandboxCheckpoint.held_by(group, resource), aside=aside
        )[1]


def _restore_each(resources: Iterable[Resource], restore: Callable[[Resource, Path], Restored]) -> tuple[str, ...]:
    """Where what stood in the way was set aside; an error tells that, too, also of the resources before."""
    set_aside: list[str] = []
    for resource in resources:
        aside = aside_of(Path(resource.sandbox_path))
        try:
            restored = restore(resource, aside)
        except HoldfastError as error:
            places = [*set_aside, *([str(aside)] if isinstance(error, SandboxError) and aside.is_dir() else [])]
            if not places:
                raise
            moved = f"{error.message} What stood in the way was moved to {', '.join(map(name_text, places))}."
            raise type(error)(moved, hint=error.hint) from error
        set_aside += [str(place) for _, place in restored.set_aside]
    return tuple(set_aside)
