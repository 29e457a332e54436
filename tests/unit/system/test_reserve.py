from __future__ import annotations

import errno
from pathlib import Path

import pytest

from holdfast.errors import DatabaseFullError, SandboxError
from holdfast.system.reserve import RESERVE_BYTES, Reserve, full_disk


def test_it_is_made_whole_and_made_again_after_it_was_given_up(tmp_path: Path) -> None:
    reserve, file = Reserve(tmp_path), tmp_path / "reserve"
    assert reserve.is_missing()
    reserve.keep()
    with reserve.given_up():
        assert not file.exists()
    found = file.stat()
    assert found.st_size == RESERVE_BYTES
    assert found.st_blocks * 512 >= RESERVE_BYTES
    assert not reserve.is_missing()


def test_one_that_a_kill_left_unfinished_is_completed(tmp_path: Path) -> None:
    (tmp_path / "reserve").write_bytes(b"x" * 1000)
    Reserve(tmp_path).keep()
    assert (tmp_path / "reserve").stat().st_size == RESERVE_BYTES


def test_it_never_takes_more_than_half_of_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.system.reserve.free_bytes", lambda _: 100_000)
    Reserve(tmp_path).keep()
    assert (tmp_path / "reserve").stat().st_size == 50_000


def test_a_home_without_room_or_permission_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Reserve(tmp_path / "nowhere").keep()
    assert not (tmp_path / "nowhere").exists()
    monkeypatch.setattr("holdfast.system.reserve.free_bytes", lambda _: 0)
    Reserve(tmp_path).keep()
    assert list(tmp_path.iterdir()) == []


def test_only_a_full_disk_gives_it_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = Reserve(tmp_path)
    reserve.keep()
    monkeypatch.setattr("holdfast.system.reserve.free_bytes", lambda _: 1 << 30)
    assert not reserve.give_up_if_full()
    monkeypatch.setattr("holdfast.system.reserve.free_bytes", lambda _: 0)
    assert reserve.give_up_if_full()
    assert not reserve.give_up_if_full()


def test_a_full_disk_is_found_behind_other_errors(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/there/file")
    wrapped = SandboxError("It could not be made.")
    wrapped.__cause__ = full
    for error in (full, wrapped):
        found = full_disk(error, tmp_path)
        assert found is not None
        assert found.message == "There is no space left on the disk of /there/file."
    of_database = DatabaseFullError("No space.")
    assert full_disk(of_database, tmp_path) is of_database
    assert full_disk(PermissionError(errno.EACCES, "no"), tmp_path) is None
