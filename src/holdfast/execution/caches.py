"""Private caches: where package managers may store what they download and build, beside the sandboxes of a plan.

The real caches cannot be written by a confined program. The private ones are deleted with the plan, and no checkpoint
holds them: all they hold can be fetched again. Nothing has to be repaired after a crash.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_CARGO_SETTINGS = ("config.toml", "config", "credentials.toml", "credentials")
_PLUG_AND_PLAY_SETTINGS = ".yarnrc.yml"


class _Cache(NamedTuple):
    variable: str
    name: str
    """Of the private folder."""
    real: tuple[str, ...]
    """Where it is otherwise, in the user's home."""
    settings: tuple[tuple[str, str], ...] = ()
    """Variables that go with it."""


_CACHES = (
    _Cache("PIP_CACHE_DIR", "pip", (".cache/pip",)),
    # A link into a sandbox is not possible, and uv would warn each time.
    _Cache("UV_CACHE_DIR", "uv", (".cache/uv",), (("UV_LINK_MODE", "copy"),)),
    _Cache("npm_config_cache", "npm", (".npm",)),
    _Cache("YARN_CACHE_FOLDER", "yarn", (".cache/yarn",)),
    _Cache("YARN_GLOBAL_FOLDER", "yarn-berry", (".yarn/berry",)),
    _Cache("PNPM_HOME", "pnpm", (".local/share/pnpm", ".cache/pnpm")),
    _Cache("pnpm_config_cache_dir", "pnpm-cache", (".cache/pnpm",)),
    _Cache("CARGO_HOME", "cargo", (".cargo",)),
    _Cache("GOCACHE", "go-build", (".cache/go-build",)),
    _Cache("GOMODCACHE", "go-mod", ("go/pkg/mod",)),
)


def private_caches(
    folder: Path, sandbox: Path, passed: Mapping[str, str], environment: Mapping[str, str], allowed: Sequence[Path]
) -> dict[str, str]:
    """The variables that lead to caches in ``folder``, and what has to be there.

    Not for a cache that the user lets the program write to, or for which the program gets the user's own variable.
    """
    home = Path(environment.get("HOME") or Path.home())
    wanted = [each for each in _CACHES if each.variable not in passed and not _is_allowed(each, home, allowed)]
    if (sandbox / _PLUG_AND_PLAY_SETTINGS).exists():
        # A newer yarn may keep its cache in the project, and the variable would lead it elsewhere.
        wanted = [each for each in wanted if each.variable != "YARN_CACHE_FOLDER"]
    folder.mkdir(mode=0o700, exist_ok=True)
    variables: dict[str, str] = {}
    for each in wanted:
        variables |= {**dict(each.settings), each.variable: str(folder / each.name)}
        if each.variable == "CARGO_HOME":
            _link_settings(Path(environment.get("CARGO_HOME") or home / ".cargo"), folder / each.name)
    return {name: value for name, value in variables.items() if name not in passed}


def _is_allowed(cache: _Cache, home: Path, allowed: Sequence[Path]) -> bool:
    reals = [Path(os.path.realpath(home / real)) for real in cache.real]
    return any(real.is_relative_to(place) for real in reals for place in allowed)


def _link_settings(real: Path, private: Path) -> None:
    """Cargo keeps settings and credentials beside its cache: they are found, and cannot be changed."""
    if private.is_symlink():
        private.unlink()  # by the program: it could lead anywhere
    private.mkdir(mode=0o700, exist_ok=True)
    for name in _CARGO_SETTINGS:
        if (real / name).exists():
            with suppress(FileExistsError):
                (private / name).symlink_to(real / name)
