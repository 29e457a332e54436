"""S6: a record comes after the content it names. S7: collecting never removes what a record or a checkpoint needs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.errors import ContentError, NotFoundError
from tests.support.snapshots import PLAN_ID, SANDBOX_ID, Place
from tests.support.trees import compare, describe, make_odd_tree, write

MIB = 1 << 20
PROJECT = Path(__file__).parents[3]


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{PROJECT / 'src'}{os.pathsep}{PROJECT}"}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_s7_a_file_that_holds_what_a_directory_or_a_list_of_pieces_is_stored_as_hides_nothing(place: Place, root: Path):
    write(root / "folder" / "important", "important content")
    write(root / "large", os.urandom(5 * MIB))
    reader = place.manager.reader
    entries = reader.directory(place.manager.reader.state(place.take().state_hash).root)
    for name in (b"folder", b"large"):
        # One is met before what it looks like, one after it.
        for other in (b"a", b"z"):
            write(root / os.fsdecode(other + name), place.manager.objects.read(entries[name].content))
    before, checkpoint = describe(root), place.take()
    place.collect(lambda: {checkpoint.state_hash})
    for name in ("folder/important", "large"):
        (root / name).unlink()
    place.next_process()
    place.go_back(checkpoint)
    assert compare(before, describe(root)) == []


# S6

TAKES_CHECKPOINTS = """
import os, sys
from pathlib import Path
from tests.support.snapshots import Place

place = Place(Path(sys.argv[1]), watching=True)
for number in range(100_000):
    for name in range(5):
        (place.root / f"file {name}").write_bytes(f"{number} {name} ".encode() + os.urandom(20_000))
    print(place.take().checkpoint_id, flush=True)
"""


@pytest.mark.parametrize("acknowledged", [1, 4, 9])
def test_s6_after_a_kill_every_snapshot_that_is_listed_can_be_restored(tmp_path: Path, acknowledged: int):
    with start(TAKES_CHECKPOINTS, str(tmp_path)) as process:
        assert process.stdout is not None
        known = [process.stdout.readline().strip() for _ in range(acknowledged)]
        time.sleep(0.003 * acknowledged)
        process.kill()
        known += [line.strip() for line in process.stdout if line.endswith("\n")]
    place = Place(tmp_path)
    listed = {checkpoint.checkpoint_id: checkpoint for checkpoint in place.manager.list_checkpoints(SANDBOX_ID)}
    assert set(known) <= listed.keys()
    for checkpoint in listed.values():
        place.go_back(checkpoint)
    assert place.manager.objects.damaged() == []
    place.close()


def test_s6_what_was_not_committed_is_not_there(place: Place, root: Path):
    write(root / "file", "x" * 1000)
    with place.manager.storing() as batch:
        state = batch_state(place, batch)
    place.next_process()
    with pytest.raises(ContentError):
        place.manager.reader.state(state)
    assert place.manager.list_checkpoints(SANDBOX_ID) == ()


def test_s6_a_snapshot_that_was_given_up_does_not_hide_content_from_the_next(place: Place, root: Path):
    """The manager has seen the files, but their content never reached the store."""
    make_odd_tree(root)
    before = describe(root)
    with place.manager.storing() as batch:
        batch_state(place, batch)
    checkpoint = place.take()
    write(root / "plain.txt", "changed")
    (root / "private").unlink()
    place.go_back(checkpoint)
    assert compare(before, describe(root)) == []


def batch_state(place: Place, batch: object) -> str:
    from holdfast.model import Phase

    return place.manager.create_checkpoint(
        batch, sandbox_id=SANDBOX_ID, plan_id=PLAN_ID, phase=Phase.EXECUTE, path=place.root, metadata={}
    ).state_hash


# S7


def test_s7_collecting_keeps_everything_referenced(place: Place, root: Path):
    make_odd_tree(root)
    write(root / "large", os.urandom(5 * MIB))
    trees, states = [], []
    for number in range(4):
        write(root / "file", f"version {number}")
        write(root / f"directory {number}" / "inside", os.urandom(100))
        trees.append(describe(root))
        states.append(place.take().state_hash)
    kept = {states[0], states[2]}
    assert place.collect(lambda: kept) > 0
    for number in (1, 3):
        with pytest.raises(ContentError):
            place.manager.reader.state(states[number])
    for number in (0, 2):
        place.go_back(states[number])
        assert compare(trees[number], describe(root)) == []


def test_s7_collecting_forgets_the_snapshots_whose_content_goes(place: Place, root: Path):
    write(root / "file", "old")
    first = place.take()
    write(root / "file", "new")
    second = place.take()
    place.collect(lambda: {second.state_hash})
    assert place.manager.list_checkpoints(SANDBOX_ID) == (second,)
    with pytest.raises(NotFoundError):
        place.manager.get_checkpoint(first.checkpoint_id)


def test_s7_collecting_frees_the_space_on_the_disk(place: Place, root: Path):
    write(root / "kept", "small")
    kept = place.take()
    write(root / "large", os.urandom(20 * MIB))
    place.take()
    database = place.store / "objects.db"
    before = disk_use(place.store)
    assert before > 20 * MIB
    assert place.collect(lambda: {kept.state_hash}) >= 20 * MIB
    assert disk_use(place.store) < before - 15 * MIB
    place.next_process()
    assert database.stat().st_size < MIB
    place.go_back(kept)
    assert (root / "kept").read_text() == "small"


def test_s7_collecting_gives_back_what_was_free_in_the_file_before(place: Place, root: Path):
    write(root / "kept", "small")
    kept = place.take()
    write(root / "large", large := os.urandom(3 * MIB))
    other = place.take()
    place.next_process()
    place.lose(large)
    place.next_process()
    place.collect(lambda: {kept.state_hash, other.state_hash})
    place.next_process()
    assert (place.store / "objects.db").stat().st_size < MIB


def disk_use(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*"))


def test_s7_collecting_when_there_is_nothing_to_free_frees_nothing(place: Place, root: Path):
    make_odd_tree(root)
    state = place.take().state_hash
    assert place.collect(lambda: {state}) == 0


def test_s7_a_manager_that_has_seen_the_content_stores_it_again_after_it_was_collected(place: Place, root: Path):
    make_odd_tree(root)
    before = describe(root)
    gone = place.take()
    place.collect(set)
    again = place.take()
    assert again.state_hash == gone.state_hash
    (root / "private").unlink()
    write(root / "plain.txt", "changed")
    place.go_back(again)
    assert compare(before, describe(root)) == []


def test_s7_content_that_one_process_remembers_and_another_collected_is_stored_again(place: Place, root: Path):
    make_odd_tree(root)
    before = describe(root)
    place.take()
    place.next_process(remembering=True)
    other = Place(place.folder)
    other.collect(set)
    other.close()
    again = place.take()
    (root / "private").unlink()
    place.go_back(again)
    assert compare(before, describe(root)) == []


def test_s7_a_deleted_snapshot_goes_but_its_content_stays_until_it_is_collected(place: Place, root: Path):
    write(root / "file", "old")
    checkpoint = place.take()
    place.manager.delete_checkpoint(checkpoint.checkpoint_id)
    assert place.manager.list_checkpoints(SANDBOX_ID) == ()
    write(root / "file", "new")
    place.go_back(checkpoint)
    assert (root / "file").read_text() == "old"


TAKES_AND_RECORDS = """
import os, sys
from pathlib import Path
from holdfast.model import Phase
from tests.support.snapshots import PLAN_ID, SANDBOX_ID, Place

place = Place(Path(sys.argv[1]), Path(sys.argv[2]), watching=sys.argv[4] == "watching")
records = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
for number in range(70):
    # Content comes back after it was given up: that is when a collection could remove what was thought to be there.
    (place.root / "returning").write_text(f"version {number % 3} " * 500)
    (place.root / f"directory {number % 4}").mkdir(exist_ok=True)
    (place.root / f"directory {number % 4}" / "file").write_text(f"{number % 5}" * 3000)
    with place.manager.storing() as batch:
        checkpoint = place.manager.create_checkpoint(
            batch, sandbox_id=SANDBOX_ID, plan_id=PLAN_ID, phase=Phase.EXECUTE, path=place.root, metadata={}
        )
        batch.commit()
        os.write(records, checkpoint.state_hash.encode() + b"\\n")
    if number % 10 == 9:
        place.next_process(remembering=True)
"""


def test_s7_collecting_beside_processes_that_take_checkpoints_loses_nothing(tmp_path: Path):
    """Only the last two records of each process count at any time; everything older is collected."""
    place = Place(tmp_path)
    files = [tmp_path / f"records {number}" for number in range(2)]
    for file in files:
        file.touch()

    def referenced() -> set[str]:
        return {state for file in files for state in file.read_text().split()[-2:]}

    freed = collections = 0
    with (
        start(TAKES_AND_RECORDS, str(tmp_path), str(tmp_path / "tree 0"), str(files[0]), "looking") as one,
        start(TAKES_AND_RECORDS, str(tmp_path), str(tmp_path / "tree 1"), str(files[1]), "watching") as other,
    ):
        while one.poll() is None or other.poll() is None:
            freed += place.collect(referenced)
            collections += 1
            for state in referenced():
                place.manager.reader.state(state)
    assert (one.returncode, other.returncode) == (0, 0)
    assert freed > 0
    assert collections > 10
    place.collect(referenced)
    for state in referenced():
        place.go_back(state)
    assert place.manager.objects.damaged() == []
    place.close()
