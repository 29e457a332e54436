"""Single files and folders of a checkpoint come back; everything else, position and decisions stay."""

from __future__ import annotations

import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.app import Declined, Holdfast
from holdfast.errors import AmbiguousError, ContentError, NotFoundError, SandboxError, StateError, UsageError
from holdfast.events import Event, SetAside
from holdfast.model import Plan, PlanState, RollbackResult
from holdfast.system import progress
from holdfast.system.progress import Work, Working
from tests.integration.cli.damage import damage_content
from tests.support.trees import describe
from tests.support.workshop import Workshop, files, killed_in_rollback, run

MADE = (
    "mkdir -p src/deep; echo a > src/a; echo b > src/b; echo d > src/deep/d; chmod 640 src/a; ln -s a src/link;"
    'mkdir src/hollow; echo x > other; echo s > "$HOLDFAST_RESOURCE_DATA/sheet"'
)
SPOILT = (
    "echo wrong > src/a; rm -r src/deep src/hollow src/link; echo n > src/new; echo y > other;"
    'echo wrong > "$HOLDFAST_RESOURCE_DATA/sheet"'
)


@pytest.fixture
def plan(workshop: Workshop) -> Plan:
    made = workshop.create(run(MADE), run(SPOILT), validate=["true"])
    return workshop.open().execute(made.plan_id).plan


def _good(opened: Holdfast, plan: Plan) -> str:
    """The checkpoint from before the step that spoilt everything."""
    return next(
        view.checkpoint.checkpoint_id
        for view in opened.checkpoints(plan.plan_id)
        if view.group.step_index == 1 and "on_tool_write" in view.group.triggers
    )


def _restored(opened: Holdfast, plan: Plan, *only: str, checkpoint: str | None = None) -> RollbackResult:
    result = opened.rollback(plan.plan_id, checkpoint or _good(opened, plan), only=only)
    assert isinstance(result, RollbackResult)
    return result


def _changes(result: RollbackResult) -> set[tuple[str, str, str]]:
    return {(change.resource, change.file, change.action) for change in result.changes}


def test_one_file_comes_back_and_everything_else_stays(workshop: Workshop, plan: Plan) -> None:
    before, decisions = files(workshop.sandbox(plan)), workshop.open().decisions(plan.plan_id)
    result = _restored(workshop.open(), plan, "src/a")
    assert files(workshop.sandbox(plan)) == {**before, "src/a": "a\n"}
    assert (workshop.sandbox(plan) / "src" / "a").stat().st_mode & 0o777 == 0o640
    assert _changes(result) == {("app", "src/a", "restored")}
    assert result.only == ("app:src/a",)
    assert workshop.open().decisions(plan.plan_id) == decisions
    assert result.plan.last_completed_step == 1
    assert (result.impact.decisions_after_cp, result.impact.tool_calls_after_cp) == (0, 0)


def test_a_folder_comes_back_exactly(workshop: Workshop) -> None:
    made = workshop.create(run(MADE), run("pwd"), run(SPOILT))
    opened = workshop.open()
    opened.execute(made.plan_id)
    sandbox = workshop.sandbox(made)
    opened.rollback(made.plan_id, _good(opened, made))
    good = {path: thing for path, thing in describe(sandbox).items() if path.split(b"/")[0] == b"src"}
    opened.execute(made.plan_id)
    _restored(opened, made, "src/")
    found = describe(sandbox)
    assert {path: thing for path, thing in found.items() if path.split(b"/")[0] == b"src"} == good
    assert (sandbox / "other").read_text() == "y\n"


def test_a_path_the_checkpoint_does_not_have_is_removed(workshop: Workshop, plan: Plan) -> None:
    result = _restored(workshop.open(), plan, "src/new")
    assert _changes(result) == {("app", "src/new", "removed")}
    assert "src/new" not in files(workshop.sandbox(plan))
    assert files(workshop.sandbox(plan))["src/a"] == "wrong\n"


def test_the_folders_on_the_way_to_a_file_come_back_with_nothing_else_in_them(workshop: Workshop, plan: Plan) -> None:
    result = _restored(workshop.open(), plan, "src/deep/d")
    assert files(workshop.sandbox(plan))["src/deep/d"] == "d\n"
    assert not (workshop.sandbox(plan) / "src" / "hollow").exists()
    assert _changes(result) == {("app", "src/deep/d", "restored")}


def test_several_paths_of_several_resources_come_back_at_once(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    before = len(workshop.groups(plan))
    result = _restored(opened, plan, "app:src/a", "sheet", "app/other", "app:src/a")
    assert files(workshop.sandbox(plan))["other"] == "x\n"
    assert files(workshop.sandbox(plan, "data"))["sheet"] == "s\n"
    assert set(result.only) == {"app:other", "app:src/a", "data:sheet"}
    groups = workshop.groups(plan)
    assert len(groups) == before + 1
    assert groups[-1].triggers == ("restore_paths",)
    rows = opened.store.checkpoints.of_group(groups[-1].group_id)
    assert sorted(row.resource_id for row in rows) == ["app", "data"]


def test_a_whole_resource_comes_back_while_another_stays(workshop: Workshop, plan: Plan) -> None:
    _restored(workshop.open(), plan, "data:.")
    assert files(workshop.sandbox(plan, "data"))["sheet"] == "s\n"
    assert files(workshop.sandbox(plan))["src/a"] == "wrong\n"


def test_a_folder_and_a_file_in_it_are_the_folder(workshop: Workshop, plan: Plan) -> None:
    assert _restored(workshop.open(), plan, "src/a", "src").only == ("app:src",)


def test_restoring_can_be_undone_also_what_a_person_had_changed(workshop: Workshop, plan: Plan) -> None:
    (workshop.sandbox(plan) / "src" / "mine").write_text("by hand")
    before = files(workshop.sandbox(plan))
    opened = workshop.open()
    result = _restored(opened, plan, "src")
    assert files(workshop.sandbox(plan)) != before
    opened.rollback(plan.plan_id, result.left_group_id or "")
    assert files(workshop.sandbox(plan)) == before


def test_a_complete_plan_is_validated_again_and_can_then_be_applied(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    result = _restored(opened, plan, "src")
    assert (result.plan.state, result.plan.is_finished) == (PlanState.QUEUED, True)
    with pytest.raises(StateError, match="only a complete plan"):
        opened.apply(plan.plan_id)
    runs = len(opened.store.runs.of(plan.plan_id))
    assert opened.execute(plan.plan_id).succeeded
    assert [each.step for each in opened.store.runs.of(plan.plan_id)[runs:]] == ["true"]
    opened.apply(plan.plan_id)
    assert (workshop.app / "src" / "a").read_text() == "a\n"


def test_a_plan_that_is_not_complete_stays_what_it_is(workshop: Workshop) -> None:
    made = workshop.create(run("echo 1 > one"), run("echo 2 > one; false"), policy={"on_failure": "keep"})
    opened = workshop.open()
    failed = opened.execute(made.plan_id).plan
    result = _restored(opened, made, "one")
    assert files(workshop.sandbox(made))["one"] == "1\n"
    assert (result.plan.state, result.plan.error) == (PlanState.ERRORED, failed.error)


def test_what_is_as_it_was_already_changes_nothing(workshop: Workshop, plan: Plan) -> None:
    groups = workshop.groups(plan)
    result = _restored(workshop.open(), plan, "src/b")
    assert (result.changes, result.plan) == ((), plan)
    assert workshop.groups(plan) == groups


def test_a_preview_says_what_will_happen_and_changes_nothing(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    before, groups = files(workshop.sandbox(plan)), workshop.groups(plan)
    preview = opened.rollback_preview(plan.plan_id, _good(opened, plan), only=["src", "sheet"])
    assert (files(workshop.sandbox(plan)), workshop.groups(plan)) == (before, groups)
    assert opened.find_plan(plan.plan_id) == plan
    result = _restored(opened, plan, "src", "sheet")
    told = {"changes", "only", "impact", "checkpoints_remaining", "set_aside"}
    assert [getattr(preview.expected, name) for name in told] == [getattr(result, name) for name in told]
    assert preview.expected.plan.state is result.plan.state


def test_declining_changes_nothing(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    groups = workshop.groups(plan)
    declined = opened.rollback(plan.plan_id, _good(opened, plan), only=["src"], confirm=lambda _: False)
    assert isinstance(declined, Declined)
    assert workshop.groups(plan) == groups


# Hard links


def _inode(path: Path) -> int:
    return path.stat().st_ino


def test_hard_links_within_what_is_restored_are_made_again(workshop: Workshop) -> None:
    made = workshop.create(
        run("mkdir d; echo 1 > d/a; ln d/a d/b"), run("rm d/b; cp -p d/a d/b"), run("echo 2 > unrelated")
    )
    opened = workshop.open()
    opened.execute(made.plan_id)
    _restored(opened, made, "d")
    d = workshop.sandbox(made) / "d"
    assert _inode(d / "a") == _inode(d / "b")
    assert opened.execute(made.plan_id).succeeded


def test_a_restored_file_leaves_what_it_is_linked_with_outside(workshop: Workshop) -> None:
    made = workshop.create(run("mkdir d; echo 1 > d/a; echo 1 > twin"), run("ln -f twin d/a; echo 2 > twin"))
    opened = workshop.open()
    opened.execute(made.plan_id)
    _restored(opened, made, "d")
    sandbox = workshop.sandbox(made)
    assert ((sandbox / "d" / "a").read_text(), (sandbox / "twin").read_text()) == ("1\n", "2\n")
    assert _inode(sandbox / "d" / "a") != _inode(sandbox / "twin")


def test_a_link_to_outside_that_was_there_then_and_is_there_now_stays(workshop: Workshop) -> None:
    made = workshop.create(run("mkdir d; echo 1 > d/a; ln d/a twin; echo x > d/x"), run("echo y > d/x"))
    opened = workshop.open()
    opened.execute(made.plan_id)
    _restored(opened, made, "d")
    sandbox = workshop.sandbox(made)
    assert (sandbox / "d" / "x").read_text() == "x\n"
    assert _inode(sandbox / "d" / "a") == _inode(sandbox / "twin")


# What a snapshot does not hold


def test_what_the_checkpoint_could_not_hold_stays_as_it_is(workshop: Workshop) -> None:
    server = 'python3 -c "import socket; socket.socket(socket.AF_UNIX).bind(\\"d/sock\\")"'
    made = workshop.create(
        run(f"mkdir d; echo 1 > d/a; {server}"), run("rm d/sock; echo text > d/sock; echo 2 > d/a; echo n > d/new")
    )
    opened = workshop.open()
    assert opened.execute(made.plan_id).succeeded
    with pytest.raises(StateError, match="does not hold app:d/sock: a socket"):
        _restored(opened, made, "d/sock")
    result = _restored(opened, made, "d")
    assert files(workshop.sandbox(made) / "d") == {"a": "1\n", "sock": "text\n"}
    assert result.set_aside == ()
    (workshop.sandbox(made) / "d" / "sock").unlink()
    with pytest.raises(StateError, match="does not hold app:d/sock: a socket"):
        _restored(opened, made, "d/sock")


def test_what_no_snapshot_holds_now_is_moved_aside_only_if_it_stands_in_the_way(workshop: Workshop, plan: Plan) -> None:
    sandbox = workshop.sandbox(plan)
    for place in ("src/link", "elsewhere"):
        # By a relative name: the path of a socket may not be long.
        command = f"import socket; s = socket.socket(socket.AF_UNIX); s.bind({place!r}); s.close()"
        subprocess.run([sys.executable, "-c", command], cwd=sandbox, check=True)
    opened = workshop.open()
    preview = opened.rollback_preview(plan.plan_id, _good(opened, plan), only=["src"])
    assert preview.expected.set_aside == (str(sandbox / "src" / "link"),)
    result = _restored(opened, plan, "src")
    assert (sandbox / "src" / "link").is_symlink()
    assert (sandbox / "elsewhere").is_socket()
    assert [Path(each).is_socket() for each in result.set_aside] == [True]


# Refusals


def test_a_path_that_is_not_one_of_the_plan_is_refused(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    groups = workshop.groups(plan)
    for only, error, words, hint in (
        ("src/nothing", NotFoundError, "neither in the checkpoint nor in the sandbox", "src/a, src/b"),
        ("nothing/at/all", NotFoundError, "nothing/at/all", "app: .git, other, src"),
        ("app:sheet", NotFoundError, "app:sheet", "other"),
        (".", AmbiguousError, "in several resources", "app:., data:."),
        ("", UsageError, "names nothing", "`RESOURCE:.`"),
        ("app:", UsageError, "names nothing", "`RESOURCE:.`"),
        ("app/", NotFoundError, "neither in the checkpoint nor in the sandbox", "app: .git"),
        ("/etc/passwd", UsageError, "not a path inside", "relative to the resource's root"),
        ("../data/sheet", UsageError, "not a path inside", "relative"),
        ("app:src/../../data", UsageError, "not a path inside", "relative"),
        ("app:.git/config", UsageError, "sandbox's repository", "--only app:."),
    ):
        with pytest.raises(error, match=words) as caught:
            _restored(opened, plan, "src", only)
        assert hint in caught.value.hint, only
        assert workshop.groups(plan) == groups


def test_of_many_names_that_could_be_meant_some_are_told(workshop: Workshop) -> None:
    made = workshop.create(run("mkdir d; cd d; for n in 1 2 3 4 5 6 7 8 9 10 11 12; do echo > f$n; done"))
    opened = workshop.open()
    opened.execute(made.plan_id)
    with pytest.raises(NotFoundError) as caught:
        _restored(opened, made, "app:d/nothing", checkpoint=workshop.groups(made)[-1].group_id)
    assert caught.value.hint.startswith("There is app: d/f1, d/f10, ")
    assert caught.value.hint.endswith("and 2 more.")


def test_a_file_whose_folder_is_a_file_now_has_no_place(workshop: Workshop, plan: Plan) -> None:
    (workshop.sandbox(plan) / "src" / "deep").write_text("a file")
    opened = workshop.open()
    with pytest.raises(StateError, match="app:src/deep is no longer a folder"):
        _restored(opened, plan, "src/deep/d")
    _restored(opened, plan, "src/deep")
    assert files(workshop.sandbox(plan))["src/deep/d"] == "d\n"


def test_a_step_that_was_cut_short_has_to_be_taken_back_first(workshop: Workshop) -> None:
    started = workshop.outside / "started"
    made = workshop.create(run("echo 1 > one"), run(f"echo 2 > one; touch {started}; sleep 300"))
    command = [sys.executable, "-m", "holdfast", "--home", str(workshop.home), "plan", "execute", made.plan_id]
    process = subprocess.Popen(command, cwd=workshop.app, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not started.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    opened = workshop.open()
    with pytest.raises(StateError, match="was cut short") as caught:
        _restored(opened, made, "one")
    group = caught.value.hint.rstrip("`.").split()[-1]
    opened.rollback(made.plan_id, group)
    assert files(workshop.sandbox(made))["one"] == "1\n"


def test_the_same_things_forbid_it_as_forbid_a_rollback(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    good = _good(opened, plan)
    damage_content(workshop.home / "objects.db")
    with pytest.raises(ContentError):
        _restored(workshop.open(), plan, "src", checkpoint=good)


def test_a_missing_sandbox_forbids_it_and_its_dry_run(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    good, data = _good(opened, plan), workshop.sandbox(plan, "data")
    before = files(data)
    shutil.rmtree(data)
    for restore in (opened.rollback_preview, opened.rollback):
        with pytest.raises(SandboxError, match="missing"):
            restore(plan.plan_id, good, only=["src"])
        assert not data.exists()
    opened.execute(plan.plan_id)
    _restored(opened, plan, "src", checkpoint=good)
    assert files(data) == before


def test_pruning_for_it_can_collect(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.content.tally._COLLECT_AFTER_BYTES", 0)
    steps = [run(f"head -c 9000 /dev/urandom > file; echo {number} > other") for number in range(4)]
    made = workshop.create(*steps, policy={"max_checkpoints": 3})
    opened = workshop.open()
    opened.execute(made.plan_id)
    first = opened.checkpoints(made.plan_id)[0].checkpoint.checkpoint_id
    for number in range(3):
        (workshop.sandbox(made) / "file").write_bytes(bytes([number]) * 9000)
        _restored(opened, made, "file", checkpoint=first)
        assert not (workshop.sandbox(made) / "file").exists()
    assert opened.verify(made.plan_id).damaged == ()


def test_an_applied_plan_and_one_that_forbids_rollback_are_left_alone(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    opened.apply(plan.plan_id)
    with pytest.raises(StateError, match="applied"):
        _restored(opened, plan, "src")
    made = workshop.create(run("echo 1 > one"), policy={"rollback_enabled": False})
    opened.execute(made.plan_id)
    with pytest.raises(StateError, match="rollback_enabled"):
        _restored(opened, made, "one", checkpoint=opened.checkpoints(made.plan_id)[0].checkpoint.checkpoint_id)


# Crashes


@pytest.mark.parametrize("call", [1, 2, 5, 30])
@pytest.mark.unmeasured
def test_one_that_is_killed_in_the_middle_is_finished_by_the_next_command(workshop: Workshop, call: int) -> None:
    lines = "".join(f"echo {number} > f{number};" for number in range(6))
    made = workshop.create(run(f"mkdir d; cd d; {lines}"), run("rm -r d; mkdir d; echo new > d/new; echo o > other"))
    opened = workshop.open()
    opened.execute(made.plan_id)
    wanted = {"version.txt": "1\n", "other": "o\n", **{f"d/f{number}": f"{number}\n" for number in range(6)}}
    exit_code = killed_in_rollback(workshop, call, "--only", "d", made.plan_id, _good(opened, made))
    if call <= 6:
        assert exit_code == -signal.SIGKILL
        assert workshop.open().store.operations.unfinished(made.plan_id)
    opened = workshop.open()
    opened.create_checkpoint(made.plan_id, "any command that changes the plan")
    assert files(workshop.sandbox(made)) == wanted
    assert not opened.store.operations.unfinished(made.plan_id)
    assert opened.find_plan(made.plan_id).state is PlanState.QUEUED
    assert opened.execute(made.plan_id).succeeded
    assert files(workshop.sandbox(made)) == wanted


@pytest.mark.parametrize("only", [[], ["--only", "d"]])
def test_one_that_fails_in_the_middle_puts_back_what_was_there(workshop: Workshop, only: list[str]) -> None:
    """A file larger than the process may write: everything else of the restore has been done by then."""
    large = "head -c 3900000 /dev/zero | tr '\\0' x > d/large"
    made = workshop.create(run(f"mkdir d; echo 1 > d/a; {large}"), run("echo 2 > d/a; echo small > d/large"))
    opened = workshop.open()
    opened.execute(made.plan_id)
    before = files(workshop.sandbox(made))
    child = (
        "import resource, sys\n"
        "from holdfast.cli.main import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))\n"
        "main()\n"
    )
    words = ["--home", str(workshop.home), "plan", "rollback", "--yes", *only, made.plan_id, _good(opened, made)]
    ended = subprocess.run([sys.executable, "-c", child, *words], cwd=workshop.app, check=False, capture_output=True)
    assert (ended.returncode, b"File too large" in ended.stderr) == (6, True)
    assert files(workshop.sandbox(made)) == before
    opened = workshop.open()
    assert not opened.store.operations.unfinished(made.plan_id)
    assert opened.find_plan(made.plan_id).state is PlanState.COMPLETE


def _listen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("sock")


def _rolled_back_where_files_are_small(workshop: Workshop, *words: str) -> subprocess.CompletedProcess[str]:
    """By a process that cannot write as much as two megabytes into a file."""
    child = (
        "import resource, sys\n"
        "from holdfast.cli.main import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))\n"
        "main()\n"
    )
    command = [sys.executable, "-c", child, "--home", str(workshop.home), "plan", "rollback", "--yes", *words]
    return subprocess.run(command, cwd=workshop.app, check=False, capture_output=True, text=True)


def test_what_was_set_aside_in_one_resource_is_told_although_the_next_one_fails(workshop: Workshop) -> None:
    listen = "import socket; socket.socket(socket.AF_UNIX).bind('d/sock')"
    made = workshop.create(
        run("head -c 3900000 /dev/zero | tr '\\0' x > large", resource="data"),
        run("rm large", resource="data"),
        run(f'mkdir d; env -u COVERAGE_PROCESS_CONFIG python3 -c "{listen}"'),
    )
    opened = workshop.open()
    opened.execute(made.plan_id)
    large = next(group.group_id for group in workshop.groups(made) if group.last_completed_step == 0)
    ended = _rolled_back_where_files_are_small(workshop, made.plan_id, large)
    assert ended.returncode == 6
    [place] = [word for word in ended.stderr.split() if "/.set-aside/app-" in word]
    assert stat.S_ISSOCK(Path(place.removesuffix(".")).lstat().st_mode)
    assert not workshop.open().store.operations.unfinished(made.plan_id)


@pytest.mark.parametrize("only", [[], ["--only", "d"]])
def test_one_that_can_neither_go_on_nor_be_put_back_stays_begun_and_says_so(
    workshop: Workshop, only: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    large = "head -c 3900000 /dev/zero | tr '\\0' x"
    made = workshop.create(run(f"mkdir d; {large} > d/new"), run(f"rm d/new; {large} > d/old"))
    opened = workshop.open()
    opened.execute(made.plan_id)
    ended = _rolled_back_where_files_are_small(workshop, *only, made.plan_id, _good(opened, made))
    assert ended.returncode == 6
    assert "could not be restored either" in ended.stderr
    assert "The next command that changes the plan finishes" in ended.stderr
    opened = workshop.open()
    assert opened.store.operations.unfinished(made.plan_id)
    (workshop.sandbox(made) / "later").mkdir()
    _listen(workshop.sandbox(made) / "later", monkeypatch)
    told: list[Event] = []
    opened.create_checkpoint(made.plan_id, "the next command", listener=told.append)
    [aside] = [Path(place) for event in told if isinstance(event, SetAside) for place in event.places]
    assert aside.is_socket()
    assert not opened.store.operations.unfinished(made.plan_id)
    assert {path.name for path in (workshop.sandbox(made) / "d").iterdir()} == {"new"}


@pytest.mark.parametrize("only", [[], ["src"]])
def test_one_that_is_disturbed_is_taken_back_also_if_it_is_disturbed_again(
    workshop: Workshop, plan: Plan, only: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "FEWEST_FILES", 1)
    opened, sandbox = workshop.open(), workshop.sandbox(plan)
    before, groups = files(sandbox), workshop.groups(plan)
    times = []

    def disturb(event: Event) -> None:
        """What a program would do that is at work in the sandbox, at the worst moments."""
        if isinstance(event, Working) and event.work is Work.RESTORING and event.is_over:
            times.append(event)
            (sandbox / "src" / "a").write_text(f"{len(times)}\n")

    with pytest.raises(SandboxError, match="something changed it meanwhile") as refusal:
        opened.rollback(plan.plan_id, _good(opened, plan), only=only, listener=disturb)
    assert "begun" not in refusal.value.message
    assert len(times) > 1
    assert files(sandbox) == before | {"src/a": f"{len(times)}\n"}
    assert not opened.store.operations.unfinished(plan.plan_id)
    assert (opened.find_plan(plan.plan_id), workshop.groups(plan)) == (plan, groups)


def test_where_to_something_was_set_aside_is_said_also_by_one_that_is_refused(
    workshop: Workshop, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "FEWEST_FILES", 1)
    sandbox = workshop.sandbox(plan)
    (sandbox / "new").mkdir()
    _listen(sandbox / "new", monkeypatch)

    def disturb(event: Event) -> None:
        if isinstance(event, Working) and event.work is Work.RESTORING and event.is_over:
            (sandbox / "src" / "a").write_text("busy")

    opened = workshop.open()
    with pytest.raises(SandboxError, match="What stood in the way was moved to ") as refusal:
        opened.rollback(plan.plan_id, _good(opened, plan), listener=disturb)
    aside = Path(refusal.value.message.partition("was moved to ")[2].rstrip("."))
    assert [path.name.partition(".")[0] for path in (aside / "new").iterdir()] == ["sock"]
