"""Steps see the sandboxes at the paths of the real folders, and outside nothing changes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ViewError
from holdfast.events import Event, SeenAtOwnPath
from holdfast.execution import view
from holdfast.execution.executor import ExecutionResult
from holdfast.model import View
from holdfast.system.calls import ARE_COMPILED
from tests.support.repositories import git, make_repository
from tests.support.unprivileged import folder_for_nobody, run_as_a_user
from tests.support.workshop import Workshop, files, run

needs_mounts = pytest.mark.skipif(view.same_path_refusal() is not None, reason="nothing may be mounted here")
pytestmark = needs_mounts


def executed(workshop: Workshop, *steps: dict[str, Any], **settings: str) -> ExecutionResult:
    plan = workshop.create(*steps)
    return workshop.open(**settings).execute(plan.plan_id)


def mounts() -> str:
    return Path("/proc/self/mountinfo").read_text()


def test_an_absolute_path_of_the_real_folder_leads_into_the_sandbox(workshop: Workshop) -> None:
    before = mounts()
    result = executed(workshop, run(f"pwd; cat {workshop.app}/version.txt; echo 2 > {workshop.app}/version.txt"))
    assert result.succeeded
    assert (workshop.app / "version.txt").read_text() == "1\n"
    assert files(workshop.sandbox(result.plan)) == {"version.txt": "2\n"}
    assert workshop.open().runs(result.plan.plan_id)[0].output == f"{workshop.app}\n1\n"
    assert mounts() == before


def test_every_variable_and_every_tool_names_the_same_path(workshop: Workshop) -> None:
    function = "def step(context):\n    (context.root / 'from_python').write_text(str(context.root))\n"
    result = executed(
        workshop,
        run("echo $HOLDFAST_RESOURCE_APP $HOLDFAST_RESOURCE_DATA"),
        {"tool": "write_file", "args": {"path": str(workshop.app / "work.py"), "content": function}},
        {"tool": "python", "args": {"callable": "work:step"}},
        {"tool": "delete_file", "args": {"path": str(workshop.app / "work.py")}},
    )
    assert result.succeeded
    assert workshop.open().runs(result.plan.plan_id)[0].output == f"{workshop.app} {workshop.data}\n"
    assert files(workshop.sandbox(result.plan)) == {"version.txt": "1\n", "from_python": str(workshop.app)}
    assert files(workshop.app) == {"version.txt": "1\n"}


def test_an_absolute_path_elsewhere_is_refused_to_a_file_tool(workshop: Workshop) -> None:
    step = {"tool": "write_file", "args": {"path": str(workshop.data / "x"), "content": ""}}
    result = executed(workshop, step)
    assert not result.succeeded
    assert "absolute path" in (result.failed_run.error or "")


def test_git_in_the_view_finds_the_history_that_the_sandbox_borrows(workshop: Workshop) -> None:
    result = executed(
        workshop,
        run("git log --format=%s > log && git commit -q --allow-empty -m second && git fsck && env -i git log -1"),
        run("git clone -q . $TMPDIR/clone && git -C $TMPDIR/clone log --format=%s > log"),
        run("touch $(sed -n 2p .git/objects/info/alternates)/x 2>error; grep -q Read-only error"),
    )
    assert result.succeeded, result.failed_run
    assert (workshop.sandbox(result.plan) / "log").read_text() == "second\nthe first commit\n"
    assert git(workshop.app, "log", "--format=%s") == "the first commit"
    assert git(workshop.sandbox(result.plan), "log", "--format=%s") == "second\nthe first commit"


def test_a_step_may_remove_the_repository_of_its_sandbox(workshop: Workshop) -> None:
    result = executed(workshop, run("rm -rf .git && git init -q && git add . && git commit -qm new"), run("git log"))
    assert result.succeeded, result.failed_run


def test_submodules_find_their_history_too(workshop: Workshop, tmp_path: Path) -> None:
    library = make_repository(tmp_path / "library", {"a": "a\n"}, has_user=True)
    git(workshop.app, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "library")
    git(workshop.app, "commit", "-qm", "with a library")
    result = executed(workshop, run("git -C library log --format=%s; git submodule status"))
    assert result.succeeded
    said = workshop.open().runs(result.plan.plan_id)[0].output
    assert said.startswith("the first commit\n"), said
    assert git(workshop.sandbox(result.plan) / "library", "log", "--format=%s") == "the first commit"
    assert executed(workshop, run("git rm -q library && git commit -qm 'no library'")).succeeded


def test_a_folder_in_another_resource_is_seen_on_top_of_it(workshop: Workshop) -> None:
    inner = workshop.app / "inner"
    inner.mkdir()
    (inner / "x").write_text("real\n")
    holdfast = workshop.open()
    command = f"echo 1 > {inner}/x; cd {workshop.app}; echo 2 > inner/y"
    plan = holdfast.create_program_plan(["sh", "-c", command], resources=[inner, workshop.app], folder=inner)
    result = holdfast.execute(plan.plan_id)
    assert result.succeeded
    assert files(workshop.sandbox(result.plan, "inner")) == {"x": "1\n", "y": "2\n"}
    assert files(workshop.sandbox(result.plan)) == {"version.txt": "1\n", "inner/x": "real\n"}
    assert files(inner) == {"x": "real\n"}


def test_a_resource_that_is_reached_through_a_symlink(workshop: Workshop) -> None:
    link = workshop.folder / "link"
    link.symlink_to(workshop.app)
    file = workshop.folder / "linked.yaml"
    steps = [run(f"echo 1 > {link}/a; echo 2 > {workshop.app}/b; echo $HOLDFAST_RESOURCE_APP")]
    file.write_text(json.dumps({"name": "x", "resources": {"app": {"type": "git", "path": "link"}}, "steps": steps}))
    holdfast = workshop.open()
    result = holdfast.execute(holdfast.create_plan(file).plan_id)
    assert result.succeeded
    assert files(workshop.sandbox(result.plan)) == {"version.txt": "1\n", "a": "1\n", "b": "2\n"}
    assert files(workshop.app) == {"version.txt": "1\n"}


def test_what_a_step_may_write_to_inside_of_a_real_folder_stays_the_real_one(workshop: Workshop) -> None:
    cache = workshop.data / "cache"
    cache.mkdir()
    result = executed(workshop, run(f"echo x > {cache}/x; echo y > {workshop.data}/y"), sandbox__allow_write=str(cache))
    assert result.succeeded
    assert files(workshop.data) == {"orders.csv": "1;2\n", "cache/x": "x\n"}
    assert files(workshop.sandbox(result.plan, "data")) == {"orders.csv": "1;2\n", "y": "y\n"}


def test_without_its_real_folder_a_sandbox_is_seen_at_its_own_path(workshop: Workshop) -> None:
    plan = workshop.create(run("false"), run("cat $HOLDFAST_RESOURCE_DATA/orders.csv"))
    assert not workshop.open().execute(plan.plan_id).succeeded
    os.rename(workshop.data, workshop.folder / "moved")
    holdfast = workshop.open()
    holdfast.execute(plan.plan_id)
    seen = {each.name: each.view for each in holdfast.find_plan(plan.plan_id).resources}
    assert seen == {"app": View.SAME_PATH, "data": View.OWN_PATH}
    with pytest.raises(ViewError, match="no folder is there"):
        workshop.open(sandbox__view="same-path").execute(plan.plan_id)


def test_the_setting_own_path_is_obeyed_and_told(workshop: Workshop) -> None:
    environment = workshop.app / ".venv"
    environment.mkdir()
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (environment / "bin").mkdir()
    (environment / "bin" / "pytest").write_text(f"#!{environment}/bin/python\n")
    (workshop.data / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={workshop.data}\n")
    told: list[Event] = []
    plan = workshop.create(run("pwd"))
    result = workshop.open(sandbox__view="own-path").execute(plan.plan_id, listener=told.append)
    assert workshop.open().runs(plan.plan_id)[0].output == f"{workshop.sandbox(plan)}\n"
    [notice] = [each for each in told if isinstance(each, SeenAtOwnPath)]
    assert notice == result.own_path
    assert notice.leading_out == (".venv", ".")
    assert [each.view for each in result.plan.resources] == [View.OWN_PATH, View.OWN_PATH]


def test_a_moved_home_still_shows_the_borrowed_history(workshop: Workshop) -> None:
    plan = workshop.create(run("test -e $TMPDIR/no"), run("git log --format=%s"))
    assert not workshop.open().execute(plan.plan_id).succeeded
    workshop.close()
    workshop._opened.clear()
    os.rename(workshop.home, workshop.folder / "elsewhere")
    workshop.home = workshop.folder / "elsewhere"
    (workshop.folder / "plan.yaml").unlink()
    holdfast = workshop.open()
    steps = workshop.steps_file(run("git log --format=%s && sed -n 2p .git/objects/info/alternates"))
    failed = holdfast.runs(plan.plan_id)[-1].decision_id or ""
    holdfast.correct(failed, guidance="look", steps_file=steps)
    assert holdfast.execute(plan.plan_id).succeeded
    said = holdfast.runs(plan.plan_id)[-1].output
    assert (
        said == f"the first commit\n{workshop.sandbox(holdfast.find_plan(plan.plan_id)).parent}/.borrowed/app/objects\n"
    )


def is_found_out_in_this_program() -> bool:
    """Whether it is known that mounting is allowed even if no other program can be started."""
    view.same_path_refusal.cache_clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(subprocess, "Popen", unstartable)
        is_known = view.same_path_refusal() is None
    view.same_path_refusal.cache_clear()
    return is_known


def unstartable(*_arguments: Any, **_options: Any) -> None:
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


@pytest.mark.skipif(not ARE_COMPILED, reason="only a compiled child can try it")
def test_that_mounting_is_allowed_is_found_out_without_starting_a_program() -> None:
    assert is_found_out_in_this_program()
    assert run_as_a_user(is_found_out_in_this_program)


def as_a_user(folder: str) -> list[Any]:
    workshop = Workshop(Path(folder))
    before = mounts()
    result = executed(workshop, run(f"id -u; echo 2 > {workshop.app}/version.txt; git log --format=%s; ls -ln"))
    said = workshop.open().runs(result.plan.plan_id)[0].output
    views = [str(each.view) for each in result.plan.resources]
    return [said, views, files(workshop.app), files(workshop.sandbox(result.plan)), mounts() == before]


def test_a_user_without_rights_sees_the_same() -> None:
    with folder_for_nobody() as folder:
        said, views, real, sandbox, nothing_left = run_as_a_user(as_a_user, str(folder))
    assert views == ["same-path", "same-path"]
    assert said.splitlines()[1] == "the first commit"
    assert real == {"version.txt": "1\n"}
    assert sandbox == {"version.txt": "2\n"}
    assert nothing_left
