"""What the kernel tells of changes is only a short cut: when it tells too little, every file is looked at."""

from __future__ import annotations

import mmap
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from holdfast.errors import SandboxError
from holdfast.snapshot.scan import name_history, scan
from holdfast.snapshot.scan.watching import ChangeTracker
from holdfast.system.paths import write_file
from tests.support.snapshots import Place
from tests.support.trees import compare, describe, write

EXCHANGE = f"{sys.executable} -c 'import ctypes, sys; a, b = map(str.encode, sys.argv[1:]);"
EXCHANGE += " sys.exit(ctypes.CDLL(None).renameat2(-100, a, -100, b, 2))'"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Its content goes with the test; the watching ends with each test's own ``with``."""
    return Place(tmp_path)


def assert_seen(place: Place, *changes: Callable[[], object]) -> None:
    """Every change is in the next snapshot: one that looks at every file, without what is known, finds the same."""
    with place.manager.watching([place.root]):
        place.take()
        for change in changes:
            change()
            seen = place.take().state_hash
            assert place.found_anew() == seen


def test_what_is_done_in_new_directories_is_seen(place: Place):
    root = place.root
    assert_seen(
        place,
        lambda: subprocess.run(["sh", "-c", "mkdir -p a/b/c/d && echo x > a/b/c/d/e"], cwd=root, check=True),
        lambda: write(root / "a" / "b" / "c" / "d" / "e", "changed"),
        lambda: subprocess.run(["sh", "-c", "mv a/b/c . && echo y > c/d/f && mkdir a/b/c"], cwd=root, check=True),
        lambda: write(root / "c" / "d" / "g", "x"),
        lambda: write(root / "a" / "b" / "c" / "g", "x"),
    )


def test_directories_that_change_places_are_seen(place: Place):
    root = place.root
    for name in ("one", "two"):
        write(root / name / "deep" / "file", name)
    swap = "mv one tmp; mv two one; mv tmp two; echo more >> one/deep/file"
    assert_seen(
        place,
        lambda: subprocess.run(["sh", "-c", swap], cwd=root, check=True),
        lambda: write(root / "two" / "deep" / "file", "after"),
        lambda: write(root / "one" / "deep" / "another", "after"),
    )


def sh(place: Place, script: str) -> Callable[[], object]:
    return lambda: subprocess.run(["sh", "-c", script], cwd=place.root, check=True)


@pytest.mark.parametrize(
    ("move", "file"),
    [
        ("mkdir new; mv lib new/", "new/lib/deep/f"),
        ("mkdir -p new/er; mv lib new/er/v1", "new/er/v1/deep/f"),
        ("mv x/d .; mv lib d", "d/lib/deep/f"),
        ("mv lib a; mkdir lib; mv a lib/b; mv lib/b c; rmdir lib; mkdir lib; mv c lib/", "lib/c/deep/f"),
        (f"{EXCHANGE} lib x", "x/deep/f"),
    ],
)
def test_a_directory_that_was_moved_into_a_new_one_or_exchanged_is_watched_where_it_is(
    place: Place, move: str, file: str
):
    root = place.root
    write(root / "lib" / "deep" / "f", "one")
    write(root / "x" / "d" / "g", "x")
    others = [sh(place, f"echo {number} > {file}") for number in range(3)]
    assert_seen(place, sh(place, move), *others, sh(place, f"echo more > {os.path.dirname(file)}/h"))


@pytest.mark.parametrize(
    "script",
    [
        "ln f t; echo x >> t; rm t",
        "ln f t; chmod 600 t; rm t",
        "ln f t; echo x >> t; mv t u; rm u",
        "ln f t; echo x >> t; echo o > other; mv other t",
        "mkdir n; ln f n/t; echo x >> n/t; rm -r n",
        "ln f d/t; echo x >> d/t; mv d ../gone",
        "cp -al d copy; echo x >> copy/g",
        "mkdir n; ln f n/l",
        "ln f l; echo x >> l",
        f"ln f t; {EXCHANGE} t d/g; echo x >> d/g; rm d/g",
        f"ln f t; {EXCHANGE} t d/g; echo x >> d/g; mv d/1 d/g",
        "echo x >> d/second; rm d/second; echo other > d/second",
        "echo x >> d/second; chmod 600 d/second; mv d/1 d/second",
        "echo x >> d/second; rm d/second; ln -s g d/second",
    ],
)
def test_what_is_done_through_a_second_name_is_seen(place: Place, script: str):
    root = place.root
    write(root / "f", "one")
    for number in range(20):
        write(root / "d" / str(number), "many")
    write(root / "d" / "g", "two")
    write(root / "first", "one")
    os.link(root / "first", root / "d" / "second")
    assert_seen(place, sh(place, "echo x > before"), sh(place, script), sh(place, "echo x > after"))


@pytest.mark.parametrize(
    "script",
    [
        "ln f OTHER/t; echo x >> OTHER/t; rm OTHER/t",
        "ln f OTHER/t; echo x >> OTHER/t",
        "ln f t; mv t OTHER/t; echo x >> OTHER/t",
    ],
)
def test_what_is_done_through_a_second_name_in_another_tree_is_seen(place: Place, script: str):
    other = place.folder / "other"
    write(place.root / "f", "one")
    write(other / "g", "other")
    with place.manager.watching([place.root, other]):
        place.take()
        place.manager.state_of(other, thorough=False)
        subprocess.run(["sh", "-c", script.replace("OTHER", str(other))], cwd=place.root, check=True)
        assert place.take().state_hash != place.manager.state_of(other)
        assert place.found_anew() == place.take().state_hash


def test_what_is_done_through_a_descriptor_whose_name_is_gone_is_seen(place: Place):
    root = place.root
    write(root / "a", "one")
    os.link(root / "a", root / "b")
    with (root / "b").open("a") as opened:

        def go_on_writing() -> None:
            opened.write("more")
            opened.flush()

        assert_seen(place, (root / "b").unlink, go_on_writing, go_on_writing)


@pytest.mark.parametrize("remembered", [10_000, 0], ids=["few gone", "many gone"])
def test_what_is_done_through_a_descriptor_whose_name_went_long_ago_is_seen(
    place: Place, monkeypatch: pytest.MonkeyPatch, remembered: int
):
    monkeypatch.setattr(name_history, "_MOST_NAMES", remembered)
    root = place.root
    for name in ("a", "c"):
        write(root / name, name)
        os.link(root / name, root / f"other {name}")
    with (root / "a").open("a", buffering=1) as before, (root / "c").open("a", buffering=1) as after:
        (root / "a").unlink()
        assert_seen(
            place,
            lambda: before.write("before it was watched\n"),
            (root / "c").unlink,
            lambda: write(root / "something else", "x"),
            lambda: after.write("two checkpoints later\n"),
            lambda: before.write("once more\n"),
        )


def test_what_is_done_through_a_descriptor_that_never_had_a_name_is_seen(place: Place):
    root = place.root
    write(root / "other", "x")
    directory = os.open(root, os.O_RDONLY)
    unnamed = os.open(root, os.O_TMPFILE | os.O_WRONLY)
    try:
        assert_seen(
            place,
            lambda: os.link(f"/proc/self/fd/{unnamed}", "named", dst_dir_fd=directory),
            lambda: os.write(unnamed, b"written later"),
        )
    finally:
        os.close(unnamed)
        os.close(directory)


@pytest.mark.parametrize("way", ["thorough", "in doubt"])
def test_what_is_written_through_a_mapping_is_seen_when_it_ends(place: Place, way: str):
    """A write into a page that is dirty already moves no time stamp; that the mapping ends is told."""
    file = place.root / "mapped"
    with place.manager.watching([place.root]):
        place.take()
        write(file, "......")
        with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 6) as mapping:
            mapping[:] = b"first."
            time.sleep(0.05)  # so that the time stamps are not too young to be trusted
            place.take()
            mapping[:] = b"final."
        if way == "in doubt":
            (place.root / "new").mkdir()
        seen = place.manager.state_of(place.root, thorough=way == "thorough")
        assert place.found_anew() == seen


def test_ordinary_work_is_not_looked_at_as_a_whole(place: Place):
    """Files written, replaced by a rename, removed: no file of them can have had a second name unnoticed."""
    tracker = ChangeTracker(place.root)
    for name in ("a", "b", "c"):
        write(place.root / name, name)
    assert tracker.start()
    try:
        tracker.report()
        subprocess.run(["sh", "-c", "echo x > a; rm b; echo x > new; mv new c"], cwd=place.root, check=True)
        report = tracker.report()
        assert (report.changes, report.is_complete) == ({b"": {b"a", b"b", b"c", b"new"}}, True)
        assert (report.removed, report.lost) == ({b"": {b"b", b"new"}}, {b"": {b"b", b"c"}})
    finally:
        tracker.stop()


@pytest.mark.parametrize("way", ["checkpoint", "rollback"])
def test_a_file_replaced_by_a_rename_is_all_that_is_looked_at(place: Place, monkeypatch: pytest.MonkeyPatch, way: str):
    """As most editors do it: the name under which the new file was written is gone, and nobody knew it."""
    file = write(place.root / "file", "x")
    with place.manager.watching([place.root]):
        place.take()
        before = place.take()
        monkeypatch.setattr(scan.Scan, "scan_everything", pytest.fail)
        write(place.root / "new", "changed").rename(file)
        if way == "checkpoint":
            assert place.take().state_hash != before.state_hash
        else:
            place.go_back(before)
            assert file.read_text() == "x"


@pytest.mark.parametrize("way", ["rename", "unlink"])
def test_what_is_written_to_a_file_that_lost_the_name_under_which_it_was_opened_is_seen(place: Place, way: str):
    """As with logs that are rotated by a second name. It is told of the name, which another file has by now."""
    file = write(place.root / "log", "first")
    os.link(file, place.root / "log.1")
    with file.open("r+b", buffering=0) as opened, place.manager.watching([place.root]):
        place.take()
        if way == "unlink":
            file.unlink()
            write(file, "new")
        else:
            write(place.root / "new", "new").rename(file)
        place.take()
        place.take()
        opened.write(b"FIRST")
        seen = place.take()
        fresh = Place(place.folder, place.root)
        assert fresh.take().state_hash == seen.state_hash
        opened.write(b"SECOND")
        place.go_back(seen)
        assert fresh.take().state_hash == seen.state_hash
        fresh.close()


def remove_and_make_anew(root: Path) -> None:
    shutil.rmtree(root)
    write(root / "new", "new")


def move_away_and_copy_back(root: Path) -> None:
    root.rename(root.with_name("moved"))
    shutil.copytree(root.with_name("moved"), root)
    write(root / "file", "changed in the copy")


def change_places(root: Path) -> None:
    write(root.with_name("another") / "new", "new")
    subprocess.run(f"{EXCHANGE} {root} {root.with_name('another')}", shell=True, check=True)


def replace_what_it_lies_in(root: Path) -> None:
    folder = root.parent
    folder.rename(folder.with_name("moved"))
    shutil.copytree(folder.with_name("moved") / root.name, root)
    write(root / "file", "changed in the copy")


@pytest.mark.parametrize(
    "replace", [remove_and_make_anew, move_away_and_copy_back, change_places, replace_what_it_lies_in]
)
def test_another_directory_in_the_place_of_the_tree_is_seen(tmp_path: Path, replace: Callable[[Path], None]):
    root = tmp_path / "folder" / "tree"
    write(root / "file", "x")
    write(root / "deep" / "file", "x")
    place = Place(tmp_path, root)
    with place.manager.watching([root]):
        before, checkpoint = describe(root), place.take()
        place.take()
        replace(root)
        for change in (lambda: None, lambda: write(root / "file", "changed"), lambda: write(root / "later", "later")):
            change()
            seen = place.take()
            assert place.found_anew() == seen.state_hash
        place.go_back(checkpoint)
        assert compare(before, describe(root)) == []
    place.close()


def test_directories_from_outside_and_to_outside_are_seen(place: Place):
    root, outside = place.root, place.folder / "outside"
    write(outside / "deep" / "file", "x")
    assert_seen(
        place,
        lambda: outside.rename(root / "inside"),
        lambda: write(root / "inside" / "deep" / "file", "changed"),
        lambda: (root / "inside").rename(outside),
        lambda: write(outside / "deep" / "file", "not ours any more"),
        lambda: write(root / "inside", "a file now"),
    )


def test_a_directory_removed_and_made_again_is_seen(place: Place):
    root = place.root
    write(root / "d" / "e" / "file", "x")

    def again() -> None:
        shutil.rmtree(root / "d")
        write(root / "d" / "e" / "other", "y")

    assert_seen(place, again, again, lambda: write(root / "d" / "e" / "other", "z"))


@pytest.mark.unmeasured
def test_more_changes_than_the_kernel_remembers_are_seen(place: Place):
    """20,000 files in a moment: the kernel's queue overflows, unless it is read all the while."""
    burst = "import os\nfor n in range(20000): os.close(os.open(f'd{n % 50}/{n}', os.O_CREAT | os.O_WRONLY))"
    for number in range(50):
        (place.root / f"d{number}").mkdir()

    def change() -> None:
        subprocess.run(["python3", "-c", burst], cwd=place.root, check=True)
        write(place.root / "d1" / "1", "changed")

    assert_seen(place, change)


def test_a_restore_is_exact_when_something_changed_that_nobody_was_told_of(place: Place):
    """A write through a name outside the tree is not reported, but a restore leads to the saved state or says no."""
    root = place.root
    write(root / "file", "old")
    os.link(root / "file", place.folder / "outside")
    with place.manager.watching([root]):
        before, checkpoint = describe(root), place.take()
        (place.folder / "outside").write_text("written from outside")
        write(root / "other", "x")
        place.take()
        place.go_back(checkpoint)
    assert compare(before, describe(root)) == []


@pytest.mark.parametrize("target", ["moved", "elsewhere"])
def test_a_symlink_in_the_place_of_the_tree_is_not_what_was_watched(place: Place, target: str):
    write(place.root / "file", "ours")
    write(place.folder / "elsewhere" / "file", "theirs")
    with place.manager.watching([place.root]):
        before = place.take()
        place.root.rename(place.folder / "moved")
        place.root.symlink_to(target)
        for action in (place.take, lambda: place.go_back(before)):
            with pytest.raises(SandboxError, match="is a symlink now"):
                action()
    assert (place.folder / "elsewhere" / "file").read_text() == "theirs"


# Directories


@pytest.mark.parametrize(
    "script",
    [
        "mv d e",
        "mv d x/e; echo more > x/e/deep/f",
        "rm -r d",
        "echo more >> d/deep/f; rm -r d",
        "rm -r d/deep; echo more > d/g",
        "rmdir empty; mv d empty",
        f"{EXCHANGE} d x",
    ],
)
def test_a_directory_that_is_moved_or_removed_is_all_that_is_looked_at(
    place: Place, monkeypatch: pytest.MonkeyPatch, script: str
):
    """It was watched all the time, so no file elsewhere can have changed through a name in it."""
    for path in ("d/deep/f", "d/g", "x/h", "other"):
        write(place.root / path, path)
    (place.root / "empty").mkdir()
    with place.manager.watching([place.root]):
        place.take()
        with monkeypatch.context() as patched:
            patched.setattr(scan.Scan, "scan_everything", pytest.fail)
            sh(place, script)()
            moved = place.take().state_hash
            write(place.root / "later", "later")
            later = place.take().state_hash
        assert place.found_anew() == later != moved


def test_a_directory_that_our_own_process_made_is_all_that_is_looked_at(place: Place, monkeypatch: pytest.MonkeyPatch):
    write(place.root / "other", "other")
    with place.manager.watching([place.root]):
        before = place.take().state_hash
        with monkeypatch.context() as patched:
            patched.setattr(scan.Scan, "scan_everything", pytest.fail)
            make_and_write(place, "new/deep/file")
            seen = place.take().state_hash
        assert place.found_anew() == seen != before


def make_and_write(place: Place, path: str) -> None:
    write_file(place.root, path, b"x", on_directory=partial(place.manager.trackers.watch_new, place.root))


@pytest.mark.parametrize(
    "script",
    [
        "rm -r new; mkdir new; ln other new/t; echo x >> new/t; rm new/t",
        "rm -r new; mkdir new; ln other new/t; echo x >> new/t; rm -r new",
        "ln other new/t; echo x >> new/t; rm new/t",
        "mkdir new/er; ln other new/er/t; echo x >> new/er/t; rm -r new/er",
        "mv new moved; mkdir new; ln other new/t; echo x >> new/t; rm -r new",
        "mv new ../gone; ln other ../gone/t; echo x >> ../gone/t; rm ../gone/t; mv ../gone new",
        "mkdir n; mv n new/n; ln other new/n/t; echo x >> new/n/t; rm -r new/n",
    ],
)
def test_what_is_done_in_a_directory_after_our_own_process_made_it_is_seen(place: Place, script: str):
    write(place.root / "other", "other")
    assert_seen(place, lambda: make_and_write(place, "new/file"), sh(place, script))
    shutil.rmtree(place.root)
    write(place.root / "other", "other")
    assert_seen(place, lambda: (make_and_write(place, "new/file"), sh(place, script)()))


def test_what_is_written_to_a_file_that_lost_its_name_in_a_directory_that_was_moved_then_is_seen(place: Place):
    file = write(place.root / "d" / "name", "good")
    os.link(file, place.root / "held")
    with file.open("r+b", buffering=0) as opened:

        def go_on_writing() -> None:
            opened.write(b"more")

        def lose_the_name() -> None:
            file.unlink()
            write(file, "another")

        def move_and_write() -> None:
            (place.root / "e").rename(place.root / "f")
            opened.write(b"more")

        def move() -> None:
            (place.root / "d").rename(place.root / "e")

        assert_seen(place, lose_the_name, move, go_on_writing, move_and_write, go_on_writing)


def test_events_are_read_however_many_files_are_open(place: Place):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 3_000)), hard))
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(1_100)]
    tracker = ChangeTracker(place.root)
    try:
        assert tracker.start()
        write(place.root / "file", "changed")
        time.sleep(0.1)
        assert "holdfast-changes" in [thread.name for thread in threading.enumerate()]
        assert tracker.report().changes == {b"": {b"file"}}
    finally:
        tracker.stop()
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
