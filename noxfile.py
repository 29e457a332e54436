"""The checks of the project; every session runs in the environment that make installed from requirements.lock."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import nox

ROOT = Path(__file__).parent
BIN = Path(sys.executable).parent
COVERAGE = ROOT / "build" / "coverage"
SUITES = ("unit", "behave", "robot")
AT_ONCE = 4
"""More than cores: tests wait for the disk and for processes now and then."""
MINIMUM_COVERAGE = 97

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "imports", *SUITES, "coverage", "faults_sample"]


def run(session: nox.Session, tool: str, *args: str) -> None:
    session.run(str(BIN / tool), *args)


def run_together(session: nox.Session, *commands: Sequence[str], measured: bool = False) -> None:
    """Run the parts of one suite at the same time; measured, in place of what an earlier run of it measured."""
    # Hundreds of commands are started: without bytecode each would compile its imports again.
    variables = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": ""}
    before = [str(BIN / "python")]
    if measured:
        data = COVERAGE / session.name
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir(parents=True)
        variables["COVERAGE_FILE"] = str(data / "data")
        before = [str(BIN / "coverage"), "run"]
    running = [subprocess.Popen([*before, *command], cwd=ROOT, env=variables) for command in commands]
    codes = [process.wait() for process in running]
    if any(codes):
        session.error("not all passed")


def parts(files: Sequence[Path]) -> list[list[str]]:
    """Parts that take about the same time, if a longer file takes longer."""
    by_size = sorted(files, key=lambda file: file.stat().st_size)
    return [[str(file) for file in by_size[start::AT_ONCE]] for start in range(AT_ONCE)]


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff: the rules, then the format."""
    run(session, "ruff", "check")
    run(session, "ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types with mypy, strictly."""
    run(session, "mypy", "--strict", *session.posargs)


@nox.session
def imports(session: nox.Session) -> None:
    """Check that imports point down the layers."""
    run(session, "lint-imports", "--no-logo")


@nox.session
def unit(session: nox.Session) -> None:
    """Run pytest; what follows `--` goes to it."""
    chosen = session.posargs or ["tests", "--ignore=tests/faults"]
    # Whoever is done takes over tests of others: some take a hundred times as long as most.
    run_together(session, ["-m", "pytest", "-n", str(AT_ONCE), "--dist", "worksteal", *chosen], measured=True)


@nox.session
def behave(session: nox.Session) -> None:
    """Run the scenarios; what follows `--` goes to behave."""
    chosen = [session.posargs] if session.posargs else parts(list((ROOT / "features").glob("*.feature")))
    run_together(session, *(["-m", "behave", *part] for part in chosen))


@nox.session
def robot(session: nox.Session) -> None:
    """Run the end-to-end tests; what follows `--` goes to Robot Framework."""
    # The script, not `-m robot`: with the project's root on the path, `robot` could mean our directory.
    chosen = [session.posargs] if session.posargs else parts(list((ROOT / "robot").glob("*.robot")))
    outputs = [str(ROOT / "build" / f"robot-{number}") for number in range(len(chosen))]
    run_together(
        session,
        *([str(BIN / "robot"), "--outputdir", output, *part] for output, part in zip(outputs, chosen, strict=True)),
    )


@nox.session
def coverage(session: nox.Session) -> None:
    """Report what the unit tests cover; the other suites are not measured, which would double their time."""
    session.env["COVERAGE_FILE"] = str(COVERAGE / "data")
    run(session, "coverage", "combine", "--keep", "--quiet", str(COVERAGE / "unit"))
    run(session, "coverage", "report", f"--fail-under={MINIMUM_COVERAGE}")


@nox.session
def faults_sample(session: nox.Session) -> None:
    """Try a sample of all faults, not measured; what follows `--` goes to pytest."""
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    session.run(str(BIN / "pytest"), "-n", str(AT_ONCE), *(session.posargs or ["tests/faults"]), env={"PATH": path})


@nox.session
def benchmarks(session: nox.Session) -> None:
    """Run every asv benchmark once; what follows `--` goes to `asv run` in place of `--quick`."""
    run(session, "asv", "machine", "--yes")
    run(session, "asv", "run", "--python=same", "--show-stderr", *(session.posargs or ["--quick"]))
