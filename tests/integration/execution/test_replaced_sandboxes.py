"""Something else in the place of a sandbox is no sandbox: it is neither followed, nor run in, nor removed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import SandboxError
from holdfast.model import Plan, RollbackResult
from tests.support.workshop import Workshop, files, run

MINE = {"app/thesis": "mine\n", "orders.csv": "mine\n", "thesis": "mine\n"}


@pytest.fixture
def mine(workshop: Workshop) -> Path:
    """A folder of the user, in which a plan has no business."""
    folder = workshop.folder / "mine"
    (folder / "app").mkdir(parents=True)
    for name, content in MINE.items():
        (folder / name).write_text(content)
    return folder


@pytest.fixture
def plan(workshop: Workshop) -> Plan:
    made = workshop.create(run("echo 1 > one"), run("echo 2 > two"))
    return workshop.open().execute(made.plan_id).plan


def _sandbox_by_a_symlink(sandbox: Path, mine: Path) -> Path:
    sandbox.rename(sandbox.with_name("moved"))
    sandbox.symlink_to(mine)
    return sandbox


def _sandbox_by_a_file(sandbox: Path, mine: Path) -> Path:
    sandbox.rename(sandbox.with_name("moved"))
    (mine / "thesis").rename(sandbox)
    return sandbox


def _folder_by_a_symlink(sandbox: Path, mine: Path) -> Path:
    sandbox.parent.rename(sandbox.parent.with_name("moved"))
    sandbox.parent.symlink_to(mine)
    return sandbox.parent


@pytest.mark.parametrize("replace", [_sandbox_by_a_symlink, _sandbox_by_a_file, _folder_by_a_symlink])
def test_whatever_needs_the_sandbox_is_refused_until_it_is_moved_away(
    workshop: Workshop, plan: Plan, mine: Path, replace: Callable[[Path, Path], Path]
) -> None:
    opened, sandbox = workshop.open(), workshop.sandbox(plan)
    first = opened.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id
    place = replace(sandbox, mine)
    before = files(mine)
    for verb in (
        lambda: opened.rollback_preview(plan.plan_id, first),
        lambda: opened.rollback(plan.plan_id, first),
        lambda: opened.rollback(plan.plan_id, first, only=["version.txt"]),
        lambda: opened.create_checkpoint(plan.plan_id, "now"),
        lambda: opened.apply(plan.plan_id),
    ):
        with pytest.raises(SandboxError, match=r"is a (symlink|file) now, and no") as refusal:
            verb()
        assert "Move it away" in refusal.value.hint
    assert files(mine) == before
    place.rename(workshop.folder / "moved away")
    assert opened.execute(plan.plan_id).made_anew == tuple(
        ["app", "data"] if replace is _folder_by_a_symlink else ["app"]
    )
    assert isinstance(opened.rollback(plan.plan_id, first), RollbackResult)
    assert files(sandbox) == {"version.txt": "1\n"}
    assert files(mine) == before


@pytest.mark.parametrize("ending", ["exit 1", "exit 0"])
def test_a_step_that_puts_a_symlink_there_leads_nobody_astray(workshop: Workshop, mine: Path, ending: str) -> None:
    swap = f'cd / && mv "$HOLDFAST_RESOURCE_APP" "$HOLDFAST_RESOURCE_APP.moved"; ln -s {mine} "$HOLDFAST_RESOURCE_APP"'
    made = workshop.create(run(f"{swap}; {ending}"), run("echo 2 > two"))
    opened = workshop.open(sandbox__confine="false", sandbox__view="own-path")
    with pytest.raises(SandboxError, match="is a symlink now"):
        opened.execute(made.plan_id)
    assert files(mine) == MINE


def test_neither_a_step_nor_a_validation_is_started_in_what_a_symlink_leads_to(workshop: Workshop, mine: Path) -> None:
    """Without checkpoints on the way nobody looks into the sandboxes before the next one starts."""
    swap = f'cd / && mv "$HOLDFAST_RESOURCE_APP" "$HOLDFAST_RESOURCE_APP.moved"; ln -s {mine} "$HOLDFAST_RESOURCE_APP"'
    opened = workshop.open(sandbox__confine="false", sandbox__view="own-path")
    for steps, validation in (([run(swap), run("echo 2 > two")], []), ([run(swap)], ["echo 2 > two"])):
        made = workshop.create(*steps, validate=validation, policy={"auto_create_on": []})
        with pytest.raises(SandboxError, match="is a symlink now"):
            opened.execute(made.plan_id)
        assert files(mine) == MINE


def test_a_subplan_is_not_forked_from_what_a_symlink_leads_to(workshop: Workshop, mine: Path) -> None:
    swap = f'cd / && mv "$HOLDFAST_RESOURCE_APP" "$HOLDFAST_RESOURCE_APP.moved"; ln -s {mine} "$HOLDFAST_RESOURCE_APP"'
    divided = {"name": "divide", "subplans": [{"name": "below", "steps": [run("true")]}]}
    made = workshop.create(run(swap), divided, policy={"auto_create_on": []})
    opened = workshop.open(sandbox__confine="false", sandbox__view="own-path")
    with pytest.raises(SandboxError, match="is a symlink now"):
        opened.execute(made.plan_id)
    assert files(mine) == MINE


def test_deleting_the_plan_leaves_what_the_symlink_leads_to(workshop: Workshop, plan: Plan, mine: Path) -> None:
    _sandbox_by_a_symlink(workshop.sandbox(plan), mine)
    workshop.open().delete(plan.plan_id)
    assert files(mine) == MINE
    assert not workshop.sandbox(plan).is_symlink()


def test_a_home_that_is_reached_through_a_symlink_is_no_matter(workshop: Workshop) -> None:
    sandboxes, elsewhere = workshop.home / "sandboxes", workshop.folder / "elsewhere"
    elsewhere.mkdir()
    sandboxes.symlink_to(elsewhere)
    made = workshop.create(run("echo 1 > one"))
    opened = workshop.open()
    assert opened.execute(made.plan_id).succeeded
    opened.rollback(made.plan_id, opened.checkpoints(made.plan_id)[0].checkpoint.checkpoint_id)
    assert files(workshop.sandbox(made)) == {"version.txt": "1\n"}
