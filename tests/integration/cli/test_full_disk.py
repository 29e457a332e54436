"""A disk without a byte left: what frees space still works there, and everything else says what is full."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from holdfast.app import Holdfast
from holdfast.db.lease import leased
from holdfast.system.reserve import RESERVE_BYTES, free_bytes
from holdfast.system.sqlite import module
from tests.integration.cli.project import Project
from tests.support.crashes import killed_at
from tests.support.trees import IS_ROOT

pytestmark = pytest.mark.skipif(not IS_ROOT, reason="only root may mount a small disk")

_FILLS_THE_DISK = "  - {name: some, run: head -c 1500000 /dev/urandom > a}\n  - {name: all, run: cat /dev/zero > b}\n"
_MANY_VERSIONS = "".join(
    f"  - {{name: v{number}, resource: data, run: head -c 1500000 /dev/urandom > a}}\n" for number in range(20)
)


@pytest.fixture
def small(project: Project) -> Iterator[Project]:
    """Its home is on a disk of its own."""
    disk = project.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "holdfast-test", disk], check=True)
    project.home = disk / "home"
    try:
        yield project
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def _fill(project: Project) -> None:
    """As another program would."""
    filler = project.home.parent / "filler"
    with filler.open("ab", buffering=0) as written, suppress(OSError):
        while True:
            written.write(bytes(4096))
    assert free_bytes(filler.parent) == 0


def _broken_off(project: Project, steps: str) -> str:
    ended = project.run("plan", "execute", str(project.plan(steps)))
    assert ended.exit_code == 8, ended
    assert "There is no space left for the database" in ended.stderr
    assert str(project.home) in ended.stderr
    assert "`holdfast plan delete` and `holdfast checkpoint prune`" in ended.stderr
    return str(project.run("plan", "list", "--format", "json").data["plans"][0]["plan_id"])


def test_a_plan_that_filled_the_disk_says_so_and_can_be_deleted(small: Project) -> None:
    plan = _broken_off(small, _FILLS_THE_DISK)
    status = small.run("plan", "status", plan, "--format", "json").data
    assert status["state"] == "errored"
    assert "no space left" in status["error"]
    assert small.run("plan", "resume", plan).exit_code == 8
    assert small.run("plan", "delete", "--yes", plan).exit_code == 0
    assert list((small.home / "sandboxes").iterdir()) == []
    assert free_bytes(small.home) > 15_000_000
    small.run("plan", "list")
    assert (small.home / "reserve").stat().st_size == RESERVE_BYTES


_FILLS_WITH_WHAT_NOBODY_CAN_STORE = """\
  - {name: some, resource: data, run: head -c 1500000 /dev/urandom > a}
  - name: all
    resource: data
    run: "head -c 2000 /dev/urandom > a; rm orders.csv; cat /dev/urandom > b"
"""


def _broken_off_in_the_second_step(project: Project, header: str = "") -> tuple[str, str]:
    """The plan, and the command that its error names as the way out."""
    ended = project.run("plan", "execute", str(project.plan(_FILLS_WITH_WHAT_NOBODY_CAN_STORE, header=header)))
    assert ended.exit_code == 8, ended
    plan = project.run("plan", "status", "latest", "--format", "json").data
    assert plan["state"] == "errored"
    said = " ".join(ended.stderr.split())
    command = said[said.index("holdfast plan rollback --without-keeping") :].partition("`")[0].rstrip(".")
    assert command in " ".join(plan["error"].split())
    return plan["plan_id"], command


@pytest.mark.parametrize("header", ["", "policy: {on_failure: rollback}\n", "policy: {on_failure: keep}\n"])
def test_the_way_out_that_is_named_works_without_a_byte_left(small: Project, header: str) -> None:
    plan, command = _broken_off_in_the_second_step(small, header)
    _fill(small)
    sandbox = small.home / "sandboxes" / plan / "data"
    before = (sandbox / "a").stat().st_size, (sandbox / "b").stat().st_size
    refused = small.run("plan", "rollback", "--yes", plan, command.split()[-1])
    assert refused.exit_code == 8, refused
    assert command in " ".join(refused.stderr.split())
    assert before == ((sandbox / "a").stat().st_size, (sandbox / "b").stat().st_size)

    looked = small.run(*command.split()[1:], "--dry-run", "--format", "json")
    assert looked.exit_code == 0, looked
    assert sorted(looked.data["lost"]) == ["data:a", "data:b", "data:orders.csv"]
    assert before == ((sandbox / "a").stat().st_size, (sandbox / "b").stat().st_size)

    done = small.run(*command.split()[1:], "--yes", "--format", "json")
    assert done.exit_code == 0, done
    assert sorted(done.data["lost"]) == ["data:a", "data:b", "data:orders.csv"]
    assert done.data["left_checkpoint_id"] is None
    assert done.data["post_rollback_state"] == looked.data["post_rollback_state"]
    assert sorted(path.name for path in sandbox.iterdir()) == ["a", "orders.csv"]
    assert (sandbox / "a").stat().st_size == 1500000
    (small.home.parent / "filler").unlink()
    assert small.run("plan", "diff", plan, "--format", "json").exit_code == 0
    assert small.run("checkpoint", "verify").exit_code == 0
    again = small.run("plan", "rollback", "--yes", plan, command.split()[-1], "--format", "json")
    assert again.exit_code == 0, again
    assert again.data["changes_reverted"] == []


def test_going_on_names_the_way_out_of_a_full_disk(small: Project) -> None:
    plan, command = _broken_off_in_the_second_step(small)
    ended = small.run("plan", "execute", plan)
    assert ended.exit_code == 8, ended
    assert command in " ".join(ended.stderr.split())


def test_restoring_single_paths_names_the_way_out_of_a_full_disk(small: Project) -> None:
    done = small.run("plan", "execute", str(small.plan("  - {name: one, run: echo 2 > version.txt}\n")))
    assert done.exit_code == 0, done
    [listed] = small.run("plan", "list", "--format", "json").data["plans"]
    sandbox = small.home / "sandboxes" / listed["plan_id"] / "data"
    (sandbox / "b").write_bytes(os.urandom(free_bytes(small.home) - 100_000))
    refused = small.run("plan", "rollback", "--yes", "--only", "data:b", "latest", listed["last_checkpoint_id"])
    assert refused.exit_code == 8, refused
    said = " ".join(refused.stderr.split())
    assert f"holdfast plan rollback --without-keeping {listed['plan_id']} {listed['last_checkpoint_id']}" in said
    assert str(sandbox) in refused.stderr.replace("\n", "")
    both = small.run(
        "plan", "rollback", "--yes", "--without-keeping", "--only", "data:b", "latest", listed["last_checkpoint_id"]
    )
    assert both.exit_code == 2, both
    (sandbox / "b").unlink()  # by hand, as the hint says
    assert small.run("plan", "execute", "latest").exit_code == 0


def test_a_full_disk_is_told_also_where_the_record_of_the_last_checkpoint_is_damaged(small: Project) -> None:
    done = small.run("plan", "execute", str(small.plan("  - {name: one, run: echo 2 > version.txt}\n")))
    assert done.exit_code == 0, done
    [listed] = small.run("plan", "list", "--format", "json").data["plans"]
    with closing(module.connect(small.home / "holdfast.db")) as connection, connection:
        damage = "UPDATE checkpoint_metadata SET checksum = 'x' WHERE checkpoint_id = ?"
        assert connection.execute(damage, [listed["last_checkpoint_id"]]).rowcount == 1
    sandbox = small.home / "sandboxes" / listed["plan_id"] / "data"
    (sandbox / "b").write_bytes(os.urandom(free_bytes(small.home) - 100_000))
    refused = small.run("checkpoint", "create", "latest")
    assert refused.exit_code == 8, refused
    assert "no space left" in refused.stderr
    assert str(sandbox) in refused.stderr.replace("\n", "")


def test_going_back_without_keeping_can_be_killed_at_any_moment(small: Project, tmp_path: Path) -> None:
    plan, command = _broken_off_in_the_second_step(small)
    checkpoint, kept = command.split()[-1], tmp_path / "kept"
    subprocess.run(["cp", "-a", small.home, kept], check=True)

    def roll_back() -> None:
        with Holdfast.open(small.folder, home=small.home, environment=small.environment) as holdfast:
            holdfast.rollback(plan, checkpoint, keeps_present=False)

    moment, kills = 1, 0
    while killed_at(moment, roll_back):
        kills += 1
        done = small.run(*command.split()[1:], "--yes")
        assert done.exit_code == 0, done
        sandbox = small.home / "sandboxes" / plan / "data"
        assert sorted(path.name for path in sandbox.iterdir()) == ["a", "orders.csv"]
        assert small.run("plan", "status", plan, "--format", "json").data["state"] == "queued"
        shutil.rmtree(small.home)
        subprocess.run(["cp", "-a", kept, small.home], check=True)
        moment += 1 + moment // 2
    assert kills >= 4
    assert small.run("checkpoint", "verify").exit_code == 0


def test_pruning_gives_space_back_and_the_plan_goes_on(small: Project) -> None:
    plan = _broken_off(small, _MANY_VERSIONS)
    before = free_bytes(small.home)
    pruned = small.run("checkpoint", "prune", "--keep", "2", plan)
    assert pruned.exit_code == 0, pruned
    assert free_bytes(small.home) > before + 5_000_000
    done = small.run("plan", "status", plan, "--format", "json").data["last_completed_step"]
    small.run("plan", "resume", plan)
    assert small.run("plan", "status", plan, "--format", "json").data["last_completed_step"] > done
    assert small.run("checkpoint", "verify").exit_code == 0


def test_pruning_works_without_a_byte_left(small: Project) -> None:
    plan = _broken_off(small, _MANY_VERSIONS)
    _fill(small)
    assert small.run("checkpoint", "prune", "--keep", "3", plan).exit_code == 0
    # The limit may be exceeded by what always stays.
    assert len(small.run("checkpoint", "list", plan, "--format", "json").data["checkpoints"]) <= 4
    assert small.run("checkpoint", "verify").exit_code == 0
    assert small.run("plan", "delete", "--yes", plan).exit_code == 0


def test_what_pruning_could_not_give_back_for_want_of_room_is_given_back_by_the_next(small: Project) -> None:
    plan = _broken_off(small, _MANY_VERSIONS)
    first = small.run("checkpoint", "list", plan, "--format", "json").data["checkpoints"][0]["checkpoint_id"]
    _fill(small)
    small.run("plan", "execute", plan)
    small.run("plan", "rollback", "--yes", plan, first)
    _fill(small)
    small.run("plan", "execute", plan)
    _fill(small)
    pruned = small.run("checkpoint", "prune", "--keep", "2", plan)
    assert pruned.exit_code == 0, pruned
    filler = small.home.parent / "filler"
    os.truncate(filler, filler.stat().st_size - 500_000)
    again = small.run("checkpoint", "prune", "--keep", "2", plan)
    assert again.exit_code == 0, again
    assert "takes its space" not in again.stdout + again.stderr
    assert (small.home / "objects.db").stat().st_size < 5_000_000


def test_what_was_done_is_not_told_as_failed_because_the_lease_could_not_be_given_back(small: Project) -> None:
    small.run("plan", "execute", str(small.plan("  - {name: one, run: echo 2 > version.txt}\n")))
    with Holdfast.open(small.folder, home=small.home, environment=small.environment) as holdfast:
        plan = holdfast.list_plans()[0].plan_id
        with leased(holdfast.store, plan, "a test"):
            _fill(small)
    assert small.run("plan", "status", plan).exit_code == 0


def test_plans_can_be_looked_at_and_deleted_although_another_program_filled_the_disk(small: Project) -> None:
    assert small.run("plan", "execute", str(small.plan("  - {name: one, run: echo 2 > version.txt}\n"))).exit_code == 0
    _fill(small)
    [listed] = small.run("plan", "list", "--format", "json").data["plans"]
    assert small.run("plan", "status", listed["plan_id"]).exit_code == 0
    assert small.run("plan", "delete", "--yes", listed["plan_id"]).exit_code == 0


def test_a_home_that_was_full_before_there_was_a_reserve_gives_up_its_caches(small: Project) -> None:
    for number in range(4000):
        (small.data / f"file number {number}").touch()
    done = small.run("plan", "execute", str(small.plan("  - {name: one, run: echo 2 > version.txt}\n")))
    assert done.exit_code == 0, done
    caches = sum(path.stat().st_size for path in (small.home / "indexes").iterdir())
    assert caches > 200_000
    holder = Holdfast.open(small.folder, home=small.home, environment=small.environment)
    try:
        assert holder.list_plans()  # another process that has the databases open
        (small.home / "reserve").unlink()
        _fill(small)
        deleted = small.run("plan", "delete", "--yes", "latest")
        assert deleted.exit_code == 0, deleted
    finally:
        holder.close()


def test_deleting_on_a_full_disk_can_be_killed_at_any_moment(small: Project, tmp_path: Path) -> None:
    plan, kept = _broken_off(small, _FILLS_THE_DISK), tmp_path / "kept"
    shutil.copytree(small.home, kept, symlinks=True)

    def delete() -> None:
        with Holdfast.open(small.folder, home=small.home, environment=small.environment) as holdfast:
            holdfast.delete(plan)

    moment, kills = 1, 0
    while killed_at(moment, delete):
        kills += 1
        found = small.run("plan", "status", plan)
        assert found.exit_code in (0, 3), found
        if found.exit_code == 0:
            assert small.run("checkpoint", "verify", plan).exit_code == 0
            assert small.run("plan", "delete", "--yes", plan).exit_code == 0
        assert small.run("plan", "list", "--format", "json").data["plans"] == []
        assert list((small.home / "sandboxes").iterdir()) == []
        shutil.rmtree(small.home)
        shutil.copytree(kept, small.home, symlinks=True)
        _fill(small)
        moment += 1 + moment // 2
    assert kills >= 4


def test_a_full_disk_that_no_database_met_is_named(small: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    small.call("plan", "execute", str(small.plan("  - {name: one, run: echo 2 > version.txt}\n")))

    def write(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("holdfast.snapshot.manager.CheckpointManager.take", write)
    ended = small.call("checkpoint", "create", "latest")
    assert ended.exit_code == 6
    assert f"There is no space left on the disk of {small.home}." in ended.stderr
    assert "holdfast plan delete" in ended.stderr
