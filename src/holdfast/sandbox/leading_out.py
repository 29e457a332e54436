"""Finds what in a sandbox still leads to the real folder, if steps do not see the sandbox at the real folder's path.

A program that runs from such a virtual environment or build folder uses the real files: it can pass a test on code that
the plan never changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from holdfast.model import Resource

_DEPTHS = ("", "*/", "*/*/")
_MOST_BYTES = 1 << 16
"""Enough of a file for the line that names the folder: the first of a script, an early one of a cache."""


def leading_out(resource: Resource) -> tuple[str, ...]:
    """The virtual environments, editable installs and build folders whose files name the real folder."""
    sandbox = Path(resource.sandbox_path)
    real = os.fsencode(os.path.realpath(resource.path))
    found = chain(_environments(sandbox, real), _build_folders(sandbox, real))
    return tuple(str(each.relative_to(sandbox)) for each in found)


def _environments(sandbox: Path, real: bytes) -> Iterator[Path]:
    for depth in _DEPTHS:
        for settings in sorted(sandbox.glob(f"{depth}pyvenv.cfg")):
            telling = chain(_telling_files(settings.parent), [settings])
            if any(_names(file, real) for file in telling):
                yield settings.parent


def _telling_files(environment: Path) -> Iterator[Path]:
    yield from environment.glob("bin/*")
    yield from environment.glob("lib/*/site-packages/*.pth")
    yield from environment.glob("lib/*/site-packages/__editable__*.py")


def _build_folders(sandbox: Path, real: bytes) -> Iterator[Path]:
    for depth in _DEPTHS:
        for cache in sorted(sandbox.glob(f"{depth}CMakeCache.txt")):
            if _names(cache, real):
                yield cache.parent


def _names(file: Path, real: bytes) -> bool:
    try:
        if file.is_symlink() or not file.is_file():
            return False
        with file.open("rb") as opened:
            return real in opened.read(_MOST_BYTES)
    except OSError:
        return False
