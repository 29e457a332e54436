"""What is copied into a sandbox is learned on the way: its first snapshot reads none of it, and is never wrong."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.sandbox.copying import TreeCopy
from tests.support.opens import opened_names
from tests.support.snapshots import Place
from tests.support.trees import compare, describe, difference_of, make_odd_tree, write


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.root.rmdir()
    return place


@pytest.fixture
def original(tmp_path: Path) -> Path:
    make_odd_tree(tmp_path / "original")
    for number in range(1_500):
        write(tmp_path / "original" / f"directory {number % 20}" / f"file {number}", f"content {number}")
    return tmp_path / "original"


def copy(place: Place, original: Path, *, limit_bytes: int | None = None) -> None:
    with place.manager.learning(place.root, limit_bytes) as sink:
        TreeCopy(original, place.root, name="app", is_ours=True, sink=sink).run()
        time.sleep(0.05)  # what changed a moment ago is read again in any case


def files_read(place: Place) -> set[str]:
    with opened_names() as names:
        place.take()
    return {name for name in names if name.startswith("file ")}


def test_the_first_snapshot_reads_no_file_that_was_just_copied(place: Place, original: Path):
    copy(place, original)
    assert files_read(place) == set()
    assert place.take().state_hash == place.found_anew()
    assert difference_of(original, place.root) == []
    place.close()


def test_a_copy_changed_since_is_read(place: Place, original: Path):
    copy(place, original)
    write(place.root / "directory 3" / "file 3", "changed 3")
    assert files_read(place) == {"file 3"}
    assert place.take().state_hash == place.found_anew()
    place.close()


def test_what_was_learned_can_be_restored(place: Place, original: Path):
    copy(place, original)
    before, checkpoint = describe(place.root), place.take()
    for path in place.root.glob("directory */*"):
        path.unlink()
    place.go_back(checkpoint)
    assert compare(before, describe(place.root)) == []
    place.close()


def test_content_that_is_stored_already_is_not_stored_again(place: Place, original: Path):
    copy(place, original)
    first = place.take()
    place.root.rename(place.folder / "first")
    stored_bytes = place.manager.objects.content_bytes()
    copy(place, original)
    again = place.take()
    assert again.state_hash == first.state_hash
    assert place.manager.objects.content_bytes() == stored_bytes
    place.close()


def collected(place: Place) -> None:
    place.collect(set)


def damaged(place: Place) -> None:
    """Content that is damaged, and found to be so by another process."""
    other = Place(place.folder, place.folder / "other")
    content = b"content 3"
    write(other.root / "file", content)
    checkpoint = other.take()
    other.damage(content)
    (other.root / "file").unlink()
    with pytest.raises(Exception, match="damaged"):
        other.go_back(checkpoint)
    other.close()


@pytest.mark.parametrize("happens", [collected, damaged])
def test_what_is_learned_is_forgotten_if_its_content_may_be_gone(
    place: Place, original: Path, happens: Callable[[Place], None]
):
    copy(place, original)
    happens(place)
    checkpoint = place.take()
    before = describe(place.root)
    (place.root / "directory 3" / "file 3").unlink()
    place.go_back(checkpoint)
    assert compare(before, describe(place.root)) == []
    place.close()


def test_nothing_is_learned_over_the_quota_but_all_is_copied(place: Place, original: Path):
    write(original / "incompressible", os.urandom(100_000))
    copy(place, original, limit_bytes=place.manager.objects.content_bytes() + 50_000)
    assert difference_of(original, place.root) == []
    checkpoint = place.take()
    assert checkpoint.state_hash == place.found_anew()
    place.close()
