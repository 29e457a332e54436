"""A home that can only be read: what only looks works, and everything else is refused in plain words."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.project import Project

STEPS = "".join(
    f"  - {{name: {name}, tool: write_file, args: {{path: {name}, content: {name}}}}}\n" for name in ("one", "two")
)
_CAPABILITIES = "-dac_override,-dac_read_search,-fowner"
_WITHOUT_PRIVILEGES = ["setpriv", f"--bounding-set={_CAPABILITIES}", f"--inh-caps={_CAPABILITIES}"]
_PROGRAM = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from holdfast.cli.main import run
answers = []
for command in json.loads(sys.argv[1]):
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        code = run(command)
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    answers.append([code, *texts])
print(json.dumps(answers))
"""

Answers = dict[str, tuple[int, str, str]]
Asking = Callable[[Sequence[Sequence[str]]], Answers]


def ask(project: Project, before: list[str], commands: Sequence[Sequence[str]]) -> Answers:
    """Run all of them in one process of its own, and tell how each ended and what it printed."""
    done = subprocess.run(
        [*before, sys.executable, "-c", _PROGRAM, json.dumps([list(each) for each in commands])],
        cwd=project.folder,
        env={**project.environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    return {" ".join(command): tuple(answer) for command, answer in zip(commands, answers, strict=True)}


@pytest.fixture
def plan(project: Project) -> str:
    return str(project.json("plan", "execute", str(project.plan(STEPS)))["plan_id"])


def close_to_writers(home: Path) -> None:
    for path in (*home.rglob("*"), home):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o555)


@pytest.fixture(params=["no permission", "a read-only mount"])
def asking(project: Project, plan: str, request: pytest.FixtureRequest) -> Any:
    """Asks in a home that cannot be written."""
    if request.param == "no permission":
        if os.geteuid() == 0 and shutil.which("setpriv") is None:
            pytest.skip("root can write everything, and there is no setpriv to change that")
        close_to_writers(project.home)
        yield lambda commands: ask(project, _WITHOUT_PRIVILEGES if os.geteuid() == 0 else [], commands)
        subprocess.run(["chmod", "-R", "u+rwX", project.home], check=True)
        return
    mount = f'mount --bind "{project.home}" "{project.home}" && mount -o remount,ro,bind "{project.home}"'
    before = ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh"]
    if subprocess.run([*before, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine does not let us mount anything")
    yield lambda commands: ask(project, before, commands)


def everything_in(home: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in sorted(home.rglob("*"))}


def test_what_only_looks_works(project: Project, plan: str, asking: Asking) -> None:
    first, *_, last = (
        each["checkpoint_id"]
        for each in json.loads(asking([["checkpoint", "list", "--format", "json"]]).popitem()[1][1])["data"][
            "checkpoints"
        ]
    )
    before = everything_in(project.home)
    answers = asking(
        [
            ["plan", "list"], ["plan", "list", "--all"], ["plan", "status"], ["plan", "log"], ["log"], ["plan", "tree"],
            ["plan", "diff", "--name-only"], ["plan", "diff", "-p", plan, first, last], ["checkpoint", "list"],
            ["checkpoint", "show", last], ["checkpoint", "verify"], ["config", "list"],
        ]
    )  # fmt: skip
    assert {command: answer for command, answer in answers.items() if answer[0] != 0} == {}
    assert "one" in answers["plan diff --name-only"][1]
    assert "+two" in answers[f"plan diff -p {plan} {first} {last}"][1]
    assert everything_in(project.home) == before


def test_a_diff_tells_of_what_no_checkpoint_has(project: Project, plan: str) -> None:
    (project.sandbox() / "late").write_text("a line\n")
    (project.sandbox() / "large").write_bytes((b"x" * 1023 + b"\n") * (4 << 10))
    close_to_writers(project.home)
    try:
        before = _WITHOUT_PRIVILEGES if os.geteuid() == 0 else []
        _, shown, _ = ask(project, before, [["plan", "diff", "-p", plan]]).popitem()[1]
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", project.home], check=True)
    assert "+a line" in shown
    assert "+++ b/app/large" in shown


def test_the_doctor_calls_it_read_only_and_not_damaged(project: Project, asking: Asking) -> None:
    code, answer, _ = asking([["doctor", "--format", "json"]]).popitem()[1]
    found = {each["name"]: each for each in json.loads(answer)["data"]["findings"]}
    assert code == 6
    assert "is read-only" in found["home"]["detail"]
    assert "structure" not in found
    assert found["content"]["level"] == found["records"]["level"] == "ok"


def test_what_changes_something_is_refused_and_says_why(project: Project, plan: str, asking: Asking) -> None:
    checkpoint = json.loads(asking([["checkpoint", "list", "--format", "json"]]).popitem()[1][1])["data"][
        "checkpoints"
    ][0]
    before = everything_in(project.home)
    answers = asking(
        [
            ["plan", "create", str(project.plan(STEPS, name="other.yaml"))], ["plan", "execute", plan],
            ["plan", "rollback", "--yes", plan, checkpoint["checkpoint_id"]], ["plan", "apply", "--yes", plan],
            ["plan", "apply", "--dry-run", plan], ["plan", "delete", "--yes", plan], ["checkpoint", "create", plan],
            ["checkpoint", "prune", plan], ["run", "--", "true"],
        ]
    )  # fmt: skip
    for command, (code, _, said) in answers.items():
        assert code == 6, (command, said)
        assert "is read-only: nothing in it can be changed" in said
    assert everything_in(project.home) == before
    assert not (project.app / "one").exists()


def test_what_a_killed_process_left_in_the_log_is_read(project: Project, plan: str, asking: Asking) -> None:
    """The log and its index are there, and neither can be written."""
    subprocess.run(["chmod", "-R", "u+rwX", project.home], check=True)
    killed = (
        "import os, signal, sys; from holdfast.app import Holdfast; from pathlib import Path;"
        "opened = Holdfast.open(Path(sys.argv[1]), home=Path(sys.argv[2]));"
        "opened.create_plan(Path(sys.argv[3])); os.kill(os.getpid(), signal.SIGKILL)"
    )
    file = project.plan(STEPS, name="other.yaml")
    subprocess.run([sys.executable, "-c", killed, project.folder, project.home, file], check=False)
    assert (project.home / "holdfast.db-wal").stat().st_size
    close_to_writers(project.home)
    answers = asking([["plan", "list", "--format", "json"], ["checkpoint", "verify"]])
    assert len(json.loads(answers["plan list --format json"][1])["data"]["plans"]) == 2
    assert answers["checkpoint verify"][0] == 0
