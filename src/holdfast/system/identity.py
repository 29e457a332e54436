"""Which machine a home is used on: an id kept in the home, which counts only on the machine that it was made on."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from blake3 import blake3

from holdfast.system.trees import sync_directory

FILE_NAME = "machine"
_MACHINE_ID = Path("/etc/machine-id")
_INTERFACES = Path("/sys/class/net")


def find_machine_id(home: Path) -> str | None:
    """The id of this machine as this home knows it; None if it has none yet, or if it was copied from elsewhere."""
    try:
        noted = json.loads((home / FILE_NAME).read_bytes())
        return str(noted["machine_id"]) if noted["fingerprint"] == _fingerprint(home) else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def machine_id(home: Path) -> str:
    """The same, made if there is none; one that cannot be kept is one that no other process takes for its own."""
    found = find_machine_id(home)
    if found is not None:
        return found
    made = secrets.token_hex(16)
    with suppress(OSError), _one_at_a_time(home):
        found = find_machine_id(home)
        if found is not None:
            return found
        _keep(home, made)
    return made


def _keep(home: Path, made: str) -> None:
    """Durably: a lease that is taken next names it, and after a power cut must be known as this machine's."""
    unfinished = home / f".{FILE_NAME}.unfinished"
    with unfinished.open("w") as file:
        file.write(json.dumps({"machine_id": made, "fingerprint": _fingerprint(home)}) + "\n")
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(home / FILE_NAME)
    sync_directory(home)


@contextmanager
def _one_at_a_time(home: Path) -> Iterator[None]:
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _fingerprint(home: Path) -> str:
    """Another one for a copy of the home, wherever it is, and on a copy of the whole machine."""
    # Not the device number: some file systems get another one each time they are mounted.
    place = home.stat().st_ino, os.statvfs(home).f_fsid
    return blake3(json.dumps([_machine_id(), platform.node(), _addresses(), *place]).encode()).hexdigest(length=16)


def _machine_id() -> str:
    with suppress(OSError):
        return _MACHINE_ID.read_text().strip()
    return ""


def _addresses() -> list[str]:
    """Those of built-in network cards: a copy of a virtual machine is given others when it runs beside the first.

    Wireless and USB ones come and go, or change theirs, while the machine stays the same.
    """
    found = []
    with suppress(OSError):
        for interface in _INTERFACES.iterdir():
            with suppress(OSError):
                is_built_in = (interface / "device").exists() and not (interface / "phy80211").exists()
                if is_built_in and "/usb" not in os.path.realpath(interface / "device"):
                    found.append((interface / "address").read_text().strip())
    return sorted(found)
