"""Small files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from holdfast.system.small_files import replace_text


def test_a_write_that_fails_leaves_the_old_text_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "note"
    replace_text(file, "old")

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "the disk fails")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="the disk fails"):
        replace_text(file, "new")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"note": "old"}


def test_what_a_killed_writer_left_is_replaced_and_never_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("other's")
    (tmp_path / ".note.new").symlink_to(other)
    replace_text(tmp_path / "note", "new")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"note": "new", "other": "other's"}


def test_the_mode_is_the_umasks_unless_one_is_given(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        replace_text(tmp_path / "shared", "x")
        replace_text(tmp_path / "private", "x", new_file_mode=0o600)
        replace_text(tmp_path / "kept", "x", mode=0o666)
    finally:
        os.umask(old)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("shared", "private", "kept")] == [0o640, 0o600, 0o666]
