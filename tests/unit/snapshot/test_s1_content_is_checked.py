"""S1: an object never changes; its name is the digest of its content, checked whenever it is read for a restore."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import ContentError
from tests.support.snapshots import Place
from tests.support.trees import compare, describe, write

WANTED = b"what the snapshot holds " * 50
LARGE_PIECE = bytes(range(256)) * 4096
Harm = Callable[[Place, bytes], None]


@pytest.fixture(params=[Place.damage, Place.lose], ids=["damaged", "missing"])
def harm(request: pytest.FixtureRequest) -> Harm:
    return request.param


def wreck(root: Path) -> None:
    """Changes that a restore would undo before and after it comes to ``wanted``."""
    (root / "a first file").write_text("changed")
    shutil.rmtree(root / "b directory")
    write(root / "wanted", "changed")
    write(root / "z last file", "added")


def make(root: Path) -> None:
    write(root / "a first file", "first")
    write(root / "b directory" / "inside", "inside")
    write(root / "wanted", WANTED)


def test_s1_content_that_cannot_be_trusted_stops_a_restore_before_a_file_is_touched(
    place: Place, root: Path, harm: Harm
):
    make(root)
    checkpoint = place.take()
    wreck(root)
    place.take()
    harm(place, WANTED)
    before = describe(root)
    with pytest.raises(ContentError) as refusal:
        place.go_back(checkpoint)
    assert refusal.value.exit_code == 7
    assert refusal.value.hint
    assert compare(before, describe(root)) == []


def test_s1_a_piece_of_a_large_file_is_checked_too(place: Place, root: Path, harm: Harm):
    make(root)
    write(root / "large", LARGE_PIECE * 3 + bytes(reversed(LARGE_PIECE)) * 2)
    checkpoint = place.take()
    wreck(root)
    (root / "large").unlink()
    place.take()
    harm(place, bytes(reversed(LARGE_PIECE)))
    before = describe(root)
    with pytest.raises(ContentError):
        place.go_back(checkpoint)
    assert compare(before, describe(root)) == []


def test_s1_content_is_checked_also_for_a_file_that_is_written_anew_only_because_of_its_links(place: Place, root: Path):
    """The file's content is the same now and then, but it is one file under two names now."""
    make(root)
    write(root / "twin", WANTED)
    checkpoint = place.take()
    wreck(root)
    write(root / "wanted", WANTED)
    (root / "twin").unlink()
    os.link(root / "wanted", root / "twin")
    place.take()
    place.damage(WANTED)
    before = describe(root)
    with pytest.raises(ContentError):
        place.go_back(checkpoint)
    assert compare(before, describe(root)) == []


def test_s1_content_is_checked_also_for_a_file_that_has_a_name_outside_the_tree(place: Place, root: Path):
    make(root)
    checkpoint = place.take()
    wreck(root)
    write(root / "wanted", WANTED)
    os.link(root / "wanted", place.folder / "outside")
    place.take()
    place.damage(WANTED)
    before = describe(root)
    with pytest.raises(ContentError):
        place.go_back(checkpoint)
    assert compare(before, describe(root)) == []


def test_s1_check_finds_what_a_restore_would_need_and_touches_nothing(place: Place, root: Path, harm: Harm):
    make(root)
    checkpoint = place.take()
    wreck(root)
    place.take()
    place.manager.check(root, checkpoint.state_hash)
    harm(place, WANTED)
    before = describe(root)
    with pytest.raises(ContentError):
        place.manager.check(root, checkpoint.state_hash)
    assert compare(before, describe(root)) == []


def test_s1_a_state_that_is_not_in_the_store_is_refused(place: Place, root: Path):
    make(root)
    place.take()
    before = describe(root)
    with pytest.raises(ContentError):
        place.go_back("00" * 32)
    assert compare(before, describe(root)) == []


def test_s1_damage_to_content_a_restore_does_not_need_does_not_stop_it(place: Place, root: Path, harm: Harm):
    make(root)
    before = describe(root)
    checkpoint = place.take()
    write(root / "z last file", "added")
    place.take()
    harm(place, WANTED)
    place.go_back(checkpoint)
    assert compare(before, describe(root)) == []


def test_s1_the_names_of_damaged_objects_are_told(place: Place, root: Path):
    write(root / "wanted", WANTED)
    place.take()
    assert place.manager.objects.damaged() == []
    place.damage(WANTED)
    assert len(place.manager.objects.damaged()) == 1
