"""Locks on folders: which exclude each other, for how long, and what is told of them."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConflictError
from holdfast.system import folder_lock
from holdfast.system.folder_lock import changing, reading
from holdfast.system.progress import Work, Working, watched_by
from holdfast.system.stopping import Stopped, stoppable

Lock = Callable[[list[Path]], AbstractContextManager[None]]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_lock, "PATIENCE_SECONDS", 0.05)


@pytest.fixture
def around(tmp_path: Path) -> Path:
    (tmp_path / "around" / "folder" / "inside").mkdir(parents=True)
    (tmp_path / "around" / "beside").mkdir()
    return tmp_path / "around"


def is_free(lock: Lock, *folders: Path) -> bool:
    try:
        with lock(list(folders)):
            return True
    except ConflictError:
        return False


@pytest.mark.parametrize("place", [".", "folder", "folder/inside"])
def test_a_folder_that_is_changed_excludes_itself_what_is_inside_and_what_is_around(around: Path, place: str):
    with changing([around / "folder"]):
        assert not is_free(changing, around / place)
        assert not is_free(reading, around / place)
    assert is_free(changing, around / place)


@pytest.mark.parametrize("place", [".", "folder", "folder/inside"])
def test_those_that_read_exclude_only_what_changes(around: Path, place: str):
    with reading([around / "folder"]):
        assert is_free(reading, around / place)
        assert not is_free(changing, around / place)


def test_folders_beside_each_other_do_not_exclude_each_other(around: Path):
    with changing([around / "folder"]), reading([around / "beside"]):
        assert not is_free(changing, around / "beside")
    with changing([around / "folder"]), changing([around / "beside"]):
        assert not is_free(reading, around)


def test_a_folder_is_known_by_what_it_is(around: Path):
    (around / "link").symlink_to(around / "folder")
    with changing([around / "link"]):
        assert not is_free(reading, around / "folder" / "inside")


def test_folders_inside_each_other_are_locked_together(around: Path):
    with changing([around / "folder" / "inside", around, around / "folder"]):
        assert not is_free(reading, around / "beside")
    assert is_free(changing, around)


def test_what_could_not_be_had_is_let_go_as_a_whole(around: Path):
    with changing([around / "folder"]):
        assert not is_free(changing, around / "beside", around / "folder")
        assert is_free(changing, around / "beside")


def test_a_child_that_was_forked_meanwhile_keeps_nothing_locked(around: Path):
    gate, opening = os.pipe()
    with changing([around]):
        child = os.fork()
        if child == 0:
            os.close(opening)
            os.read(gate, 1)
            os._exit(0)
    try:
        assert is_free(changing, around)
    finally:
        os.close(opening)
        os.close(gate)
        os.waitpid(child, 0)


def test_a_refusal_names_the_process(around: Path):
    ready, held = os.pipe()
    child = os.fork()
    if child == 0:
        with changing([around]):
            os.write(held, b"x")
            signal.pause()
    try:
        os.read(ready, 1)
        with pytest.raises(ConflictError, match=rf"{around}, .*process {child} ") as refusal, reading([around]):
            pass
        assert refusal.value.exit_code == 5
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(held)
    assert is_free(changing, around)


def test_a_watcher_hears_what_is_waited_for(around: Path):
    told: list[Working] = []
    with watched_by(told.append), changing([around]):
        assert not is_free(reading, around)
    assert {each.work for each in told} == {Work.WAITING}
    assert [each.is_over for each in told][-2:] == [False, True]
    assert str(around) in told[0].what


def test_waiting_ends_when_it_is_asked_to_stop(around: Path):
    stop = threading.Event()
    stop.set()
    with changing([around]), stoppable(stop), pytest.raises(Stopped), reading([around]):
        pass
    assert is_free(changing, around)


def test_a_folder_that_is_not_there_needs_no_lock(around: Path):
    with changing([around / "gone"]):
        assert not is_free(changing, around)


def test_a_kernel_without_such_flags_locks_whole_folders(around: Path, monkeypatch: pytest.MonkeyPatch):
    def without(descriptor: int, command: int, *rest: Any) -> Any:
        if command in (fcntl.F_OFD_SETLK, fcntl.F_OFD_GETLK):
            raise OSError(errno.EINVAL, "no such command")
        return real(descriptor, command, *rest)

    real = fcntl.fcntl
    monkeypatch.setattr(fcntl, "fcntl", without)
    with changing([around / "folder"]):
        for place in (around, around / "folder", around / "folder" / "inside"):
            assert not is_free(reading, place)
        assert is_free(changing, around / "beside")
    with reading([around / "folder"]):
        assert not is_free(changing, around)
    assert is_free(changing, around)
