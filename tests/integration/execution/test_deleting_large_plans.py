"""Deleting a plan with many files, or with much saved content, does not wait until all of that is freed."""

from __future__ import annotations

import pytest

from holdfast.doctor import examine
from holdfast.errors import NotFoundError
from holdfast.system.trash import Trash
from tests.support.detached import run_to_the_end
from tests.support.workshop import Workshop, run

_LARGE = "mkdir many; cd many; for n in $(seq 2500); do : > $n; done; head -c 5000000 /dev/urandom > big"
_DELETE = """\
from pathlib import Path
from holdfast.app import Holdfast
with Holdfast.open(Path(sys.argv[1]), home=Path(sys.argv[2])) as holdfast:
    before = holdfast.service.manager.objects.content_bytes()
    holdfast.delete(sys.argv[3])
    assert holdfast.service.manager.objects.content_bytes() == before, "this command has waited"
"""


@pytest.mark.unmeasured
def test_files_and_content_of_a_large_plan_are_freed_after_the_command(workshop: Workshop) -> None:
    plan = workshop.create(run(_LARGE))
    opened = workshop.open()
    opened.execute(plan.plan_id)
    assert run_to_the_end(_DELETE, workshop.app, workshop.home, plan.plan_id) == 2
    with pytest.raises(NotFoundError):
        opened.find_plan(plan.plan_id)
    assert list((workshop.home / "sandboxes").iterdir()) == []
    assert opened.service.manager.objects.content_bytes() < 1_000_000


def test_what_waits_to_be_removed_is_shown_and_the_next_command_removes_it(workshop: Workshop) -> None:
    workshop.create(run("true"))
    sandboxes = workshop.home / "sandboxes"
    (sandboxes / "gone").mkdir()
    (sandboxes / "gone" / "file").write_bytes(bytes(3_000_000))
    assert Trash(sandboxes).take(sandboxes / "gone")
    found = {finding.name: finding for finding in examine(workshop.open())}
    assert found["trash"].level == found["sandboxes"].level == "ok"
    assert "3.0 MB" in found["trash"].detail
    workshop.close()
    assert list(sandboxes.iterdir()) == []
