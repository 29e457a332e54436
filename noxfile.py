"""The checks of the project; every session runs in the environment that make installed from requirements.lock."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import nox

ROOT = Path(__file__).parent
BIN = Path(sys.executable).parent
BUILD = ROOT / "build"
RESULTS = BUILD / "results"
"""What each suite found, as JUnit XML: `python -m tools.totals` adds it up."""
COVERAGE = BUILD / "coverage"
MEASURED = {"unit_tests": "tests/unit", "integration_tests": "tests/integration"}
"""The sessions whose pytest part is measured; the other suites are not, which would double their time."""
ON_DISK = "tests/unit/sandbox"
"""What is about copying files stays on the disk, so that each kind of file system is tried."""
MINIMUM_COVERAGE = 97
AT_ONCE = 3
"""More than cores: tests wait for processes now and then. Each worker imports all tests, so many more do not pay."""
ON_A_TMPFS = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o mode=1777 tmpfs "$TMPDIR" && exec "$@"', "sh"]
"""Runs a command in a mount namespace of its own, in which its temporary files are in memory."""

MEASURED_LANE, OTHER_LANE = ["measured"], ["beside"]
"""What `make test` runs at the same time, so that no core waits: what is measured, and beside it all else."""

nox.options.default_venv_backend = "none"
nox.options.sessions = [
    "lint", "typecheck", "quality", "security", "build",
    "unit_tests", "integration_tests", "stories", "coverage_report", "benchmark", "docs",
]  # fmt: skip


@nox.session(tags=OTHER_LANE)
def lint(session: nox.Session) -> None:
    """Ruff: the rules, then the format."""
    run(session, "ruff", "check")
    run(session, "ruff", "format", "--check")


@nox.session(tags=OTHER_LANE)
def typecheck(session: nox.Session) -> None:
    """Check the types with mypy, strictly."""
    run(session, "mypy", "--strict", *session.posargs)


@nox.session(tags=OTHER_LANE)
def quality(session: nox.Session) -> None:
    """Check that imports point down the layers, that no code is dead, and that no function is too complex."""
    run(session, "lint-imports", "--no-logo")
    run(session, "vulture")
    run(session, "ruff", "check", "--select", "C901,PLR0911,PLR0912,PLR0915,PLR1702", "--preview", "src", "tools")


@nox.session(tags=OTHER_LANE)
def security(session: nox.Session) -> None:
    """Look for unsafe code with bandit, and for known vulnerabilities of the locked packages."""
    run(session, "bandit", "--quiet", "--recursive", "--configfile", "pyproject.toml", "src", "tools")
    run(session, "python", "-m", "tools.vulnerabilities", *session.posargs)


@nox.session(tags=OTHER_LANE)
def build(session: nox.Session) -> None:
    """Build the sdist, the wheel from it, install that into an environment of its own, and try it there."""
    run(session, "python", "-m", "tools.package", *session.posargs)


@nox.session(tags=MEASURED_LANE)
def unit_tests(session: nox.Session) -> None:
    """Run pytest over tests/unit, measured; what follows `--` goes to pytest in place of that, not measured."""
    if session.posargs:
        run_all(session, pytest_command(session.name, *session.posargs))
    else:
        run_measured(session, "unit_tests")


@nox.session(tags=MEASURED_LANE)
def integration_tests(session: nox.Session) -> None:
    """Run pytest over tests/integration, measured; what follows `--` goes to pytest in place of that, not measured."""
    if session.posargs:
        run_all(session, pytest_command(session.name, *session.posargs))
    else:
        run_measured(session, "integration_tests")


@nox.session(tags=OTHER_LANE)
def stories(session: nox.Session) -> None:
    """Run the scenarios, the end-to-end tests and a sample of faults, side by side; `-- FILE...`: only these."""
    chosen = session.posargs or [str(each) for each in (*ROOT.glob("features/*.feature"), *ROOT.glob("robot/*.robot"))]
    scenarios = [each for each in chosen if ".feature" in each]
    ends_to_ends = [each for each in chosen if each.endswith(".robot")]
    # One process: what each verb does undisturbed is found out once, for all trials.
    sample = [] if session.posargs else [pytest_command("faults_sample", "tests/faults", processes=0)]
    run_all(session, *behave_commands(scenarios), *robot_commands(ends_to_ends), *sample)


@nox.session(tags=MEASURED_LANE)
def coverage_report(session: nox.Session) -> None:
    """Report what pytest covers, after it has run what was not measured since the last change; too little fails."""
    codes = [measured(suite) for suite in MEASURED if not is_measured(suite)]
    session.env["COVERAGE_FILE"] = str(COVERAGE / "data")
    run(session, "coverage", "combine", "--keep", "--quiet", *(str(COVERAGE / suite) for suite in MEASURED))
    run(session, "coverage", "report", f"--fail-under={MINIMUM_COVERAGE}")
    fail_if_any(session, codes)


@nox.session(tags=OTHER_LANE)
def benchmark(session: nox.Session) -> None:
    """Count the work of checkpoints, rollbacks and commands with asv; more than in the last release fails."""
    run(session, "python", "-m", "benchmarks.counted", *session.posargs)


@nox.session(tags=OTHER_LANE)
def docs(session: nox.Session) -> None:
    """Make the site of the documentation, type every command in it, and compare it with the program."""
    run(session, "python", "-m", "tools.docs.site")
    run_all(session, pytest_command(session.name, *(session.posargs or ["tests/docs"])))


def run(session: nox.Session, tool: str, *args: str) -> None:
    session.run(str(BIN / tool), *args)


def run_all(session: nox.Session, *commands: Sequence[str]) -> None:
    """Run the parts of one suite at the same time."""
    fail_if_any(session, together(*commands))


def run_measured(session: nox.Session, suite: str) -> None:
    fail_if_any(session, [measured(suite)])


def fail_if_any(session: nox.Session, codes: Sequence[int]) -> None:
    if any(codes):
        session.error("not all passed")


def measured(suite: str) -> int:
    """Run pytest over the folder of the suite, measured, in place of what an earlier run of it measured."""
    data = COVERAGE / suite
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    measuring, file = [str(BIN / "coverage"), "run"], str(data / "data")
    most = pytest_command(f"{suite}-1", MEASURED[suite], f"--ignore={ON_DISK}")
    codes = together(most, before=measuring, COVERAGE_FILE=file)
    if ON_DISK.startswith(MEASURED[suite]):
        codes += together(pytest_command(f"{suite}-2", ON_DISK), before=measuring, is_on_disk=True, COVERAGE_FILE=file)
    return next(filter(None, codes), 0)


def is_measured(suite: str) -> bool:
    """Whether there is a measurement, and no source is newer: its lines would be counted as those of an older one."""
    measurements = [file.stat().st_mtime for file in (COVERAGE / suite).glob("data*")]
    sources = [file.stat().st_mtime for file in (ROOT / "src").rglob("*.py")]
    return bool(measurements) and max(measurements) > max(sources)


def together(
    *commands: Sequence[str],
    before: Sequence[str] = (str(BIN / "python"),),
    is_on_disk: bool = False,
    **variables: str,
) -> list[int]:
    """Run these commands of Python at the same time, each to its end; their exit codes."""
    # Hundreds of commands are started: without bytecode each would compile its imports again.
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": ""}
    RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-tests-") as folder:
        Path(folder).chmod(0o1777)  # as /tmp: some tests work as another user
        environment = {**environment, "TMPDIR": folder, **variables}
        beginning = [*([] if is_on_disk else in_memory(environment)), *before]
        running = [subprocess.Popen([*beginning, *each], cwd=ROOT, env=environment) for each in commands]
        return [process.wait() for process in running]


def in_memory(environment: Mapping[str, str]) -> list[str]:
    """What begins a command so that its TMPDIR is in memory; nothing if that cannot be, or cannot hold all a tree has.

    Not /dev/shm, because confined steps may write there.
    """
    attribute = "import os; os.setxattr(os.environ['TMPDIR'], 'user.probe', b'')"
    attempt = [*ON_A_TMPFS, sys.executable, "-c", attribute]
    try:
        can = subprocess.run(attempt, env=environment, capture_output=True, check=False).returncode == 0
    except OSError:
        can = False
    return ON_A_TMPFS if can else []


def pytest_command(suite: str, *chosen: str, processes: int = AT_ONCE) -> list[str]:
    # A worker that is done takes over tests of others: some take a hundred times as long as most.
    spread = ["-n", str(processes), "--dist", "worksteal"] if processes else []
    # What the others leave would fill the memory that their files are in.
    kept = ["-o", "tmp_path_retention_policy=failed"]
    return ["-m", "pytest", *spread, *kept, f"--junitxml={RESULTS / suite}.xml", *chosen]


def behave_commands(files: Sequence[str]) -> list[list[str]]:
    return [["-m", "behave", "--junit", "--junit-directory", str(RESULTS / "behave"), *files]] if files else []


def robot_commands(files: Sequence[str]) -> list[list[str]]:
    # The script, not `-m robot`: with the project's root on the path, `robot` could mean our directory.
    places = ["--outputdir", str(BUILD / "robot"), "--xunit", str(RESULTS / "robot.xml")]
    return [[str(BIN / "robot"), *places, *files]] if files else []
