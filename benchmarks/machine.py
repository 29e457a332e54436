"""What the numbers depend on: the machine and the versions, without names or paths."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from holdfast.system.sqlite import sqlite_version


def machine_facts(workdir: Path) -> list[tuple[str, str]]:
    programs = [(name, _program_version(name)) for name in ("git", "restic", "borg") if shutil.which(name)]
    return [
        ("CPU", f"{_cpu_model()}, {os.cpu_count()} cores"),
        ("memory", f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"),
        ("kernel", f"{platform.system()} {platform.release().partition('-')[0]}"),
        ("file system", _file_system(workdir)),
        ("Holdfast", f"{_own_version()}, Python {platform.python_version()}, SQLite {sqlite_version}"),
        *programs,
    ]


def _cpu_model() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def _file_system(path: Path) -> str:
    """The file system with the longest mount point above the path, and whether it has a journal."""
    mounts = [line.split()[:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    above = [mount for mount in mounts if path.resolve().is_relative_to(mount[1])]
    device, _, kind = max(above, key=lambda mount: len(mount[1]))
    journals = Path("/proc/fs/jbd2")
    if kind == "ext4" and journals.is_dir() and not list(journals.glob(f"{Path(device).resolve().name}-*")):
        return "ext4 without a journal"
    return kind


def _program_version(name: str) -> str:
    argument = "version" if name == "restic" else "--version"
    text = subprocess.run([name, argument], capture_output=True, text=True, check=True).stdout
    found = re.search(r"[0-9]+(\.[0-9]+)+", text)
    return found[0] if found else "unknown"


def _own_version() -> str:
    try:
        return version("holdfast")
    except PackageNotFoundError:
        return "from source"
