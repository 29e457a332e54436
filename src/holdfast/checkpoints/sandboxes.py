"""Sandboxes: all sandboxes of a plan together: reads, checks, creates and restores them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from holdfast.checkpoints.changes import States
from holdfast.checkpoints.history import History
from holdfast.checkpoints.unkept import restore_unkept, unheld_paths
from holdfast.db.store import Store
from holdfast.errors import HoldfastError, SandboxError, StateError
from holdfast.model import CheckpointGroup, Plan, PlanState, Resource
from holdfast.names import name_text
from holdfast.sandbox.making import made_whole
from holdfast.sandbox.protocol import sandbox_for
from holdfast.snapshot.inspected import was_only_inspected
from holdfast.snapshot.manager import CheckpointManager, aside_of
from holdfast.snapshot.restore.write import Restored
from holdfast.system.place import is_missing


class Sandboxes:
    """Works on the sandboxes of plans."""

    def __init__(self, store: Store, manager: CheckpointManager) -> None:
        self._store, self._manager = store, manager

    # Reading

    def watching(self, plan: Plan) -> AbstractContextManager[None]:
        """In this context, scans of the sandboxes cost time in proportion to what changed, not to their size."""
        return self._manager.watching(self._manager.place_of(resource) for resource in plan.resources)

    def looking(self) -> AbstractContextManager[None]:
        """In this context, each sandbox is scanned once, and all that a verb does is about what that scan found."""
        return self._manager.looks.looking()

    def look_again(self, plan: Plan) -> None:
        """Have the sandboxes scanned when they are asked for next: something may have changed them."""
        for resource in plan.resources:
            self._manager.looks.again(self._manager.place_of(resource))

    def refuse_changed(self, plan: Plan, target: States) -> None:
        """Refuse to restore if files that would be touched have changed since the scan, and no group holds them."""
        for resource in plan.resources:
            self._manager.refuse_changed(self._manager.place_of(resource), target[resource.name])

    def watch_new(self, sandbox: Path, directory: str) -> None:
        """Watch a directory in a sandbox that our own process has made this moment, if the sandbox is watched."""
        self._manager.trackers.watch_new(sandbox, directory)

    def heard(self, plan: Plan) -> tuple[int | str, ...]:
        """A value that changes whenever the sandboxes change, found as cheaply as possible."""
        paths = [self._manager.place_of(resource) for resource in plan.resources]
        heard = [self._manager.trackers.event_bytes(path) for path in paths]
        return tuple(
            self._manager.state_of(path, thorough=False) if number is None else number
            for path, number in zip(paths, heard, strict=True)
        )

    def states_now(self, plan: Plan, *, thorough: bool = True) -> dict[str, str]:
        """The present states of the sandboxes; ``thorough``: check every file, whatever the kernel reported."""
        return {
            resource.name: self._manager.state_of(self._manager.place_of(resource), thorough=thorough)
            for resource in plan.resources
        }

    def changed_since(self, plan: Plan, recorded: States, *, thorough: bool = False) -> tuple[str, ...]:
        """The resources whose sandboxes differ from these states; traces of only looking into one do not count.

        A missing sandbox counts as unchanged: it is re-created as it was recorded.
        """
        with self._manager.storing():
            changed, reader = [], self._manager.reader
            for each in plan.resources:
                path, old = self._manager.place_of(each), recorded[each.name]
                new = old if is_missing(path) else self._manager.state_of(path, thorough=thorough)
                if new != old and not was_only_inspected(reader, sandbox_for(plan, each), old, new):
                    changed.append(each.name)
            return tuple(changed)

    # Checking

    def check(self, plan: Plan) -> None:
        """Refuse to restore sandboxes that are missing, or whose result is already in the real files."""
        if plan.state is PlanState.APPLIED:
            raise StateError(
                f"Plan {plan.plan_id} is applied: its result is in the real files and a rollback would not reach them.",
                hint=f"Undo that first: `holdfast plan unapply {plan.plan_id}`.",
            )
        self.refuse_missing(plan)

    def refuse_missing(self, plan: Plan) -> None:
        """Refuse if a sandbox is missing; only executing, resuming and applying the plan re-create it."""
        for resource in plan.resources:
            if is_missing(self._manager.place_of(resource)):
                raise SandboxError(
                    f"The sandbox of resource {resource.name!r} is missing: {resource.sandbox_path}.",
                    hint=f"Its checkpoints are safe. {self._how_to_recreate(plan)}",
                )

    def _how_to_recreate(self, plan: Plan) -> str:
        root_id = self._store.plans.root_of(plan).plan_id
        goes_on = "" if plan.state in (PlanState.COMPLETE, PlanState.CONSTRAINED) else " and goes on with the plan"
        making = f"`holdfast plan resume {root_id}` re-creates it{goes_on}; then run this command again."
        if History(self._store, plan).head_holds_all_work:
            return making
        return (
            f"{making} The last one does not hold all that steps did: "
            f"`holdfast plan resume --dry-run {root_id}` shows what will run again."
        )

    def check_content(self, plan: Plan, states: States) -> None:
        """Refuse if content that these states need is missing or damaged."""
        for resource in plan.resources:
            self._manager.check(self._manager.place_of(resource), states[resource.name])

    def keep_sound(self, plan: Plan, left: States, target: States) -> None:
        """Refuse if the sandboxes, now in the states ``left``, could not be restored to them from ``target``.

        Content of ``left`` that is damaged in the store is stored again from the sandboxes.
        """
        for resource in plan.resources:
            self._manager.ensure_recoverable(
                self._manager.place_of(resource), left[resource.name], target[resource.name]
            )

    def in_the_way(self, plan: Plan, group: CheckpointGroup) -> tuple[str, ...]:
        """Files that restoring the group would set aside, because no snapshot can hold them."""
        found: list[str] = []
        for resource in plan.resources:
            path, unheld = self._manager.place_of(resource), unheld_paths(group, resource)
            found += map(str, self._manager.in_the_way(path, group.states[resource.name], unheld))
        return tuple(found)

    # Creating and restoring

    def recreate(self, resource: Resource, state: str) -> None:
        """Re-create a missing sandbox, completely or not at all.

        A sandbox that exists is taken for what was recorded, so an incomplete one must never stand in its place.
        """
        _refuse_in_place(resource)
        path = Path(resource.sandbox_path)
        self._manager.indexes.forget(path)
        with made_whole(path) as unfinished:
            unfinished.mkdir(mode=0o700)
            self._manager.restore(unfinished, state, aside=aside_of(path), name=path.name)
            self._manager.indexes.forget(unfinished)

    def make_empty(self, plan: Plan) -> None:
        """Create an empty sandbox for each missing one; the restore that follows fills it."""
        for resource in plan.resources:
            _refuse_in_place(resource)
            path = Path(resource.sandbox_path)
            if is_missing(path):
                self._manager.indexes.forget(path)
                path.mkdir(parents=True, mode=0o700)

    def restore_states(self, plan: Plan, states: Mapping[str, str]) -> tuple[str, ...]:
        """Restore the sandboxes to these states; the paths to which files that stood in the way were set aside.

        The caller has made sure that the present files are kept or not needed.
        """

        def restore(resource: Resource, aside: Path) -> Restored:
            return self._manager.restore(self._manager.place_of(resource), states[resource.name], aside=aside)[1]

        return _restore_each(plan.resources, restore)

    def restore_group(self, plan: Plan, group: CheckpointGroup, *, is_unkept: bool = False) -> tuple[str, ...]:
        """The same for a group; ``is_unkept``: no group holds the present files."""

        def restore(resource: Resource, aside: Path) -> Restored:
            return restore_unkept(self._manager, resource, group, aside)

        return _restore_each(plan.resources, restore if is_unkept else self._from(group))

    def restore_one(self, resource: Resource, group: CheckpointGroup) -> None:
        _restore_each((resource,), self._from(group))

    def _from(self, group: CheckpointGroup) -> Callable[[Resource, Path], Restored]:
        def restore(resource: Resource, aside: Path) -> Restored:
            path, unheld = self._manager.place_of(resource), unheld_paths(group, resource)
            return self._manager.restore(path, group.states[resource.name], aside=aside, unheld=unheld)[1]

        return restore


def _refuse_in_place(resource: Resource) -> None:
    """A real folder is only changed file by file, and only where it is as expected (``sessions.undoing``)."""
    if resource.is_in_place:
        raise StateError(
            f"{name_text(resource.path)} is a real folder and no sandbox: it cannot be restored as a whole.",
            hint="`holdfast undo CHECKPOINT` goes back in it.",
        )


def _restore_each(resources: Iterable[Resource], restore: Callable[[Resource, Path], Restored]) -> tuple[str, ...]:
    """Restore each resource; the paths to which files were set aside, which an error names as well."""
    set_aside: list[str] = []
    for resource in resources:
        _refuse_in_place(resource)
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
