"""What a call changed is undone exactly; the folder is compared whole, by code that is not ours."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.repositories import git
from tests.support.sessions import Agent, Place
from tests.support.trees import A_MOMENT_NS, compare, set_mtime, write


def _content(root: Path) -> None:
    (root / "a.txt").write_text("otherwise\n")


def _mode(root: Path) -> None:
    (root / "a.txt").chmod(0o700)


def _mode_of_folder(root: Path) -> None:
    (root / "folder").chmod(0o700)


def _time(root: Path) -> None:
    set_mtime(root / "a.txt", A_MOMENT_NS)


def _removed_folder(root: Path) -> None:
    shutil.rmtree(root / "folder")


def _empty_folder_made(root: Path) -> None:
    (root / "new" / "empty").mkdir(parents=True)


def _empty_folder_removed(root: Path) -> None:
    (root / "empty").rmdir()


def _symlink_turned(root: Path) -> None:
    (root / "link").unlink()
    (root / "link").symlink_to("b.txt")


def _symlink_to_file(root: Path) -> None:
    (root / "link").unlink()
    (root / "link").write_text("no link any more\n")


def _file_to_folder(root: Path) -> None:
    (root / "a.txt").unlink()
    write(root / "a.txt" / "inside", "inside\n")


def _folder_to_file(root: Path) -> None:
    shutil.rmtree(root / "folder")
    (root / "folder").write_text("a file\n")


def _hard_link_broken(root: Path) -> None:
    (root / "second name").unlink()
    (root / "second name").write_text("one file\n")


def _hard_linked_file_removed(root: Path) -> None:
    (root / "second name").unlink()


def _hard_linked_file_changed(root: Path) -> None:
    (root / "second name").write_text("another text\n")


def _hard_link_made(root: Path) -> None:
    os.link(root / "a.txt", root / "also a")


def _only_the_link_broken(root: Path) -> None:
    shutil.copy2(root / "first name", root / "a copy")
    os.replace(root / "a copy", root / "second name")


def _only_linked(root: Path) -> None:
    (root / "second of twins").unlink()
    os.link(root / "twin", root / "second of twins")


def _attributes(root: Path) -> None:
    os.setxattr(root / "a.txt", "user.colour", b"red")
    os.removexattr(root / "b.txt", "user.colour")


def _ignored(root: Path) -> None:
    (root / "x.log").unlink()
    write(root / "build" / "made.log", "made\n")


def _renamed(root: Path) -> None:
    (root / "folder").rename(root / "moved")


def _odd_names(root: Path) -> None:
    for name in (b"with space", b"two\nlines", b"not utf-8 \xff", b"-n", b"*"):
        with open(os.fsencode(root) + b"/" + name, "ab") as file:
            file.write(b"more")


def _commit(root: Path) -> None:
    (root / "a.txt").write_text("committed\n")
    git(root, "commit", "-qam", "by the agent")


def _branch(root: Path) -> None:
    git(root, "checkout", "-q", "-b", "other")
    (root / "b.txt").unlink()
    git(root, "commit", "-qam", "on another branch")


def _staged(root: Path) -> None:
    (root / "new.txt").write_text("new\n")
    git(root, "add", "new.txt")
    git(root, "rm", "-q", "--cached", "b.txt")


def _hard_reset(root: Path) -> None:
    git(root, "reset", "-q", "--hard", "HEAD~1")


def _detached(root: Path) -> None:
    git(root, "checkout", "-q", "--detach", "HEAD~1")


def _collected(root: Path) -> None:
    git(root, "gc", "-q", "--prune=now")


def _configured(root: Path) -> None:
    git(root, "config", "core.hooksPath", "/elsewhere")
    git(root, "tag", "v1")
    git(root, "remote", "add", "origin", "/nowhere")


WORK = [value for name, value in sorted(globals().items()) if name.startswith("_") and callable(value)]


@pytest.fixture
def rich(place: Place) -> Agent:
    root = place.root
    root.mkdir()
    write(root / ".gitignore", "*.log\nbuild/\n")
    write(root / "x.log", "log\n")
    write(root / "folder" / "deep" / "d.txt", "d\n")
    (root / "empty").mkdir()
    (root / "link").symlink_to("a.txt")
    for name in (b"two\nlines", b"not utf-8 \xff"):
        with open(os.fsencode(root) + b"/" + name, "wb") as file:
            file.write(b"odd")
    place.make()
    write(root / "first name", "one file\n")
    os.link(root / "first name", root / "second name")
    write(root / "twin", "twin\n", mtime_ns=A_MOMENT_NS)
    write(root / "second of twins", "twin\n", mtime_ns=A_MOMENT_NS)
    os.setxattr(root / "b.txt", "user.colour", b"green")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "second")
    (root / "staged.txt").write_text("staged\n")
    git(root, "add", "staged.txt")
    for path in (root / "a.txt", root / "folder", root / "empty", root):
        set_mtime(path, A_MOMENT_NS - 10**9)
    return place.agent()


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__.strip("_"))
def test_a_call_is_undone_and_redone_exactly(rich: Agent, place: Place, work: Callable[[Path], None]) -> None:
    before, objects = place.tree(), _objects(place.root)
    rich.does("something", lambda: work(place.root))
    after, made = place.tree(), _objects(place.root)
    assert compare(before, after) != []

    rich.in_place.undo()
    assert place.differs_from(before) == []
    assert _objects(place.root) >= objects | made
    rich.in_place.redo()
    assert place.differs_from(after) == []
    assert _objects(place.root) >= objects | made
    git(place.root, "fsck", "--strict")


def _objects(root: Path) -> set[str]:
    folder = root / ".git" / "objects"
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
