"""Projects that name their own folder by its absolute path run in a sandbox, on the sandbox's files.

Each test plants a difference between the real folder and the sandbox, and looks which of the two the project's own
tools used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.execution import view
from holdfast.execution.executor import ExecutionResult
from tests.support.repositories import git, make_repository
from tests.support.unprivileged import folder_for_nobody, run_as_a_user

pytestmark = pytest.mark.skipif(view.same_path_refusal() is not None, reason="nothing may be mounted here")

_BACKEND = """
import os, zipfile

def get_requires_for_build_editable(config=None):
    return []

get_requires_for_build_wheel = get_requires_for_build_editable

def build_editable(folder, config=None, metadata=None):
    return _wheel(folder, {"%(name)s.pth": os.path.abspath("src")})

def build_wheel(folder, config=None, metadata=None):
    return _wheel(folder, {"%(name)s.py": open("src/%(name)s.py").read()})

def _wheel(folder, files):
    name, info = "%(name)s-1-py3-none-any.whl", "%(name)s-1.dist-info"
    files |= {
        info + "/METADATA": "Metadata-Version: 2.1\\nName: %(name)s\\nVersion: 1\\n",
        info + "/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        wheel.writestr(info + "/RECORD", "".join(path + ",,\\n" for path in (*files, info + "/RECORD")))
    return name
"""
"""A build backend, so that pip can install the project without a network."""


def python_project(folder: Path, name: str) -> Path:
    return make_repository(
        folder,
        {
            ".gitignore": ".venv/\n",
            "pyproject.toml": f'[project]\nname = "{name}"\nversion = "1"\n'
            '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
            "backend.py": _BACKEND % {"name": name},
            f"src/{name}.py": 'IT = "right"\n',
            "check.py": f'import {name}\nassert {name}.IT == "right", {name}.IT\n',
        },
        has_user=True,
    )


def executed(project: Path, *commands: str, validate: str | None = None, **settings: str) -> tuple[Holdfast, Any]:
    file = project.parent / "plan.yaml"
    lines = [
        f"name: try\nresources: {{app: {{type: git, path: {project.name}}}}}\npolicy: {{on_failure: keep}}\nsteps:"
    ]
    lines += [f"  - run: |\n      {command}" for command in commands]
    lines += [f"validate:\n  - {validate}"] if validate else []
    file.write_text("\n".join(lines) + "\n")
    overrides = {name.replace("__", ".").replace("_", "-"): value for name, value in settings.items()}
    home = project.parent / "home"
    holdfast = Holdfast.open(project, home=home, environment=dict(os.environ), overrides=overrides)
    return holdfast, holdfast.execute(holdfast.create_plan(file).plan_id)


def last_output(holdfast: Holdfast, result: ExecutionResult) -> str:
    return holdfast.runs(result.plan.plan_id)[-1].output


@pytest.fixture(scope="module")
def with_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a virtual environment in which it is installed as editable, by pip."""
    project = python_project(tmp_path_factory.mktemp("python") / "project", "thing")
    venv.create(project / ".venv", with_pip=True)
    installing = [".venv/bin/pip", "install", "--quiet", "--no-build-isolation", "--no-index", "--editable", "."]
    subprocess.run(installing, cwd=project, check=True)
    return project


def test_a_validation_in_a_virtual_environment_sees_the_broken_code(with_environment: Path) -> None:
    break_it = """sed -i 's/right/wrong/' src/thing.py"""
    holdfast, result = executed(with_environment, break_it, validate=".venv/bin/python check.py")
    with holdfast:
        assert not result.succeeded
        assert "AssertionError: wrong" in last_output(holdfast, result)
    assert (with_environment / "src" / "thing.py").read_text() == 'IT = "right"\n'


def test_with_its_own_path_it_warns_that_the_environment_leads_to_the_real_folder(with_environment: Path) -> None:
    break_it = """sed -i 's/right/wrong/' src/thing.py"""
    holdfast, result = executed(
        with_environment, break_it, validate=".venv/bin/python check.py", sandbox__view="own-path"
    )
    holdfast.close()
    assert result.succeeded, "the environment imports the real sources, which are right"
    assert result.own_path.leading_out == (".venv",)


def test_pip_installs_into_the_sandbox_only_and_a_rollback_takes_it_back(with_environment: Path) -> None:
    other = python_project(with_environment.parent / "other", "other")
    look = '.venv/bin/python -c "import other; print(other.__file__)"'
    holdfast, result = executed(
        with_environment,
        f".venv/bin/pip install --quiet --no-build-isolation --no-index --no-cache-dir {other}",
        look,
    )
    with holdfast:
        assert result.succeeded, result.failed_run
        assert last_output(holdfast, result).startswith(f"{with_environment}/.venv/lib/")
        assert subprocess.run(look, shell=True, cwd=with_environment, capture_output=True, check=False).returncode != 0
        sandbox = Path(result.plan.resources[0].sandbox_path)
        assert list(sandbox.glob(".venv/lib/*/site-packages/other.py"))
        first = holdfast.checkpoints(result.plan.plan_id)[0].checkpoint.checkpoint_id
        holdfast.rollback(result.plan.plan_id, first)
        assert not list(sandbox.glob(".venv/lib/*/site-packages/other*"))
        assert list(sandbox.glob(".venv/lib/*/site-packages/thing.pth"))


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed")
def test_an_environment_made_by_uv_runs_the_sources_of_the_sandbox(tmp_path: Path) -> None:
    project = python_project(tmp_path / "project", "thing")
    environment = {**os.environ, "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_OFFLINE": "1"}
    for words in (["venv", "--quiet", "--python", sys.executable], ["pip", "install", "--quiet", "--editable", "."]):
        subprocess.run(["uv", *words], cwd=project, env=environment, check=True)
    holdfast, result = executed(project, "sed -i 's/right/wrong/' src/thing.py", validate=".venv/bin/python check.py")
    with holdfast:
        assert "AssertionError: wrong" in last_output(holdfast, result)


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_a_node_project_has_its_modules_and_its_environment_file(tmp_path: Path) -> None:
    project = make_repository(
        tmp_path / "project",
        {
            ".gitignore": "node_modules/\n.env\n",
            "package.json": '{"name": "thing", "version": "1.0.0"}',
            "lib/package.json": '{"name": "lib", "version": "1.0.0", "bin": "main.js"}',
            "lib/main.js": '#!/usr/bin/env node\nconsole.log("right")\n',
        },
        has_user=True,
    )
    (project / ".env").write_text("TOKEN=x\n")
    install = "npm install --offline --no-audit --no-fund --cache {cache} {what}"
    subprocess.run(install.format(cache=tmp_path / "cache", what="./lib"), shell=True, cwd=project, check=True)
    shutil.copytree(project / "lib", tmp_path / "more")
    (tmp_path / "more" / "package.json").write_text('{"name": "more", "version": "1.0.0", "bin": "main.js"}')
    holdfast, result = executed(
        project,
        install.format(cache="$TMPDIR", what=tmp_path / "more"),
        "sed -i s/right/changed/ lib/main.js; cat .env; node_modules/.bin/lib; node_modules/.bin/more",
    )
    with holdfast:
        assert result.succeeded, result.failed_run
        assert last_output(holdfast, result) == "TOKEN=x\nchanged\nright\n"
    assert not (project / "node_modules" / "more").is_symlink()


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_a_build_folder_of_cmake_builds_the_sources_of_the_sandbox(tmp_path: Path) -> None:
    files = {
        ".gitignore": "build/\n",
        "CMakeLists.txt": "cmake_minimum_required(VERSION 3.10)\nproject(thing C)\nadd_executable(thing thing.c)\n",
        "thing.c": '#include <stdio.h>\nint main(void) { puts("right"); return 0; }\n',
    }
    project = make_repository(tmp_path / "project", files, has_user=True)
    for words in (["-S", ".", "-B", "build"], ["--build", "build"]):
        subprocess.run(["cmake", *words], cwd=project, check=True, stdout=subprocess.DEVNULL)
    change = "sed -i s/right/changed/ thing.c && cmake --build build >/dev/null && build/thing"
    holdfast, result = executed(project, change)
    with holdfast:
        assert result.succeeded, result.failed_run
        assert last_output(holdfast, result) == "changed\n"
    assert subprocess.run([project / "build" / "thing"], capture_output=True, check=True).stdout == b"right\n"


def as_a_user(folder: str) -> list[Any]:
    """The same with an environment that is made by hand: the user's Python may come without pip."""
    project = python_project(Path(folder) / "project", "thing")
    venv.create(project / ".venv", symlinks=True)
    [packages] = project.glob(".venv/lib/*/site-packages")
    (packages / "thing.pth").write_text(f"{project}/src\n")
    broken = executed(project, "sed -i 's/right/wrong/' src/thing.py", validate=".venv/bin/python check.py")
    with broken[0] as holdfast:
        said = last_output(holdfast, broken[1])
    return [broken[1].succeeded, said, git(project, "status", "--porcelain")]


def test_a_user_without_rights_gets_the_same_answer() -> None:
    with folder_for_nobody() as folder:
        succeeded, said, status = run_as_a_user(as_a_user, str(folder))
    assert not succeeded
    assert "AssertionError: wrong" in said
    assert status == ""
