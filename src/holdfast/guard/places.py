"""Where the guard of a folder listens, and how that is found without opening anything.

The client that an agent starts for each hook finds it in the same way, in C or in Python without any of our modules.
"""

from __future__ import annotations

import os
from pathlib import Path

_FNV_OFFSET, _FNV_PRIME, _64_BITS = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


class GuardPlaces:
    """The files of the guard of one folder, in Holdfast's home."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.directory = home / "guards"
        self._key = key_of(folder)

    def make_directory(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    @property
    def socket(self) -> Path:
        return self.directory / f"{self._key}.sock"

    @property
    def lock(self) -> Path:
        """Held by the guard as long as it lives."""
        return self.directory / f"{self._key}.lock"

    @property
    def log(self) -> Path:
        return self.directory / f"{self._key}.log"


def key_of(folder: Path) -> str:
    """FNV-1a over the path: short enough for the name of a socket, and a few lines in any language."""
    digest = _FNV_OFFSET
    for byte in os.fsencode(folder):
        digest = (digest ^ byte) * _FNV_PRIME & _64_BITS
    return f"{digest:016x}"
