"""The image as far as it can be tried without an engine: what it copies is there, and is enough to install from."""

from __future__ import annotations

import fnmatch
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the Dockerfile with its words; continued lines are joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    words = (line.split(maxsplit=1) for line in text.splitlines() if line.strip())
    return [(name, rest) for name, rest in words]


def copied() -> list[str]:
    """What comes from the project."""
    sources = [rest.split()[:-1] for name, rest in instructions() if name == "COPY" and "--from=" not in rest]
    return [each for line in sources for each in line]


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps it from the engine: the last line that fits decides."""
    answer = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!").replace("**/", "*")
            if any(fnmatch.fnmatch(part, pattern) for part in (path, *map(str, Path(path).parents))):
                answer = not line.startswith("!")
    return answer


def context_of(folder: Path) -> None:
    """What the engine would get and copy."""
    for name in copied():
        for source in [ROOT / name] if (ROOT / name).is_file() else sorted((ROOT / name).rglob("*")):
            path = source.relative_to(ROOT)
            if source.is_file() and not ignored(str(path)):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, folder / path)


def test_everything_that_is_copied_is_there_and_reaches_the_engine() -> None:
    assert copied()
    assert [each for each in copied() if not (ROOT / each).exists() or ignored(each)] == []


def test_nothing_that_was_made_on_this_machine_reaches_the_engine() -> None:
    made = [
        ".git",
        ".venv",
        "build",
        "src/holdfast/system/_calls.abi3.so",
        "src/holdfast/__pycache__/app.cpython-311.pyc",
    ]
    assert [each for each in made if not ignored(each)] == []


def test_it_runs_as_a_normal_user_with_its_home_in_a_volume_and_git_at_hand() -> None:
    last_stage = instructions()[max(at for at, (name, _) in enumerate(instructions()) if name == "FROM") :]
    of_kind = {name: [rest for each, rest in last_stage if each == name] for name, _ in last_stage}

    assert of_kind["USER"] == ["holdfast"]
    home = re.search(r"HOLDFAST_HOME=(\S+)", " ".join(of_kind["ENV"]))
    assert home is not None
    assert of_kind["VOLUME"] == [home[1]]
    assert any(re.search(rf"install .*--owner=holdfast .*{home[1]}", rest) for rest in of_kind["RUN"])
    assert any(re.search(r"apt-get install .*\bgit\b", rest) for rest in of_kind["RUN"])
    assert of_kind["ENTRYPOINT"] == ['["holdfast"]']


def test_the_packages_of_the_image_are_those_that_are_tested() -> None:
    def entries(name: str) -> dict[str, set[str]]:
        found = re.findall(r"^([^\s#].*?) \\\n((?:    --hash=.*\n)+)", (ROOT / name).read_text(), re.MULTILINE)
        return {package.split()[0]: set(hashes.replace("\\", "").split()) for package, hashes in found}

    runtime, tested = entries("requirements-runtime.lock"), entries("requirements.lock")
    assert runtime
    assert runtime == {package: tested.get(package) for package in runtime}


@pytest.mark.unmeasured
def test_what_is_copied_is_enough_to_install_from(tmp_path: Path) -> None:
    context, target = tmp_path / "context", tmp_path / "installed"
    context_of(context)
    # Without a network: what the image's step would download is here already.
    [step] = [rest for name, rest in instructions() if name == "RUN" and rest.endswith("--no-deps .")]
    words = [*step.split()[1:], "--no-build-isolation", "--no-index", "--quiet", "--target", str(target)]

    subprocess.run([sys.executable, "-m", "pip", *words], cwd=context, check=True)

    shown = subprocess.run(
        [sys.executable, "-c", "import holdfast; print(holdfast.__file__)"],
        cwd=target, env={"PYTHONPATH": str(target)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stdout.strip() == str(target / "holdfast" / "__init__.py")
    assert (target / "holdfast" / "db" / "migrations" / "versions" / "0001_initial.py").is_file()
    if shutil.which("gcc"):
        assert list((target / "holdfast" / "system").glob("_calls*.so"))
