"""An apply that fails or is killed in the middle: the real files of all resources are put back exactly."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.errors import ConflictError, HoldfastError, LeaseLostError, SandboxError
from holdfast.model import Lease, Plan, PlanState
from holdfast.snapshot.restore.staging import mark_of
from holdfast.system import folder_lock
from tests.integration.apply.conftest import Desk, unchangeable
from tests.support.crashes import CHANGES, count_of_changes, killed_at, stopped_at
from tests.support.moments import just_before
from tests.support.repositories import git, log, status
from tests.support.trees import IS_ROOT, Thing, compare, describe, write

APP = """
echo more >> a.txt
rm b.txt
echo new > new.txt
rm -r folder && echo 'a file now' > folder
mkdir made && echo x > made/x
chmod 600 deep/mode
"""
DATA = """
echo more >> one.csv
rm two.csv
rm -r deep && ln -s one.csv deep
rm pair && echo apart > pair
mkdir -p new/er && echo x > new/er/x && ln new/er/x new/y
"""


@pytest.fixture
def plan(desk: Desk) -> Plan:
    write(desk.app / "deep" / "mode", "x")
    git(desk.app, "add", "--all")
    git(desk.app, "commit", "-q", "-m", "second")
    write(desk.app / "staged.txt", "the user's\n")
    git(desk.app, "add", "staged.txt")
    write(desk.app / "untracked.txt", "the user's\n")
    os.link(desk.data / "one.csv", desk.data / "same as one.csv")
    os.link(write(desk.data / "pair", "pair\n"), desk.data / "its other name")
    return desk.run(app=APP, data=DATA)


def assert_applied(desk: Desk, plan: Plan, *, commit: bool = True) -> None:
    assert log(desk.app)[0] == ("the plan" if commit else "second")
    if commit:
        assert status(desk.app) == ["A  staged.txt", "?? untracked.txt"]
    without = [b".git"]
    for real, sandbox in ((desk.app, desk.sandbox(plan)), (desk.data, desk.sandbox(plan, "data"))):
        there, wanted = describe(real, without=without), describe(sandbox, without=without)
        assert compare(wanted, there, ignoring=["mtime_ns"]) == []
    assert desk.leftovers() == []
    assert git(desk.app, "fsck", "--no-progress", "--no-dangling") == ""


# Failures


@pytest.mark.parametrize(
    "name",
    [
        "app/a.txt",
        "app/b.txt",
        "data/one.csv",
        "data/two.csv",
        "data/deep/three.csv",
        "data/deep",
        "app/folder",
        "data",
    ],
)
def test_a_file_or_folder_that_cannot_be_changed_puts_everything_back(desk: Desk, plan: Plan, name: str):
    before = desk.what_counts()
    with unchangeable(desk.real / name):
        with pytest.raises(SandboxError, match=r"as they were before|nothing was changed") as refusal:
            desk.apply(plan)
        assert refusal.value.exit_code == 6
        assert str(desk.real / name) in refusal.value.message
        desk.assert_put_back(before)
    desk.apply(plan)
    assert_applied(desk, plan)


@pytest.mark.skipif(not IS_ROOT, reason="only root may mount something")
def test_a_resource_on_a_disk_that_may_only_be_read_puts_everything_back(desk: Desk, plan: Plan):
    before = desk.what_counts()
    subprocess.run(["mount", "--bind", desk.data, desk.data], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", desk.data], check=True)
        with pytest.raises(SandboxError, match="cannot be written to"):
            desk.apply(plan)
        desk.assert_put_back(before)
    finally:
        subprocess.run(["umount", "--lazy", desk.data], check=True)
    desk.apply(plan)
    assert_applied(desk, plan)


@pytest.mark.skipif(not IS_ROOT, reason="only root may mount something")
def test_a_full_disk_puts_everything_back(desk: Desk):
    aside = desk.folder / "aside"
    desk.data.rename(aside)
    desk.data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "holdfast-test", desk.data], check=True)
    try:
        subprocess.run(["cp", "-a", f"{aside}/.", desk.data], check=True)
        plan = desk.run(app="echo more >> a.txt", data="echo more >> one.csv; head -c 3000000 /dev/urandom > two.csv")
        before = desk.what_counts()
        with pytest.raises(SandboxError, match="No space left"):
            desk.apply(plan)
        desk.assert_put_back(before)
    finally:
        subprocess.run(["umount", "--lazy", desk.data], check=True)


def test_a_branch_that_moves_in_the_last_moment_puts_everything_back(desk: Desk):
    """Another git moved the branch although the index is locked; the hook of that git stands in for its timing."""
    plan = desk.run(app="echo more >> a.txt")
    git(desk.app, "symbolic-ref", "HEAD", "refs/heads/main")
    write(desk.app / ".git" / "refs" / "heads" / "main.lock", "another git")
    before = desk.what_counts()
    with pytest.raises(HoldfastError):
        desk.apply(plan)
    assert compare(before, desk.what_counts()) == []
    (desk.app / ".git" / "refs" / "heads" / "main.lock").unlink()
    desk.apply(plan)
    assert log(desk.app) == ["the plan", "the first commit"]


def test_an_interruption_from_the_keyboard_puts_everything_back_at_once(desk: Desk, plan: Plan):
    before = desk.what_counts()
    desk.keep()
    for moment in range(1, 400, 13):
        if not interrupted_at(moment, lambda: desk.apply(plan)):
            break
        if not is_applied(desk, plan):
            assert compare(before, desk.what_counts()) == [], f"interrupted at change {moment}"
        desk.start_over()
    else:
        pytest.fail("it never came to its end")


def interrupted_at(moment: int, action: Callable[[], object]) -> bool:
    """Ctrl-C before that change, in a process of its own; False if it came to its end before."""
    left = [moment]

    def interrupt(event: str, _: object) -> None:
        if event in CHANGES:
            left[0] -= 1
            if left[0] == 0:
                signal.raise_signal(signal.SIGINT)

    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.addaudithook(interrupt)
        try:
            try:
                action()
            finally:
                os._exit(0 if left[0] > 0 else 1)
        except KeyboardInterrupt:  # a thread made that change, and the action was over before this one heard of it
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def is_applied(desk: Desk, plan: Plan) -> bool:
    with desk.open() as holdfast:
        return holdfast.find_plan(plan.plan_id).state is PlanState.APPLIED


# Killed


def assert_undone_by_the_next_command(
    desk: Desk, plan: Plan, before: dict[bytes, Thing], *, commit: bool = True
) -> None:
    was_applied = is_applied(desk, plan)
    found = desk.next_command(plan)  # of one that was applied, the mark on its folders may be left
    assert found.state is (PlanState.APPLIED if was_applied else PlanState.COMPLETE)
    if not was_applied:
        desk.assert_put_back(before)
        desk.apply(plan, commit=commit)
    assert_applied(desk, plan, commit=commit)


@pytest.mark.parametrize(("commit", "moments"), [(True, 4), (False, 2)])
@pytest.mark.unmeasured
def test_killed_at_any_moment_it_is_undone_by_the_next_command(desk: Desk, plan: Plan, commit: bool, moments: int):
    before = desk.what_counts()
    desk.keep()
    changes = count_of_changes(lambda: desk.apply(plan, commit=commit))
    desk.start_over()
    assert changes > 40
    for moment in sorted({*range(1, changes, changes // moments), *range(changes - 4, changes + 1)}):
        killed_at(moment, lambda: desk.apply(plan, commit=commit))
        assert_undone_by_the_next_command(desk, plan, before, commit=commit)
        desk.start_over()


def test_killed_while_it_is_being_undone_it_is_undone_by_the_command_after(desk: Desk, plan: Plan):
    before = desk.what_counts()
    desk.keep()
    changes = count_of_changes(lambda: desk.apply(plan))
    desk.start_over()
    for number, moment in enumerate(range(changes // 2, changes, changes // 6)):
        killed_at(moment, lambda: desk.apply(plan))
        killed_at(1 + 5 * number, lambda: desk.next_command(plan))
        assert_undone_by_the_next_command(desk, plan, before)
        desk.start_over()


@pytest.mark.unmeasured
def test_killed_around_the_making_of_the_lock_it_leaves_none(desk: Desk):
    """A lock that says nothing of its owner would be taken for another git's, and stay for ever."""
    plan = desk.run(app="echo more >> a.txt")
    desk.keep()
    moment, found = 1, set()
    while killed_at(moment, lambda: desk.apply(plan), touching=".git/index"):
        found.add((desk.app / ".git" / "index.lock").exists())
        if not is_applied(desk, plan):
            desk.next_command(plan)
        assert desk.leftovers() == [], f"killed at change {moment}"
        desk.start_over()
        moment += 1
    assert found == {True, False}


@pytest.fixture(params=["one disk", "two disks"])
def home_somewhere(desk: Desk, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The home on the disk of the repository, and on another one: a file of the other gets no name there."""
    if request.param == "one disk":
        yield desk.home
        return
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or memory.stat().st_dev == desk.real.stat().st_dev:
        pytest.skip("there is no other disk")
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        desk.home = Path(folder) / "home"
        yield desk.home


def is_done(desk: Desk, plan: Plan, back: bool) -> bool:
    """Whether the apply, or the unapply, has ended."""
    return desk.state(plan) == (("execute", "complete") if back else ("apply", "applied"))


@pytest.mark.parametrize("back", [False, True], ids=["apply", "unapply"])
@pytest.mark.unmeasured
def test_killed_around_the_change_of_the_index_it_is_as_before_to_the_last_byte(
    desk: Desk, home_somewhere: Path, back: bool
):
    plan = desk.run(app="echo more >> a.txt; rm b.txt; mkdir -p deep/er; echo new > deep/er/new.txt")
    if back:
        desk.apply(plan)
    before = desk.what_counts()
    desk.keep()
    ways, moment = set(), 1
    while killed_at(moment, lambda: desk.unapply(plan) if back else desk.apply(plan), touching="index"):
        kept = list(home_somewhere.rglob(".index-*"))
        ways.add((bool(kept), desk.what_counts()[b"app/.git/index"] == before[b"app/.git/index"]))
        was_done = is_done(desk, plan, back)
        killed_at(1 + moment % 3, lambda: desk.next_command(plan), touching="index")
        desk.next_command(plan)
        assert list(home_somewhere.rglob(".index-*")) == [], f"killed at change {moment}"
        assert desk.leftovers() == []
        if not was_done:
            assert compare(before, desk.what_counts()) == [], f"killed at change {moment}"
        assert status(desk.app) == []
        desk.start_over()
        moment += 1
    assert {(True, True), (True, False)} <= ways


@pytest.mark.parametrize("back", [False, True], ids=["apply", "unapply"])
@pytest.mark.unmeasured
def test_killed_at_any_moment_while_the_index_is_put_back_the_command_after_does_so(
    desk: Desk, home_somewhere: Path, back: bool
):
    plan = desk.run(app="echo more >> a.txt; rm b.txt")
    if back:
        desk.apply(plan)
    index = desk.app / ".git" / "index"
    before, time_before = desk.what_counts(), index.stat().st_mtime_ns
    desk.keep()

    def change() -> None:
        desk.unapply(plan) if back else desk.apply(plan)

    moments = []
    for moment in range(1, 100):
        if not killed_at(moment, change, touching="index"):
            break
        if not is_done(desk, plan, back) and list(home_somewhere.rglob(".index-*")):
            moments.append(moment)
        desk.start_over()
    assert len(moments) > 2
    desk.start_over()
    # The last ones may come after its end another time: Holdfast writes what it knows of files only if that is new.
    for moment in (moments[0], moments[len(moments) // 2]):
        for moment_of_undo in range(1, 100):
            assert killed_at(moment, change, touching="index")
            assert not is_done(desk, plan, back)
            was_killed = killed_at(moment_of_undo, lambda: desk.next_command(plan), touching="index")
            desk.next_command(plan)
            assert compare(before, desk.what_counts()) == [], f"killed at {moment}, then at {moment_of_undo}"
            assert index.stat().st_mtime_ns == time_before
            assert list(home_somewhere.rglob(".index-*")) == []
            assert desk.leftovers() == []
            desk.start_over()
            if not was_killed:
                break
        assert moment_of_undo > 2


def a_failing_disk() -> None:
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("back", [False, True], ids=["apply", "unapply"])
def test_an_index_that_was_kept_and_cannot_be_removed_does_no_harm_and_goes_later(
    desk: Desk, home_somewhere: Path, back: bool
):
    plan = desk.run(app="echo more >> a.txt")
    if back:
        desk.apply(plan)
    with just_before("os.remove", ".index-*", a_failing_disk):
        desk.unapply(plan) if back else desk.apply(plan)
    assert is_applied(desk, plan) != back
    assert len(list(home_somewhere.rglob(".index-*"))) == 1
    with just_before("os.remove", ".index-*", a_failing_disk):
        desk.next_command(plan)
    desk.next_command(plan)
    assert list(home_somewhere.rglob(".index-*")) == []
    assert status(desk.app) == []
    desk.apply(plan) if back else desk.unapply(plan)
    assert desk.leftovers() == []


def test_an_index_that_was_kept_and_cannot_be_removed_keeps_no_apply_from_being_undone(
    desk: Desk, home_somewhere: Path
):
    plan = desk.run(app="echo more >> a.txt")
    before = desk.what_counts()
    desk.keep()
    moment = 1
    while killed_at(moment, lambda: desk.apply(plan), touching="index"):
        if not is_applied(desk, plan) and list(home_somewhere.rglob(".index-*")):
            # Where the other name is given back there is nothing to remove.
            with suppress(AssertionError), just_before("os.remove", ".index-*", a_failing_disk):
                desk.next_command(plan)
            desk.assert_put_back(before)
            desk.next_command(plan)
            assert list(home_somewhere.rglob(".index-*")) == []
        desk.start_over()
        moment += 1
    assert moment > 3


@pytest.mark.unmeasured
def test_a_kept_index_goes_with_the_next_command_of_another_plan_on_the_folder(desk: Desk, home_somewhere: Path):
    plan, other = desk.run(app="echo more >> a.txt"), desk.run(app="echo more >> b.txt")
    desk.keep()
    moment, found = 1, False
    while killed_at(moment, lambda: desk.apply(plan), touching="index"):
        if is_applied(desk, plan) and list(home_somewhere.rglob(".index-*")):
            found = True
            desk.apply(other)
            assert list(home_somewhere.rglob(".index-*")) == []
        desk.start_over()
        moment += 1
    assert found


@pytest.mark.unmeasured
def test_what_the_user_stages_for_the_first_time_while_it_begins_is_kept(desk: Desk, home_somewhere: Path):
    """There was no index when the journal was written, and there is one when it is locked."""
    shutil.rmtree(desk.app)
    desk.app.mkdir()
    git(desk.app, "init", "--quiet")
    plan = desk.run(app="echo first > first.txt")
    write(desk.app / "mine.txt", "mine\n")
    desk.keep()

    def apply() -> None:
        with just_before("os.link", "index.lock", lambda: git(desk.app, "add", "mine.txt")):
            desk.apply(plan)

    moment, undone = 1, 0
    while killed_at(moment, apply, touching=".git/index"):
        was_staged = bool(git(desk.app, "ls-files", check=False))
        desk.next_command(plan)
        if was_staged and not is_applied(desk, plan):
            undone += 1
            assert git(desk.app, "ls-files").split() == ["mine.txt"], f"killed at change {moment}"
        desk.start_over()
        moment += 1
    assert undone > 1


@pytest.mark.unmeasured
def test_an_index_that_is_reached_through_a_symlink_stays_so(desk: Desk, home_somewhere: Path):
    index = desk.app / ".git" / "index"
    plan = desk.run(app="echo more >> a.txt")
    target = index.with_name("the index")
    index.rename(target)
    index.symlink_to(target.name)
    before = desk.what_counts()
    desk.keep()
    moment, undone = 1, 0
    while killed_at(moment, lambda: desk.apply(plan), touching="index"):
        desk.next_command(plan)
        assert index.is_symlink()
        assert status(desk.app) == []
        if not is_applied(desk, plan):
            undone += 1
            desk.assert_put_back(before)
        desk.start_over()
        moment += 1
    assert undone > 3
    desk.start_over()
    lock = write(desk.app / ".git" / "the index.lock", "of another git")
    with pytest.raises(ConflictError, match="Another git"):
        desk.apply(plan)
    lock.unlink()
    desk.apply(plan)
    assert index.is_symlink()
    assert status(desk.app) == []


@pytest.mark.unmeasured
def test_killed_while_a_branch_without_a_commit_gets_its_first(desk: Desk):
    shutil.rmtree(desk.app)
    desk.app.mkdir()
    git(desk.app, "init", "--quiet")
    plan = desk.run(app="echo first > first.txt")
    before = desk.what_counts()
    desk.keep()
    moment = 1
    while killed_at(moment, lambda: desk.apply(plan)):
        if not is_applied(desk, plan):
            desk.next_command(plan)
            desk.assert_put_back(before)
            assert git(desk.app, "rev-parse", "-q", "--verify", "HEAD", check=False) == ""
            desk.apply(plan)
        assert log(desk.app) == ["the plan"]
        assert status(desk.app) == []
        desk.start_over()
        moment += 9


# Somebody saves a file in the moment it is replaced


def when_replaced(name: str) -> tuple[str, str]:
    """What is to take its place is complete then, and the next call is the one that replaces or removes it."""
    return "os.rename", f".holdfast-*-{mark_of(name.encode()).decode()}"


def rewritten(file: Path) -> None:
    file.write_text("saved by the user\n")


def saved_as_editors_do(file: Path) -> None:
    rewritten(file.with_name("swap"))
    file.with_name("swap").replace(file)


def replaced_by_a_folder(file: Path) -> None:
    file.unlink(missing_ok=True)
    rewritten(write(file / "in it", ""))


@pytest.mark.parametrize("saved", [rewritten, saved_as_editors_do, replaced_by_a_folder])
@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("echo more >> one.csv", "one.csv"),
        ("rm two.csv", "two.csv"),
        ("echo new > new.csv", "new.csv"),
        ("rm one.csv; ln -s two.csv one.csv", "one.csv"),
        ("ln two.csv new.csv", "new.csv"),
    ],
)
def test_what_is_saved_while_it_is_being_replaced_is_not_lost(
    desk: Desk, script: str, name: str, saved: Callable[[Path], None]
):
    plan = desk.run(app="echo more >> a.txt", data=f"echo more >> deep/three.csv; {script}")
    after = {}

    def save() -> None:
        saved(desk.data / name)
        after.update(describe(desk.data / name))

    words = f"Something else changed {name} in"
    with just_before(*when_replaced(name), save), pytest.raises(ConflictError, match=words) as refusal:
        desk.apply(plan)
    assert refusal.value.paths == (name,)
    assert compare(after, describe(desk.data / name)) == []
    assert (desk.data / "deep" / "three.csv").read_text() == "deep/three.csv\n"
    assert sorted(path.name for path in desk.data.iterdir()) == sorted({"deep", "one.csv", "two.csv", name})
    assert status(desk.app) == []
    assert desk.leftovers() == []
    assert desk.state(plan) == ("execute", "complete")


def test_a_file_that_is_deleted_while_it_is_being_replaced_stays_so_or_comes_back(desk: Desk):
    plan = desk.run(data="echo more >> one.csv; echo more >> two.csv")
    with just_before(*when_replaced("two.csv"), (desk.data / "two.csv").unlink), pytest.raises(ConflictError):
        desk.apply(plan)
    assert (desk.data / "one.csv").read_text() == "one.csv\n"
    assert desk.leftovers() == []


def test_a_new_file_of_the_user_stays_theirs_also_if_it_is_what_the_plan_would_have_made(desk: Desk):
    plan = desk.run(data="echo new > a.csv; echo new > new.csv; echo new > zz.csv")

    def save() -> None:
        write(desk.data / "new.csv", "new\n")
        write(desk.data / "zz.csv", "new\n")

    with just_before(*when_replaced("new.csv"), save), pytest.raises(ConflictError):
        desk.apply(plan)
    assert sorted(path.name for path in desk.data.glob("*.csv")) == ["new.csv", "one.csv", "two.csv", "zz.csv"]


@pytest.mark.parametrize(
    ("script", "name"),
    [("echo more >> one.csv", "one.csv"), ("rm one.csv", "one.csv"), ("echo new > new.csv", "new.csv")],
)
def test_what_is_saved_while_it_is_being_put_back_is_not_lost_either(desk: Desk, script: str, name: str):
    plan = desk.run(data=f"{script}; echo more >> two.csv")

    def fail_and_save_while_it_is_undone() -> None:
        rewritten(desk.data / "two.csv")
        undoing.enter_context(just_before(*when_replaced(name), lambda: rewritten(desk.data / name)))

    saving = just_before(*when_replaced("two.csv"), fail_and_save_while_it_is_undone)
    with ExitStack() as undoing, saving, pytest.raises(ConflictError, match=r"two\.csv"):
        desk.apply(plan)
    for each in (name, "two.csv"):
        assert (desk.data / each).read_text() == "saved by the user\n"
    assert desk.leftovers() == []
    with desk.open() as holdfast:
        assert str(holdfast.find_plan(plan.plan_id).error).endswith(f"left as they are: {name}, two.csv")


def test_so_it_is_where_files_cannot_change_places_in_one_step(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    """An old file system, or one over the network."""
    monkeypatch.setattr("holdfast.snapshot.restore.exchange.rename_specially", lambda *_: errno.ENOSYS)
    plan = desk.run(data="echo more >> one.csv; echo new > new.csv; rm two.csv")
    for name in ("one.csv", "new.csv", "two.csv"):
        desk.keep()
        with (
            just_before(*when_replaced(name), lambda name=name: rewritten(desk.data / name)),
            pytest.raises(ConflictError, match=name),
        ):
            desk.apply(plan)
        found = {path.name: path.read_text() for path in desk.data.glob("*.csv")}
        assert found == {"one.csv": "one.csv\n", "two.csv": "two.csv\n", name: "saved by the user\n"}
        assert desk.leftovers() == []
        desk.start_over()
    desk.apply(plan)
    assert compare(describe(desk.sandbox(plan, "data")), describe(desk.data), ignoring=["mtime_ns"]) == []


def test_killed_with_the_users_work_in_its_hands_it_gives_it_back(desk: Desk):
    plan = desk.run(app="echo more >> a.txt", data="echo more >> one.csv; rm two.csv")
    before = desk.what_counts()
    desk.keep()
    for name in ("one.csv", "two.csv"):

        def save_and_die(name: str = name) -> None:
            event, glob = when_replaced(name)
            # It looks into what it found only where that is not as it was.
            with (
                just_before(event, glob, lambda: rewritten(desk.data / name)),
                just_before("open", glob, lambda: os.kill(os.getpid(), signal.SIGKILL)),
            ):
                desk.apply(plan)

        assert killed_at(1_000_000, save_and_die)
        assert len(desk.leftovers()) > 0
        assert desk.next_command(plan).error == (f"an apply was undone; changed since, and left as they are: {name}")
        assert (desk.data / name).read_text() == "saved by the user\n"
        assert desk.leftovers() == []
        (desk.data / name).write_text(f"{name}\n")
        assert compare(before, desk.what_counts(), ignoring=["mtime_ns"]) == []
        desk.start_over()


def test_killed_with_work_of_the_user_that_was_saved_again_it_keeps_both(desk: Desk):
    plan = desk.run(data="echo more >> one.csv")

    def save_and_die() -> None:
        event, glob = when_replaced("one.csv")
        with (
            just_before(event, glob, lambda: rewritten(desk.data / "one.csv")),
            just_before("open", glob, lambda: os.kill(os.getpid(), signal.SIGKILL)),
        ):
            desk.apply(plan)

    assert killed_at(1_000_000, save_and_die)
    (desk.data / "one.csv").write_text("saved again\n")
    error = desk.next_command(plan).error
    (kept,) = desk.data.glob("one.csv.kept-*")
    assert kept.name in str(error)
    assert kept.read_text() == "saved by the user\n"
    assert (desk.data / "one.csv").read_text() == "saved again\n"
    assert desk.leftovers() == []


# Stopped, taken over, continued


def stopped_and_silent(
    desk: Desk, plan: Plan, share: float, apply: Callable[[Desk, Plan], object] = Desk.apply, **fields: str
) -> int:
    """An apply that is stopped somewhere in its middle, and has not been heard of for long."""
    desk.keep()
    changes = count_of_changes(lambda: desk.apply(plan))
    desk.start_over()
    child = stopped_at(int(changes * share), lambda: apply(desk, plan))
    with desk.open() as holdfast:
        lease = holdfast.store.get(Lease, plan.plan_id)
        silent = lease.model_copy(update={"heartbeat_at": lease.heartbeat_at - timedelta(minutes=5), **fields})
        with holdfast.store.transaction():
            holdfast.store.save(silent)
    return child


@pytest.mark.parametrize("share", [0.5, 0.7, 0.8, 0.9])
def test_stopped_for_long_it_is_killed_and_undone_by_the_next_command(desk: Desk, plan: Plan, share: float):
    before = desk.what_counts()
    child = stopped_and_silent(desk, plan, share)
    assert desk.next_command(plan).state is PlanState.COMPLETE
    # Continued, it would have gone on writing until it looked at its lease.
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    desk.assert_put_back(before)
    desk.apply(plan)
    assert_applied(desk, plan)


@pytest.mark.parametrize("share", [0.5, 0.7, 0.8, 0.9])
def test_taken_over_from_elsewhere_it_gives_way_when_it_goes_on(desk: Desk, plan: Plan, share: float):
    """Nobody can kill an owner on another machine, and its locks are not seen here."""
    before = desk.what_counts()
    child = stopped_and_silent(desk, plan, share, applied_without_locks, machine_id="elsewhere")
    assert desk.next_command(plan).state is PlanState.COMPLETE
    os.kill(child, signal.SIGCONT)
    # It notices by the lease, or by a file that was taken away under its hands.
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in (LeaseLostError.exit_code, SandboxError.exit_code)
    desk.assert_put_back(before)
    desk.apply(plan)
    assert_applied(desk, plan)


def applied_without_locks(desk: Desk, plan: Plan) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(folder_lock, "changing", nullcontext)
        desk.apply(plan)


def test_in_another_container_it_keeps_its_folders_until_it_ends(
    desk: Desk, plan: Plan, monkeypatch: pytest.MonkeyPatch
):
    """Its process cannot be seen, but its locks can: nothing is undone under its hands."""
    monkeypatch.setattr(folder_lock, "PATIENCE_SECONDS", 0.2)
    child = stopped_and_silent(desk, plan, 0.8, pid_namespace="another")
    half_way = desk.everything()
    with pytest.raises(ConflictError, match="reads or changes"):
        desk.next_command(plan)
    assert compare(half_way, desk.everything()) == []
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    desk.next_command(plan)
    desk.apply(plan)
    assert_applied(desk, plan)


STRACE = shutil.which("strace")


@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
@pytest.mark.parametrize("call", ["renameat2", "unlinkat", "fsync", "pwrite64"])
@pytest.mark.unmeasured
def test_killed_in_a_system_call_it_is_undone_by_the_next_command(desk: Desk, plan: Plan, call: str):
    """The command as a user runs it; of several processes the one that makes the call is killed, git too."""
    before = desk.what_counts()
    desk.keep()
    for number in (1, 3):
        command = [sys.executable, "-m", "holdfast", "plan", "apply", "--yes", plan.plan_id]
        completed = subprocess.run(
            [STRACE, "-f", "-qq", "-o", "/dev/null", "-e", f"inject={call}:signal=KILL:when={number}", *command],
            cwd=desk.app,
            env={**os.environ, "HOLDFAST_HOME": str(desk.home)},
            capture_output=True,
            check=False,
        )
        if completed.returncode == 0:
            break
        assert_undone_by_the_next_command(desk, plan, before)
        desk.start_over()


@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
@pytest.mark.parametrize("lock", ["HEAD.lock", "refs/heads/main.lock"])
@pytest.mark.parametrize("call", ["write", "rename"])
@pytest.mark.unmeasured
def test_a_git_that_is_killed_while_it_moves_the_branch_leaves_no_lock(desk: Desk, plan: Plan, lock: str, call: str):
    before = desk.what_counts()
    places = [f".git/{lock}", f"{desk.app}/.git/{lock}"]
    command = [sys.executable, "-m", "holdfast", "plan", "apply", "--yes", plan.plan_id]
    watched = [word for place in places for word in ("-P", place)]
    subprocess.run(
        [STRACE, "-f", "-qq", "-o", "/dev/null", *watched, "-e", f"inject={call}:signal=KILL:when=1", *command],
        cwd=desk.app,
        env={**os.environ, "HOLDFAST_HOME": str(desk.home)},
        capture_output=True,
        check=False,
    )
    assert_undone_by_the_next_command(desk, plan, before)
