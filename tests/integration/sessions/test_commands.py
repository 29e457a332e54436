"""``holdfast undo``, ``redo``, ``blame`` and ``log`` as a person types them."""

from __future__ import annotations

import pytest

from tests.support.repositories import git
from tests.support.sessions import Agent, Place


@pytest.fixture
def worked(place: Place) -> Agent:
    """An agent that wrote a file, removed a folder, and committed."""
    place.make({"a.txt": "a\n", "docs/one.md": "1\n", "docs/two.md": "2\n"})
    agent = place.agent()
    agent.prompt("tidy up\nand more")
    agent.does("write b", lambda: (place.root / "b.txt").write_text("b\n"))
    agent.does("rm -r docs", lambda: [each.unlink() for each in (place.root / "docs").iterdir()])
    agent.prompt("commit")
    agent.does("commit", lambda: git(place.root, "commit", "-qam", "tidy"))
    return agent


def test_an_undo_says_what_it_took_back_and_how_to_take_that_back(worked: Agent, place: Place) -> None:
    ended = place.call("undo", "--yes", "--only-call", "2")
    assert ended.exit_code == 0
    assert "call   2  Bash rm -r docs" in ended.stdout
    assert "restored  docs/one.md" in ended.stdout
    assert "Undone. 2 files of yours restored or removed" in ended.stdout
    assert "holdfast redo" in ended.stdout
    again = place.call("redo", "--yes")
    assert "removed   docs/one.md" in again.stdout
    assert "holdfast undo --call 2" in again.stdout
    assert worked.in_place.calls()[1].is_undone is False


def test_a_dry_run_changes_nothing_and_says_the_same(worked: Agent, place: Place) -> None:
    before = place.whole()
    shown = place.call("undo", "--dry-run", "--prompt", "1")
    assert shown.exit_code == 0
    assert "3 files would be restored or removed." in shown.stdout
    assert "HEAD, branches or tags" in shown.stdout
    assert place.whole() == before
    done = place.call("undo", "--yes", "--prompt", "1")
    assert "3 files of yours restored or removed" in done.stdout
    shown = place.call("redo", "--dry-run")
    assert "3 files would be restored or removed." in shown.stdout
    assert not (place.root / "b.txt").exists()


def test_for_programs_the_calls_and_files_are_listed(worked: Agent, place: Place) -> None:
    found = place.call("undo", "--yes", "--call", "2", "--format", "json").data
    assert found["plan_id"] == worked.plan_id
    assert (found["kind"], found["agent"], found["session_id"]) == ("session", "claude-code", "s1")
    assert [(each["call"], each["prompt"]) for each in found["calls"]] == [(2, 1), (3, 2)]
    assert {each["file"]: each["action"] for each in found["changes"]} == {
        "docs/one.md": "restored",
        "docs/two.md": "restored",
    }
    assert found["dry_run"] is False


def test_without_a_terminal_to_ask_on_it_is_refused(worked: Agent, place: Place) -> None:
    for words in (("undo",), ("redo",)):
        ended = place.call(*words)
        assert ended.exit_code == 2
        assert "--yes" in ended.stderr
    assert not worked.in_place.calls()[2].is_undone


@pytest.mark.parametrize(
    "words",
    [
        ("--call", "1", "--prompt", "1"),
        ("--only-call", "1", "@"),
        ("--exact",),
        ("--only", "a.txt"),
        ("@", "--exact", "--only", "a.txt"),
        ("--call", "0"),
    ],
)
def test_what_excludes_itself_is_wrong_usage(worked: Agent, place: Place, words: tuple[str, ...]) -> None:
    ended = place.call("undo", "--yes", *words)
    assert ended.exit_code == 2
    assert not any(call.is_undone for call in worked.in_place.calls())


def test_in_a_folder_without_a_session_it_says_how_to_begin(place: Place) -> None:
    place.make()
    for words in (("undo", "--yes"), ("redo", "--yes")):
        ended = place.call(*words)
        assert ended.exit_code in (3, 4)
        assert "hint" in ended.stderr


def test_if_an_apply_changed_the_folder_last_that_is_taken_back(worked: Agent, place: Place) -> None:
    assert place.call("run", "--", "sh", "-c", "echo applied > c.txt").exit_code == 0
    assert place.call("apply", "--yes", "latest").exit_code == 0
    assert (place.root / "c.txt").exists()
    ended = place.call("undo", "--yes")
    assert ended.exit_code == 0, ended.stderr
    assert not (place.root / "c.txt").exists()
    assert not any(call.is_undone for call in worked.in_place.calls())
    assert place.call("undo", "--yes").exit_code == 0
    assert worked.in_place.calls()[2].is_undone


def test_an_apply_is_also_taken_back_by_the_id_of_its_plan(worked: Agent, place: Place) -> None:
    assert place.call("run", "--", "sh", "-c", "echo applied > c.txt").exit_code == 0
    plan_id = place.call("apply", "--yes", "latest", "--format", "json").data["plan_id"]
    worked.does("later", lambda: (place.root / "d.txt").write_text("d\n"))
    assert place.call("undo", "--dry-run", plan_id).exit_code == 0
    assert place.call("undo", "--yes", plan_id).exit_code == 0
    assert (place.root / "d.txt").exists()
    assert not (place.root / "c.txt").exists()


def test_the_log_shows_prompts_below_what_followed_from_them(worked: Agent, place: Place) -> None:
    place.call("undo", "--yes", "--only-call", "2")
    lines = place.call("log", worked.plan_id).stdout.splitlines()
    order = [
        next(number for number, line in enumerate(lines) if text in line)
        for text in (
            "undo call 2",
            "call 3: Bash commit",
            "prompt 2: commit",
            "(undone) call 2",
            "call 1: Bash write b",
            "prompt 1: tidy up",
            "the beginning of the session",
        )
    ]
    assert order == sorted(order)


def test_blame_names_the_call_the_person_and_the_undo(worked: Agent, place: Place) -> None:
    (place.root / "b.txt").write_text("mine\n")
    worked.does("nothing", lambda: None)
    place.call("undo", "--yes", "--only-call", "2")
    text = place.call("blame", "b.txt").stdout
    assert "claude-code 2.1, call 1: Bash write b" in text
    assert "you, or a program of yours" in text
    assert "undo or redo, in the session of claude-code 2.1" in place.call("blame", "docs").stdout
    assert "No session recorded a change" in place.call("blame", "nowhere").stdout
