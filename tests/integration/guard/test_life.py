"""The process of a folder: started, killed, stopped, idle; what it records of a person; and when it cannot record."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress

import pytest

from holdfast.guard import asking
from holdfast.guard.process import RECORD_WRITES
from holdfast.guard.wire import HOOK, Request, socket_name, sockets_folder
from holdfast.verbs.in_place import InPlace
from tests.integration.cli.project import wait_until
from tests.support.guards import Claude, Guarded, guarded
from tests.support.repositories import make_repository
from tests.support.sessions import Place
from tests.support.trees import IS_ROOT, compare, describe

_BLOCKED = 2


def _shown(in_place: InPlace) -> list[str]:
    return [each.view.checkpoint.metadata.title for each in in_place.moments()]


# Its life


def test_of_two_started_at_once_one_stays(place: Place) -> None:
    place.make()
    with guarded(place) as guard:
        second = guard.start()
        assert second.wait(60) == 0
        assert guard.status()["pid"] == guard.processes[0].pid
        Claude(guard).run("echo more >> a.txt")
    assert len(place.open().in_place.calls()) == 1


def test_its_socket_is_for_its_user_alone(guard: Guarded) -> None:
    folder = sockets_folder(guard.place.home)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / socket_name(guard.place.root.resolve())).stat().st_mode) == 0o600


@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_it_ends_when_it_is_told_to_and_leaves_no_socket(guard: Guarded, number: int | None) -> None:
    Claude(guard).run("echo more >> a.txt")
    process, home, root = guard.processes[0], guard.place.home, guard.place.root.resolve()
    if number is None:
        assert asking.stop(home, root)
        assert not asking.stop(home, root)
    else:
        process.send_signal(number)
    assert process.wait(60) == 0
    assert not (sockets_folder(home) / socket_name(root)).exists()
    assert asking.status_of(home, root) is None


def test_it_ends_by_itself_when_nobody_needed_it_for_a_while(place: Place) -> None:
    place.make()
    with guarded(place, idle=0.3) as guard:
        assert guard.processes[0].wait(60) == 0


def test_killed_between_before_and_after_it_records_the_call_all_the_same(guard: Guarded) -> None:
    claude, place = Claude(guard), guard.place
    claude.run("true")
    before = place.tree()
    _, call = claude.before("write")
    guard.kill()
    (place.root / "new.txt").write_text("new\n")
    guard.start()
    claude.after(call)
    in_place = place.open().in_place
    assert [(one.changed_something, one.is_running) for one in in_place.calls()] == [(False, False), (True, False)]
    in_place.undo()
    assert place.differs_from(before) == []


def test_a_folder_that_is_deleted_ends_it_and_one_made_anew_is_recorded_anew(guard: Guarded) -> None:
    claude, place = Claude(guard), guard.place
    claude.run("echo more >> a.txt")
    shutil.rmtree(place.root)
    assert guard.processes[0].wait(60) == 0
    assert not place.root.exists()
    make_repository(place.root, {"other.txt": "other\n"}, has_user=True)
    before = place.tree()
    guard.start()
    claude.run("rm other.txt")
    place.open().in_place.undo()
    assert place.differs_from(before) == []


def test_a_folder_replaced_under_it_is_recorded_as_it_is(guard: Guarded) -> None:
    claude, place = Claude(guard), guard.place
    claude.run("echo more >> a.txt")
    place.root.rename(place.folder / "old")
    make_repository(place.root, {"other.txt": "other\n"}, has_user=True)
    before = place.tree()
    claude.run("rm other.txt; echo x > y")
    place.open().in_place.undo()
    assert place.differs_from(before) == []


def test_nonsense_harms_nothing(guard: Guarded) -> None:
    for agent, payload in (("claude-code", b"nonsense"), ("claude-code", b"{}"), ("nobody", b"{}"), ("codex", b"[1]")):
        answer = guard.ask(Request(HOOK, agent, payload))
        assert answer is not None
        assert answer.exit_code == 0
        assert b"Traceback" not in answer.stderr
    Claude(guard).run("echo more >> a.txt")


def test_a_session_deleted_under_a_running_agent_begins_anew(guard: Guarded) -> None:
    claude, place = Claude(guard), guard.place
    claude.run("echo more >> a.txt")
    (plan,) = place.open().in_place.sessions()
    assert place.call("plan", "delete", "--yes", plan.plan_id).exit_code == 0
    before = place.tree()
    claude.run("echo still more >> a.txt")
    in_place = place.open().in_place
    assert [call.number for call in in_place.calls()] == [1]
    in_place.undo()
    assert place.differs_from(before) == []


def test_an_agent_is_told_what_was_undone_under_its_feet(guard: Guarded) -> None:
    claude, place = Claude(guard), guard.place
    claude.run("echo more >> a.txt")
    place.open().in_place.undo()
    said = claude.say("UserPromptSubmit", prompt="go on").stdout.decode()
    assert "undo call 1" in json.loads(said)["hookSpecificOutput"]["additionalContext"]
    assert b"undo call 1" not in claude.say("UserPromptSubmit", prompt="go on").stdout


# What a person writes


@pytest.fixture
def quiet(place: Place) -> Iterator[Guarded]:
    place.make()
    with guarded(place, RECORD_WRITES) as started:
        wait_until(lambda: bool(place.open().in_place.moments()))
        yield started


def test_what_a_person_wrote_is_undone_one_pause_after_the_other(quiet: Guarded) -> None:
    place, in_place = quiet.place, quiet.place.open().in_place
    trees = [place.tree()]
    for number in (1, 2):
        (place.root / f"by hand {number}.txt").write_text("mine\n")
        trees.append(place.tree())
        wait_until(lambda number=number: len(in_place.calls()) == number)  # type: ignore[misc]
    for tree in trees[-2::-1]:
        in_place.undo()
        assert place.differs_from(tree) == []
    for tree in trees[1:]:
        in_place.redo()
        assert place.differs_from(tree) == []


def test_what_an_agent_changed_is_not_taken_for_a_persons_work(quiet: Guarded) -> None:
    place, in_place, claude = quiet.place, quiet.place.open().in_place, Claude(quiet)
    claude.run("echo by agent > agent.txt")
    (place.root / "mine.txt").write_text("mine\n")
    wait_until(lambda: any("mine.txt" in title for title in _shown(in_place)))
    (who,) = in_place.blame("agent.txt")
    assert [call.tool for call in who.calls] == ["Bash"]
    (me,) = in_place.blame("mine.txt")
    assert [call.tool for call in me.calls] == [""]
    in_place.undo()
    assert not (place.root / "mine.txt").exists()
    assert (place.root / "agent.txt").exists()
    in_place.undo()
    assert not (place.root / "agent.txt").exists()


def test_an_undo_is_not_taken_for_a_persons_work(quiet: Guarded) -> None:
    place, in_place = quiet.place, quiet.place.open().in_place
    Claude(quiet).run("echo by agent > agent.txt")
    in_place.undo()
    (place.root / "mine.txt").write_text("mine\n")
    wait_until(lambda: any("mine.txt" in title for title in _shown(in_place)))
    assert [each.is_undo for each in in_place.blame("agent.txt")] == [True, False]
    in_place.redo()
    assert sorted(path.name for path in place.root.glob("*.txt")) == ["a.txt", "agent.txt", "b.txt", "mine.txt"]


# When nothing can be recorded


def _is_blocked(guard: Guarded, because: str) -> None:
    answer, _ = Claude(guard).before("rm -rf .")
    said = (answer.stdout + answer.stderr).decode()
    assert because in said, answer
    assert answer.exit_code == _BLOCKED or "deny" in said or "block" in said, answer
    assert "Traceback" not in said


def test_a_call_is_stopped_if_there_is_no_room_for_its_checkpoint(place: Place) -> None:
    place.make()
    place.home.mkdir()
    (place.home / "config.toml").write_text('sandbox.checkpoint.max-bytes = "1MB"\n')
    with guarded(place) as guard:
        Claude(guard).run("true")
        (place.root / "large").write_bytes(os.urandom(3 << 20))
        _is_blocked(guard, "max-bytes")
        (place.root / "large").unlink()
        Claude(guard).run("echo fine >> a.txt")
    place.open().in_place.undo()
    assert (place.root / "a.txt").read_text() == "a\n"


@pytest.mark.skipif(not IS_ROOT, reason="only root may mount a small disk")
def test_a_call_is_stopped_on_a_full_disk_and_goes_on_when_there_is_space(place: Place) -> None:
    place.make()
    disk = place.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "holdfast-test", disk], check=True)
    try:
        place.home = disk / "home"
        with guarded(place) as guard:
            claude = Claude(guard)
            claude.run("true")
            _, call = claude.before("head -c 6M /dev/urandom > large")
            (place.root / "large").write_bytes(os.urandom(6 << 20))
            filler = disk / "filler"
            with filler.open("ab", buffering=0) as opened, suppress(OSError):
                while True:
                    opened.write(bytes(4096))
            claude.after(call)
            _is_blocked(guard, "space")
            filler.unlink()
            claude.run("echo more >> a.txt")
        place.open().in_place.undo()
        assert (place.root / "a.txt").read_text() == "a\n"
        place.close()
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_call_in_a_folder_that_is_refused_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.make()
    monkeypatch.setenv("HOME", str(place.root))
    before = describe(place.root)
    with guarded(place) as guard:
        _is_blocked(guard, "your home folder")
        reading = {"tool_name": "Read", "tool_input": {"file_path": "a.txt"}, "tool_use_id": "toolu_r"}
        assert Claude(guard).say("PreToolUse", **reading).exit_code == 0
    assert compare(before, describe(place.root)) == []


def test_as_a_person_has_set_it_a_call_goes_on_without_a_checkpoint_and_that_is_said(place: Place) -> None:
    place.make()
    place.home.mkdir()
    (place.home / "config.toml").write_text('sandbox.checkpoint.max-bytes = "1MB"\nagents.on-failure = "warn"\n')
    (place.root / "large").write_bytes(os.urandom(3 << 20))
    with guarded(place) as guard:
        answer, call = Claude(guard).before("rm -rf .")
        said = (answer.stdout + answer.stderr).decode()
        assert answer.exit_code == 0
        assert "max-bytes" in said
        assert "cannot be undone" in said
        assert Claude(guard).after(call).exit_code == 0
