"""Status, doctor and the settings say whether steps are confined, and what no rollback takes back."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from holdfast.process.confinement import landlock_abi
from tests.integration.confinement.yard import Yard
from tests.support.workshop import run


def holdfast(yard: Yard, *arguments: str) -> str:
    command = [sys.executable, "-m", "holdfast", "--home", str(yard.home), *arguments]
    return subprocess.run(command, cwd=yard.app, check=True, capture_output=True, text=True).stdout


def data(yard: Yard, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(holdfast(yard, *arguments, "--format", "json"))["data"]
    return found


def finding(yard: Yard, *options: str) -> tuple[str, str]:
    found = {each["name"]: each for each in data(yard, *options, "doctor")["findings"]}
    return found["confinement"]["level"], found["confinement"]["detail"]


def test_the_status_of_a_plan_says_that_it_is_confined(yard: Yard) -> None:
    yard.create(run("true"))
    status = data(yard, "plan", "status")
    assert (status["confinement"], status["outside_of_rollback"]) == ("on", [])
    assert "confinement on" in " ".join(holdfast(yard, "plan", "status").split())


def test_the_status_of_a_plan_names_what_no_rollback_takes_back(yard: Yard) -> None:
    yard.create(run("true"))
    holdfast(yard, "config", "set", "sandbox.allow-write", f"{yard.outside},~/.cache")
    status = data(yard, "plan", "status")
    assert (status["confinement"], status["outside_of_rollback"]) == ("on", [str(yard.outside), f"{yard.user}/.cache"])
    shown = " ".join(holdfast(yard, "plan", "status").split())
    assert f"on; outside of rollback: {yard.outside}, {yard.user}/.cache" in shown


def test_the_status_of_a_plan_says_that_it_is_not_confined(yard: Yard) -> None:
    yard.create(run("true"))
    holdfast(yard, "config", "set", "sandbox.confine", "off")
    assert data(yard, "plan", "status")["confinement"] == "off"
    assert "off: steps can write wherever you can" in " ".join(holdfast(yard, "plan", "status").split())


def test_the_doctor_tells_what_the_kernel_can_do_and_what_is_allowed(yard: Yard) -> None:
    assert finding(yard) == ("ok", f"Landlock ABI {landlock_abi()}")
    allowed = ("--config", f"sandbox.allow-write={yard.outside}")
    assert finding(yard, *allowed) == ("ok", f"Landlock ABI {landlock_abi()}; outside of rollback: {yard.outside}")


def test_the_doctor_warns_where_steps_are_not_confined(yard: Yard) -> None:
    level, detail = finding(yard, "--config", "sandbox.confine=no")
    assert level == "warning"
    assert "turned off" in detail


def test_the_doctor_finds_an_allowed_path_that_is_not_there(yard: Yard) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        finding(yard, "--config", f"sandbox.allow-write={yard.folder}/missing")
    assert caught.value.returncode == 9
    assert "missing does not exist" in caught.value.stdout


def test_the_setting_is_shown_as_it_is_set(yard: Yard) -> None:
    assert holdfast(yard, "config", "get", "sandbox.confine") == "true\n"
    holdfast(yard, "config", "set", "sandbox.confine", "false")
    assert holdfast(yard, "config", "get", "sandbox.confine") == "false\n"
    assert data(yard, "config", "get", "sandbox.confine")["value"] is False
