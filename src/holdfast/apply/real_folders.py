"""The real folders of a plan, ours to read or to change, with nothing in them that was begun and cut short.

A process that dies in the middle of an apply leaves a mixture of old and new files. The records tell of it if it was
begun from this home, a mark on the folder if it was begun from another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.checkpoints.history import command_to_recover
from holdfast.checkpoints.service import CheckpointService
from holdfast.errors import HoldfastError, StateError
from holdfast.git.repository import GitRepository
from holdfast.model import Operation, OperationState, Plan, Resource, ResourceType
from holdfast.names import name_text, valid_text
from holdfast.system import folder_lock, folder_mark
from holdfast.system.directories import Descent, with_ancestors
from holdfast.system.folder_mark import Mark

_INDEX = ".index-"


@contextmanager
def reading(resources: Sequence[Resource], service: CheckpointService) -> Iterator[None]:
    """Nothing changes the folders of these meanwhile; refused if they are half changed."""
    with folder_lock.reading(_places_of_all(resources)):
        refuse_half_changed(resources, service)
        yield


@contextmanager
def changing(resources: Sequence[Resource], service: CheckpointService) -> Iterator[None]:
    """No other process uses them meanwhile; refused if they are half changed."""
    with undoing(resources):
        refuse_half_changed(resources, service)
        yield


@contextmanager
def undoing(resources: Iterable[Resource]) -> Iterator[None]:
    """No other process uses them meanwhile, even if they are half changed."""
    with folder_lock.changing(_places_of_all(resources)):
        yield


def _places_of_all(resources: Iterable[Resource]) -> list[Path]:
    return [place for resource in resources for place in _places_of(resource)]


def _places_of(resource: Resource) -> list[Path]:
    """Its folder and, of a linked work tree or a submodule, what git keeps elsewhere and shares with others."""
    root = Path(resource.path).resolve()
    places = [root]
    if resource.type is ResourceType.GIT:
        try:
            repository = GitRepository.at(root)
        except (HoldfastError, OSError):
            return places  # it is no longer a repository: the code that needs one says so
        kept = (repository.git_dir.resolve(), repository.common_dir)
        places += [place for place in dict.fromkeys(kept) if not place.is_relative_to(root)]
    return places


# What was cut short there


def unfinished_in(resources: Sequence[Resource], service: CheckpointService) -> list[tuple[Plan, Operation]]:
    """Every change of real files that was begun, from this home, in these folders, in some around or inside them."""
    found = []
    for operation in service.store.operations.unfinished_changes(service.manager.objects.store_id):
        plan = service.store.find(Plan, operation.plan_id, sound_only=True)
        if plan is not None and _overlap(_places_of_all(plan.resources), _places_of_all(resources)):
            found.append((plan, operation))
    return found


def _overlap(some: Iterable[Path], others: Iterable[Path]) -> bool:
    ones, chains = [_chain(place) for place in some], [_chain(place) for place in others]
    return any(one[0] in chain or chain[0] in one for one in ones for chain in chains)


def _chain(place: Path) -> list[object]:
    """The identity of a folder and of all folders above it; a missing one is identified by its name."""
    return [_identity(each) for each in (place, *place.parents)]


def _identity(place: Path) -> object:
    try:
        found = place.stat()
    except OSError:
        return place
    return found.st_dev, found.st_ino


def refuse_half_changed(resources: Sequence[Resource], service: CheckpointService) -> None:
    """Call this while nothing can change them: then an unfinished operation will not end by itself."""
    for plan, operation in unfinished_in(resources, service):
        root = service.store.plans.root_of(plan)
        raise StateError(
            f"The {operation.kind} of plan {plan.plan_id} ({name_text(plan.name)}) was cut short, and "
            f"{_listed(plan.resources)} may hold a mixture of old and new files.",
            hint=f"Run `{command_to_recover(root)}`: it puts that right first.",
        )
    for place in _places_of_all(resources):
        for folder, mark in folder_mark.found_around(place):
            if not _is_settled(mark, service):
                raise folder_mark.half_changed(folder, mark)
            _take_off_settled(folder, mark, service)


def unmark_settled(plan: Plan, service: CheckpointService) -> None:
    """Remove the mark of a process that died when only the mark was left to remove."""
    for resource in plan.resources:
        mark = folder_mark.find_on(Path(resource.path))
        if mark is not None and _is_settled(mark, service):
            _take_off_settled(Path(resource.path), mark, service)


def _take_off_settled(folder: Path, mark: Mark, service: CheckpointService) -> None:
    plan_folder = service.manager.objects.path.parent / "sandboxes" / mark.plan_id
    _remove_kept(plan_folder, f"{_INDEX}{mark.operation_id}-*")
    folder_mark.take_off(folder, mark.operation_id)


def _is_settled(mark: Mark, service: CheckpointService) -> bool:
    """Whether it was begun from this home, and only the mark was left."""
    operation = service.store.find(Operation, mark.operation_id, sound_only=True)
    return operation is not None and operation.state is not OperationState.BEGUN


def refuse_half_changed_below(root: Path, paths: Iterable[bytes]) -> None:
    """The same for the folders inside, on the way to these paths."""
    with Descent(root) as descent:
        for path in sorted(with_ancestors(paths) - {b""}):
            try:
                mark = folder_mark.find_on(descent.open(path))
            except OSError:
                continue  # no folder
            if mark is not None:
                raise folder_mark.half_changed(root / path.decode(errors="surrogateescape"), mark)


def _listed(resources: Iterable[Resource]) -> str:
    return ", ".join(name_text(resource.path) for resource in resources)


# The mark


def mark(plan: Plan, operation: Operation, resources: Iterable[Resource], service: CheckpointService) -> None:
    """Mark the folders with the operation that changes them, before the first file is changed."""
    home = service.manager.objects.path.parent
    place = valid_text(str(home.resolve()))
    whose = Mark(place, service.store.plans.root_of(plan).plan_id, operation.operation_id, operation.kind)
    for resource in resources:
        folder_mark.put_on(Path(resource.path), whose)


def unmark(operation: Operation, resources: Iterable[Resource]) -> None:
    for resource in resources:
        folder_mark.take_off(Path(resource.path), operation.operation_id)


# The indexes that are replaced


def index_before(resource: Resource, operation_id: str) -> Path:
    """Where the index that an operation replaces is kept until that has ended."""
    return Path(resource.sandbox_path).parent / f"{_INDEX}{operation_id}-{resource.name}"


def forget_index(resource: Resource, operation_id: str) -> None:
    """Remove the index that an operation replaced, if it is kept; if that fails, ``forget_indexes`` does so later."""
    with suppress(OSError):
        index_before(resource, operation_id).unlink()


def forget_indexes(resources: Iterable[Resource]) -> None:
    """Remove the indexes that were kept, when no operation of the plan is left that could need them.

    What cannot be removed now is removed by a later command: nothing depends on it.
    """
    # Beside a folder in place are files of the user.
    for folder in {Path(resource.sandbox_path).parent for resource in resources if not resource.is_in_place}:
        _remove_kept(folder, f"{_INDEX}*")


def _remove_kept(plan_folder: Path, pattern: str) -> None:
    for kept in list(plan_folder.glob(pattern)):
        with suppress(OSError):
            kept.unlink()
