"""Collects garbage in a process of its own: after a large plan was deleted, its command does not wait for that.

If the process is killed, the next collection frees the same content.
"""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError


def collect(project: Path, home: Path) -> None:
    if not (home / "objects.db").exists():
        return  # the home was removed meanwhile, and must not be made again
    with Holdfast.open(project, home=home) as holdfast:
        holdfast.service.garbage.collect()


if __name__ == "__main__":
    try:
        collect(*map(Path, sys.argv[1:]))
    except HoldfastError as error:
        sys.exit(error.exit_code)
