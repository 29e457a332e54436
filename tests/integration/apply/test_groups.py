"""Groups of shared folders and repositories: a member of a group keeps it, and what is inherited stays inherited."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.integration.apply.conftest import Desk
from tests.support.repositories import git, settings_of_a_person, status
from tests.support.unprivileged import NOBODY, folder_for_nobody, run_as_a_user

TEAM, FOREIGN = 54321, 54322
MAKE = """
echo more >> one.csv
echo new > new
mkdir -p made/deep && echo x > made/deep/x && ln -s x made/link && mkfifo made/pipe
echo x > of-mine && chgrp {own} of-mine
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can put a user into other groups")


def groups_in(root: Path) -> dict[str, tuple[int, bool]]:
    """The group of everything in a tree, and whether it is inherited from there."""
    found = {}
    for path in [root, *sorted(root.rglob("*"))]:
        status = path.lstat()
        is_passed_on = stat.S_ISDIR(status.st_mode) and bool(status.st_mode & stat.S_ISGID)
        found[str(path.relative_to(root))] = (status.st_gid, is_passed_on)
    return found


def make_desk(folder: str) -> Desk:
    os.environ.update(settings_of_a_person(Path(folder)))
    return Desk(Path(folder))


def share(root: Path, group: int) -> None:
    """Everything in it, and what comes into it, is the group's."""
    for path in [root, *root.rglob("*")]:
        os.chown(path, -1, group, follow_symlinks=False)
        if path.is_dir():
            path.chmod(0o2775)


def apply_in_a_shared_folder(folder: str) -> list[dict[str, tuple[int, bool]]]:
    """The groups in the folder, the result, the folder with it and without it, and the sandbox after a rollback."""
    desk = make_desk(folder)
    share(desk.data, TEAM)
    os.chown(desk.data / "two.csv", -1, NOBODY)
    before = groups_in(desk.data)
    plan = desk.run(data=MAKE.format(own=NOBODY))
    found = [before, groups_in(desk.sandbox(plan, "data"))]
    desk.apply(plan)
    found.append(groups_in(desk.data))
    with desk.open() as holdfast:
        first = holdfast.checkpoints(plan.plan_id)[0]
    desk.unapply(plan)
    found.append(groups_in(desk.data))
    with desk.open() as holdfast:
        holdfast.rollback(plan.plan_id, first.group.group_id)
    found.append(groups_in(desk.sandbox(plan, "data")))
    return found


def test_in_a_shared_folder_all_of_it_is_the_groups_in_sandbox_result_and_rollback():
    with folder_for_nobody() as folder:
        before, result, applied, unapplied, rolled_back = run_as_a_user(
            apply_in_a_shared_folder, str(folder), groups=[TEAM]
        )
    assert before["deep"] == [TEAM, True]
    assert result == {
        **before,
        "new": [TEAM, False],
        "made": [TEAM, True],
        "made/deep": [TEAM, True],
        "made/deep/x": [TEAM, False],
        "made/link": [TEAM, False],
        "made/pipe": [TEAM, False],
        "of-mine": [NOBODY, False],
    }
    assert applied == result
    assert unapplied == before
    assert rolled_back == before


def apply_in_a_folder_of_others(folder: str) -> list[dict[str, tuple[int, bool]]]:
    desk = make_desk(folder)
    os.umask(0o022)
    plan = desk.run(
        data="echo new > for-all/new; mkdir for-all/made; echo x > for-all/made/x; echo more >> for-all/old"
    )
    desk.apply(plan)
    return [groups_in(desk.data / "for-all"), groups_in(desk.sandbox(plan, "data") / "for-all")]


def test_what_a_folder_of_a_group_one_is_not_in_passes_on_stays():
    with folder_for_nobody() as folder:
        place = folder / "real" / "data" / "for-all"
        place.mkdir(parents=True)
        (place / "old").write_text("x")
        for path in (folder / "real", folder / "real" / "data", place, place / "old"):
            os.chown(path, NOBODY, NOBODY)
        os.chown(place, NOBODY, FOREIGN)
        place.chmod(0o2775)
        applied, result = run_as_a_user(apply_in_a_folder_of_others, str(folder), groups=[TEAM])
    assert result["made"] == [NOBODY, True]
    assert applied["new"] == applied["made/x"] == [FOREIGN, False]
    assert applied["made"] == [FOREIGN, True]


def apply_in_a_shared_repository(folder: str) -> list[object]:
    """What in the repository and its files is not the group's to write, and what git says of it."""
    desk = make_desk(folder)
    git(desk.app, "config", "core.sharedRepository", "group")
    share(desk.app, TEAM)
    for path in [desk.app, *desk.app.rglob("*")]:
        path.chmod(stat.S_IMODE(path.stat().st_mode) | (path.stat().st_mode & stat.S_IRWXU) >> 3)
    os.umask(0o002)
    plan = desk.run(app="echo new > new.txt; mkdir made; echo x > made/x; rm b.txt")
    desk.apply(plan)
    closed = [
        str(path.relative_to(desk.app))
        for path in desk.app.rglob("*")
        if path.lstat().st_gid != TEAM
        or (path.is_dir() and not path.stat().st_mode & stat.S_ISGID)
        or (path.is_file() and path.stat().st_mode & 0o600 == 0o600 and not path.stat().st_mode & 0o020)
    ]
    return [closed, status(desk.app), desk.leftovers() == []]


def test_a_shared_repository_stays_one_the_whole_group_can_write_to():
    with folder_for_nobody() as folder:
        assert run_as_a_user(apply_in_a_shared_repository, str(folder), groups=[TEAM]) == [[], [], True]
