"""While the kernel tells what changed, a restore looks only at that; it must lead to exactly the same place."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from blake3 import blake3

from holdfast.content.batch import Batch
from holdfast.errors import ContentError, DatabaseError, SandboxError
from holdfast.snapshot.restore import write as writing
from holdfast.snapshot.restore.exchange import exchange
from holdfast.snapshot.sandbox_checkpoint import SandboxCheckpoint
from holdfast.snapshot.scan import adoption, scan, watching
from tests.support.snapshots import Place
from tests.support.trees import compare, describe, set_mtime, write

Change = Callable[[Path], object]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path, watching=True)
    for name in ("one", "two", "deep/below/three"):
        write(place.root / name, f"content of {name}")
    write(place.root / "deep" / "empty", "")
    os.symlink("one", place.root / "link")
    yield place
    place.close()


def overwrite_keeping_size_and_time(path: Path) -> None:
    status = path.stat()
    path.write_bytes(bytes(reversed(path.read_bytes())))
    set_mtime(path, status.st_mtime_ns)


def replace_by(make: Callable[[Path], object]) -> Change:
    def change(root: Path) -> None:
        (root / "two").unlink()
        make(root / "two")

    return change


def come_and_go(root: Path) -> None:
    write(root / "deep" / "below" / "passing", "x").unlink()


def swap(root: Path) -> None:
    (root / "one").rename(root / "deep" / "below" / "one")
    (root / "two").rename(root / "one")


CHANGES: dict[str, Change] = {
    "more": lambda root: (root / "one").write_text("content of one and more"),
    "other content of the same size": lambda root: overwrite_keeping_size_and_time(root / "deep" / "below" / "three"),
    "only touched": lambda root: os.utime(root / "one"),
    "only another mode": lambda root: (root / "one").chmod(0o600),
    "only an attribute": lambda root: os.setxattr(root / "one", "user.test", b"1"),
    "emptied": lambda root: (root / "one").write_bytes(b""),
    "not empty any more": lambda root: (root / "deep" / "empty").write_bytes(b"x"),
    "new": lambda root: write(root / "deep" / "below" / "new", "x"),
    "gone": lambda root: (root / "deep" / "below" / "three").unlink(),
    "came and went": come_and_go,
    "moved": swap,
    "a directory now": replace_by(Path.mkdir),
    "a symlink now": replace_by(lambda path: os.symlink("one", path)),
    "a fifo now": replace_by(os.mkfifo),
    "linked": replace_by(lambda path: os.link(path.with_name("one"), path)),
    "another symlink": lambda root: ((root / "link").unlink(), os.symlink("two", root / "link")),
    "a directory is another": lambda root: (root / "deep").chmod(0o700),
    "a directory is new": lambda root: write(root / "deep" / "new" / "file", "x"),
    "a directory is gone": lambda root: shutil.rmtree(root / "deep" / "below"),
    "a directory was moved": lambda root: (root / "deep" / "below").rename(root / "elsewhere"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_is_undone(place: Place, change: Change):
    before, checkpoint = describe(place.root), place.take()
    change(place.root)
    place.go_back(checkpoint)
    assert compare(before, describe(place.root)) == []
    assert place.found_anew() == checkpoint.state_hash == place.take().state_hash


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_is_undone_on_the_way_to_an_earlier_state(place: Place, change: Change):
    before, checkpoint = describe(place.root), place.take()
    write(place.root / "one", "another state")
    write(place.root / "deep" / "below" / "between", "x")
    (place.root / "deep" / "empty").unlink()
    place.take()
    write(place.root / "deep" / "empty", "")
    change(place.root)
    place.go_back(checkpoint)
    assert compare(before, describe(place.root)) == []
    assert place.take().state_hash == checkpoint.state_hash


def test_who_changed_it_back_himself_finds_nothing_touched(place: Place):
    before, checkpoint = describe(place.root), place.take()
    set_mtime(place.root / "one", 1)
    place.take()
    set_mtime(place.root / "one", before[b"one"].mtime_ns)
    inode = (place.root / "one").stat().st_ino
    place.go_back(checkpoint)
    assert (place.root / "one").stat().st_ino == inode
    assert compare(before, describe(place.root)) == []


def test_what_is_put_back_by_hand_before_going_back_is_known_as_it_is(place: Place):
    root = place.root
    content, mtime_ns = (root / "one").read_bytes(), (root / "one").stat().st_mtime_ns
    checkpoint = place.take()
    write(root / "deep" / "added", "x")
    write(root / "one", "another state")
    place.take()
    (root / "deep" / "added").unlink()
    (root / "one").write_bytes(content)
    set_mtime(root / "one", mtime_ns)
    place.go_back(checkpoint)
    write(root / "later", "x")
    assert place.found_anew() == place.take().state_hash


def test_a_file_replaced_by_an_equal_one_is_known_by_its_new_inode(place: Place):
    root = place.root
    checkpoint = place.take()
    shutil.copy2(root / "one", root / "copy")
    (root / "copy").rename(root / "one")
    place.go_back(checkpoint)
    os.link(root / "one", root / "deep" / "second")
    write(root / "deep" / "second", "through the second name")
    assert place.found_anew() == place.take().state_hash


def test_going_back_stores_nothing(place: Place):
    checkpoint = place.take()
    size = place.manager.objects.content_bytes()
    write(place.root / "one", os.urandom(100_000))
    place.go_back(checkpoint)
    assert place.manager.objects.content_bytes() == size


def lose(place: Place, content: bytes) -> None:
    """As another process would, while this one goes on."""
    program = (
        "import sqlite3, sys\n"
        "with sqlite3.connect(sys.argv[1]) as connection:\n"
        "    found = connection.execute('DELETE FROM object WHERE digest = ?', (bytes.fromhex(sys.argv[2]),))\n"
        "    assert found.rowcount == 1\n"
    )
    command = [sys.executable, "-c", program, str(place.store / "objects.db"), blake3(content).hexdigest()]
    subprocess.run(command, check=True)


def test_what_was_told_before_a_refusal_is_not_forgotten(place: Place):
    checkpoint = place.take()
    write(place.root / "one", "changed")
    write(place.root / "deep" / "below" / "new", "x")
    lose(place, b"content of one")
    changed = describe(place.root)
    with pytest.raises(ContentError):
        place.go_back(checkpoint)
    assert compare(changed, describe(place.root)) == []
    assert_seen(place)


def test_what_was_told_before_a_check_is_not_forgotten(place: Place):
    checkpoint = place.take()
    write(place.root / "one", "changed")
    place.manager.check(place.root, checkpoint.state_hash)
    assert_seen(place)


def assert_seen(place: Place) -> None:
    fresh = Place(place.folder, place.root)
    assert place.take().state_hash == fresh.take().state_hash
    fresh.close()


def test_a_state_that_another_process_collected_is_stored_again(place: Place):
    place.take()
    other = Place(place.folder, place.folder / "other tree")
    other.collect(set)
    other.close()
    before, checkpoint = describe(place.root), place.take()
    (place.root / "one").unlink()
    place.go_back(checkpoint)
    assert compare(before, describe(place.root)) == []


def test_a_change_after_a_long_time_of_quiet_is_seen(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watching, "_CHECKS_BEFORE_SLEEP", 2)
    place.take()
    place.next_process()
    before, checkpoint = describe(place.root), place.take()
    for _ in range(3):
        time.sleep(0.2)
        write(place.root / "one", "changed")
        assert place.take().state_hash != checkpoint.state_hash
        place.go_back(checkpoint)
        assert compare(before, describe(place.root)) == []


# Where files are made


def stagings(place: Place) -> list[Path]:
    return list(place.folder.glob(".staging-*"))


def size_if_there(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_what_was_replaced_goes_and_in_the_end_the_place_where_files_are_made_goes_too(place: Place):
    checkpoint = place.take()
    for number in range(3):
        write(place.root / "one", f"change {number}" * 1000)
        place.go_back(checkpoint)
    (staging,) = stagings(place)
    assert staging.stat().st_mode & 0o777 == 0o700
    deadline = time.monotonic() + 10
    while any(size_if_there(path) for path in staging.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    place.next_process()
    deadline = time.monotonic() + 10
    while staging.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_who_still_has_a_replaced_file_open_does_not_write_into_a_restored_one(place: Place):
    before, checkpoint = describe(place.root), place.take()
    opened = []
    for number in range(5):
        write(place.root / "one", f"change {number}")
        opened.append(open(place.root / "one", "ab", buffering=0))  # noqa: SIM115
        place.go_back(checkpoint)
        time.sleep(0.05)
        for file in opened:
            file.write(b"late")
        assert compare(before, describe(place.root)) == []
    for file in opened:
        file.close()


def test_more_files_than_are_kept_ready_come_back(place: Place):
    for number in range(100):
        write(place.root / f"file {number}", f"{number}")
    before, checkpoint = describe(place.root), place.take()
    for _ in range(2):
        for number in range(100):
            write(place.root / f"file {number}", "changed")
        place.go_back(checkpoint)
        assert compare(before, describe(place.root)) == []


def test_a_place_that_somebody_removed_is_made_anew(place: Place):
    before, checkpoint = describe(place.root), place.take()
    for _ in range(2):
        write(place.root / "one", "changed")
        place.go_back(checkpoint)
        assert compare(before, describe(place.root)) == []
        for staging in stagings(place):
            shutil.rmtree(staging, ignore_errors=True)


def test_a_spare_file_that_somebody_removed_is_not_missed(place: Place):
    before, checkpoint = describe(place.root), place.take()
    for _ in range(3):
        write(place.root / "one", "changed")
        write(place.root / "deep" / "empty", "changed")
        place.go_back(checkpoint)
        assert compare(before, describe(place.root)) == []
        time.sleep(0.05)
        for staging in stagings(place):
            for spare in staging.iterdir():
                spare.unlink(missing_ok=True)


def test_who_writes_and_sets_the_time_back_while_files_are_restored_is_noticed(place: Place):
    """What they did is undone, or told of, or in the next checkpoint; never unknown."""
    file, checkpoint = place.root / "one", place.take()
    mtime_ns = file.stat().st_mtime_ns
    is_over = threading.Event()

    def meddle() -> None:
        while not is_over.is_set():
            with open(file, "r+b", buffering=0) as opened:
                opened.write(os.urandom(1))
                os.utime(opened.fileno(), ns=(mtime_ns, mtime_ns))

    meddler = threading.Thread(target=meddle)
    meddler.start()
    try:
        for number in range(60):
            write(place.root / "deep" / "below" / "three", f"change {number}")
            try:
                place.go_back(checkpoint)
            except SandboxError:
                continue
    finally:
        is_over.set()
        meddler.join()
    assert place.found_anew() == place.take().state_hash
    place.go_back(checkpoint)
    assert file.read_bytes() == b"content of one"


def ready(place: Place) -> SandboxCheckpoint:
    """A checkpoint, something to undo, and files that lie ready for that."""
    checkpoint = place.take()
    write(place.root / "one", "changed")
    place.go_back(checkpoint)
    deadline = time.monotonic() + 10
    while not any(any(staging.iterdir()) for staging in stagings(place)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.05)
    write(place.root / "one", "changed again")
    return checkpoint


def label(file: Path) -> None:
    os.setxattr(file, b"user.label", b"1")


def label_by_another_name(file: Path) -> None:
    outside = file.parents[1] / "outside"
    os.link(file, outside)
    label(outside)


def another(file: Path) -> Path:
    """A file of the same size, outside of the tree."""
    return write(file.parents[1] / "another", "?" * file.stat().st_size)


def exchange_again(file: Path) -> None:
    one = os.fsencode(another(file))
    assert exchange(one, -1, os.fsencode(file), -1)


def replace(file: Path) -> None:
    another(file).rename(file)


def remove(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize(
    "meddle",
    [label, overwrite_keeping_size_and_time, label_by_another_name, exchange_again, replace, remove],
)
def test_who_changes_a_file_as_soon_as_it_is_restored_is_noticed(
    place: Place, monkeypatch: pytest.MonkeyPatch, meddle: Callable[[Path], None]
):
    """That the file came to be there, and that somebody did something to it, is told directly after each other."""
    checkpoint = ready(place)

    def exchange_and_meddle(one: bytes, one_directory: int, other: bytes, other_directory: int) -> bool:
        done = exchange(one, one_directory, other, other_directory)
        meddle(place.root / "one")
        return done

    monkeypatch.setattr(writing, "exchange", exchange_and_meddle)
    with pytest.raises(SandboxError, match="something changed it meanwhile"):
        place.go_back(checkpoint)
    assert place.found_anew() == place.take().state_hash


@pytest.mark.parametrize(
    "meddle",
    [
        lambda folder: folder.chmod(0o711),
        lambda folder: os.setxattr(folder, b"user.label", b"1"),
        lambda folder: set_mtime(folder, 1),
        lambda folder: write(folder / "new", "x"),
    ],
    ids=["mode", "attribute", "time", "new file"],
)
def test_who_changes_a_directory_as_soon_as_it_has_its_time_is_noticed(
    place: Place, monkeypatch: pytest.MonkeyPatch, meddle: Change
):
    """What is told of it is the same that is told of the restore itself."""
    checkpoint = ready(place)
    write(place.root / "deep" / "below" / "three", "changed")
    set_mtime_of = writing.set_mtime

    def set_and_meddle(descriptor: int, mtime_ns: int) -> None:
        set_mtime_of(descriptor, mtime_ns)
        if os.path.samestat(os.fstat(descriptor), os.stat(place.root / "deep" / "below")):
            meddle(place.root / "deep" / "below")

    monkeypatch.setattr(writing, "set_mtime", set_and_meddle)
    with pytest.raises(SandboxError, match="something changed it meanwhile"):
        place.go_back(checkpoint)
    assert place.found_anew() == place.take().state_hash


def link_and_write(one: Path, two: Path) -> None:
    one.unlink()
    os.link(two, one)
    with one.open("a") as opened:
        opened.write("more")


def move_a_link_and_write(one: Path, two: Path) -> None:
    outside = one.parents[1] / "outside"
    os.link(two, outside)
    outside.rename(one)
    with one.open("a") as opened:
        opened.write("more")


@pytest.mark.parametrize("meddle", [link_and_write, move_a_link_and_write])
def test_who_writes_to_another_file_through_a_name_that_is_about_to_be_restored_is_noticed(
    place: Place, monkeypatch: pytest.MonkeyPatch, meddle: Callable[[Path, Path], None]
):
    """That the name was given to another file is told by the same events as that it is restored."""
    checkpoint = ready(place)

    def meddle_and_exchange(one: bytes, one_directory: int, other: bytes, other_directory: int) -> bool:
        meddle(place.root / "one", place.root / "two")
        return exchange(one, one_directory, other, other_directory)

    with monkeypatch.context() as meddling:
        meddling.setattr(writing, "exchange", meddle_and_exchange)
        with pytest.raises(SandboxError, match="something changed it meanwhile"):
            place.go_back(checkpoint)
    assert place.found_anew() == place.take().state_hash
    place.go_back(checkpoint)
    assert (place.root / "two").read_text() == "content of two"


def test_what_is_written_later_through_a_name_that_was_restored_meanwhile_is_seen(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    checkpoint = ready(place)
    opened: list[int] = []

    def link_open_and_exchange(one: bytes, one_directory: int, other: bytes, other_directory: int) -> bool:
        (place.root / "one").unlink()
        os.link(place.root / "two", place.root / "one")
        opened.append(os.open(place.root / "one", os.O_WRONLY | os.O_APPEND))
        return exchange(one, one_directory, other, other_directory)

    with monkeypatch.context() as meddling:
        meddling.setattr(writing, "exchange", link_open_and_exchange)
        place.go_back(checkpoint)
    os.write(opened[0], b"more")
    os.close(opened[0])
    assert place.found_anew() == place.take().state_hash != checkpoint.state_hash


def test_a_restored_file_that_is_changed_again_is_all_that_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also where several trees are watched together, and a file may have a name in each."""
    place, other = Place(tmp_path), tmp_path / "other"
    for name in ("one", "two"):
        write(place.root / name, name)
    write(other / "file", "x")
    with place.manager.watching([place.root, other]):
        checkpoint = ready(place)
        place.go_back(checkpoint)
        monkeypatch.setattr(scan.Scan, "scan_everything", pytest.fail)
        assert place.take().state_hash == checkpoint.state_hash
        write(place.root / "one", "changed once more")
        seen = place.take().state_hash
        monkeypatch.undo()
        assert place.found_anew() == seen != checkpoint.state_hash
    place.close()


def test_what_is_told_of_a_restore_is_not_told_to_the_next_checkpoint(place: Place):
    checkpoint = ready(place)
    place.go_back(checkpoint)
    report = place.manager.trackers.find(place.root).report()
    assert (report.changes, report.is_complete, report.is_written) == ({}, True, False)


def test_attributes_that_a_waiting_file_got_are_not_those_of_the_restored_one(place: Place):
    """Programs that index or scan files leave their marks."""
    checkpoint = ready(place)
    for staging in stagings(place):
        for spare in staging.iterdir():
            label(spare)
    place.go_back(checkpoint)
    assert os.listxattr(place.root / "one") == []
    assert place.found_anew() == place.take().state_hash


def test_what_a_neighbour_with_a_longer_name_needs_is_left_alone(tmp_path: Path):
    """Their folders begin with the same name."""
    theirs, ours = Place(tmp_path, tmp_path / "app-web", watching=True), Place(tmp_path, tmp_path / "app")
    for each in (theirs, ours):
        write(each.root / "one", "x")
        checkpoint = each.take()
        write(each.root / "one", "changed")
        each.go_back(checkpoint)
    assert len(list(tmp_path.glob(".staging-app-web-*"))) == 1
    theirs.close()
    ours.close()


def test_whoever_is_interrupted_while_looking_at_what_was_restored_looks_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    """What was told of the restore is gone then, and what is known is neither what was nor what is."""
    checkpoint = place.take()
    for name in ("one", "two"):
        write(place.root / name, "changed")
    place.take()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(adoption._Adoption, "_found", interrupt)
        with pytest.raises(KeyboardInterrupt):
            place.go_back(checkpoint)
    assert place.found_anew() == place.take().state_hash


def test_what_was_told_is_not_lost_if_the_store_cannot_be_asked(place: Place, monkeypatch: pytest.MonkeyPatch):
    place.take()
    place.take()
    write(place.root / "one", "changed")

    def fail(*_: object) -> None:
        raise DatabaseError("It is busy.", hint="Wait.")

    with monkeypatch.context() as broken:
        broken.setattr(Batch, "has_state", fail)
        with pytest.raises(DatabaseError):
            place.take()
    assert place.found_anew() == place.take().state_hash


def test_a_doubt_is_not_lost_by_a_check(place: Place):
    """A new directory is looked at as a whole, and so is everything else; a check does that and changes nothing."""
    checkpoint = place.take()
    write(place.root / "new" / "file", "x")
    place.manager.check(place.root, checkpoint.state_hash)
    assert place.found_anew() == place.take().state_hash
    place.go_back(checkpoint)
    assert not (place.root / "new").exists()


def test_what_a_check_has_looked_at_is_not_looked_at_again(place: Place, monkeypatch: pytest.MonkeyPatch):
    checkpoint = place.take()
    write(place.root / "new" / "file", "x")
    place.manager.check(place.root, checkpoint.state_hash)
    monkeypatch.setattr(scan.Scan, "scan_everything", pytest.fail)
    write(place.root / "one", "changed")
    assert place.take().state_hash != checkpoint.state_hash
