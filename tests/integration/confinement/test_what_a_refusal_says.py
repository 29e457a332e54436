"""A step that fails because a write was refused is told so, with the file and the way to allow it."""

from __future__ import annotations

import os
import shlex

import pytest

from holdfast.config.editing import set_value
from holdfast.config.loading import user_file
from holdfast.execution.executor import ExecutionResult
from tests.integration.confinement.yard import Yard


def error_of(result: ExecutionResult) -> str:
    assert not result.succeeded
    assert result.failed_run is not None
    assert result.failed_run.error is not None
    assert result.failed_run.error in (result.plan.error or "")
    return result.failed_run.error


@pytest.mark.parametrize(
    "command",
    [
        "echo x > {}/new",
        "touch {}/new",
        "mkdir -p {}/new/deep",
        "cp version.txt {}/new",
        "mv version.txt {}/new",
        "ln -s x {}/new",
        "git init -q {}/new",
        "bash -c 'echo x > {}/new'",
        'python3 -c \'open("{}/new", "w")\'',
        'python3 -c \'import shutil; shutil.move("version.txt", "{}/new")\'',
        "sh -c 'touch {}/new' && true",
        "touch {}/new || (echo 1; echo 2; echo 3; exit 7)",
    ],
)
def test_following_the_advice_of_a_refusal_lets_the_plan_go_on(yard: Yard, command: str) -> None:
    result = yard.try_step(command.format(yard.elsewhere))
    error = error_of(result)
    assert error.startswith("the command ended with exit code ")
    words = shlex.split(error.partition("`")[2].rstrip("`"))
    assert words[:4] == ["holdfast", "config", "set", "sandbox.allow-write"]
    set_value(user_file(yard.home), *words[3:])
    assert yard.open().execute(result.plan.plan_id).succeeded
    assert os.path.lexists(yard.elsewhere / "new")


def test_a_refusal_in_the_python_tool_is_explained_as_well(yard: Yard) -> None:
    work = f"def step(context):\n    open({str(yard.elsewhere / 'new')!r}, 'w')\n"
    error = error_of(
        yard.try_steps(
            {"tool": "write_file", "args": {"path": "work.py", "content": work}},
            {"tool": "python", "args": {"callable": "work:step"}},
        )
    )
    assert "work:step raised PermissionError" in error
    assert f"writing {yard.elsewhere}/new was refused" in error


def test_a_step_that_writes_to_the_real_files_is_pointed_to_its_copy(yard: Yard) -> None:
    result = yard.try_step(f"echo 2 > {yard.app}/version.txt")
    assert error_of(result).endswith(f"a step changes its copy, {yard.sandbox(result.plan)}/version.txt")


@pytest.mark.parametrize(
    "command",
    ["exit 3", "cat /no/such/file", "echo 'Permission denied'; false", "mkdir -m 0 d; /etc/passwd", "kill -9 $$"],
)
def test_a_failure_of_another_kind_is_not_put_down_to_confinement(yard: Yard, command: str) -> None:
    assert "refused" not in error_of(yard.try_step(command))


def test_without_confinement_nothing_is_put_down_to_it(yard: Yard) -> None:
    command = f"echo \"touch: cannot touch '{yard.elsewhere}/new': Permission denied\"; false"
    assert "refused" in error_of(yard.try_step(command))
    assert "refused" not in error_of(yard.try_step(command, sandbox__confine="false"))
