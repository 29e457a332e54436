"""A look at a tree that is given up half way, because the tree moved, leaves nothing behind that hides a file later."""

from __future__ import annotations

import subprocess
from pathlib import Path

from holdfast.content.store import ObjectStore
from holdfast.model import Phase
from holdfast.snapshot.manager import CheckpointManager
from holdfast.system.ids import new_id

BEGIN = """git init --quiet . && git config user.email a@b && git config user.name a
mkdir src && echo 1 > version.txt && echo a > src/app.py && git add . && git commit --quiet --message first
echo u > untracked.txt"""
MORE = "echo product > made.log; mkdir hollow; ln version.txt same-version"
WRECK = """git stash --quiet --include-untracked; git branch extra; echo 9 > version.txt
git commit --quiet --all --message wrecked; rm -rf src hollow made.log"""


def test_files_that_a_given_up_look_had_not_read_are_found_by_the_next(tmp_path: Path) -> None:
    box = tmp_path / "box"
    box.mkdir()
    (tmp_path / "fresh").mkdir()
    manager = CheckpointManager(ObjectStore(tmp_path / "objects.db"), tmp_path)

    def taken() -> str:
        with manager.storing() as batch:
            found = manager.create_checkpoint(
                batch, sandbox_id="x", plan_id=new_id(), phase=Phase.EXECUTE, path=box, metadata={}
            )
            batch.commit()
        return found.state_hash

    def by_somebody_who_knows_nothing() -> str:
        return CheckpointManager(ObjectStore(tmp_path / "objects.db"), tmp_path / "fresh").state_of(box)

    with manager.watching([box]):
        for script in (BEGIN, MORE, WRECK, MORE):
            subprocess.run(["sh", "-ec", script], cwd=box, check=True)
            assert taken() == by_somebody_who_knows_nothing()
