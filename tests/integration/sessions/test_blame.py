"""Who changed what, and when: calls, several at once, a person, an undo."""

from __future__ import annotations

import shutil

from tests.support.sessions import Agent, Place


def _told(agent: Agent, path: str) -> list[tuple[str, list[int] | str]]:
    """Oldest first."""
    return [
        (each.did, "undo" if each.is_undo else [call.number for call in each.calls])
        for each in reversed(agent.in_place.blame(path))
    ]


def test_each_change_of_a_file_has_its_author(agent: Agent, place: Place) -> None:
    file = place.root / "new.txt"
    agent.does("make", lambda: file.write_text("1\n"))
    file.write_text("2, by a person\n")
    agent.does("look", lambda: None)
    agent.does("change", lambda: file.write_text("3\n"))
    agent.does("remove", file.unlink)
    agent.in_place.undo()
    agent.in_place.redo()
    file.write_text("4, by a person\n")
    agent.in_place.checkpoint()
    assert _told(agent, "new.txt") == [
        ("made", [1]),
        ("changed", []),
        ("changed", [3]),
        ("removed", [4]),
        ("made", "undo"),
        ("removed", "undo"),
        ("made", []),
    ]


def test_a_folder_is_changed_with_what_is_in_it(agent: Agent, place: Place) -> None:
    agent.does("write", lambda: (place.root / "folder" / "new.txt").write_text("new\n"))
    agent.does("elsewhere", lambda: (place.root / "a.txt").write_text("new\n"))
    agent.does("remove", lambda: shutil.rmtree(place.root / "folder"))
    assert _told(agent, "folder") == [("changed", [1]), ("removed", [3])]
    assert _told(agent, "folder/c.txt") == [("removed", [3])]
    assert _told(agent, "never.txt") == []


def test_what_another_session_did_is_not_taken_for_this_ones(agent: Agent, place: Place) -> None:
    other = Agent(agent.in_place, "s2", name="codex")
    agent.does("one", lambda: (place.root / "new.txt").write_text("1\n"))
    other.does("two", lambda: (place.root / "new.txt").write_text("2\n"))
    agent.does("three", lambda: None)
    told = [(each.plan.plan_id, [call.what for call in each.calls]) for each in agent.in_place.blame("new.txt")]
    assert told == [(other.plan_id, ["two"]), (agent.plan_id, ["one"])]


def test_a_folder_of_a_name_in_pieces_and_bytes_is_found(agent: Agent, place: Place) -> None:
    odd = "two\nlines and spaces"
    agent.does("write", lambda: (place.root / odd).write_text("new\n"))
    assert _told(agent, odd) == [("made", [1])]
    ended = place.call("blame", odd, "--format", "json")
    assert ended.exit_code == 0
    assert [each["did"] for each in ended.data["changes"]] == ["made"]
