"""Disks with a chosen file system, as images that are mounted; only root can do that."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_PROGRAMS = {
    "ext4 with times in seconds": ("mkfs.ext4", "-q", "-F", "-I", "128"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}
_BYTES = 400 << 20
"""Less is too small for btrfs; the image has holes."""


@contextmanager
def disk(kind: str, folder: Path) -> Iterator[Path]:
    """The root of a new file system; the test is skipped if there cannot be one."""
    program = _PROGRAMS[kind]
    if os.geteuid() != 0 or shutil.which(program[0]) is None:
        pytest.skip(f"a disk with {kind} needs root and {program[0]}")
    image, place = folder / "image", folder / "disk"
    with image.open("wb") as file:
        file.truncate(_BYTES)
    subprocess.run([*program, str(image)], check=True, capture_output=True)
    place.mkdir()
    mounted = subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=False, capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"no image can be mounted here: {mounted.stderr.decode(errors='replace')}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
        image.unlink()
