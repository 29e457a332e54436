"""Real git repositories, made with a git that knows nothing of the settings of the machine it runs on."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.support.trees import write

AUTHOR = "Ada Example <ada@example.org>"
_USER = """
[user]
    name = Ada Example
    email = ada@example.org
"""
_CONFIG = f"""{_USER}
[init]
    defaultBranch = main
[protocol "file"]
    allow = always
[advice]
    detachedHead = false
"""
_FILES = {"a.txt": "a\n", "b.txt": "b\n", "folder/c.txt": "c\n"}


def settings_of_a_person(folder: Path) -> dict[str, str]:
    """The environment in which git, ours and everybody's, finds these settings and no others."""
    config = folder / "gitconfig"
    config.write_text(_CONFIG)
    return {"GIT_CONFIG_GLOBAL": str(config), "GIT_CONFIG_NOSYSTEM": "1"}


def git(repository: Path, *arguments: str, check: bool = True, environment: Mapping[str, str] | None = None) -> str:
    """Run git there and give what it printed, without the last line's end."""
    variables = {**(os.environ if environment is None else environment), "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    completed = subprocess.run(["git", *arguments], cwd=repository, env=variables, capture_output=True, check=False)
    if check and completed.returncode != 0:
        raise AssertionError(f"git {' '.join(arguments)}: {completed.stderr.decode(errors='replace')}")
    return completed.stdout.decode(errors="surrogateescape").removesuffix("\n")


def make_repository(
    path: Path,
    files: Mapping[str, str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    has_user: bool = False,
    message: str = "the first commit",
) -> Path:
    """A repository on ``main`` with one commit of these files, and of those that are there already.

    ``has_user``: it says by itself who commits, so no settings of the person are needed.
    """
    variables = os.environ if environment is None else environment
    settings = sorted(each for each in variables.items() if each[0] == "HOME" or each[0].startswith("GIT_"))
    for name, made in _empty_repository(tuple(settings)):
        if made is None:
            (path / name).mkdir(parents=True, exist_ok=True)
        else:
            (path / name).write_bytes(made)
    if has_user:
        with (path / ".git" / "config").open("a") as config:
            config.write(_USER)
    for name, content in (_FILES if files is None else files).items():
        write(path / name, content)
    git(path, "add", "--all", environment=environment)
    without_collecting = ("-c", "maintenance.auto=false", "-c", "gc.auto=0")
    git(path, *without_collecting, "commit", "--quiet", "--message", message, environment=environment)
    return path


@cache
def _empty_repository(settings: tuple[tuple[str, str], ...]) -> list[tuple[str, bytes | None]]:
    """What git makes with these settings, by name; None for a folder. Thousands of tests begin with it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {**os.environ, **dict(settings)}
        git(folder, "init", "--quiet", "--initial-branch", "main", environment=environment)
        for hook in sorted((folder / ".git" / "hooks").glob("*.sample"))[1:]:
            hook.unlink()  # one is as good as a dozen, which every sandbox would copy
        found = sorted((folder / ".git").rglob("*"))
        return [(".git", None), *((str(path.relative_to(folder)), _content(path)) for path in found)]


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def status(repository: Path) -> list[str]:
    return [line for line in git(repository, "status", "--porcelain", "--untracked-files=all").split("\n") if line]


def head(repository: Path) -> str:
    return git(repository, "rev-parse", "HEAD")


def log(repository: Path, revision: str = "HEAD") -> list[str]:
    return git(repository, "log", "--format=%s", revision).splitlines()
