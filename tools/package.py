"""Builds the sdist, the wheel from it, installs that alone, and tries it: ``python -m tools.package``.

Nothing is downloaded. What the wheel says it needs is copied from this environment, which has the locked versions; what
it does not say is not there, so that a forgotten dependency is found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator
from email.parser import Parser
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"


def build(source: Path, target: Path) -> Path:
    """Build both from the source; the wheel, which is made from the sdist and not from the folder."""
    shutil.rmtree(target, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(source))
    [wheel] = target.glob("*.whl")
    [_] = target.glob("*.tar.gz")
    return wheel


def install(wheel: Path, environment: Path) -> None:
    """Make a new environment with the wheel, and with the packages that it needs by its own word."""
    venv.create(environment, with_pip=False)
    place = _packages_of(environment)
    for distribution in _needed(wheel):
        _copy(distribution, place)
    pip = (sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"))
    _run(*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel))
    _run(*pip, "check")


def try_out(environment: Path, folder: Path) -> None:
    """What a user does first, in a folder of its own, with nothing of this project in sight."""
    holdfast = str(environment / "bin" / "holdfast")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HOLDFAST_"))}
    variables["HOLDFAST_HOME"] = str(folder / "home")
    _run(holdfast, "--version", cwd=folder, env=variables)
    if _has_compiler():
        # Built without it, Holdfast works, but slowly: the source is missing in the sdist, or does not compile.
        _run(str(environment / "bin" / "python"), "-c", "import holdfast.system._calls", cwd=folder, env=variables)
    _run(holdfast, "demo", cwd=folder, env=variables)


def _needed(wheel: Path) -> Iterator[metadata.Distribution]:
    """Every package that the wheel needs here, and what these need in turn, as installed in this environment."""
    pending, seen = _requirements_of(wheel), set()
    while pending:
        requirement = pending.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        distribution = metadata.distribution(requirement.name)
        if not requirement.specifier.contains(distribution.version, prereleases=True):
            raise SystemExit(f"The wheel needs {requirement}, and {distribution.version} is locked.")
        pending += map(Requirement, distribution.requires or ())
        yield distribution


def _requirements_of(wheel: Path) -> list[Requirement]:
    with ZipFile(wheel) as archive:
        [name] = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        described = Parser().parsestr(archive.read(name).decode())
    return [Requirement(each) for each in described.get_all("Requires-Dist", [])]


def _copy(distribution: metadata.Distribution, place: Path) -> None:
    for file in distribution.files or ():
        source = Path(os.fspath(file.locate()))
        if ".." in file.parts or "__pycache__" in file.parts or not source.is_file():
            continue  # a script, which nothing here starts
        target = place / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _packages_of(environment: Path) -> Path:
    return Path(sysconfig.get_path("platlib", "venv", {"base": str(environment), "platbase": str(environment)}))


def _has_compiler() -> bool:
    return shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0]) is not None


def _run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    sys.stdout.flush()
    done = subprocess.run(command, cwd=cwd, env=env, check=False)
    if done.returncode:
        raise SystemExit(f"exit code {done.returncode}: {' '.join(command)}")


def main() -> None:
    wheel = build(ROOT, DIST)
    with tempfile.TemporaryDirectory(prefix="holdfast-package-") as name:
        folder = Path(name)
        install(wheel, folder / "environment")
        try_out(folder / "environment", folder)
    sys.stdout.write(f"{wheel.name} is built from its sdist, installed alone and works.\n")


if __name__ == "__main__":
    main()
