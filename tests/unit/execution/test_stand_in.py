"""A folder that stands in for the real one: what is copied, mounted and brought back; the test plays the program."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from holdfast.execution import stand_in as module
from holdfast.execution.stand_in import StandIn, finish, finish_all, left_beside, prepare, stand_ins


@pytest.fixture
def user(tmp_path: Path) -> Path:
    user = tmp_path / "user"
    (user / ".ssh").mkdir(parents=True)
    (user / ".config").mkdir()
    (user / ".bashrc").write_text("alias\n")
    (user / ".profile").symlink_to(".bashrc")
    (user / ".tool.json").write_text('{"a": 1}')
    (user / ".tool.json").chmod(0o600)
    return user


@pytest.fixture
def one(user: Path, tmp_path: Path) -> StandIn:
    (found,) = stand_ins([user / ".tool.json"], tmp_path / "plan" / ".beside", [])
    prepare(found, [user / ".config"])
    return found


def test_all_but_the_file_is_mounted_and_only_what_may_be_written_is_writable(user: Path, tmp_path: Path) -> None:
    (found,) = stand_ins([user / ".tool.json"], tmp_path / "plan" / ".beside", [])
    first, *others = prepare(found, [user / ".config", user / ".tool.json", tmp_path / "elsewhere"])
    assert (first.source, first.target, first.read_only) == (found.seen, user, False)
    assert {(each.target.name, each.read_only) for each in others} == {
        (".ssh", True),
        (".bashrc", True),
        (".config", True),
        (".config", False),
    }
    assert others[-1].read_only is False
    assert all(each.source == each.target for each in others)
    assert os.readlink(found.seen / ".profile") == ".bashrc"
    assert (found.seen / ".tool.json").read_text() == '{"a": 1}'


def test_a_changed_file_is_brought_back_whole_with_its_mode(one: StandIn, user: Path) -> None:
    (one.seen / ".tool.json.tmp.1").write_text("new")
    os.replace(one.seen / ".tool.json.tmp.1", one.seen / ".tool.json")
    assert finish(one.place) == []
    assert (user / ".tool.json").read_text() == "new"
    assert (user / ".tool.json").stat().st_mode & 0o777 == 0o600
    assert left_beside(one) == []


def test_a_file_that_was_not_there_is_made(user: Path, tmp_path: Path) -> None:
    (found,) = stand_ins([user / ".new.json"], tmp_path / "plan" / ".beside", [])
    prepare(found, [])
    assert finish(found.place) == []
    assert not (user / ".new.json").exists()
    (found.seen / ".new.json").write_text("x")
    finish(found.place)
    assert (user / ".new.json").read_text() == "x"


def test_what_nobody_changed_inside_stays_as_others_left_it(one: StandIn, user: Path) -> None:
    (user / ".tool.json").write_text("theirs")
    assert finish(one.place) == []
    assert (user / ".tool.json").read_text() == "theirs"


def test_a_file_that_the_program_removed_stays(one: StandIn, user: Path) -> None:
    (one.seen / ".tool.json").unlink()
    finish(one.place)
    assert (user / ".tool.json").read_text() == '{"a": 1}'


def test_json_that_both_changed_is_merged_key_by_key(one: StandIn, user: Path) -> None:
    base = {"a": 1, "gone": 1, "both": 1, "projects": {"/p": {"n": 1}}, "kept": [1]}
    (user / ".tool.json").write_text(json.dumps(base))
    prepare(one, [])
    inside = {"a": 1, "both": 2, "projects": {"/p": {"n": 2}, "/new": {}}, "kept": [1], "ours": 1}
    outside = {**base, "a": 5, "both": 3, "projects": {"/p": {"n": 1, "m": 1}}, "theirs": 1}
    (one.seen / ".tool.json").write_text(json.dumps(inside))
    (user / ".tool.json").write_text(json.dumps(outside))
    assert finish(one.place) == []
    assert json.loads((user / ".tool.json").read_text()) == {
        "a": 5,
        "both": 2,
        "kept": [1],
        "ours": 1,
        "theirs": 1,
        "projects": {"/p": {"n": 2, "m": 1}, "/new": {}},
    }
    (user / ".tool.json").write_text("{}")
    finish(one.place)
    assert (user / ".tool.json").read_text() == "{}"


@pytest.mark.parametrize("text", ["ours", "[1]"])
def test_what_cannot_be_merged_is_kept_beside_the_file(one: StandIn, user: Path, text: str) -> None:
    (one.seen / ".tool.json").write_text(text)
    (user / ".tool.json").write_text("[2]")
    (kept,) = finish_all(one.place.parent)
    assert (user / ".tool.json").read_text() == "[2]"
    assert (kept.parent, kept.read_text()) == (user, text)
    assert finish(one.place) == []


def test_the_same_change_of_both_is_no_conflict(one: StandIn, user: Path) -> None:
    for place in (one.seen, user):
        (place / ".tool.json").write_text("same")
    assert finish(one.place) == []


def test_a_link_that_the_program_put_there_is_not_followed(one: StandIn, user: Path) -> None:
    (one.seen / ".tool.json").unlink()
    (one.seen / ".tool.json").symlink_to(user / ".bashrc")
    finish(one.place)
    assert (user / ".tool.json").read_text() == '{"a": 1}'


@pytest.mark.parametrize("killed_at", [1, 2])
def test_killed_while_it_is_brought_back_the_next_time_brings_it_back(
    one: StandIn, user: Path, monkeypatch: pytest.MonkeyPatch, killed_at: int
) -> None:
    (one.seen / ".tool.json").write_text('{"a": 2}')
    replaced, calls = os.replace, []

    def dying(*arguments: Path) -> None:
        calls.append(arguments)
        if len(calls) == killed_at:
            raise KeyboardInterrupt
        replaced(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "replace", dying)
        with pytest.raises(KeyboardInterrupt):
            finish(one.place)
    assert json.loads((user / ".tool.json").read_text()) == {"a": killed_at}
    assert finish_all(one.place.parent) == []
    assert (user / ".tool.json").read_text() == '{"a": 2}'
    assert sorted(each.name for each in user.iterdir()) == [".bashrc", ".config", ".profile", ".ssh", ".tool.json"]


def test_killed_while_it_is_made_again_nothing_older_comes_back_and_nothing_is_hidden(
    one: StandIn, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced = os.replace
    for last in range(1, 4):
        (user / ".tool.json").write_text(f"newer {last}")
        calls: list[object] = []

        def dying(*arguments: Path, last: int = last, calls: list[object] = calls) -> None:
            calls.append(arguments)
            if len(calls) == last:
                raise KeyboardInterrupt
            replaced(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(module.os, "replace", dying)
            with pytest.raises(KeyboardInterrupt):
                prepare(one, [])
        mounted = {each.target.name for each in prepare(one, [])}
        assert {".ssh", ".config", ".bashrc"} <= mounted
        assert (user / ".tool.json").read_text() == f"newer {last}"
        assert (one.seen / ".tool.json").read_text() == f"newer {last}"


def test_the_next_run_sees_the_folder_as_it_is_then_and_keeps_what_was_left(one: StandIn, user: Path) -> None:
    (one.seen / ".tool.json").write_text("ours")
    (one.seen / ".tool.json.lock").mkdir()
    (one.seen / "report.txt").write_text("only here")
    assert left_beside(one) == [user / "report.txt"]
    (user / "new").mkdir()
    (user / ".profile").unlink()
    (user / ".profile").write_text("a file now")
    mounted = {each.target.name for each in prepare(one, [])}
    assert {"new", ".profile", ".ssh", ".bashrc"} <= mounted
    assert "report.txt" not in mounted
    assert (user / ".tool.json").read_text() == "ours"
    assert (one.seen / "report.txt").read_text() == "only here"
    assert not (one.seen / ".tool.json.lock").exists()


def test_what_the_program_made_where_something_came_later_is_not_covered(one: StandIn, user: Path) -> None:
    (one.seen / "later").write_text("only here")
    (user / "later").mkdir()
    assert "later" not in {each.target.name for each in prepare(one, [])}
    assert (one.seen / "later").read_text() == "only here"


def test_nothing_was_made_yet(tmp_path: Path) -> None:
    assert finish_all(tmp_path / "missing") == []
    (tmp_path / ".beside" / "0").mkdir(parents=True)
    assert finish_all(tmp_path / ".beside") == []


def test_no_folder_stands_in_where_it_would_be_wrong(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "plan" / ".beside"
    nested = user / ".config" / "x.json"
    assert stand_ins([nested], place, [user]) == []
    assert stand_ins([Path("/x.json"), tmp_path / "missing" / "x.json"], place, []) == []
    assert [each.real for each in stand_ins([nested, user / ".tool.json"], place, [])] == [user]
    monkeypatch.setattr(module, "_MOST_ENTRIES", 3)
    assert stand_ins([user / ".tool.json"], place, []) == []
