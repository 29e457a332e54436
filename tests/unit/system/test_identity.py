"""Which machine a home is used on, and that a copied home is another one."""

from __future__ import annotations

import os
import platform
import shutil
import threading
from pathlib import Path

import pytest

from holdfast.system.identity import FILE_NAME, find_machine_id, machine_id


def test_a_home_keeps_its_machine(tmp_path: Path) -> None:
    assert find_machine_id(tmp_path) is None
    made = machine_id(tmp_path)
    assert made == machine_id(tmp_path) == find_machine_id(tmp_path)
    assert os.listdir(tmp_path) == [FILE_NAME]


def test_a_moved_home_keeps_its_machine_and_a_copied_one_is_another(tmp_path: Path) -> None:
    first, moved, copied = (tmp_path / name for name in ("first", "moved", "copied"))
    first.mkdir()
    made = machine_id(first)
    first.rename(moved)
    shutil.copytree(moved, copied)
    assert find_machine_id(moved) == made
    assert find_machine_id(copied) is None
    assert machine_id(copied) != made


def test_a_copy_of_the_whole_machine_under_another_name_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = machine_id(tmp_path)
    monkeypatch.setattr(platform, "node", lambda: "elsewhere")
    assert find_machine_id(tmp_path) is None
    assert machine_id(tmp_path) != made


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"machine_id": "x"}'])
def test_a_damaged_note_is_made_anew(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    assert find_machine_id(tmp_path) is None
    assert machine_id(tmp_path) == find_machine_id(tmp_path)


def test_one_that_cannot_be_kept_is_another_each_time(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    assert machine_id(tmp_path) != machine_id(tmp_path)
    assert os.listdir(tmp_path) == [FILE_NAME]


def test_all_who_ask_at_once_get_the_same(tmp_path: Path) -> None:
    found: set[str] = set()
    threads = [threading.Thread(target=lambda: found.add(machine_id(tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1
