"""A call that names what it writes need not wait for the first checkpoint, and is undone all the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import CallBegun, CallEnded, SessionInfo
from holdfast.model import RunStatus
from tests.support.sessions import Place


def _changed(root: Path) -> None:
    (root / "a.txt").write_text("otherwise\n")


def _made_in_a_new_folder(root: Path) -> None:
    (root / "new").mkdir()
    (root / "new" / "file.txt").write_text("new\n")


def _replaced_by_a_symlink(root: Path) -> None:
    (root / "a.txt").unlink()
    (root / "a.txt").symlink_to("elsewhere")


def _removed(root: Path) -> None:
    (root / "a.txt").unlink()


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (_changed, "a.txt"),
        (_made_in_a_new_folder, "new/file.txt"),
        (_replaced_by_a_symlink, "a.txt"),
        (_removed, "a.txt"),
    ],
)
def test_what_a_call_changed_before_the_first_checkpoint_was_done_is_undone_exactly(
    place: Place, change: Callable[[Path], None], path: str
) -> None:
    in_place = place.make({"a.txt": "as it was\n"}).open().in_place
    before = place.tree()
    session = in_place.begin(SessionInfo(agent="some-agent", session_id="1"))
    saved = in_place.saved_first([str(place.root / path)])
    change(place.root)
    with in_place.recording(session.plan_id) as (plan, recording):
        plan = recording.begin(plan)
        plan, run = recording.before(plan, CallBegun("Edit", path), None, saved=saved)
        recording.after(plan, run, CallEnded(RunStatus.SUCCEEDED))
    in_place.undo()
    assert place.differs_from(before) == []


def test_nothing_outside_of_the_folder_is_saved(place: Place, tmp_path: Path) -> None:
    in_place = place.make().open().in_place
    outside = tmp_path / "outside"
    outside.write_text("secret")
    paths = [str(outside), os.path.relpath(outside, place.root), str(place.root)]
    saved = in_place.saved_first(paths)
    assert saved.paths == frozenset()
