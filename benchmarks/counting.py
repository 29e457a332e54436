"""Counts what a piece of work does, in a process of its own: ``python -m benchmarks.counting WORK FOLDER``.

Counts are the same on every machine, whatever else it does; times are not. The system calls are those that Python
makes by name, in the form that needs no compiler, so that a compiled module makes no difference either.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any

sys.modules["holdfast.system._calls"] = None  # type: ignore[assignment]

import holdfast  # noqa: E402 - after the line that keeps the compiled module out

COUNTED = ("system_calls", "statements", "calls", "modules", "stored_bytes")
FILES, CHANGED = 400, 10
_OWN = os.fspath(Path(holdfast.__file__).parent)
_IMPORTING = "<frozen importlib"
"""How often it looks for a file depends on where packages lie."""
_NOT_OF_THE_KERNEL = ("fspath", "fsencode", "fsdecode", "strerror", "WIFEXITED", "_path_normpath")
_PLAN = """\
name: counted
resources:
  work: {type: directory, path: work}
steps:
  - {name: one, tool: write_file, args: {path: one.txt, content: one}}
  - {name: two, tool: write_file, args: {path: two.txt, content: two}}
  - {name: three, tool: delete_file, args: {path: one.txt}}
"""


class Counting:
    """While it lasts, every call that this thread makes is looked at."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))

    def __enter__(self) -> Counting:
        self._modules = set(sys.modules)
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        imported = (name.partition(".")[0] for name in sys.modules.keys() - self._modules)
        self.counts["modules"] = sum(name not in sys.stdlib_module_names for name in imported)

    def _look(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_OWN):
            self.counts["calls"] += 1
        elif event == "c_call" and not frame.f_code.co_filename.startswith(_IMPORTING):
            self.counts[_kind(arg)] += 1


def _kind(function: Any) -> str:
    if function.__module__ == "posix" and function.__name__ not in _NOT_OF_THE_KERNEL:
        return "system_calls"
    owner = type(getattr(function, "__self__", None)).__module__
    if owner in ("sqlite3", "pysqlite3.dbapi2", "pysqlite3._sqlite3") and function.__name__.startswith("execute"):
        return "statements"
    return "other"


def make_work(folder: Path) -> Path:
    """A tree that is the same in every run, with its times."""
    from benchmarks.trees import make_tree

    tree = folder / "project" / "work"
    make_tree(tree, FILES)
    for place, folders, files in os.walk(tree, topdown=False):
        for name in (*folders, *files):
            os.utime(Path(place, name), ns=(10**18, 10**18))
    return tree


def change_ten(tree: Path) -> None:
    from benchmarks.trees import chosen_files

    for path in chosen_files(tree, FILES, CHANGED, 1):
        path.write_text(f"{path.name} changed\n")
        os.utime(path, ns=(10**18 + 10**9, 10**18 + 10**9))


@contextmanager
def _watched(folder: Path) -> Iterator[tuple[Any, Path]]:
    from benchmarks.whole_level import WholeLevel

    tree, store = folder / "project" / "work", folder / "store"
    store.mkdir(exist_ok=True)
    level = WholeLevel(tree, store)
    try:
        level.watch()
        level.checkpoint()
        level.checkpoint()  # the second no longer has anything to do with the beginning
        yield level, tree
    finally:
        level.close()


def _first(folder: Path) -> Counter[str]:
    from benchmarks.whole_level import WholeLevel

    (folder / "store").mkdir()
    level = WholeLevel(folder / "project" / "work", folder / "store")
    try:
        with Counting() as counting:
            level.checkpoint()
        return counting.counts + Counter(stored_bytes=level.stored_bytes())
    finally:
        level.close()


def _nothing(folder: Path) -> Counter[str]:
    with _watched(folder) as (level, _), Counting() as counting:
        level.checkpoint()
    return counting.counts


def _ten(folder: Path) -> Counter[str]:
    with _watched(folder) as (level, tree):
        before = level.stored_bytes()
        change_ten(tree)
        with Counting() as counting:
            level.checkpoint()
        return counting.counts + Counter(stored_bytes=level.stored_bytes() - before)


def _rollback(folder: Path) -> Counter[str]:
    with _watched(folder) as (level, tree):
        before = level.stored_bytes()
        change_ten(tree)
        with Counting() as counting:
            level.rollback()
        return counting.counts + Counter(stored_bytes=level.stored_bytes() - before)


def _scan(folder: Path) -> Counter[str]:
    """A new process: what is known comes from the cache, and every file is looked at."""
    from benchmarks.whole_level import WholeLevel

    with _watched(folder):
        pass
    level = WholeLevel(folder / "project" / "work", folder / "store")
    try:
        with Counting() as counting:
            level.checkpoint()
        return counting.counts
    finally:
        level.close()


def _command(*words: str, after_execute: bool = True) -> Callable[[Path], Counter[str]]:
    def count(folder: Path) -> Counter[str]:
        os.chdir(folder / "project")
        os.environ["HOLDFAST_HOME"] = str(folder / "home")
        Path("plan.yaml").write_text(_PLAN)
        first = _executed() if after_execute else ""
        with Counting() as counting:
            _run(*(word.format(first=first) for word in words))
        return counting.counts

    return count


def _executed() -> str:
    """Execute the plan in another process, so that nothing of it is known or imported here; its first checkpoint."""
    _run_alone("plan", "execute", "plan.yaml")
    listed = json.loads(_run_alone("checkpoint", "list", "--format", "json"))
    return str(listed["data"]["checkpoints"][0]["checkpoint_id"])


def _run_alone(*words: str) -> str:
    return subprocess.check_output([sys.executable, "-m", "holdfast", *words], text=True)


def _run(*words: str) -> None:
    sys.argv = ["holdfast", *words]
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        try:
            runpy.run_module("holdfast", run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"`{' '.join(words)}` ended with {end.code}") from end


WORKS: dict[str, Callable[[Path], Counter[str]]] = {
    "first checkpoint": _first,
    "checkpoint, nothing changed": _nothing,
    "checkpoint, ten files changed": _ten,
    "checkpoint, new process": _scan,
    "roll back ten files": _rollback,
    "plan status": _command("plan", "status"),
    "plan list": _command("plan", "list"),
    "checkpoint list": _command("checkpoint", "list"),
    "plan execute, three steps": _command("plan", "execute", "plan.yaml", after_execute=False),
    "plan rollback": _command("plan", "rollback", "--yes", "latest", "{first}"),
}


def main() -> None:
    work, folder = sys.argv[1], Path(sys.argv[2])
    make_work(folder)
    counts = WORKS[work](folder)
    sys.stdout.write(json.dumps({name: counts[name] for name in COUNTED}) + "\n")


if __name__ == "__main__":
    main()
