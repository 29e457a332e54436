"""Who is measured: each takes checkpoints of the same tree into a store of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parent.parent


class Peer(Protocol):
    """One way to take checkpoints; every method that measures gives seconds."""

    name: str

    def start(self) -> None:
        """Make an empty store and use it from now on."""
        ...

    def checkpoint(self) -> float: ...

    def stop(self) -> None: ...


class RollingPeer(Peer, Protocol):
    """One that can also go back, and whose store is looked at."""

    def rollback(self) -> float:
        """Bring the tree back to the last checkpoint."""
        ...

    def new_process(self) -> float:
        """A checkpoint of an unchanged tree by a process that was just started."""
        ...

    def disk_bytes(self) -> int:
        """What the store takes on the disk while nobody works on it."""
        ...


class _Commands:
    """Runs a program for its effect and its time; its settings are ours, not the user's."""

    def __init__(self, tree: Path, environment: Mapping[str, str]) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        self._tree, self._environment = tree, {**kept, **environment}

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self._tree, env=self._environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed: {done.stderr.strip()}")
        return done.stdout.strip()

    def timed(self, *command: str) -> float:
        begin = time.perf_counter()
        self.run(*command)
        return time.perf_counter() - begin


def _new_store(folder: Path) -> Path:
    """Another empty folder; the earlier ones stay until the end.

    For minutes after many files were deleted, ext4 without a journal makes new ones slowly.
    """
    folder.mkdir(exist_ok=True)
    store = folder / str(sum(1 for _ in folder.iterdir()))
    store.mkdir()
    return store


class GitWay:
    """A private git directory and index beside the tree, as many tools for agents do it.

    git as it comes does not flush the objects it writes; told to, what it has said to have stored survives a power cut.
    """

    def __init__(self, tree: Path, folder: Path, *, name: str, is_synced: bool = False) -> None:
        self.name = name
        self._tree, self._folder, self._is_synced = tree, folder, is_synced

    def start(self) -> None:
        self._store = _new_store(self._folder)
        settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        places = {"GIT_DIR": str(self._store), "GIT_WORK_TREE": str(self._tree)}
        self._git = _Commands(self._tree, {**settings, **places})
        self._git.run("git", "init", "--quiet")
        if self._is_synced:
            self._git.run("git", "config", "core.fsync", "all")

    def checkpoint(self) -> float:
        begin = time.perf_counter()
        self._git.run("git", "add", "-A")
        self._tree_id = self._git.run("git", "write-tree")
        return time.perf_counter() - begin

    def rollback(self) -> float:
        return self._git.timed("git", "read-tree", "-u", "--reset", self._tree_id)

    def new_process(self) -> float:
        return self.checkpoint()

    def disk_bytes(self) -> int:
        return used_bytes(self._store / "objects")

    def stop(self) -> None:
        """Nothing is running."""


class Restic:
    name = "restic"

    def __init__(self, tree: Path, folder: Path) -> None:
        self._tree, self._folder = tree, folder

    def start(self) -> None:
        store = _new_store(self._folder)
        places = {"RESTIC_REPOSITORY": str(store / "repository"), "RESTIC_CACHE_DIR": str(store / "cache")}
        self._restic = _Commands(self._tree, {**places, "RESTIC_PASSWORD": "benchmark"})
        self._restic.run("restic", "init", "--quiet")

    def checkpoint(self) -> float:
        return self._restic.timed("restic", "backup", "--quiet", ".")

    def stop(self) -> None:
        """Nothing is running."""


class Borg:
    name = "borg"

    def __init__(self, tree: Path, folder: Path) -> None:
        self._tree, self._folder = tree, folder
        self._taken = 0

    def start(self) -> None:
        store = _new_store(self._folder)
        places = {"BORG_REPO": str(store / "repository"), "BORG_BASE_DIR": str(store)}
        self._borg = _Commands(self._tree, {**places, "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"})
        self._borg.run("borg", "init", "--encryption", "none")

    def checkpoint(self) -> float:
        self._taken += 1
        return self._borg.timed("borg", "create", f"::{self._taken}", ".")

    def stop(self) -> None:
        """Nothing is running."""


class HoldfastPeer:
    """Holdfast in a process of its own, with the kernel telling it what changes."""

    def __init__(self, tree: Path, folder: Path, *, level: str, name: str) -> None:
        self.name = name
        self._level, self._tree, self._folder = level, tree, folder
        self._process: subprocess.Popen[str] | None = None
        self._remembered = ""
        self._is_watching = False
        self.whole_process_seconds: list[float] = []
        """For every new process: from starting the interpreter to its end."""

    def start(self) -> None:
        self.stop()
        self._store = _new_store(self._folder)
        self._open()

    def _open(self) -> None:
        command = [sys.executable, "-m", "benchmarks.worker", self._level, str(self._tree), str(self._store)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def ask(self, order: str) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name}: the process that was told to {order} ended.")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _seconds(self, order: str) -> float:
        return float(self.ask(order)["seconds"])

    def checkpoint(self) -> float:
        return self._seconds("checkpoint")

    def rollback(self) -> float:
        return self._seconds("rollback")

    def watch(self) -> float:
        """Begin to be told of changes, and look at everything once after that."""
        self._is_watching = True
        return self._seconds("watch")

    def watch_or_rest(self, *, is_on: bool) -> None:
        """Be told of changes from now on, or not."""
        if self._process is None or is_on == self._is_watching:
            return
        if is_on:
            self.watch()
        else:
            self.ask("rest")
            self._is_watching = False

    def remember(self) -> None:
        """Keep what is known of the tree for new processes."""
        self._remembered = self.ask("remember")["value"]

    def new_process(self) -> float:
        command = [sys.executable, "-m", "benchmarks.worker", "scan", str(self._tree), str(self._store)]
        begin = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        self.whole_process_seconds.append(time.perf_counter() - begin)
        answer = json.loads(done.stdout)
        if answer["value"] != self._remembered:
            raise SystemExit("A new process finds another state in a tree that nobody changed.")
        return float(answer["seconds"])

    def disk_bytes(self) -> int:
        self.stop()
        size = sum(used_bytes(path) for path in self._store.glob("*.db*"))
        self._open()
        self.watch()
        return size

    def stop(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process, self._is_watching = None, False


def used_bytes(path: Path) -> int:
    """The blocks it takes on the disk, as `du` counts them."""
    paths = [path, *path.rglob("*")] if path.is_dir() else [path]
    return sum(found.lstat().st_blocks * 512 for found in paths)
