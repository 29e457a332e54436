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
MINIMUM_COVERAGE = 97

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "imports", *SUITES, "coverage", "faults_sample"]


def run(session: nox.Session, tool: str, *args: str) -> None:
    session.run(str(BIN / tool), *args)


def run_measured(session: nox.Session, *commands: Sequence[str]) -> None:
    """Run one suite under coverage, in place of what an earlier run of it measured; its parts at the same time."""
    measured = COVERAGE / session.name
    shutil.rmtree(measured, ignore_errors=True)
    measured.mkdir(parents=True)
    # Hundreds of commands are started: without bytecode each would compile its imports again.
    places = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "COVERAGE_FILE": str(measured / "data")}
    variables = {**os.environ, **places, "PYTHONDONTWRITEBYTECODE": ""}
    running = [
        subprocess.Popen([str(BIN / "coverage"), "run", *command], cwd=ROOT, env=variables) for command in commands
    ]
    codes = [process.wait() for process in running]
    if any(codes):
        session.error("not all passed")


def halves(files: Sequence[Path]) -> list[list[str]]:
    """Two parts that take about the same time, if a longer file takes longer."""
    by_size = sorted(files, key=lambda file: file.stat().st_size)
    return [[str(file) for file in by_size[start::2]] for start in (0, 1)]


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
    run_measured(session, ["-m", "pytest", "-n", "2", *(session.posargs or ["tests", "--ignore=tests/faults"])])


@nox.session
def behave(session: nox.Session) -> None:
    """Run the scenarios; what follows `--` goes to behave."""
    parts = [session.posargs] if session.posargs else halves(list((ROOT / "features").glob("*.feature")))
    run_measured(session, *(["-m", "behave", *part] for part in parts))


@nox.session
def robot(session: nox.Session) -> None:
    """Run the end-to-end tests; what follows `--` goes to Robot Framework."""
    # The script, not `-m robot`: with the project's root on the path, `robot` could mean our directory.
    parts = [session.posargs] if session.posargs else halves(list((ROOT / "robot").glob("*.robot")))
    outputs = [str(ROOT / "build" / f"robot-{number}") for number in range(len(parts))]
    run_measured(
        session,
        *([str(BIN / "robot"), "--outputdir", output, *part] for output, part in zip(outputs, parts, strict=True)),
    )


@nox.session
def coverage(session: nox.Session) -> None:
    """Report what the three suites cover together."""
    session.env["COVERAGE_FILE"] = str(COVERAGE / "data")
    run(session, "coverage", "combine", "--keep", "--quiet", *(str(COVERAGE / suite) for suite in SUITES))
    run(session, "coverage", "report", f"--fail-under={MINIMUM_COVERAGE}")


@nox.session
def faults_sample(session: nox.Session) -> None:
    """Try a sample of all faults, not measured; what follows `--` goes to pytest."""
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    session.run(str(BIN / "pytest"), "-n", "2", *(session.posargs or ["tests/faults"]), env={"PATH": path})


@nox.session
def benchmarks(session: nox.Session) -> None:
    """Run every asv benchmark once; what follows `--` goes to `asv run` in place of `--quick`."""
    run(session, "asv", "machine", "--yes")
    run(session, "asv", "run", "--python=same", "--show-stderr", *(session.posargs or ["--quick"]))
