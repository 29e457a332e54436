"""File systems on which less can be told of a file, or that share the blocks of copies."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.system import plain_calls
from tests.support.disks import disk
from tests.support.moments import just_before
from tests.support.snapshots import Place
from tests.support.trees import write

FILE_BYTES = 1 << 18
SECOND_NS = 1_000_000_000


def test_a_change_in_the_second_of_a_checkpoint_is_seen_where_times_are_whole_seconds(tmp_path: Path) -> None:
    with disk("ext4 with times in seconds", tmp_path) as folder:
        place = Place(folder)
        file = place.root / "file"
        while True:
            first = state_with(place, file, "AAAA")
            before = file.stat()
            second = state_with(place, file, "BBBB")
            after = file.stat()
            if before.st_ctime_ns == after.st_ctime_ns:
                break  # nothing but the content tells that it changed
        assert after.st_ctime_ns % SECOND_NS == 0
        assert second != first
        assert second == place.found_anew()
        place.close()


def state_with(place: Place, file: Path, content: str) -> str:
    write(file, content)
    return place.take().state_hash


@pytest.fixture
def sharing(tmp_path: Path) -> Iterator[Path]:
    with disk("btrfs", tmp_path) as folder:
        yield folder


def test_what_is_written_through_a_mapping_before_blocks_are_shared_is_not_in_the_copy_alone(
    sharing: Path,
) -> None:
    """Plain calls, because they tell when they share: the file has no new ctime then."""
    original = write(sharing / "original", bytes(FILE_BYTES))
    (sharing / "copies").mkdir()
    room = bytearray(2 * FILE_BYTES)
    with mapped(original) as memory, opened(sharing) as folder, opened(sharing / "copies") as copies:
        memory[0:8] = b"dirtied!"
        wait_until_settled(original)
        with just_before("fcntl.ioctl", "*", lambda: store(memory)):
            ((is_steady, _, _),) = plain_calls.copy_files(folder, copies, (b"original",), room, FILE_BYTES, None)
    assert is_steady
    assert (sharing / "copies" / "original").read_bytes() == room[:FILE_BYTES]


def wait_until_settled(file: Path) -> None:
    """Of a file whose times changed just now the blocks are not shared."""
    while time.time_ns() < file.stat().st_ctime_ns + 1.1 * SECOND_NS:
        time.sleep(0.05)


def store(memory: mmap.mmap) -> None:
    memory[0:8] = b"changed!"


@contextmanager
def mapped(file: Path) -> Iterator[mmap.mmap]:
    with file.open("r+b") as opened_file, mmap.mmap(opened_file.fileno(), FILE_BYTES) as memory:
        yield memory


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
