"""The sandbox of a session is the person's own folder: nothing but an undo or a redo ever changes it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.errors import SandboxError, StateError
from holdfast.model import CheckpointGroup
from tests.support.repositories import make_repository
from tests.support.sessions import Agent, Place
from tests.support.trees import compare, write

_REFUSED = 4
_FOR_STEPS = ("execute", "resume", "rollback", "correct", "apply", "keep")


@pytest.fixture
def crowded(place: Place) -> Agent:
    """Beside the folder and in it lies everything that Holdfast keeps beside and in its own sandboxes."""
    place.make()
    for name in (
        ".staging-proj-0123abcd/f",
        ".index-01ABC-folder",
        ".set-aside/proj-0123/f",
        ".beside/f",
        ".links/folder",
        ".mounts/f",
        ".unfinished-proj/f",
        ".removed-proj/f",
        "proj.origin",
        "proj.new",
        ".trash/f",
        ".spares/f",
    ):
        write(place.folder / name, name)
        write(place.root / name, name)
    agent = place.agent()
    agent.prompt("do it")
    agent.does("write", lambda: (place.root / "new.txt").write_text("new\n"))
    agent.does("rm", lambda: (place.root / "b.txt").unlink())
    (place.root / "mine.txt").write_text("not in any checkpoint\n")
    return agent


def _words_of_plans(agent: Agent, place: Place) -> list[tuple[str, ...]]:
    plan, checkpoint = agent.plan, agent.plan.last_checkpoint_id or ""
    decision = agent.in_place.calls(plan)[0].decision_id
    steps = place.folder / "steps.yaml"
    steps.write_text('{"steps": [{"run": "rm -rf * .git"}]}')
    return [
        ("plan", "execute", plan.plan_id),
        ("plan", "resume", plan.plan_id),
        ("plan", "resume", "--skip", plan.plan_id),
        ("plan", "resume", "--dry-run", plan.plan_id),
        ("plan", "cancel", plan.plan_id),
        ("plan", "apply", "--yes", plan.plan_id),
        ("plan", "apply", "--dry-run", plan.plan_id),
        ("plan", "unapply", "--yes", plan.plan_id),
        ("plan", "unapply", "--dry-run", plan.plan_id),
        ("plan", "keep", "--yes", plan.plan_id, checkpoint),
        ("plan", "rollback", "--yes", plan.plan_id, checkpoint),
        ("plan", "rollback", "--dry-run", plan.plan_id, checkpoint),
        ("plan", "rollback", "--yes", "--without-keeping", plan.plan_id, checkpoint),
        ("plan", "rollback", "--yes", "--only", "b.txt", plan.plan_id, checkpoint),
        ("plan", "correct", "--mode", "revert", "--guidance", "no", "--yes", decision),
        ("plan", "correct", "--mode", "append", "--guidance", "no", "--with", str(steps), "--yes", decision),
        ("run", "--in", plan.plan_id, "--", "rm", "-rf", "a.txt"),
        ("run", "--in", "latest", "--", "rm", "-rf", "a.txt"),
    ]


def test_what_needs_steps_is_refused_and_says_what_to_do_instead(crowded: Agent, place: Place) -> None:
    words, before = _words_of_plans(crowded, place), place.whole()
    moments = crowded.in_place.moments()
    for each in words:
        ended = place.call(*each)
        assert ended.exit_code == _REFUSED, (each, ended)
        assert "is a session in" in ended.stderr, (each, ended)
        assert "holdfast undo" in ended.stderr, (each, ended)
        assert compare(before, place.whole()) == [], each
    assert crowded.in_place.moments() == moments


def test_what_looks_and_tidies_leaves_the_folder_alone(crowded: Agent, place: Place) -> None:
    plan_id = crowded.plan_id
    first, middle, last = [each.view.checkpoint.checkpoint_id for each in reversed(crowded.in_place.moments())]
    before = place.whole()
    for words in (
        ("log",),
        ("log", plan_id),
        ("plan", "list"),
        ("plan", "status"),
        ("plan", "status", plan_id),
        ("plan", "tree", plan_id),
        ("plan", "log", plan_id),
        ("plan", "explain", crowded.in_place.calls()[0].decision_id),
        ("plan", "diff", plan_id),
        ("plan", "diff", plan_id, first),
        ("plan", "diff", plan_id, first, last),
        ("checkpoint", "show", last),
        ("checkpoint", "list", plan_id),
        ("checkpoint", "verify", plan_id),
        ("doctor",),
        ("blame", "b.txt"),
        ("undo", "--dry-run"),
        ("checkpoint", "create", "--label", "kept", plan_id),
        ("checkpoint", "delete", "--yes", plan_id, middle),
        ("checkpoint", "prune", "--keep", "2", plan_id),
        ("checkpoint", "release", "--yes"),
        ("plan", "prune", "--keep", "0", "--yes"),
        ("plan", "delete", "--yes", plan_id),
    ):
        ended = place.call(*words)
        assert ended.exit_code == 0, (words, ended)
        assert compare(before, place.whole()) == [], words
        named = [each for each in _FOR_STEPS if f"holdfast plan {each}" in ended.stdout]
        assert named == [], (words, "names commands that would be refused", ended)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_deleting_a_session_forgets_it_and_keeps_the_folder(crowded: Agent, place: Place, is_damaged: bool) -> None:
    before = place.whole()
    if is_damaged:
        with closing(sqlite3.connect(place.home / "holdfast.db")) as connection, connection:
            assert connection.execute("UPDATE plan SET name = 'another'").rowcount == 1
    ended = place.call("plan", "delete", "--yes", crowded.plan_id)
    assert ended.exit_code == 0, ended
    assert compare(before, place.whole()) == []
    again = make_repository(place.folder / "proj2", has_user=True)
    assert again.is_dir()
    assert crowded.in_place.sessions() == []


def test_no_sandbox_is_ever_made_of_the_folder_of_a_deleted_session(crowded: Agent, place: Place) -> None:
    before = place.whole()
    place.call("plan", "delete", "--yes", crowded.plan_id)
    assert place.call("run", "--", "touch", "made").exit_code == 0
    assert compare(before, place.whole()) == []


def test_after_a_reboot_nothing_in_the_folder_is_restored(crowded: Agent, place: Place) -> None:
    crowded.begin("killed with the machine")
    (place.root / "a.txt").write_text("written by the call\n")
    before = place.whole()
    holdfast = place.open()
    plan = crowded.plan.changed(boot_id="another boot")
    with holdfast.store.transaction():
        holdfast.store.save(plan)
    with holdfast.in_place.recording(plan.plan_id):
        pass
    holdfast.create_checkpoint(plan.plan_id, "after the reboot")
    assert place.call("doctor").exit_code == 0
    assert compare(before, place.whole()) == []


def test_a_group_of_a_session_is_never_restored_as_a_whole(crowded: Agent, place: Place) -> None:
    holdfast, plan, before = place.open(), crowded.plan, place.whole()
    group = holdfast.store.groups.of(plan.plan_id)[0]
    sandboxes = holdfast.service.sandboxes
    for restore in (
        lambda: sandboxes.restore_states(plan, group.states),
        lambda: sandboxes.restore_group(plan, group),
        lambda: sandboxes.restore_group(plan, group, is_unkept=True),
        lambda: sandboxes.restore_one(plan.resources[0], group),
        lambda: sandboxes.recreate(plan.resources[0], group.states["folder"]),
        lambda: sandboxes.make_empty(plan),
    ):
        with pytest.raises(StateError, match="real folder"):
            restore()
    assert compare(before, place.whole()) == []


def test_a_folder_that_was_deleted_meanwhile_is_not_made_again(crowded: Agent, place: Place) -> None:
    shutil.rmtree(place.root)
    before = place.whole()
    for words in (("undo", "--yes"), ("redo", "--yes"), ("checkpoint", "create", crowded.plan_id), ("doctor",)):
        ended = place.call(*words)
        assert "Traceback" not in ended.stderr, (words, ended)
        assert compare(before, place.whole()) == [], words
    place.root.mkdir()
    before = place.whole()
    assert place.call("plan", "delete", "--yes", crowded.plan_id).exit_code == 0
    assert compare(before, place.whole()) == []


def test_a_folder_whose_place_another_took_is_not_changed_without_force(crowded: Agent, place: Place) -> None:
    place.root.rename(place.folder / "moved")
    make_repository(place.root, {"b.txt": "another project\n"}, has_user=True)
    before = place.whole()
    ended = place.call("undo", "--yes")
    assert ended.exit_code != 0, ended
    assert compare(before, place.whole()) == []


@pytest.mark.parametrize("which", ["home", "around", "root", "own home", "in own home", "tmp"])
def test_folders_that_are_too_much_are_refused(place: Place, which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    person = place.folder / "person"
    (person / "project").mkdir(parents=True)
    home = person / ".holdfast"
    home.mkdir()
    folder = {
        "home": person,
        "around": place.folder,
        "root": Path("/"),
        "own home": home,
        "in own home": home / "sandboxes",
        "tmp": Path("/tmp"),
    }[which]
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(person))
    with Holdfast.open(folder, home=home) as holdfast, pytest.raises(SandboxError) as refused:
        holdfast.in_place.checkpoint()
    assert refused.value.hint
    with Holdfast.open(folder, home=home) as holdfast:
        assert holdfast.in_place.sessions() == []
    if which != "tmp":
        with Holdfast.open(person / "project", home=home) as holdfast:
            assert holdfast.in_place.checkpoint().group.states


def test_a_folder_in_one_called_sandboxes_is_no_sandbox_of_ours(place: Place) -> None:
    place.root = place.folder / "sandboxes" / "01ABC" / "app"
    place.root.parent.mkdir(parents=True)
    agent = place.make().agent()
    before = place.tree()
    agent.does("write", lambda: (place.root / "new.txt").write_text("new\n"))
    agent.in_place.undo()
    assert place.differs_from(before) == []
    other = Place(place.folder)
    other.root = place.folder / "elsewhere" / "sandboxes" / "01ABC" / "app"
    other.root.parent.mkdir(parents=True)
    second = other.make({"other.txt": "other\n"}).agent("s2")
    assert set(os.listdir(other.root)) == {".git", "other.txt"}
    group = place.open().store.get(CheckpointGroup, second.plan.head_group_id or "")
    assert group.states != place.open().store.get(CheckpointGroup, agent.plan.head_group_id or "").states
    assert place.call("plan", "delete", "--yes", agent.plan_id).exit_code == 0
    assert place.differs_from(before) == []
    other.close()
