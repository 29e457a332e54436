"""Extended attributes are part of what a plan changes: they arrive, conflict and go back like the rest of a file."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from holdfast.errors import ConflictError
from tests.integration.apply.conftest import Desk
from tests.support.repositories import head, status
from tests.support.trees import compare, write


def marking(name: str, value: str = "plan", file: str = "one.csv") -> str:
    return f"python3 -c \"import os; os.setxattr('{file}', 'user.{name}', b'{value}')\""


def marks(file: Path) -> dict[str, bytes]:
    return {name: os.getxattr(file, name) for name in os.listxattr(file) if name.startswith("user.")}


def test_an_attribute_arrives_and_goes_back(desk: Desk):
    before = desk.everything()
    plan = desk.run(data=marking("k") + "; " + marking("folder", file="deep"))
    result = desk.apply(plan)
    assert {(each.file, each.action) for each in result.changes} == {("deep", "changed"), ("one.csv", "changed")}
    assert (marks(desk.data / "one.csv"), marks(desk.data / "deep")) == ({"user.k": b"plan"}, {"user.folder": b"plan"})
    taken_back = desk.unapply(plan)
    assert {(each.file, each.action) for each in taken_back.changes} == {("deep", "restored"), ("one.csv", "restored")}
    assert compare(before, desk.everything()) == []


def test_an_attribute_that_the_plan_removed_goes(desk: Desk):
    os.setxattr(desk.data / "one.csv", "user.k", b"1")
    desk.apply(desk.run(data="python3 -c \"import os; os.removexattr('one.csv', 'user.k')\""))
    assert marks(desk.data / "one.csv") == {}


@pytest.mark.parametrize(
    "script", [marking("k"), "echo more >> one.csv; " + marking("k"), "chmod 600 one.csv; " + marking("k")]
)
def test_an_attribute_that_the_sandbox_never_had_stays(desk: Desk, script: str):
    plan = desk.run(data=script)
    os.setxattr(desk.data / "one.csv", "user.mine", b"1")
    desk.apply(plan)
    assert marks(desk.data / "one.csv") == {"user.mine": b"1", "user.k": b"plan"}
    desk.unapply(plan)
    assert marks(desk.data / "one.csv") == {"user.mine": b"1"}


def test_an_attribute_of_the_plan_comes_to_a_file_that_the_user_changed(desk: Desk):
    plan = desk.run(data=marking("k"))
    (desk.data / "one.csv").write_bytes(b"\0 not text")
    (desk.data / "one.csv").chmod(0o600)
    desk.apply(plan)
    file = desk.data / "one.csv"
    assert (file.read_bytes(), file.stat().st_mode & 0o777, marks(file)) == (b"\0 not text", 0o600, {"user.k": b"plan"})


@pytest.mark.parametrize("script", [marking("k"), "rm one.csv"])
def test_an_attribute_that_both_changed_is_refused_and_nothing_changes(desk: Desk, script: str):
    os.setxattr(desk.data / "one.csv", "user.k", b"before")
    plan = desk.run(data=script)
    os.setxattr(desk.data / "one.csv", "user.k", b"mine")
    before = desk.everything()
    with pytest.raises(ConflictError) as refusal:
        desk.apply(plan)
    assert refusal.value.paths == ("data: one.csv",)
    assert compare(before, desk.everything()) == []


def test_an_attribute_that_is_there_already_is_fine(desk: Desk):
    plan = desk.run(data=marking("k"))
    os.setxattr(desk.data / "one.csv", "user.k", b"plan")
    assert desk.apply(plan).changes == ()


def test_unapply_refuses_when_the_attribute_was_changed_since(desk: Desk):
    plan = desk.run(data=marking("k"))
    desk.apply(plan)
    os.setxattr(desk.data / "one.csv", "user.k", b"mine")
    with pytest.raises(ConflictError) as refusal:
        desk.unapply(plan)
    assert refusal.value.paths == ("data: one.csv",)
    assert marks(desk.data / "one.csv") == {"user.k": b"mine"}


def test_a_file_that_becomes_a_symlink_takes_no_attribute_along(desk: Desk):
    plan = desk.run(data="rm one.csv; ln -s two.csv one.csv")
    os.setxattr(desk.data / "one.csv", "user.mine", b"1")
    desk.apply(plan)
    assert (desk.data / "one.csv").readlink() == Path("two.csv")


def test_in_a_repository_the_file_gets_it_without_a_commit(desk: Desk):
    write(desk.app / "a.txt", "not committed\n")
    before, commit = status(desk.app), head(desk.app)
    plan = desk.run(app=marking("k", file="a.txt"))
    result = desk.apply(plan)
    assert ([each.file for each in result.changes], result.commits) == (["a.txt"], {})
    assert (marks(desk.app / "a.txt"), status(desk.app), head(desk.app)) == ({"user.k": b"plan"}, before, commit)
    desk.unapply(plan)
    assert marks(desk.app / "a.txt") == {}


def let_somebody_read(file: Path) -> bytes:
    """An access list that adds one user, and agrees with the mode 0644."""
    entries = [(1, 6, -1), (2, 4, 1), (4, 4, -1), (16, 4, -1), (32, 4, -1)]
    content = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    file.chmod(0o644)
    os.setxattr(file, "system.posix_acl_access", content)
    return content


def test_an_access_list_that_the_sandbox_never_had_stays_with_the_mode_it_goes_with(desk: Desk):
    (desk.data / "one.csv").chmod(0o644)
    plan, other = desk.run(data="echo more >> one.csv"), desk.run(data="chmod 600 one.csv")
    content = let_somebody_read(desk.data / "one.csv")
    with pytest.raises(ConflictError):
        desk.apply(other)
    desk.apply(plan)
    assert os.getxattr(desk.data / "one.csv", "system.posix_acl_access") == content
