"""What every kind of sandbox promises, whatever it stands in for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from holdfast.errors import SandboxError
from holdfast.model import ResourceType, Strategy
from holdfast.sandbox.protocol import Sandbox
from tests.support.crashes import killed_at
from tests.support.repositories import git
from tests.support.snapshots import Place
from tests.support.trees import (
    IS_ROOT,
    compare,
    describe,
    disk_bytes,
    make_odd_tree,
    make_socket,
    make_sparse,
    write,
)
from tests.unit.sandbox.conftest import Bench

KINDS = {ResourceType.GIT: Strategy.GIT_WORKTREE, ResourceType.DIRECTORY: Strategy.FILESYSTEM_COPY}
OWN = [b".git"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> ResourceType:
    return request.param


@pytest.fixture
def real(tmp_path: Path, kind: ResourceType) -> Path:
    """The user's files: everything a tree can hold, and for git all of it not ignored, partly committed."""
    root = tmp_path / "real"
    root.mkdir()
    if kind is ResourceType.GIT:
        git(root, "init", "--quiet")
    make_odd_tree(root)
    if kind is ResourceType.GIT:
        write(root / ".gitignore", "nothing at all\n")
        subprocess.run(["rm", "-r", root / "nested" / ".git"], check=True)
        git(root, "add", ".gitignore", "plain.txt", "linked", "relative link", "shared")
        git(root, "commit", "--quiet", "-m", "first")
    return root


@pytest.fixture
def sandbox(bench: Bench, kind: ResourceType, real: Path) -> Sandbox:
    return bench.sandbox(kind, real)


def test_it_says_what_it_is_and_where(sandbox: Sandbox, bench: Bench, kind: ResourceType):
    assert sandbox.strategy is KINDS[kind]
    assert sandbox.path == bench.home / "app"
    assert not sandbox.path.exists()


def test_it_holds_exactly_the_users_files(sandbox: Sandbox, real: Path):
    resource = sandbox.create()
    assert resource.sandbox_path == str(sandbox.path)
    assert compare(describe(real, without=OWN), describe(sandbox.path, without=OWN), ignoring=["mtime_ns"]) == []
    differing = compare(describe(real, without=OWN), describe(sandbox.path, without=OWN))
    assert [each for each in differing if not each.startswith("b'':")] == [], "the times too, but for the root's"


def test_the_users_files_are_untouched_by_all_that_happens_in_it(sandbox: Sandbox, real: Path, tmp_path: Path):
    before = describe(real)
    sandbox.check()
    sandbox.create()
    (tmp_path / "snapshots").mkdir()
    place = Place(tmp_path / "snapshots", sandbox.path)
    checkpoint = place.take()
    for path in sandbox.path.rglob("*"):
        if path.is_file() and not path.is_symlink() and ".git/" not in str(path):
            path.chmod(0o600)
            with open(path, "ab") as file:
                file.write(b"changed in place")
    write(sandbox.path / "added", "x")
    place.take()
    place.go_back(checkpoint)
    place.close()
    sandbox.remove()
    assert compare(before, describe(real)) == []


def test_a_snapshot_of_it_comes_back_exactly(sandbox: Sandbox, tmp_path: Path):
    sandbox.create()
    (tmp_path / "snapshots").mkdir()
    place = Place(tmp_path / "snapshots", sandbox.path)
    before, checkpoint = describe(sandbox.path), place.take()
    subprocess.run(["sh", "-c", "rm -rf -- * .git && echo x > new && mkdir plain.txt"], cwd=sandbox.path, check=True)
    place.go_back(checkpoint)
    assert compare(before, describe(sandbox.path)) == []
    place.close()


def test_made_again_it_starts_from_the_users_files_again(sandbox: Sandbox, real: Path):
    sandbox.create()
    write(sandbox.path / "left by an earlier attempt", "x")
    (sandbox.path / "plain.txt").unlink()
    sandbox.create()
    assert compare(describe(real, without=OWN), describe(sandbox.path, without=OWN), ignoring=["mtime_ns"]) == []


def test_removed_it_is_gone_whatever_is_in_it(sandbox: Sandbox, bench: Bench):
    sandbox.create()
    write(sandbox.path / "deep" / "er" / "file", "x")
    (sandbox.path / "deep" / "er").chmod(0o555)
    (sandbox.path / "shared").chmod(0o000)
    sandbox.remove()
    assert not sandbox.path.exists()
    assert list(bench.home.iterdir()) == []
    sandbox.remove()


def test_killed_while_it_is_made_it_is_there_as_a_whole_or_not_at_all(
    sandbox: Sandbox, bench: Bench, real: Path, kind: ResourceType
):
    expected = describe(real, without=OWN)
    moment, kills = 1, 0
    while killed_at(moment, sandbox.create):
        kills += 1
        if sandbox.path.exists():
            assert compare(expected, describe(sandbox.path, without=OWN), ignoring=["mtime_ns"]) == []
        moment += 1 + moment // 3
    assert kills > 5
    assert compare(expected, describe(sandbox.path, without=OWN), ignoring=["mtime_ns"]) == []
    left = {path.name for path in bench.home.iterdir()}
    assert left - {".borrowed", ".view"} == {"app"}, "nothing else is left"
    if kind is ResourceType.GIT:
        assert git(sandbox.path, "fsck", "--no-progress") == ""


def test_what_no_sandbox_can_hold_is_left_out_and_listed(sandbox: Sandbox, real: Path):
    make_socket(real / "socket")
    made = sandbox.create()
    assert [(each.path, each.reason) for each in made.left_out] == [("socket", "a socket or a device")]
    assert not os.path.lexists(sandbox.path / "socket")
    assert (sandbox.path / "plain.txt").read_text() == "plain\n"


def test_a_sparse_file_stays_sparse_in_it(sandbox: Sandbox, real: Path):
    make_sparse(real / "sparse", 64 << 20, data={0: b"beginning", 40 << 20: b"middle"})
    sandbox.create()
    assert (sandbox.path / "sparse").read_bytes() == (real / "sparse").read_bytes()
    assert disk_bytes(sandbox.path / "sparse") < 8 << 20


def test_a_resource_reached_through_a_symlink_is_the_resource(bench: Bench, kind: ResourceType, real: Path):
    os.symlink(real, bench.folder / "link")
    sandbox = bench.sandbox(kind, bench.folder / "link")
    sandbox.create()
    assert not sandbox.path.is_symlink()
    assert (sandbox.path / "plain.txt").read_text() == "plain\n"


def test_a_resource_that_is_not_there_is_refused(bench: Bench, kind: ResourceType):
    sandbox = bench.sandbox(kind, bench.folder / "nowhere")
    for refused in (sandbox.check, sandbox.create):
        with pytest.raises(SandboxError) as refusal:
            refused()
        assert "nowhere" in refusal.value.message
    assert not sandbox.path.exists()


def test_a_resource_that_is_a_file_is_refused(bench: Bench, kind: ResourceType):
    sandbox = bench.sandbox(kind, write(bench.folder / "file", "x"))
    with pytest.raises(SandboxError):
        sandbox.check()


@pytest.mark.skipif(not IS_ROOT, reason="only root may mount a small disk")
def test_when_the_disk_is_full_nothing_is_left(bench: Bench, sandbox: Sandbox, real: Path):
    write(real / "large", os.urandom(3 << 20))
    bench.home.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "holdfast-test", bench.home], check=True)
    try:
        with pytest.raises(SandboxError, match="No space left"):
            sandbox.create()
        assert list(bench.home.iterdir()) == []
    finally:
        subprocess.run(["umount", "--lazy", bench.home], check=True)
