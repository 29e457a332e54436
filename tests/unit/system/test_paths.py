"""Paths stay inside their root, whatever lies in the way."""

from __future__ import annotations

import itertools
import os
import resource
import stat
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError, NotFoundError, SandboxError, UsageError
from holdfast.system import paths

ACTIONS = {
    "read": lambda root, path: paths.read_file(root, path),
    "write": lambda root, path: paths.write_file(root, path, b"evil"),
    "delete": lambda root, path: paths.delete_path(root, path, recursive=True),
    "check": lambda root, path: paths.check_path(root, path),
    "status": lambda root, path: paths.find_status(root, path),
}


@pytest.fixture(params=ACTIONS, ids=str)
def act(request):
    return ACTIONS[request.param]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("../outside/secret", "climbs"),
        ("sub/../../outside/secret", "climbs"),
        ("..", "climbs"),
        ("/etc/passwd", "absolute"),
        ("//etc/passwd", "absolute"),
        ("", "names no file"),
        (".", "names no file"),
        ("./", "names no file"),
        ("a\0b", "names no file"),
    ],
)
def test_a_path_that_leaves_the_root_or_names_nothing_is_refused(root, outside, act, path, message):
    (root / "sub").mkdir()
    with pytest.raises(UsageError, match=message):
        act(root, path)
    assert (outside / "secret").read_text() == "untouched"


@pytest.mark.parametrize("target", ["../outside", "sub"])
def test_a_directory_that_is_a_symlink_is_not_crossed(root, outside, act, target):
    (root / "sub").mkdir()
    (root / "sub" / "secret").write_text("inside")
    (root / "link").symlink_to(target)
    with pytest.raises(UsageError, match="link is a symlink"):
        act(root, "link/secret")
    assert (outside / "secret").read_text() == "untouched"
    assert (root / "sub" / "secret").read_text() == "inside"


def test_a_symlink_deeper_in_the_path_is_named(root, outside, act):
    (root / "a").mkdir()
    (root / "a" / "link").symlink_to(outside)
    with pytest.raises(UsageError, match="a/link is a symlink"):
        act(root, "a/link/secret")


def test_a_root_that_begins_like_another_is_another(root, act):
    evil = root.parent / "sandbox-evil"
    evil.mkdir()
    (evil / "file").write_text("untouched")
    with pytest.raises(UsageError):
        act(root, "../sandbox-evil/file")
    assert (evil / "file").read_text() == "untouched"


@pytest.mark.parametrize("target", ["../outside/secret", "missing"])
def test_a_symlink_at_the_end_is_neither_read_nor_written_through(root, outside, target):
    (root / "link").symlink_to(target)
    with pytest.raises(UsageError, match="link is a symlink"):
        paths.read_file(root, "link")
    with pytest.raises(UsageError, match="link is a symlink"):
        paths.write_file(root, "link", b"evil")
    assert (outside / "secret").read_text() == "untouched"
    assert os.readlink(root / "link") == target


def test_deleting_a_symlink_removes_the_link_and_not_its_target(root, outside):
    (root / "link").symlink_to(outside)
    paths.delete_path(root, "link", recursive=True)
    assert not (root / "link").is_symlink()
    assert (outside / "secret").read_text() == "untouched"


def test_deleting_a_directory_does_not_follow_the_links_in_it(root, outside):
    (root / "tree" / "deep").mkdir(parents=True)
    (root / "tree" / "deep" / "link").symlink_to(outside)
    paths.delete_path(root, "tree", recursive=True)
    assert not (root / "tree").exists()
    assert (outside / "secret").read_text() == "untouched"


def test_a_symlink_swapped_in_meanwhile_is_never_crossed(root, outside):
    (root / "sub").mkdir()
    stop = threading.Event()

    def swap() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            (root / "sub").rename(root / f"away-{number}")
            with suppress(FileExistsError):
                (root / "sub").symlink_to(outside)
                (root / "sub").unlink()
            (root / "sub").mkdir(exist_ok=True)

    swapper = threading.Thread(target=swap)
    swapper.start()
    outcomes: Counter[str] = Counter()
    try:
        while (outcomes["written"] < 300 or outcomes["refused"] < 30) and outcomes.total() < 100_000:
            try:
                paths.write_file(root, "sub/file", b"evil")
                outcomes["written"] += 1
            except UsageError:
                outcomes["refused"] += 1
            except HoldfastError:
                outcomes["gone meanwhile"] += 1
            with suppress(HoldfastError):
                paths.delete_path(root, "sub/secret")
    finally:
        stop.set()
        swapper.join()
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret": "untouched"}
    assert min(outcomes["written"], outcomes["refused"]) > 0


def test_writing_creates_the_directories_above(root):
    paths.write_file(root, "a/b/c d\ne", b"content")
    assert (root / "a" / "b" / "c d\ne").read_bytes() == b"content"


def test_dots_and_doubled_slashes_in_a_path_mean_nothing(root):
    paths.write_file(root, "./a//./b", b"content")
    assert (root / "a" / "b").read_bytes() == b"content"


@pytest.mark.parametrize("mode", [0o600, 0o755, 0o444, 0o4750])
def test_replacing_a_file_keeps_its_mode(root, mode):
    (root / "file").write_text("old")
    (root / "file").chmod(mode)
    paths.write_file(root, "file", b"new")
    assert stat.S_IMODE((root / "file").stat().st_mode) == mode
    assert (root / "file").read_text() == "new"


def test_a_new_file_gets_the_usual_mode(root):
    previous = os.umask(0o027)
    try:
        paths.write_file(root, "file", b"")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((root / "file").stat().st_mode) == 0o640


def test_a_mode_that_is_given_is_exact(root):
    paths.write_file(root, "file", b"", mode=0o777)
    assert stat.S_IMODE((root / "file").stat().st_mode) == 0o777


def test_replacing_a_file_leaves_its_other_hard_links_alone(root, outside):
    os.link(outside / "secret", root / "file")
    paths.write_file(root, "file", b"new")
    assert (outside / "secret").read_text() == "untouched"


def test_replacing_a_file_keeps_its_extended_attributes(root):
    (root / "file").write_text("old")
    try:
        os.setxattr(root / "file", "user.note", b"kept")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    paths.write_file(root, "file", b"new")
    assert os.getxattr(root / "file", "user.note") == b"kept"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_replacing_a_file_keeps_its_owner(root):
    (root / "file").write_text("old")
    os.chown(root / "file", 12345, 23456)
    paths.write_file(root, "file", b"new")
    assert ((root / "file").stat().st_uid, (root / "file").stat().st_gid) == (12345, 23456)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(root):
    (root / "directory").mkdir()
    with pytest.raises(UsageError, match="directory is a directory"):
        paths.write_file(root, "directory", b"new")
    with pytest.raises(SandboxError, match="File name too long"):
        paths.write_file(root, "x" * 300, b"new")
    assert [path.name for path in root.iterdir()] == ["directory"]


def test_a_file_in_the_way_of_a_directory_is_named(root):
    (root / "file").write_text("old")
    with pytest.raises(UsageError, match="file is not a directory"):
        paths.write_file(root, "file/below", b"new")


def test_a_fifo_is_refused_without_waiting_for_its_writer(root):
    os.mkfifo(root / "fifo")
    with pytest.raises(UsageError, match="not a regular file"):
        paths.read_file(root, "fifo")
    with pytest.raises(UsageError, match="not a regular file"):
        paths.write_file(root, "fifo", b"")


def test_what_is_missing_is_said_to_be_missing(root):
    with pytest.raises(NotFoundError, match=r"^file does not exist"):
        paths.read_file(root, "file")
    with pytest.raises(NotFoundError, match=r"^a does not exist"):
        paths.delete_path(root, "a/b")
    assert paths.find_status(root, "a/b") is None
    assert paths.find_status(root, "b") is None


def test_a_root_that_is_missing_is_an_error_of_the_sandbox(root):
    with pytest.raises(SandboxError):
        paths.write_file(root / "missing", "file", b"")


def test_a_root_that_is_a_symlink_is_not_crossed(root, outside, act):
    (root.parent / "link").symlink_to(outside)
    with pytest.raises(SandboxError):
        act(root.parent / "link", "secret")
    assert (outside / "secret").read_text() == "untouched"


def test_no_descriptors_are_left_open(root):
    (root / "link").symlink_to(root)
    before = sorted(os.listdir("/proc/self/fd"))
    paths.write_file(root, "a/b/c", b"content")
    paths.read_file(root, "a/b/c")
    for path in ("link/x", "a/missing/x", "../x"):
        with suppress(HoldfastError):
            paths.read_file(root, path)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_the_permissions_of_a_file_can_be_set(root: Path):
    (root / "file").write_text("x")
    status = (root / "file").stat()
    paths.set_permissions(root, "file", 0o640, status)
    assert stat.S_IMODE((root / "file").stat().st_mode) == 0o640


def test_a_write_that_runs_out_of_space_leaves_the_old_file_and_nothing_else(root):
    (root / "file").write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(SandboxError, match="file: File too large"):
            paths.write_file(root, "file", b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name: path.read_text() for path in root.iterdir()} == {"file": "old"}
