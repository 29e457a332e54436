"""The sandbox of a deleted plan is kept for the next plan on the same folders, with the content that it needs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.doctor import examine
from holdfast.model import Plan, RollbackResult
from holdfast.sandbox.spares import SPARES
from tests.support.trees import compare, describe, write
from tests.support.workshop import Workshop, run

_OF_GIT_ALONE = (b".git/index", b".git/objects", b".git/HEAD", b".git/refs")


@pytest.fixture
def large(workshop: Workshop) -> Workshop:
    for number in range(1_100):
        write(workshop.app / "many" / f"{number % 10}" / f"{number}", f"{number}\n")
    return workshop


def _executed(workshop: Workshop, command: str, **settings: str) -> Plan:
    plan = workshop.create(run(command))
    with workshop.open(**settings) as opened:
        return opened.execute(plan.plan_id).plan


def _delete(workshop: Workshop, plan: Plan, **settings: str) -> None:
    with workshop.open(**settings) as opened:
        opened.delete(plan.plan_id)


def _spares(workshop: Workshop) -> list[Path]:
    folder = workshop.home / "sandboxes" / SPARES
    return list(folder.iterdir()) if folder.is_dir() else []


def test_the_next_plan_gets_the_sandbox_as_a_new_one_would_be(large: Workshop) -> None:
    first = _executed(large, "echo changed > version.txt; rm -r many/3; git commit -qam mine; echo new > new")
    inode = large.sandbox(first).stat().st_ino
    _delete(large, first)
    assert len(_spares(large)) == 1, "of the large folder only"
    [finding] = [each for each in examine(large.open()) if each.name == "spares"]
    assert finding.level == "ok"
    assert {each.level for each in examine(large.open()) if each.name == "sandboxes"} == {"ok"}
    write(large.app / "many" / "5" / "5", "changed by the user\n")
    second = _executed(large, "true")
    assert large.sandbox(second).stat().st_ino == inode
    assert _spares(large) == []
    third = _executed(large, "true")
    trees = [describe(large.sandbox(plan), without=_OF_GIT_ALONE) for plan in (third, second)]
    assert [each for each in compare(*trees) if b"many" in each.encode() or "version" in each] == []
    assert compare(*trees, ignoring=["mtime_ns"]) == []
    with large.open() as opened:
        assert opened.verify().damaged == ()
        first_checkpoint = opened.checkpoints(second.plan_id)[0].checkpoint.checkpoint_id
        assert isinstance(opened.rollback(second.plan_id, first_checkpoint), RollbackResult)


def test_content_of_a_spare_is_kept_until_it_is_given_up(large: Workshop) -> None:
    _delete(large, _executed(large, "true"))
    with large.open() as opened:
        kept = opened.service.manager.objects.content_bytes()
    second = _executed(large, "true")
    with large.open() as opened:
        assert opened.service.manager.objects.content_bytes() < kept * 1.2, "it was not stored again"
    _delete(large, second, sandbox__spares="0")
    assert _spares(large) == []
    with large.open() as opened:
        assert opened.service.manager.objects.content_bytes() < kept / 2


def test_a_spare_is_given_up_for_the_quota(large: Workshop) -> None:
    _delete(large, _executed(large, "true"))
    with large.open() as opened:
        kept = opened.service.manager.objects.content_bytes()
    write(large.data / "large", os.urandom(300_000))
    resources = {"data": {"type": "directory", "path": "data"}}
    plan = large.open().create_plan(large.plan_file(run("true"), resources=resources))
    with large.open(sandbox__checkpoint__max_bytes=str(kept + 100_000)) as opened:
        opened.execute(plan.plan_id)
    assert _spares(large) == []
