"""Real git repositories, made with a git that knows nothing of the settings of the machine it runs on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

AUTHOR = "Ada Example <ada@example.org>"
_CONFIG = """
[user]
    name = Ada Example
    email = ada@example.org
[init]
    defaultBranch = main
[protocol "file"]
    allow = always
[advice]
    detachedHead = false
"""


def settings_of_a_person(folder: Path) -> dict[str, str]:
    """The environment in which git, ours and everybody's, finds these settings and no others."""
    config = folder / "gitconfig"
    config.write_text(_CONFIG)
    return {"GIT_CONFIG_GLOBAL": str(config), "GIT_CONFIG_NOSYSTEM": "1"}


def git(repository: Path, *arguments: str, check: bool = True) -> str:
    """Run git there and give what it printed, without the last line's end."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    completed = subprocess.run(["git", *arguments], cwd=repository, env=environment, capture_output=True, check=False)
    if check and completed.returncode != 0:
        raise AssertionError(f"git {' '.join(arguments)}: {completed.stderr.decode(errors='replace')}")
    return completed.stdout.decode(errors="surrogateescape").removesuffix("\n")


def make_repository(path: Path, files: dict[str, str] | None = None) -> Path:
    """A repository on ``main`` with one commit of these files."""
    path.mkdir(parents=True)
    git(path, "init", "--quiet")
    for name, content in (files or {"a.txt": "a\n", "b.txt": "b\n", "folder/c.txt": "c\n"}).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(content)
    git(path, "add", "--all")
    git(path, "commit", "--quiet", "-m", "the first commit")
    return path


def status(repository: Path) -> list[str]:
    return [line for line in git(repository, "status", "--porcelain", "--untracked-files=all").split("\n") if line]


def head(repository: Path) -> str:
    return git(repository, "rev-parse", "HEAD")


def log(repository: Path, revision: str = "HEAD") -> list[str]:
    return git(repository, "log", "--format=%s", revision).splitlines()
