"""Many files are looked at together and directories opened from afar; both must say what the plain calls say."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.beneath import open_directory_beneath
from holdfast.snapshot import stamps
from holdfast.snapshot.stamps import Stamp, look, pack_stamps, unpack_stamps
from tests.support.trees import FAR_PAST_NS, set_mtime, write


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    for number in range(1100):
        write(tmp_path / f"file {number}", "x" * number)
    set_mtime(tmp_path / "file 3", FAR_PAST_NS)
    set_mtime(tmp_path / "file 4", 0)
    os.symlink("nowhere", tmp_path / "link")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def plainly(directory: int) -> dict[bytes, Stamp]:
    found = {}
    for name in sorted(map(os.fsencode, os.listdir(directory))):
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        found[name] = (status.st_ino, status.st_ctime_ns, status.st_mtime_ns, status.st_size)
    return found


@pytest.fixture(params=["system call", "without it"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without it":
        monkeypatch.setattr(stamps, "_system_call", None)


@pytest.mark.usefixtures("way")
def test_many_files_are_seen_as_each_alone(directory: int):
    expected = plainly(directory)
    assert look(directory, list(expected)) == pack_stamps(expected)[1]
    assert unpack_stamps(*pack_stamps(expected)) == expected


@pytest.mark.usefixtures("way")
def test_nothing_is_said_when_one_is_missing(directory: int):
    names = list(plainly(directory))
    assert look(directory, [*names[:700], b"missing", *names[700:]]) is None


def test_no_files_are_seen_as_none(directory: int):
    assert look(directory, []) == pack_stamps({})[1] == b""
    assert unpack_stamps(b"", b"") == {}


def test_an_untrusted_stamp_is_never_what_is_seen(directory: int):
    expected = plainly(directory)
    inode, _, mtime, size = expected[b"file 1"]
    expected[b"file 1"] = (inode, stamps.UNTRUSTED, mtime, size)
    assert look(directory, list(expected)) != pack_stamps(expected)[1]
    assert unpack_stamps(*pack_stamps(expected))[b"file 1"] == expected[b"file 1"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux opens beneath")
def test_a_directory_is_opened_from_afar_but_never_through_a_symlink(tmp_path: Path):
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    write(tmp_path / "a" / "file", "x")
    os.symlink("a", tmp_path / "link")
    os.symlink("b", tmp_path / "a" / "last")
    root = os.open(tmp_path, os.O_RDONLY)
    try:
        opened = open_directory_beneath(b"a/b/c", root)
        assert opened is not None
        assert os.fstat(opened).st_ino == (tmp_path / "a" / "b" / "c").stat().st_ino
        os.close(opened)
        refused = {
            b"link/b": errno.ELOOP,
            b"a/last": errno.ENOTDIR,
            b"a/no/c": errno.ENOENT,
            b"a/file/c": errno.ENOTDIR,
        }
        for path, code in refused.items():
            with pytest.raises(OSError, match=os.strerror(code)):
                open_directory_beneath(path, root)
        assert open_directory_beneath(b"a/" * 3000, root) is None, "a path that long is opened step by step"
        assert open_directory_beneath(b"../" + os.fsencode(tmp_path.name), root) is None
    finally:
        os.close(root)
