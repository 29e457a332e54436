"""Snapshots that are deleted many at a time are gone for every reader at once."""

from __future__ import annotations

from tests.support.snapshots import SANDBOX_ID, Place
from tests.support.trees import write


def _taken(place: Place, number: int) -> list[str]:
    ids = []
    for each in range(number):
        write(place.root / "file", str(each))
        ids.append(place.take().checkpoint_id)
    return ids


def _listed(place: Place) -> list[str]:
    return [each.checkpoint_id for each in place.manager.list_checkpoints(SANDBOX_ID)]


def _stored(place: Place) -> set[str]:
    return {row[0] for row in place.manager.objects.database.rows("SELECT checkpoint_id FROM snapshot")}


def test_snapshots_that_are_to_be_deleted_soon_are_not_found(place: Place) -> None:
    first, second, third = _taken(place, 3)
    catalogue = place.manager.objects.catalogue
    catalogue.delete_soon([first, third])
    assert _listed(place) == [second]
    assert catalogue.find(third) is None
    latest = catalogue.latest(SANDBOX_ID)
    assert latest is not None
    assert latest[0] == second
    assert _stored(place) == {first, second, third}  # one transaction deletes many

    place.next_process()
    assert _stored(place) == {second}


def test_many_are_deleted_at_once_while_the_store_is_open(place: Place) -> None:
    catalogue = place.manager.objects.catalogue
    ids = _taken(place, 33)
    for each in ids[:-1]:
        catalogue.delete_soon([each])
    assert _stored(place) == {ids[-1]}
