"""What ``plan apply`` says of the commits that a program made, of a part, and of a branch."""

from __future__ import annotations

from tests.support.repositories import git
from tests.support.sessions import Place, made_place

_WORK = (
    "echo b > b.txt && git add b.txt && git -c user.name=A -c user.email=a@b commit -qm 'add b' && echo c > c.txt "
    "&& echo d > d.txt"
)


def test_commits_parts_and_branches_are_named() -> None:
    with made_place() as place:
        place.make({"a.txt": "a\n"})
        _applied_in_parts(place)


def _applied_in_parts(place: Place) -> None:
    assert place.call("run", "--", "sh", "-c", _WORK).exit_code == 0
    shown = place.call("apply", "--dry-run", "latest").stdout
    assert "would be kept on" in shown
    assert "add b" in shown
    assert "would be a commit after them" in shown
    part = place.call("apply", "--dry-run", "--only", "c.txt", "latest").stdout
    assert "2 files of the result not applied yet" in part
    on_branch = place.call("apply", "--yes", "--branch", "review", "latest").stdout
    assert "on the branch review; your own files are untouched" in on_branch
    assert "git merge review" in on_branch
    assert "add b" in git(place.root, "log", "--format=%s", "review")
    assert "Undone." in place.call("unapply", "--yes", "latest").stdout
    done = place.call("apply", "--yes", "--only", "c.txt", "latest").stdout
    assert "2 files of the result not applied yet" in done
    assert "apply the rest" in done
    squashed = place.call("apply", "--yes", "--commits", "squash", "latest").stdout
    assert "Applied. 2 files of yours changed." in squashed
    assert sorted(each.name for each in place.root.glob("*.txt")) == ["a.txt", "b.txt", "c.txt", "d.txt"]
