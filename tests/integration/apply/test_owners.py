"""Real folders have one owner while they are changed, and what was cut short in them is never used as it is."""

from __future__ import annotations

import encodings.utf_8_sig  # noqa: F401 - the unprivileged user may not be able to read it
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConflictError, HoldfastError, StateError
from holdfast.events import Event, RealFilesRestored
from holdfast.model import Plan
from holdfast.system import folder_lock, folder_mark
from tests.integration.apply.conftest import Desk
from tests.support.crashes import killed_at, stopped_at
from tests.support.repositories import git, log, status
from tests.support.trees import compare, describe, write
from tests.support.unprivileged import folder_for_nobody, run_unprivileged

MANY = 40


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_lock, "PATIENCE_SECONDS", 0.2)


def at_once(actions: list[Callable[[], Any]]) -> list[int]:
    """The exit codes of all of them, each in a process of its own, begun at the same moment."""
    children = []
    gate, opening = os.pipe()
    for action in actions:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(opening)
                os.read(gate, 1)
                action()
                code = 0
            except HoldfastError as error:
                sys.stderr.write(f"{error.message}\n")
                code = error.exit_code
            finally:
                os._exit(code)
        children.append(child)
    os.close(opening)
    os.close(gate)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def half_applied(desk: Desk, plan: Plan) -> None:
    """An apply of that plan, killed when some of its files are changed and others not."""
    assert killed_at(MANY // 2, lambda: desk.apply(plan), touching=".holdfast-")


def many(resource: Path, letter: str) -> str:
    """A script that changes every one of many files, which it makes in the real folder first."""
    for number in range(MANY):
        write(resource / f"many-{number:02}", f"{number}\n")
    return f"for file in many-*; do echo {letter} >> $file; done"


def other_home(desk: Desk, name: str = "other home") -> Desk:
    """The same folders, used from a home of its own."""
    other = object.__new__(Desk)
    vars(other).update(vars(desk))
    other.folder, other.home = desk.folder / name, desk.folder / name / "home"
    return other


# At once


def test_of_applies_to_one_directory_at_once_each_that_says_so_is_applied(desk: Desk):
    write(desk.data / "shared", "\n".join(map(str, range(30))) + "\n")
    plans = [desk.run(data=f"sed -i {line}s/$/x/ shared; echo x > own-{line}") for line in (1, 11, 21)]
    codes = at_once([lambda plan=plan: desk.apply(plan) for plan in plans])
    assert set(codes) <= {0, ConflictError.exit_code}
    assert 0 in codes
    lines = (desk.data / "shared").read_text().splitlines()
    for plan, line, code in zip(plans, (1, 11, 21), codes, strict=True):
        assert ("x" in lines[line - 1], (desk.data / f"own-{line}").exists()) == (code == 0, code == 0)
        assert desk.state(plan) == (("apply", "applied") if code == 0 else ("execute", "complete"))
    assert left_over(desk) == []
    for plan, code in zip(plans, codes, strict=True):
        if code:
            desk.apply(plan)
    assert [line for line in (desk.data / "shared").read_text().splitlines() if "x" in line] == ["0x", "10x", "20x"]


def test_of_applies_to_one_repository_at_once_one_wins(desk: Desk):
    plans = [desk.run(app=f"echo x > new-{number}.txt") for number in range(3)]
    codes = at_once([lambda plan=plan: desk.apply(plan) for plan in plans])
    assert set(codes) <= {0, ConflictError.exit_code}
    assert codes.count(0) >= 1
    assert log(desk.app)[: codes.count(0)] == ["the plan"] * codes.count(0)
    assert [(desk.app / f"new-{number}.txt").exists() for number in range(3)] == [code == 0 for code in codes]
    assert status(desk.app) == []
    assert left_over(desk) == []
    assert git(desk.app, "fsck", "--no-progress", "--no-dangling") == ""
    for plan, code in zip(plans, codes, strict=True):
        if code:
            desk.apply(plan)
    assert log(desk.app)[:3] == ["the plan"] * 3


def left_over(desk: Desk) -> list[Path]:
    marked = [folder for folder in (desk.real, *desk.real.rglob("*")) if folder_mark.find_on(folder) is not None]
    return [*desk.leftovers(), *desk.real.rglob("*.kept-*"), *marked]


# One owner


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("where", ["the same folder", "a folder inside", "a folder around", "another home"])
@pytest.mark.unmeasured
def test_a_folder_that_is_being_changed_is_neither_changed_nor_copied(desk: Desk, where: str):
    first = desk.run(data=many(desk.data, "a"))
    second = desk if where != "another home" else other_home(desk)
    folder = {"a folder inside": desk.data / "deep", "a folder around": desk.real}.get(where, desk.data)
    name = "many-00" if folder == desk.data else "data/many-00" if folder == desk.real else "three.csv"
    document = plan_on(folder, f"echo more >> {name}")
    ready = second.run_plan(document)
    child = stopped_at_write(desk, first)
    try:
        before = describe(desk.real)
        for action in (lambda: second.apply(ready), lambda: preview(second, ready), lambda: second.run_plan(document)):
            with pytest.raises(ConflictError, match=f"process {child} ") as refusal:
                action()
            assert refusal.value.exit_code == 5
        assert compare(before, describe(desk.real)) == []
    finally:
        os.kill(child, signal.SIGCONT)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert desk.state(first) == ("apply", "applied")
    assert left_over(desk) == []


def stopped_at_write(desk: Desk, plan: Plan) -> int:
    """The process of an apply that is stopped when it has changed some of the files."""
    return stopped_at(MANY // 2, lambda: desk.apply(plan), touching=".holdfast-")


def plan_on(folder: Path, script: str) -> dict[str, Any]:
    step = {"name": "work", "run": script}
    return {"name": "another", "resources": {"r": {"type": "directory", "path": str(folder)}}, "steps": [step]}


def preview(desk: Desk, plan: Plan) -> None:
    with desk.open() as holdfast:
        holdfast.apply_preview(plan.plan_id)


@pytest.mark.usefixtures("impatient")
def test_folders_beside_each_other_are_changed_at_once(desk: Desk):
    plan = desk.run(data=many(desk.data, "a"))
    beside = write(desk.real / "beside" / "file", "x").parent
    other = desk.run_plan(plan_on(beside, "echo more >> file"))
    child = stopped_at_write(desk, plan)
    try:
        desk.apply(other)
    finally:
        os.kill(child, signal.SIGCONT)
        os.waitpid(child, 0)
    assert (beside / "file").read_text() == "xmore\n"


@pytest.mark.usefixtures("impatient")
def test_many_copy_a_folder_at_once_and_an_apply_waits_for_them(desk: Desk):
    plan = desk.run(data="echo more >> one.csv")
    with folder_lock.reading([desk.data]):
        desk.run(data="true")
        with pytest.raises(ConflictError, match="reads or changes"):
            desk.apply(plan)
        assert desk.state(plan) == ("execute", "complete")
    desk.apply(plan)


def test_what_waits_goes_on_as_soon_as_the_folder_is_free(desk: Desk):
    plan = desk.run(data=many(desk.data, "a"))
    child = stopped_at_write(desk, plan)
    waiting = os.fork()
    if waiting == 0:
        code = 1
        try:
            code = 0 if desk.run(data="grep -c a many-39") else 1
        finally:
            os._exit(code)
    os.kill(child, signal.SIGCONT)
    assert [os.waitpid(each, 0)[1] for each in (child, waiting)] == [0, 0]


@pytest.mark.usefixtures("impatient")
def test_an_apply_that_cannot_have_its_folder_leaves_the_plan_as_it_was(desk: Desk):
    plan = desk.run(data="echo more >> one.csv")
    desk.apply(plan)
    with folder_lock.reading([desk.data]), pytest.raises(ConflictError):
        desk.unapply(plan)
    assert desk.state(plan) == ("apply", "applied")
    desk.unapply(plan)


@pytest.mark.usefixtures("impatient")
def test_work_trees_of_one_repository_take_turns(desk: Desk):
    git(desk.app, "worktree", "add", "-q", "-b", "second", str(desk.real / "second"))
    document = plan_on(desk.real / "second", "echo x > new.txt")
    document["resources"]["r"]["type"] = "git"
    linked = desk.run_plan(document)
    with folder_lock.changing([desk.app]), pytest.raises(ConflictError):
        desk.apply(linked)
    desk.apply(linked)
    assert log(desk.real / "second")[0] == "another"


# Cut short


def test_the_next_command_on_the_folder_undoes_what_another_plan_left(desk: Desk):
    first, second = desk.run(data=many(desk.data, "a")), desk.run(data="echo b >> one.csv")
    before = describe(desk.data)
    half_applied(desk, first)
    assert compare(before, describe(desk.data)) != []
    told: list[Event] = []
    with desk.open() as holdfast:
        holdfast.apply(second.plan_id, listener=told.append)
    [put_back] = [each for each in told if isinstance(each, RealFilesRestored)]
    assert put_back.plan.plan_id == first.plan_id
    assert (desk.data / "one.csv").read_text() == "one.csv\nb\n"
    assert compare(before, describe(desk.data), ignoring=["mtime_ns", "content", "size"]) == []
    assert {(desk.data / f"many-{number:02}").read_text() for number in range(MANY)} == {
        f"{number}\n" for number in range(MANY)
    }
    assert desk.state(first) == ("execute", "complete")
    assert left_over(desk) == []


@pytest.mark.parametrize("folder", ["data", ".", "data/deep"])
def test_a_sandbox_is_never_a_copy_of_a_half_applied_folder(desk: Desk, folder: str):
    script = many(desk.data, "a") + "; echo a >> deep/three.csv; echo a >> one.csv"
    first = desk.run(data=script)
    before = describe(desk.real / folder)
    half_applied(desk, first)
    other = desk.run_plan(plan_on((desk.real / folder).resolve(), "true"))
    assert compare(before, describe(Path(other.resources[0].sandbox_path)), ignoring=["mtime_ns"]) == []
    assert compare(before, describe(desk.real / folder)) == []
    assert left_over(desk) == []


def test_an_unapply_first_undoes_what_another_plan_left(desk: Desk):
    second = desk.run(data="echo b >> one.csv")
    desk.apply(second)
    first = desk.run(data=many(desk.data, "a"))
    half_applied(desk, first)
    desk.unapply(second)
    assert (desk.data / "one.csv").read_text() == "one.csv\n"
    assert (desk.data / "many-00").read_text() == "0\n"
    assert left_over(desk) == []


def test_a_repository_is_put_back_before_another_plan_is_applied_to_it(desk: Desk):
    many(desk.app, "")
    git(desk.app, "add", "--all")
    git(desk.app, "commit", "-q", "-m", "many")
    first, second = desk.run(app="for f in many-*; do echo a >> $f; done"), desk.run(app="echo b >> a.txt")
    half_applied(desk, first)
    desk.apply(second)
    assert status(desk.app) == []
    assert (desk.app / "many-00").read_text() == "0\n"
    assert left_over(desk) == []


def test_those_that_only_look_refuse_and_name_the_command(desk: Desk):
    first, second = desk.run(data=many(desk.data, "a")), desk.run(data="echo b >> one.csv")
    third = desk.run(data="echo c >> two.csv")
    desk.apply(third)
    half_applied(desk, first)
    half_way = describe(desk.data)
    with desk.open() as holdfast:
        for look in (lambda: holdfast.apply_preview(second.plan_id), lambda: holdfast.unapply_preview(third.plan_id)):
            with pytest.raises(StateError, match=first.plan_id) as refusal:
                look()
            assert f"holdfast plan execute {first.plan_id}" in refusal.value.hint
    assert compare(half_way, describe(desk.data)) == []
    desk.next_command(first)
    preview(desk, second)


def test_what_another_home_left_is_refused_and_the_named_command_puts_it_right(desk: Desk):
    other = other_home(desk)
    first = other.run(data=many(desk.data, "a"))
    ready, applied = desk.run(data="echo b >> one.csv"), desk.run(data="echo b >> two.csv")
    desk.apply(applied)
    inside = desk.run_plan(plan_on(desk.data / "deep", "echo b >> three.csv"))
    around = desk.run_plan(plan_on(desk.real, "echo b >> data/many-00"))
    before = describe(desk.real)
    half_applied(other, first)
    half_way = describe(desk.real, without=[])
    refused = [
        lambda: desk.apply(ready),
        lambda: preview(desk, ready),
        lambda: desk.unapply(applied),
        lambda: desk.run(data="true"),
        lambda: desk.apply(inside),
        lambda: desk.apply(around),
        lambda: desk.run_plan(plan_on(desk.real, "true")),
    ]
    for action in refused:
        with pytest.raises(StateError, match=first.plan_id) as refusal:
            action()
        assert f"HOLDFAST_HOME='{other.home.resolve()}' holdfast plan execute {first.plan_id}" in refusal.value.hint
    assert compare(half_way, describe(desk.real)) == []
    other.next_command(first)
    assert compare(before, describe(desk.real)) == []
    desk.apply(ready)
    assert left_over(desk) == []


@pytest.mark.parametrize("by", ["the same home", "another home"])
def test_a_process_that_dies_with_only_the_mark_left_does_no_harm(desk: Desk, by: str):
    first, second = desk.run(data="echo a >> one.csv"), desk.run(data="echo b >> two.csv")
    elsewhere = other_home(desk).run(data="echo b >> two.csv")

    # The first is setting the mark, the second taking it off.
    assert killed_at(2, lambda: desk.apply(first), touching=folder_mark.ATTRIBUTE)
    assert desk.state(first) == ("apply", "applied")
    assert folder_mark.find_on(desk.data) is not None
    if by == "another home":
        with pytest.raises(StateError, match=first.plan_id):
            other_home(desk).apply(elsewhere)
        desk.next_command(first)
        other_home(desk).apply(elsewhere)
    else:
        desk.apply(second)
    assert (desk.data / "one.csv").read_text() == "one.csv\na\n"
    assert left_over(desk) == []


def test_a_plan_that_is_deleted_with_only_the_mark_left_takes_it_along(desk: Desk):
    plan, other = desk.run(data="echo a >> one.csv"), other_home(desk)
    assert killed_at(2, lambda: desk.apply(plan), touching=folder_mark.ATTRIBUTE)
    with desk.open() as holdfast:
        holdfast.delete(plan.plan_id)
    assert left_over(desk) == []
    other.run(data="true")


def test_the_mark_is_in_no_snapshot_no_copy_and_moves_no_time(desk: Desk):
    folder_mark.put_on(desk.data / "deep", folder_mark.Mark("elsewhere", "P", "O", "apply"))
    with pytest.raises(StateError, match="elsewhere"):
        desk.run(data="true")
    folder_mark.take_off(desk.data / "deep", "O")
    plan = desk.run(data="echo more >> deep/three.csv")
    before = desk.data.stat()
    desk.apply(plan)
    assert desk.data.stat().st_mtime_ns == before.st_mtime_ns
    desk.unapply(plan)
    assert os.listxattr(desk.data) == []


def test_a_folder_that_cannot_be_marked_is_changed_without(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(95, "no such thing here")

    plan = desk.run(data="echo more >> one.csv")
    monkeypatch.setattr("holdfast.system.folder_mark.os.setxattr", refuse)
    desk.apply(plan)
    assert (desk.data / "one.csv").read_text() == "one.csv\nmore\n"


def test_undoing_one_apply_leaves_the_temporary_files_of_others_alone(desk: Desk):
    names = (".holdfast-" + "ab" * 6 + "-" + "0" * 16, ".holdfast-" + "a" * 16)
    foreign = [write(desk.data / name, "x") for name in names]
    plan = desk.run(data=many(desk.data, "a"))
    half_applied(desk, plan)
    assert len(desk.leftovers()) > len(foreign)
    desk.next_command(plan)
    assert sorted(desk.leftovers()) == sorted(foreign)


# As a user without privileges


def apply_after_a_kill(folder: str) -> list[object]:
    """Run without privileges: an apply is killed half way, then another plan is applied; what is there then."""
    desk = without_repository(Path(folder))
    first, second = desk.run_plan(writing(desk, *map(str, range(12)))), desk.run_plan(writing(desk, "one.csv"))
    half_applied(desk, first)
    found: list[object] = [folder_mark.find_on(desk.data) is not None, (desk.data / "0").exists()]
    desk.apply(second)
    return [*found, (desk.data / "one.csv").read_text(), (desk.data / "0").exists(), len(left_over(desk))]


def apply_to_a_folder_in_use(folder: str) -> int:
    desk = without_repository(Path(folder))
    plan = desk.run_plan(writing(desk, "two.csv"))
    write(Path(folder) / "ready", "")
    while not (Path(folder) / "locked").exists():
        time.sleep(0.01)
    folder_lock.PATIENCE_SECONDS = 0.2
    try:
        desk.apply(plan)
    except ConflictError as error:
        return error.exit_code
    return 0


def writing(desk: Desk, *names: str) -> dict[str, Any]:
    """Without a process: the user may not be able to start this Python."""
    steps = [{"name": name, "tool": "write_file", "args": {"path": name, "content": "new\n"}} for name in names]
    return {**plan_on(desk.data, ""), "steps": steps}


def without_repository(folder: Path) -> Desk:
    desk = object.__new__(Desk)
    desk.folder, desk.real, desk.home = folder, folder / "real", folder / "home"
    desk.app = desk.data = desk.real / "data"
    for name in ("one.csv", "two.csv"):
        write(desk.data / name, f"{name}\n")
    desk.overrides = {}
    return desk


def test_a_user_without_privileges_finds_what_was_cut_short():
    with folder_for_nobody() as folder:
        found = run_unprivileged(apply_after_a_kill, str(folder))
    assert found == [True, True, "new\n", False, 0]


def test_a_folder_that_another_user_changes_is_refused():
    with folder_for_nobody() as folder, ThreadPoolExecutor(1) as beside:
        ended = beside.submit(run_unprivileged, apply_to_a_folder_in_use, str(folder))
        while not (folder / "ready").exists() and not ended.done():
            time.sleep(0.01)
        with folder_lock.changing([folder / "real" / "data"]):
            write(folder / "locked", "")
            assert ended.result() == ConflictError.exit_code
