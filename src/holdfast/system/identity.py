"""The machine that a home is used on: an id kept in the home, valid only on the machine that made it."""

from __future__ import annotations

import json
import os
import platform
from contextlib import suppress
from pathlib import Path

from blake3 import blake3

from holdfast.system.small_files import replace_text, sole_writer

FILE_NAME = "machine"
_MACHINE_ID = Path("/etc/machine-id")
_INTERFACES = Path("/sys/class/net")


def find_machine_id(home: Path) -> str | None:
    """The id of this machine in this home; None if it has none yet, or if the home was copied from elsewhere."""
    try:
        noted = json.loads((home / FILE_NAME).read_bytes())
        return str(noted["machine_id"]) if noted["fingerprint"] == _fingerprint(home) else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def machine_id(home: Path) -> str:
    """The same, made if there is none; if it cannot be stored, no other process will have the same id."""
    found = find_machine_id(home)
    if found is not None:
        return found
    made = os.urandom(16).hex()
    with suppress(OSError), sole_writer(home):
        found = find_machine_id(home)
        if found is not None:
            return found
        # On the disk now: a lease that is taken next names it, and after a power cut must be known as this machine's.
        replace_text(home / FILE_NAME, json.dumps({"machine_id": made, "fingerprint": _fingerprint(home)}) + "\n")
    return made


def _fingerprint(home: Path) -> str:
    """What differs in every copy of the home, and on a copy of the whole machine."""
    # Not the device number: some file systems get another one each time they are mounted.
    place = home.stat().st_ino, os.statvfs(home).f_fsid
    return blake3(json.dumps([_machine_id(), platform.node(), _addresses(), *place]).encode()).hexdigest(length=16)


def _machine_id() -> str:
    with suppress(OSError):
        return _MACHINE_ID.read_text().strip()
    return ""


def _addresses() -> list[str]:
    """The addresses of built-in network cards: a copy of a virtual machine gets others when it runs beside the first.

    Wireless and USB cards come and go, or change their addresses, while the machine stays the same.
    """
    found = []
    with suppress(OSError):
        for interface in _INTERFACES.iterdir():
            with suppress(OSError):
                is_built_in = (interface / "device").exists() and not (interface / "phy80211").exists()
                if is_built_in and "/usb" not in os.path.realpath(interface / "device"):
                    found.append((interface / "address").read_text().strip())
    return sorted(found)
