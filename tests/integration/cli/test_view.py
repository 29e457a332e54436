"""What the command line says about the paths at which steps see the sandboxes, also if the system refuses to help."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from tests.integration.cli.project import Ended, Project

_WITHOUT_MOUNTING = "setpriv --bounding-set -sys_admin --inh-caps -sys_admin"
needs_setpriv = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can give up the right to mount"
)


def without_mounting(project: Project, arguments: str) -> Ended:
    """In a shell whose processes may not mount, as in many containers."""
    script = f"holdfast {arguments}"
    return project.shell(f"exec {_WITHOUT_MOUNTING} {sys.executable} -m {script}", cwd=project.app)


@needs_setpriv
def test_a_system_that_does_not_let_one_mount_is_told_and_worked_around(project: Project) -> None:
    environment = project.app / ".venv"
    (environment / "bin").mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (environment / "bin" / "tool").write_text(f"#!{environment}/bin/python\n")
    ended = without_mounting(project, "run -- pwd")
    assert ended.exit_code == 0, ended
    assert "/sandboxes/" in ended.stdout
    said = " ".join(ended.stderr.split())
    assert f"steps see {project.app} at " in said
    assert "because the system does not let this user mount folders (Operation not permitted)" in said
    assert ".venv leads to the real folder: what runs from it uses the real files, not those of the sandbox" in said
    assert project.json("plan", "status", "--project", str(project.app))["resources"][0]["view"] == "own-path"
    assert "the sandbox's own path" in " ".join(
        project.call("plan", "status", "--project", str(project.app)).stdout.split()
    )


@needs_setpriv
def test_it_is_refused_before_anything_is_made_if_the_same_path_is_demanded(project: Project) -> None:
    ended = without_mounting(project, "run --config sandbox.view=same-path -- pwd")
    assert ended.exit_code == 6, ended
    assert "Steps cannot see the sandboxes at the places of the real folders" in " ".join(ended.stderr.split())
    assert not list((project.home / "sandboxes").glob("*/*"))


@needs_setpriv
def test_the_doctor_tries_it_and_says_what_to_look_at(project: Project) -> None:
    said = " ".join(without_mounting(project, "doctor").stdout.split())
    assert "warning same path Steps see the sandboxes at another path" in said
    assert "user.max_user_namespaces" in said
    assert "ok same path" in " ".join(project.call("doctor").stdout.split())
