"""As a user who is not root: their own files may be closed to themselves, and others' files are not theirs to read."""

from __future__ import annotations

import os
import shutil
import stat
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.errors import SandboxError
from tests.support.snapshots import SANDBOX_ID, Place
from tests.support.trees import A_MOMENT_NS, IS_ROOT, compare, describe, set_mtime, write
from tests.support.unprivileged import NOBODY, folder_for_nobody, run_unprivileged

pytestmark = pytest.mark.skipif(not IS_ROOT, reason="only root can look into what is closed to everybody, to compare")


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_for_nobody() as folder:
        (folder / "tree").mkdir()
        yield folder


def give_away(root: Path) -> None:
    for path in [root, *root.rglob("*")]:
        times = path.lstat()
        mode = stat.S_IMODE(times.st_mode)
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        if not path.is_symlink():
            path.chmod(mode)
        set_mtime(path, times.st_mtime_ns)


def opened_up(path: Path) -> Path:
    """The path, with everything on the way to it and itself opened to the owner, as a program would have to."""
    for part in [path, *path.parents][::-1]:
        if part.exists() and part.owner() == path.owner():
            part.chmod(stat.S_IMODE(part.stat().st_mode) | (0o700 if part.is_dir() else 0o600))
    return path


# What each case makes of the tree, as root; what a program of that user then does to it


def closed_file(root: Path) -> None:
    write(root / "closed", "secret", mode=0o000)


def change_closed_file(root: Path) -> None:
    opened_up(root / "closed").write_text("changed")
    (root / "closed").chmod(0o444)


def _closed_directory(root: Path, mode: int) -> None:
    for name in ("changed", "removed", "kept"):
        write(root / "d" / name, name)
    write(root / "d" / "below" / "file", "x")
    set_mtime(root / "d", A_MOMENT_NS)
    (root / "d").chmod(mode)


def directory_0000(root: Path) -> None:
    _closed_directory(root, 0o000)


def directory_0300(root: Path) -> None:
    _closed_directory(root, 0o300)


def directory_0500(root: Path) -> None:
    _closed_directory(root, 0o500)


def directory_0555(root: Path) -> None:
    _closed_directory(root, 0o555)


def change_directory(root: Path) -> None:
    """The directory is as closed afterwards as it was before."""
    mode = stat.S_IMODE((root / "d").stat().st_mode)
    (root / "d").chmod(0o700)
    write(root / "d" / "changed", "new")
    write(root / "d" / "added", "new")
    write(root / "d" / "below" / "added", "new")
    (root / "d" / "removed").unlink()
    (root / "d").chmod(mode)


def open_directory(root: Path) -> None:
    (root / "d").chmod(0o755)
    change_directory(root)


def remove_directory(root: Path) -> None:
    (root / "d").chmod(0o700)
    shutil.rmtree(root / "d")


def plain_root(root: Path) -> None:
    write(root / "d" / "file", "x")
    write(root / "file", "x")
    set_mtime(root, A_MOMENT_NS)


def root_0000(root: Path) -> None:
    plain_root(root)
    root.chmod(0o000)


def root_0300(root: Path) -> None:
    plain_root(root)
    root.chmod(0o300)


def close_root(root: Path) -> None:
    write(root / "file", "changed")
    (root / "d").chmod(0o000)
    root.chmod(0o000)


def change_closed_root(root: Path) -> None:
    mode = stat.S_IMODE(root.stat().st_mode)
    root.chmod(0o700)
    write(root / "d" / "file", "changed")
    write(root / "added", "new")
    root.chmod(mode)


def open_root(root: Path) -> None:
    root.chmod(0o755)
    write(root / "added", "new")


def open_directories(root: Path) -> None:
    for name in ("d", "e/f"):
        write(root / name / "file", "x")
    for name in ("d", "e/f", "e"):
        (root / name).chmod(0o755)


def close_directories(root: Path) -> None:
    for name in ("d", "e/f"):
        write(root / name / "added", "x")
        (root / name / "file").unlink()
    for name in ("d", "e/f", "e"):
        (root / name).chmod(0o000)


def nested_closed_directories(root: Path) -> None:
    write(root / "a" / "b" / "c" / "file", "x", mode=0o000)
    for name in ("a/b/c", "a/b", "a"):
        (root / name).chmod(0o000)


def change_nested(root: Path) -> None:
    for name in ("a", "a/b", "a/b/c", "a/b/c/file"):
        (root / name).chmod(0o700)
    write(root / "a" / "b" / "c" / "file", "changed")
    write(root / "a" / "b" / "added", "x")


def links_across_closed_directories(root: Path) -> None:
    for name in ("d", "e"):
        (root / name).mkdir()
    write(root / "d" / "one", "x")
    os.link(root / "d" / "one", root / "e" / "two")
    for name in ("d", "e"):
        (root / name).chmod(0o000)


def part_links(root: Path) -> None:
    for name in ("d", "e"):
        (root / name).chmod(0o700)
    (root / "e" / "two").unlink()
    write(root / "e" / "two", "x")
    for name in ("d", "e"):
        (root / name).chmod(0o000)


def attributes_of_what_is_read_only(root: Path) -> None:
    for path in (write(root / "file", "x", mode=0o444), root / "d"):
        path.mkdir(exist_ok=True) if path.name == "d" else None
        os.setxattr(path, "user.colour", b"green")
    (root / "d").chmod(0o555)


def change_attributes(root: Path) -> None:
    for path, mode in ((root / "file", 0o444), (root / "d", 0o555)):
        path.chmod(0o700)
        os.setxattr(path, "user.colour", b"red")
        os.setxattr(path, "user.added", b"x")
        path.chmod(mode)


def attributes_of_closed_files(root: Path) -> None:
    for mode in (0o000, 0o200):
        path = write(root / f"{mode:o}", "x")
        os.setxattr(path, "user.colour", b"green")
        path.chmod(mode)


def remove_all(root: Path) -> None:
    for path in root.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def access_lists_beside_attributes(root: Path) -> None:
    """Everybody may read, and user 5 too, and nobody may write."""
    nobody = 0xFFFFFFFF
    rows = ((0x01, 4, nobody), (0x02, 4, 5), (0x04, 4, nobody), (0x10, 4, nobody), (0x20, 4, nobody))
    listed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows)
    (root / "d").mkdir()
    for path in (write(root / "file", "x"), root / "d"):
        os.setxattr(path, "user.colour", b"green")
        os.setxattr(path, "system.posix_acl_access", listed)


def symlink(root: Path) -> None:
    (root / "l").symlink_to("/etc")


def directory_in_place_of_symlink(root: Path) -> None:
    (root / "l").unlink()
    write(root / "l" / "b" / "file", "x")
    (root / "l" / "b").chmod(0o555)


def nested_directories_0300(root: Path) -> None:
    write(root / "d" / "sub" / "file", "1")
    for name in ("d/sub", "d"):
        (root / name).chmod(0o300)


def write_into_nested(root: Path) -> None:
    (root / "d" / "sub" / "file").write_text("2")


def touch_directory(root: Path) -> None:
    [directory] = root.iterdir()
    set_mtime(directory, 5)


CASES = [
    (plain_root, close_root),
    (root_0000, change_closed_root),
    (root_0000, open_root),
    (root_0300, change_closed_root),
    (root_0300, close_root),
    (directory_0000, touch_directory),
    (directory_0300, touch_directory),
    (directory_0500, touch_directory),
    (nested_directories_0300, write_into_nested),
    (attributes_of_closed_files, remove_all),
    (access_lists_beside_attributes, remove_all),
    (symlink, directory_in_place_of_symlink),
    (closed_file, change_closed_file),
    (directory_0000, change_directory),
    (directory_0300, change_directory),
    (directory_0500, change_directory),
    (directory_0555, change_directory),
    (directory_0000, open_directory),
    (directory_0000, remove_directory),
    (directory_0555, remove_directory),
    (open_directories, close_directories),
    (nested_closed_directories, change_nested),
    (links_across_closed_directories, part_links),
    (attributes_of_what_is_read_only, change_attributes),
]


WAYS = ("looking, taking", "looking", "watching, taking", "watching")


def take_change_and_go_back(folder: str, change: str) -> list[str]:
    """The ways in which it does not come back."""
    return [how for how in WAYS if not _comes_back(Place(Path(folder) / how), change, how)]


def _comes_back(place: Place, change: str, how: str) -> bool:
    with place.manager.watching([place.root] if "watching" in how else []):
        checkpoint = place.take()
        globals()[change](place.root)
        if "taking" in how:
            place.take()
        place.go_back(checkpoint)
        same = place.take().state_hash == checkpoint.state_hash
    place.close()
    return same


@pytest.mark.parametrize(("make", "change"), CASES)
def test_s2_what_is_closed_to_its_owner_comes_back(
    folder: Path, make: Callable[[Path], None], change: Callable[[Path], None]
):
    for how in WAYS:
        (folder / how / "tree").mkdir(parents=True)
        make(folder / how / "tree")
        give_away(folder / how)
    before = {how: describe(folder / how / "tree") for how in WAYS}
    assert run_unprivileged(take_change_and_go_back, str(folder), change.__name__) == []
    assert {how: compare(before[how], describe(folder / how / "tree")) for how in WAYS} == {how: [] for how in WAYS}


def open_what_was_closed(folder: str) -> bool:
    place = Place(Path(folder))
    inside = place.root / "closed" / "deep" / "file"
    with place.manager.watching([place.root]):
        checkpoint = place.take()
        (place.root / "closed").chmod(0o700)
        for content in ("changed", "changed again"):
            write(inside, content)
            seen = place.take().state_hash
            fresh = Place(Path(folder), place.root)
            if fresh.take().state_hash != seen:
                return False
            fresh.close()
        place.go_back(checkpoint)
    place.close()
    return True


def test_s2_what_is_done_in_a_directory_that_was_closed_when_the_watch_began_is_seen(folder: Path):
    write(folder / "tree" / "closed" / "deep" / "file", "x")
    (folder / "tree" / "closed").chmod(0o600)
    give_away(folder / "tree")
    before = describe(folder / "tree")
    assert run_unprivileged(open_what_was_closed, str(folder))
    assert compare(before, describe(folder / "tree")) == []


def close_a_directory_of_which_was_told(folder: str) -> bool:
    place = Place(Path(folder), watching=True)
    checkpoint = place.take()
    with (place.root / "d" / "x").open("a"):
        pass  # told of, although nothing is written
    (place.root / "d").chmod(0o300)
    place.go_back(checkpoint)
    same = place.take().state_hash == checkpoint.state_hash
    place.close()
    return same


def test_s2_a_directory_that_was_closed_meanwhile_is_opened_again(folder: Path):
    write(folder / "tree" / "d" / "x", "x")
    (folder / "tree" / "d").chmod(0o700)
    give_away(folder / "tree")
    before = describe(folder / "tree")
    assert run_unprivileged(close_a_directory_of_which_was_told, str(folder))
    assert compare(before, describe(folder / "tree")) == []


def take(folder: str) -> dict[str, str]:
    place = Place(Path(folder))
    held = place.unheld
    place.close()
    return held


def test_s2_taking_a_snapshot_leaves_what_is_closed_as_it_is(folder: Path):
    root = folder / "tree"
    closed_file(root)
    directory_0000(root)
    nested_closed_directories(root)
    give_away(root)
    before = describe(root)
    assert run_unprivileged(take, str(folder)) == {}
    assert compare(before, describe(root)) == []


# Others' files


def make_foreign(root: Path) -> None:
    write(root / "theirs", "not readable", mode=0o600)
    write(root / "their directory" / "inside", "not readable")
    (root / "their directory").chmod(0o700)


def test_s3_what_others_closed_to_this_user_is_listed_as_not_held(folder: Path):
    write(folder / "tree" / "ours", "x")
    give_away(folder / "tree")
    make_foreign(folder / "tree")
    reason = "not readable for this user"
    assert run_unprivileged(take, str(folder)) == {"theirs": reason, "their directory": reason}


def take_before_and_after_it_is_closed(folder: str, watching: str) -> tuple[bool, dict[str, str]]:
    place = Place(Path(folder), watching=bool(watching))
    time.sleep(0.05)  # only time stamps that are old enough are trusted
    before = place.take().state_hash
    closed = place.root / "ours" / "theirs"
    # What somebody else does, who is root: this process can become it again for a moment.
    os.setresuid(0, 0, 0)
    closed.chmod(0o700)
    os.setresuid(NOBODY, NOBODY, 0)
    after = place.take()
    place.next_process(remembering=True)
    same = place.take().state_hash == after.state_hash
    place.close()
    return same and after.state_hash != before, {each.path: each.reason for each in after.unheld}


@pytest.mark.parametrize("watching", ["", "watching"])
def test_s3_what_others_close_to_this_user_later_is_listed_then(folder: Path, watching: str):
    write(folder / "tree" / "ours" / "file", "x")
    give_away(folder / "tree")
    write(folder / "tree" / "ours" / "theirs" / "inside", "x")
    (folder / "tree" / "ours" / "theirs").chmod(0o755)
    os.chown(folder / "tree" / "ours", NOBODY, NOBODY)
    found = run_unprivileged(take_before_and_after_it_is_closed, str(folder), watching)
    assert found == [True, {"ours/theirs": "not readable for this user"}]


def take_before_and_after_it_is_opened(folder: str) -> list[list[str]]:
    place = Place(Path(folder))
    time.sleep(0.05)  # only time stamps that are old enough are trusted
    before = place.take()
    place.next_process(remembering=True)
    os.setresuid(0, 0, 0)
    (place.root / "theirs").chmod(0o644)
    os.setresuid(NOBODY, NOBODY, 0)
    after = place.take()
    place.close()
    return [[each.path for each in taken.unheld] for taken in (before, after)]


def test_s3_what_others_open_to_this_user_later_is_held_then(folder: Path):
    """The directory does not change when a file in it becomes readable."""
    give_away(folder / "tree")
    write(folder / "tree" / "theirs", "readable later", mode=0o600)
    assert run_unprivileged(take_before_and_after_it_is_opened, str(folder)) == [["theirs"], []]


def change_ours_and_go_back(folder: str) -> list[str]:
    place = Place(Path(folder))
    checkpoint = place.take()
    write(place.root / "ours", "changed")
    write(place.root / "added", "x")
    restored = place.go_back(checkpoint)
    place.close()
    return [str(where) for _, where in restored.set_aside]


def test_s3_a_restore_does_not_touch_what_others_closed_to_this_user(folder: Path):
    root = folder / "tree"
    write(root / "ours", "x")
    give_away(root)
    make_foreign(root)
    before = describe(root)
    assert run_unprivileged(change_ours_and_go_back, str(folder)) == []
    assert compare(before, describe(root)) == []


def take_state(folder: str) -> str:
    place = Place(Path(folder))
    state = place.take().state_hash
    place.close()
    return state


def go_back(folder: str, state: str) -> bool:
    place = Place(Path(folder))
    place.go_back(state)
    same = place.take().state_hash == state
    place.close()
    return same


def be_refused_to_go_back(folder: str, state: str) -> tuple[str, bool]:
    """What is said, and whether something was left where things are set aside."""
    place = Place(Path(folder))
    try:
        with pytest.raises(SandboxError) as refusal:
            place.go_back(state)
        return refusal.value.message, place.aside.exists()
    finally:
        place.close()


@pytest.mark.parametrize(("mode", "path"), [(0o700, "new/theirs"), (0o755, "new/theirs/file")])
def test_s3_what_others_have_in_a_folder_that_has_to_go_is_named(folder: Path, mode: int, path: str):
    give_away(folder / "tree")
    state = run_unprivileged(take_state, str(folder))
    (folder / "tree" / "new").mkdir()
    give_away(folder / "tree")
    write(folder / "tree" / "new" / "theirs" / "file", "x")
    (folder / "tree" / "new" / "theirs").chmod(mode)
    message, is_aside = run_unprivileged(be_refused_to_go_back, str(folder), state)
    assert message == f"Restoring {folder / 'tree'} failed: {path}: Permission denied."
    assert not is_aside
    assert (folder / "tree" / "new" / "theirs" / "file").read_text() == "x"


def test_s2_a_file_of_another_user_comes_back_as_ones_own(folder: Path):
    """A container that ran as root left it in the sandbox, and another one removed it again."""
    root = folder / "tree"
    write(root / "ours", "x")
    give_away(root)
    write(root / "theirs", "readable", mode=0o644, mtime_ns=A_MOMENT_NS)
    write(root / "their directory" / "inside", "readable", mode=0o644)
    (root / "their directory").chmod(0o777)
    before = describe(root)
    state = run_unprivileged(take_state, str(folder))
    (root / "theirs").unlink()
    shutil.rmtree(root / "their directory")
    assert run_unprivileged(go_back, str(folder), state)
    assert compare(before, describe(root), ignoring=["owner"]) == []


def go_back_to_the_first(folder: str) -> list[str]:
    place = Place(Path(folder))
    restored = place.go_back(place.manager.list_checkpoints(SANDBOX_ID)[0])
    place.close()
    return [str(where) for _, where in restored.set_aside]


def test_s3_what_could_not_be_read_then_and_can_be_now_is_not_deleted(folder: Path):
    root = folder / "tree"
    write(root / "ours", "x")
    give_away(root)
    make_foreign(root)
    run_unprivileged(take_state, str(folder))
    (root / "theirs").chmod(0o644)
    (root / "their directory").chmod(0o777)
    kept = {
        Path(where).name.rpartition(".")[0]: Path(where)
        for where in run_unprivileged(go_back_to_the_first, str(folder))
    }
    assert kept.keys() == {"theirs", "their directory"}
    assert kept["theirs"].read_text() == "not readable"
    assert (kept["their directory"] / "inside").read_text() == "not readable"
    assert [path.name for path in root.iterdir()] == ["ours"]
