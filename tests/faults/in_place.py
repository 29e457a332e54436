"""An agent that worked in the person's own folder: what it did, and how the folder is before and after it is undone."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.app import Holdfast
from tests.faults.judging import without_its_own_affairs
from tests.faults.world import LONG_AGO_NS, SET_BY_STEPS_NS, World
from tests.support.repositories import git
from tests.support.sessions import Agent
from tests.support.trees import Tree, compare, describe, set_mtime, write

DONE, UNDONE = "done in place", "undone in place"
CLEARS_UP = ("checkpoint", "create")
_AS_GIT_LIKES = (b".git/index", b".git/objects", b".git/logs")


def make_session(world: World) -> str:
    """The id of its plan."""
    for path in (world.app, world.app / ".git"):
        set_mtime(path, LONG_AGO_NS)
    with Holdfast.open(world.app, home=world.home, environment=world.environment) as holdfast:
        agent = Agent(holdfast.in_place)
        agent.prompt("tidy up")
        with agent.call("edit and remove"):
            (world.app / "a file.txt").write_text("a\nb\n")
            (world.app / "gone.txt").unlink()
            (world.app / "tool.sh").chmod(0o755)
            (world.app / "cache.bin").write_bytes(b"built")
            _touch(world.app, "a file.txt", "cache.bin", ".")
        with agent.call("make"):
            write(world.app / "made" / "deep" / "x y", "x\n")
            os.symlink("../a file.txt", world.app / "made" / "link")
            os.link(world.app / "made" / "deep" / "x y", world.app / "second name")
            _touch(world.app, "made/deep/x y", "made/deep", "made/link", "made", ".")
        with agent.call("commit"):
            at = {"GIT_AUTHOR_DATE": "@1600000000 +0000", "GIT_COMMITTER_DATE": "@1600000000 +0000"}
            git(
                world.app, "commit", "-qm", "by an agent", "a file.txt", "gone.txt",
                environment={**world.environment, **at},
            )  # fmt: skip
            _touch(world.app, ".git")
        write(world.app / "by me.txt", "mine\n", mtime_ns=SET_BY_STEPS_NS)
        _touch(world.app, ".")
        return agent.plan_id


def _touch(folder: Path, *names: str) -> None:
    for name in names:
        set_mtime(folder / name, SET_BY_STEPS_NS)


def undone_calls(world: World) -> list[bool]:
    """For each call, whether it is undone."""
    with Holdfast.open(world.app, home=world.home, environment=world.environment) as holdfast:
        return [call.is_undone for call in holdfast.in_place.calls()]


def is_undone(world: World) -> bool:
    return all(undone_calls(world))


def mixture(world: World) -> list[str]:
    """How the folder differs from what the records say that it is."""
    stage = UNDONE if is_undone(world) else DONE
    return compare(files_of(world.kept / stage / "real"), files_of(world.real))[:5]


def files_of(real: Path) -> Tree:
    """What counts of the person's files; of git what it means is judged elsewhere."""
    return without_its_own_affairs(describe(real, without=[b"app/" + each for each in _AS_GIT_LIKES]))
