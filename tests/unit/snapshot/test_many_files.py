"""Many files at once, which several processes read together."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.snapshots import Place
from tests.support.trees import compare, describe, make_odd_tree, make_socket, write

FILES = 3100


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def tree(place: Place) -> Path:
    make_odd_tree(place.root)
    for number in range(FILES):
        write(place.root / f"directory {number % 50}" / f"file {number}", f"content of {number}" if number % 7 else "")
    for number in range(20):
        os.link(place.root / "directory 1" / f"file {number * 50 + 1}", place.root / "directory 2" / f"link {number}")
    write(place.root / "large", os.urandom(9 << 20))
    make_socket(place.root / "socket")
    return place.root


def test_many_files_come_back(place: Place, tree: Path):
    before, checkpoint = describe(tree, without=[b"socket"]), place.take()
    assert [each.path for each in checkpoint.unheld] == ["socket"]
    for path in list(tree.glob("directory *")):
        shutil.rmtree(path)
    (tree / "large").unlink()
    place.go_back(checkpoint)
    assert compare(before, describe(tree, without=[b"socket"])) == []
    place.next_process()
    assert place.take().state_hash == checkpoint.state_hash
    place.close()


def test_what_lies_in_the_current_folder_has_no_part_in_the_reading(
    place: Place, tree: Path, monkeypatch: pytest.MonkeyPatch
):
    """A project may well have a module of its own with the name of one that the reading processes import."""
    project = place.folder / "project"
    for name in ("queue", "subprocess", "msgspec", "blake3", "holdfast"):
        write(project / f"{name}.py", "raise SystemExit('this is not the module you are looking for')")
    monkeypatch.chdir(project)
    assert place.take().size_bytes > 9 << 20
    place.close()
