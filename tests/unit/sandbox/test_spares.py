"""A sandbox made of a spare is what a new one would be; if that is in doubt, a new one is made."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from holdfast.model import CopyRules, Resource, ResourceType
from holdfast.sandbox.directory import DirectorySandbox
from holdfast.sandbox.git_worktree import GitWorktreeSandbox
from holdfast.sandbox.origin import Origin, load_origin
from holdfast.sandbox.protocol import Sandbox
from holdfast.sandbox.spares import SPARES, Spares, index_of_spare, origin_beside
from holdfast.system.directories import USER
from tests.support.repositories import git, make_repository
from tests.support.trees import compare, describe, make_socket, set_mtime, write

LONG_AGO_NS = 1_500_000_000_000_000_000
_NOT_OF_THE_USER = (b".git/index", b".git/objects/info/alternates")
"""With the inodes of its files, and with the path of its plan."""


class Bench:
    """A real folder, and sandboxes of it for one plan after the other."""

    def __init__(self, folder: Path, kind: ResourceType) -> None:
        self.real, self.sandboxes, self.kind = folder / "real", folder / "home" / "sandboxes", kind
        self.sandboxes.mkdir(parents=True)
        self.spares = Spares(self.sandboxes, 1, fewest_entries=1)
        self._make_real()
        self._plans = 0

    def _make_real(self) -> None:
        contents = {"plain.txt": "plain\n", "src/main.c": "int main;\n", "src/deep/er/file": "deep\n"}
        if self.kind is ResourceType.GIT:
            make_repository(self.real, {**contents, ".gitignore": "*.o\n"}, has_user=True)
        for name, content in {**contents, "main.o": "compiled", "gone": "later", "one": "names\n"}.items():
            write(self.real / name, content, mtime_ns=LONG_AGO_NS)
        (self.real / "empty").mkdir(mode=0o750)
        (self.real / "link").symlink_to("plain.txt")
        os.mkfifo(self.real / "fifo")
        os.link(self.real / "one", self.real / "src" / "two")
        os.setxattr(self.real / "plain.txt", "user.note", b"1")
        settle()

    def sandbox(self, *exclude: str) -> Sandbox:
        self._plans += 1
        path, rules = self.sandboxes / f"plan{self._plans}" / "app", CopyRules(exclude=exclude)
        resource = Resource(name="app", type=self.kind, path=str(self.real), sandbox_path=str(path), copy_rules=rules)
        return GitWorktreeSandbox("plan", resource) if self.kind is ResourceType.GIT else DirectorySandbox(resource)

    def spare(self, sandbox: Sandbox) -> None:
        index = sandbox.path.parent / "index"
        index.touch()
        assert self.spares.keep(sandbox.resource, index, "00")
        assert not sandbox.path.exists()


def settle() -> None:
    """Until what was written is old enough to be told by its times."""
    until = time.time_ns() + 30_000_000
    while time.time_ns() < until:
        os.sched_yield()


@pytest.fixture(params=[ResourceType.GIT, ResourceType.DIRECTORY])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    return Bench(tmp_path, request.param)


def _same_size_and_time(path: Path) -> None:
    before = path.stat()
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _into_a_folder(path: Path) -> None:
    path.unlink()
    write(path / "inside", "x")


def _into_a_file(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    write(folder, "x")


def _into_a_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("elsewhere")


CHANGES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda _: None,
    "content, with its size and time": lambda root: _same_size_and_time(root / "plain.txt"),
    "mode": lambda root: (root / "src" / "main.c").chmod(0o755),
    "time": lambda root: set_mtime(root / "src" / "main.c", 1),
    "time of a folder": lambda root: set_mtime(root / "src" / "deep", 1),
    "mode of a folder": lambda root: (root / "empty").chmod(0o700),
    "attribute": lambda root: os.setxattr(root / "plain.txt", "user.note", b"2"),
    "no attribute": lambda root: os.removexattr(root / "plain.txt", "user.note"),
    "attribute of a folder": lambda root: os.setxattr(root / "src", "user.note", b"2"),
    "new file": lambda root: write(root / "src" / "new", "new"),
    "new folders": lambda root: (root / "a" / "b" / "c").mkdir(parents=True),
    "removed": lambda root: (root / "gone").unlink(),
    "removed folder": lambda root: (root / "empty").rmdir(),
    "renamed folder": lambda root: (root / "src" / "deep").rename(root / "moved"),
    "file into a folder": lambda root: _into_a_folder(root / "gone"),
    "folder into a file": lambda root: _into_a_file(root / "src" / "deep"),
    "file into a symlink": lambda root: _into_a_link(root / "plain.txt"),
    "symlink": lambda root: ((root / "link").unlink(), (root / "link").symlink_to("gone")),
    "ignored file": lambda root: write(root / "main.o", "compiled again"),
}


def _is_made_of_spare(sandbox: Sandbox) -> bool:
    return index_of_spare(sandbox.path).exists()


def _assert_as_new(bench: Bench, made: Sandbox) -> None:
    new = bench.sandbox(*made.resource.copy_rules.exclude)
    new.create()
    trees = [describe(sandbox.path, without=_NOT_OF_THE_USER) for sandbox in (new, made)]
    found = [each for each in compare(*trees) if not each.startswith(("b'':", "b'.git"))]
    assert found == []
    assert compare(*trees, ignoring=["mtime_ns"]) == []
    if bench.kind is ResourceType.GIT:
        # The first by stat data alone.
        for words in (("diff-files", "--name-only"), ("status", "--porcelain"), ("ls-files", "--stage")):
            assert git(made.path, *words) == git(new.path, *words)


@pytest.mark.parametrize("of_spare", CHANGES)
def test_what_the_plan_changed_is_as_in_a_new_sandbox(bench: Bench, of_spare: str) -> None:
    first, second = bench.sandbox(), bench.sandbox()
    first.create(spares=bench.spares)
    settle()
    CHANGES[of_spare](first.path)
    bench.spare(first)
    second.create(spares=bench.spares)
    assert _is_made_of_spare(second)
    _assert_as_new(bench, second)


@pytest.mark.parametrize("of_real", CHANGES)
def test_what_changed_in_the_folder_meanwhile_is_as_in_a_new_sandbox(bench: Bench, of_real: str) -> None:
    first, second = bench.sandbox(), bench.sandbox()
    first.create(spares=bench.spares)
    bench.spare(first)
    settle()
    CHANGES[of_real](bench.real)
    second.create(spares=bench.spares)
    assert _is_made_of_spare(second)
    _assert_as_new(bench, second)
    settle()
    bench.spare(second)
    third = bench.sandbox()
    third.create(spares=bench.spares)
    assert _is_made_of_spare(third)
    _assert_as_new(bench, third)


def _make_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()


IN_DOUBT: dict[str, Callable[[Path], object]] = {
    "a file with several names": lambda root: write(root / "one", "changed\n"),
    "another name": lambda root: os.link(root / "plain.txt", root / "third"),
    "a socket": lambda root: make_socket(root / "socket"),
    "a database": lambda root: _make_database(root / "data.db"),
    "a repository inside": lambda root: git(root / "src", "init", "--quiet"),
}


@pytest.mark.parametrize("doubt", IN_DOUBT)
def test_if_stamps_cannot_tell_a_new_sandbox_is_made(bench: Bench, doubt: str) -> None:
    if doubt == "a repository inside" and bench.kind is ResourceType.DIRECTORY:
        pytest.skip("there it is a folder like any other")
    first, second = bench.sandbox(), bench.sandbox()
    first.create(spares=bench.spares)
    bench.spare(first)
    IN_DOUBT[doubt](bench.real)
    second.create(spares=bench.spares)
    _assert_as_new(bench, second)
    assert not (bench.sandboxes / SPARES).exists(), "what is in doubt is given up"
    assert [path.name for path in second.path.parent.iterdir() if path.name.endswith((".spare", ".unfinished"))] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
@pytest.mark.parametrize("place", ["src/deep", "src/deep/er", "empty"])
def test_a_mount_since_the_last_plan_is_noticed(bench: Bench, place: str) -> None:
    """Also if the folder around it is as it was."""
    first, second = bench.sandbox(), bench.sandbox()
    first.create(spares=bench.spares)
    bench.spare(first)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "holdfast-test", bench.real / place], check=True)
    try:
        write(bench.real / place / "in the mount", "mounted")
        settle()
        second.create(spares=bench.spares)
        assert not _is_made_of_spare(second)
        assert not origin_beside(second.path).exists()
        _assert_as_new(bench, second)
    finally:
        subprocess.run(["umount", bench.real / place], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_mounted_file_is_noticed(bench: Bench) -> None:
    first, second = bench.sandbox(), bench.sandbox()
    first.create(spares=bench.spares)
    bench.spare(first)
    place = bench.real / "src" / "main.c"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        subprocess.run(["mount", "--bind", write(Path(other) / "file", "mounted"), place], check=True)
        try:
            second.create(spares=bench.spares)
            assert not _is_made_of_spare(second)
            _assert_as_new(bench, second)
        finally:
            subprocess.run(["umount", place], check=True)


def _with_origin(bench: Bench, change: Callable[[Origin], Origin]) -> None:
    [spare] = (bench.sandboxes / SPARES).iterdir()
    origin = load_origin(spare / "origin")
    assert origin is not None
    (spare / "origin").write_bytes(msgspec.msgpack.encode(change(origin)))


def _other(**changes: object) -> Callable[[Origin], Origin]:
    return lambda origin: msgspec.structs.replace(origin, **changes)


@pytest.mark.parametrize(
    "other", [{"boot_id": "another"}, {"user": (12345,)}, {"user": (*USER, 12345)}, {"version": 0}]
)
def test_a_spare_of_another_boot_user_or_version_is_not_trusted(bench: Bench, other: dict[str, object]) -> None:
    first, second = bench.sandbox(), bench.sandbox()
    first.create(spares=bench.spares)
    bench.spare(first)
    _with_origin(bench, _other(**other))
    second.create(spares=bench.spares)
    assert not _is_made_of_spare(second)
    _assert_as_new(bench, second)


def test_a_spare_goes_to_one_sandbox_and_only_so_many_are_kept(bench: Bench) -> None:
    first, second, third = bench.sandbox(), bench.sandbox(), bench.sandbox()
    for sandbox in (first, second):
        sandbox.create(spares=bench.spares)
    inode = second.path.stat().st_ino
    for sandbox in (first, second):
        bench.spare(sandbox)
    assert len(bench.spares.all()) == 1
    third.create(spares=bench.spares)
    assert _is_made_of_spare(third)
    assert third.path.stat().st_ino == inode, "the newer one is kept"
    fourth = bench.sandbox()
    fourth.create(spares=bench.spares)
    assert not _is_made_of_spare(fourth)


def test_a_spare_is_given_up_after_a_month_and_for_its_space(bench: Bench) -> None:
    first, second = bench.sandbox(), bench.sandbox()
    for sandbox in (first, second):
        sandbox.create(spares=bench.spares)
    bench.spare(first)
    bench.spares.give_up_old()
    [spare] = bench.spares.all()
    os.utime(spare, times=(time.time() - 31 * 24 * 3600,) * 2)
    bench.spares.give_up_old()
    assert bench.spares.all() == []
    bench.spare(second)
    bench.spares.give_up_all()
    assert not (bench.sandboxes / SPARES).exists()


def test_no_spare_is_kept_if_none_is_wanted_or_it_was_not_copied_whole(bench: Bench) -> None:
    sandbox = bench.sandbox()
    sandbox.create(spares=bench.spares)
    index = write(sandbox.path.parent / "index")
    assert not Spares(bench.sandboxes, 0, fewest_entries=1).keep(sandbox.resource, index, "00")
    assert stat.S_ISDIR(sandbox.path.stat().st_mode)
    make_socket(bench.real / "socket")
    other = bench.sandbox()
    other.create(spares=bench.spares)
    assert not origin_beside(other.path).exists()
    assert not bench.spares.keep(other.resource, index, "00")
