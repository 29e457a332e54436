"""What a person excludes is not kept of a real folder, listed as not held, and never touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast, ToCheckpoint
from holdfast.model import CheckpointGroup
from tests.support.sessions import Agent, Place

_FILES = {"a.txt": "a\n", "node_modules/x/y.js": "y\n", "deep/node_modules/z.js": "z\n", "run.log": "log\n"}


@pytest.fixture
def opened(place: Place) -> Iterator[Holdfast]:
    place.make(_FILES, has_git=False)
    patterns = {"sandbox.exclude": "node_modules/,*.log"}
    with Holdfast.open(place.root, home=place.home, overrides=patterns) as holdfast:
        yield holdfast


@pytest.fixture(params=[False, True], ids=["scanned", "watched"])
def agent(opened: Holdfast, request: pytest.FixtureRequest) -> Iterator[Agent]:
    made = Agent(opened.in_place)
    if not request.param:
        yield made
        return
    with opened.service.sandboxes.watching(made.plan):
        yield made


def test_it_is_listed_as_not_held(opened: Holdfast, agent: Agent) -> None:
    head = opened.store.get(CheckpointGroup, agent.plan.head_group_id or "")
    (unheld,) = head.unheld.values()
    assert {each.path for each in unheld} == {"node_modules", "deep/node_modules", "run.log"}
    assert {each.reason for each in unheld} == {"left out (sandbox.exclude)"}


def test_a_change_in_it_is_no_change(agent: Agent, place: Place) -> None:
    def work() -> None:
        (place.root / "node_modules" / "x" / "y.js").write_text("otherwise\n")
        (place.root / "node_modules" / "new").mkdir()
        (place.root / "node_modules" / "new" / "file").write_text("new\n")
        (place.root / "run.log").write_text("more\n")

    agent.does("npm install", work)
    (call,) = agent.in_place.calls(agent.plan)
    assert not call.changed_something


def test_an_undo_leaves_it_alone(agent: Agent, place: Place) -> None:
    def work() -> None:
        (place.root / "a.txt").write_text("otherwise\n")
        (place.root / "node_modules" / "x" / "y.js").write_text("otherwise\n")
        (place.root / "other" / "node_modules").mkdir(parents=True)
        (place.root / "other" / "node_modules" / "file").write_text("kept\n")

    agent.does("work", work)
    agent.in_place.undo()
    assert (place.root / "a.txt").read_text() == "a\n"
    assert (place.root / "node_modules" / "x" / "y.js").read_text() == "otherwise\n"
    assert (place.root / "other" / "node_modules" / "file").read_text() == "kept\n"


def test_what_was_excluded_then_is_not_removed_when_it_is_held_now(place: Place, opened: Holdfast) -> None:
    agent = Agent(opened.in_place)
    agent.does("write", lambda: (place.root / "a.txt").write_text("otherwise\n"))
    with Holdfast.open(place.root, home=place.home) as holding:
        again = Agent(holding.in_place)
        again.does("more", lambda: (place.root / "a.txt").write_text("more\n"))
        first = holding.store.groups.first(again.plan_id)
        holding.in_place.undo(ToCheckpoint(first.group_id, is_exact=True))
    assert (place.root / "a.txt").read_text() == "a\n"
    assert sorted(_files(place.root)) == sorted(_FILES)


def _files(root: Path) -> list[str]:
    return [str(each.relative_to(root)) for each in root.rglob("*") if each.is_file()]
