"""A folder is listed as it is; what is gone, or cannot be read, holds nothing."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.sandbox.listing import ListedTree
from tests.support.trees import write


def test_a_folder_that_is_gone_has_no_size(tmp_path: Path):
    """The trash may be emptied while `doctor` counts what is in it."""
    size = ListedTree(tmp_path / "gone").size()
    assert (size.files, size.size_bytes, size.is_least) == (0, 0, False)


def test_a_file_with_several_names_takes_its_space_once(tmp_path: Path):
    one = write(tmp_path / "one", "x" * 10_000)
    (tmp_path / "folder").mkdir()
    os.link(one, tmp_path / "folder" / "two")
    size, space = ListedTree(tmp_path).size(), one.stat().st_blocks * 512
    folders = sum(path.stat().st_blocks * 512 for path in (tmp_path, tmp_path / "folder"))
    assert (size.files, size.size_bytes) == (2, space + folders)
    assert ListedTree(tmp_path).size(b"one").size_bytes == space
