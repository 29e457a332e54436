"""`holdfast run`: any program in a sandbox, with checkpoints while it works."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import IO, Any

import pytest

from tests.integration.cli.project import Ended, Project, wait_until
from tests.integration.cli.resting import resting

EDITS = "echo one > f; rest; echo two >> f; rest; rm f version.txt"


def run(project: Project, *arguments: str, variables: dict[str, str] | None = None, cwd: Path | None = None) -> Ended:
    return project.run("run", *arguments, variables=variables or {}, cwd=cwd or project.app)


def in_app(project: Project, *arguments: str) -> Any:
    ended = project.run(*arguments, "--format", "json", cwd=project.app)
    assert ended.exit_code == 0, ended
    return ended.data


def test_a_program_that_edits_waits_edits_and_deletes_can_be_taken_back_point_by_point(project: Project) -> None:
    with resting(project) as beginning:
        ended = run(project, "--settle", "300ms", "--", "sh", "-c", beginning + EDITS)
    assert ended.exit_code == 0, ended
    assert (project.app / "version.txt").read_text() == "1\n"
    plan = in_app(project, "plan", "status")
    sandbox = Path(plan["resources"][0]["sandbox_path"])
    moments = {
        tuple(each["triggers"]): each["checkpoint_id"] for each in in_app(project, "checkpoint", "list")["checkpoints"]
    }
    settled = [
        each["checkpoint_id"]
        for each in in_app(project, "checkpoint", "list")["checkpoints"]
        if each["triggers"] == ["settled"]
    ]
    assert len(settled) == 2
    expected = {
        settled[0]: {"f": "one\n", "version.txt": "1\n"},
        settled[1]: {"f": "one\ntwo\n", "version.txt": "1\n"},
        moments["on_tool_write_complete",]: {},
    }
    for checkpoint, files in expected.items():
        in_app(project, "plan", "rollback", "--yes", "latest", checkpoint)
        found = {path.name: path.read_text() for path in sandbox.iterdir() if path.is_file()}
        assert found == files


def test_its_exit_code_is_the_programs_and_its_output_goes_where_it_would_have_gone(project: Project) -> None:
    ended = run(project, "--", "sh", "-c", "echo out; echo wrong >&2; exit 3")
    assert (ended.exit_code, ended.stdout) == (3, "out\n")
    assert "wrong\n" in ended.stderr
    assert "sh ended with exit code 3." in ended.stderr


def test_a_program_ended_by_a_signal_ends_as_shells_say_it(project: Project) -> None:
    assert run(project, "--", "sh", "-c", "kill -TERM $$").exit_code == 128 + signal.SIGTERM


def test_a_program_that_does_not_exist_is_said_before_anything_is_made(project: Project) -> None:
    (project.app / "not-executable").write_text("#!/bin/sh\n")
    (project.app / "our-script").write_text("#!/bin/sh\nexit 5\n")
    (project.app / "our-script").chmod(0o755)
    for program in ("typo", "./no-such-program", "/no/such/program", "our-script", "./not-executable", ""):
        ended = run(project, "--", program)
        assert ended.exit_code == 127, ended
        assert f"""{program or '""'} cannot be started""" in ended.stderr
    assert "cannot be started: Is a directory." in run(project, "--", "./src").stderr
    assert run(project, "--format", "json", "--", "typo").data["error"]["type"] == "ProgramError"
    assert project.json("plan", "list", "--all")["plans"] == []
    assert not list(project.home.glob("sandboxes/*"))


def test_a_program_is_looked_for_in_the_folder_it_starts_in_and_on_the_path_it_sees(project: Project) -> None:
    for folder in (project.app / "src", project.folder):
        (folder / "our-script").write_text("#!/bin/sh\necho in $PWD\nexit 5\n")
        (folder / "our-script").chmod(0o755)
    assert run(project, "--", "./our-script", cwd=project.app / "src").exit_code == 5
    assert run(project, "--", "../app/src/our-script").exit_code == 5
    assert run(project, "--", "./src/our-script").exit_code == 5
    assert run(project, "--", "./our-script").exit_code == 127
    assert run(project, "--", str(project.folder / "our-script")).exit_code == 5
    path = os.environ["PATH"]
    assert run(project, "--", "our-script", variables={"PATH": f"{path}:src"}).exit_code == 5
    assert run(project, "--", "our-script", variables={"PATH": f"{path}:{project.folder}"}).exit_code == 5
    hidden = {"PATH": f"{path}:{project.folder}", "HOLDFAST_SANDBOX_PASS_ENV": "HOME"}
    assert run(project, "--", "our-script", variables=hidden).exit_code == 127


def test_afterwards_it_shows_the_difference_and_the_commands_that_go_on(project: Project) -> None:
    ended = run(project, "--", "sh", "-c", "echo 2 > version.txt; echo new > new.txt; exit 1")
    plan_id = in_app(project, "plan", "status")["plan_id"]
    for line in (
        "M  version.txt",
        "A  new.txt",
        f"holdfast plan diff --patch {plan_id}",
        f"holdfast plan apply {plan_id}",
        f"holdfast plan delete {plan_id}",
    ):
        assert line in ended.stderr
    applied = project.run("plan", "apply", "--yes", "latest", cwd=project.app)
    assert applied.exit_code == 0, applied
    assert (project.app / "new.txt").read_text() == "new\n"


def test_it_starts_in_the_sandboxes_copy_of_the_folder_one_is_in(project: Project) -> None:
    ended = run(project, "--", "sh", "-c", "ls; pwd", cwd=project.app / "src")
    assert ended.stdout == f"main.py\n{project.app / 'src'}\n"
    own = run(project, "--config", "sandbox.view=own-path", "--", "sh", "-c", "ls; pwd", cwd=project.app / "src")
    assert "main.py" in own.stdout
    assert "/sandboxes/" in own.stdout


def test_resources_can_be_named(project: Project) -> None:
    ended = run(project, "--resource", str(project.data), "--resource", str(project.app), "--", "sh", "-c", "ls")
    assert ended.exit_code == 0, ended
    assert [each["name"] for each in in_app(project, "plan", "status")["resources"]] == ["data", "app"]


def test_its_input_is_handed_through(project: Project) -> None:
    with project.start("run", "--", "cat", cwd=project.app, stdin=subprocess.PIPE) as process:
        shown, _ = process.communicate("said to it\n")
    assert (process.returncode, "said to it\n" in shown) == (0, True)


def test_variables_and_places_are_allowed_by_name(project: Project) -> None:
    outside = project.folder / "outside"
    outside.mkdir()
    ended = run(
        project,
        *("--pass-env", "MY_KEY", "--allow-write", str(outside)),
        *("--", "sh", "-c", f'echo "$MY_KEY,$OTHER_KEY" > {outside}/seen'),
        variables={"MY_KEY": "mine", "OTHER_KEY": "not mine"},
    )
    assert ended.exit_code == 0, ended
    assert (outside / "seen").read_text() == "mine,\n"


def test_an_envelope_has_standard_output_for_itself(project: Project) -> None:
    ended = run(project, "--format", "json", "--", "sh", "-c", "echo out; echo 2 > version.txt; exit 4")
    assert (ended.exit_code, ended.data["program_exit_code"]) == (4, 4)
    assert [each["file"] for each in ended.data["changes"]] == ["version.txt"]
    assert ended.stderr == "out\n"


def test_standard_output_is_the_programs_alone(project: Project) -> None:
    with project.start("run", "--", "cat", cwd=project.app, stdin=subprocess.PIPE, text=False) as process:
        shown, told = process.communicate(b"all\0of it\xff")
    assert (process.returncode, shown) == (0, b"all\0of it\xff")
    assert b"No file changed." in told


def test_a_program_whose_reader_has_gone_away_gets_a_broken_pipe(project: Project) -> None:
    shown = project.shell("(holdfast run -- yes; echo $? > ../code) | head -2", cwd=project.app)
    assert (shown.exit_code, shown.stdout) == (0, "y\ny\n")
    assert "yes was ended by SIGPIPE" in shown.stderr
    assert (project.folder / "code").read_text() == f"{128 + signal.SIGPIPE}\n"


def test_a_program_whose_output_cannot_be_written_is_told_and_so_is_the_user(project: Project) -> None:
    for script, exit_code in (("echo once; exit 0", 6), ("echo once; exit 4", 4), ("exec yes", 128 + signal.SIGPIPE)):
        with open("/dev/full", "w") as full:
            words = ("run", "--", "sh", "-c", f"echo 2 > version.txt; {script}")
            with project.start(*words, cwd=project.app, stdout=full) as process:
                _, told = process.communicate(timeout=60)
        assert process.returncode == exit_code, told
        assert "Standard output could not be written" in told
        assert "M  version.txt" in told


def test_a_program_can_be_stopped_while_nothing_reads_what_it_prints(project: Project) -> None:
    words = ("run", "--", "sh", "-c", "echo 2 > version.txt; exec yes")
    with project.start(*words, cwd=project.app) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        wait_until(lambda: any(each.read_text() == "2\n" for each in project.home.glob("sandboxes/*/app/version.txt")))
        wait_until(lambda: is_full(process.stdout))
        process.terminate()
        told = process.stderr.read()
        assert process.wait(timeout=60) == 130
    assert "keep its work" in told


def is_full(pipe: IO[Any]) -> bool:
    """Whether a pipe holds more than any reader has taken, up to its last page."""
    waiting = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]
    return waiting >= fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) - select.PIPE_BUF


def test_what_a_slow_reader_takes_is_whole_and_in_order(project: Project) -> None:
    words = ("run", "--", "seq", "60000")
    with project.start(*words, cwd=project.app, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        wait_until(lambda: is_full(process.stdout))
        shown = process.stdout.read()
    assert (process.returncode, shown.split()) == (0, [str(each) for each in range(1, 60001)])


def test_a_variable_that_cannot_be_passed_is_refused_before_anything_is_made(project: Project) -> None:
    variables = {"MY_KEY": "mine"}
    for name, said in (
        ("MY_KEY=other", "MY_KEY=… holdfast run --pass-env MY_KEY"),
        ("UNSET", "The variable UNSET is not set"),
        ("MY-KEY", 'found "MY-KEY"'),
        ("", 'found ""'),
    ):
        ended = run(project, "--pass-env", name, "--", "true", variables=variables)
        assert ended.exit_code == 2, ended
        assert said in ended.stderr
    assert project.json("plan", "list", "--all")["plans"] == []
    shown = run(
        project, "--pass-env", "MY_*", "--pass-env", "NO_SUCH_*", "--", "sh", "-c", "echo $MY_KEY", variables=variables
    )
    assert shown.stdout == "mine\n"
    seldom = {**variables, "HOLDFAST_SANDBOX_PASS_ENV": "PATH,MY_KEY,UNSET"}
    assert run(project, "--", "sh", "-c", "echo $MY_KEY", variables=seldom).stdout == "mine\n"


def test_a_place_that_cannot_be_allowed_is_refused_before_anything_is_made(project: Project) -> None:
    for place, said in (
        ("", "--allow-write: an empty path"),
        ("nowhere", "nowhere does not exist"),
        ("/", "what Holdfast keeps"),
    ):
        ended = run(project, "--allow-write", place, "--", "true")
        assert ended.exit_code == 2, ended
        assert said in ended.stderr
    assert project.json("plan", "list", "--all")["plans"] == []


def test_wrong_arguments_are_refused(project: Project) -> None:
    assert run(project, "--settle", "soon", "--", "true").exit_code == 2
    assert run(project).exit_code == 2
    assert run(project, "--resource", "nowhere", "--", "true").exit_code == 2


def test_the_home_of_holdfast_is_no_resource(project: Project) -> None:
    ended = run(project, "--resource", str(project.folder), "--", "true")
    assert ended.exit_code == 6
    assert "holds Holdfast's own home" in ended.stderr


@pytest.mark.parametrize("inside", [".", "sandboxes", "indexes", "own/deep"])
@pytest.mark.parametrize("through_a_symlink", [False, True])
def test_what_lies_inside_of_the_home_is_no_resource(project: Project, inside: str, through_a_symlink: bool) -> None:
    assert run(project, "--", "true").exit_code == 0  # now there are sandboxes
    folder = project.home / inside
    folder.mkdir(parents=True, exist_ok=True)
    if through_a_symlink:
        (project.folder / "link").symlink_to(folder)
        folder = project.folder / "link"
    before = project.run("plan", "list", "--all", "--format", "json").data["plans"]
    for ended in (run(project, "--resource", str(folder), "--", "true"), run(project, "--", "true", cwd=folder)):
        assert ended.exit_code == 6, ended
        assert "Holdfast's own home" in ended.stderr
        assert "Work on a folder outside of it" in ended.stderr
    file = project.folder / "inside.yaml"
    file.write_text(f"name: inside\nresources: {{r: {{type: directory, path: {folder}}}}}\nsteps: [{{run: 'true'}}]\n")
    assert project.run("plan", "create", str(file)).exit_code == 6
    assert project.run("plan", "list", "--all", "--format", "json").data["plans"] == before


@pytest.mark.parametrize("name", ["r" * 250, "é" * 127, "ab-" * 85, "9" * 255])
def test_a_folder_whose_name_is_as_long_as_can_be_is_worked_on_like_any_other(project: Project, name: str) -> None:
    folder = project.folder / name
    folder.mkdir()
    ended = project.run("run", "--format", "json", "--", "sh", "-c", "echo 1 > new; rm -f gone", cwd=folder)
    assert ended.exit_code == 0, ended
    plan = ended.data["plan_id"]
    assert project.run("plan", "apply", "--yes", plan).exit_code == 0
    assert (folder / "new").read_text() == "1\n"
    first = project.run("checkpoint", "list", plan, "--format", "json").data["checkpoints"][0]["checkpoint_id"]
    assert project.run("plan", "unapply", "--yes", plan).exit_code == 0
    assert project.run("plan", "rollback", "--yes", plan, first).exit_code == 0
    assert project.run("plan", "delete", "--yes", plan).exit_code == 0
    assert list((project.home / "sandboxes").iterdir()) == []
    assert list((project.home / "indexes").iterdir()) == []


def test_folders_whose_long_names_begin_alike_have_sandboxes_of_their_own(project: Project) -> None:
    folders = [project.folder / f"{'r' * 240}-{number}" for number in range(3)]
    for folder in folders:
        folder.mkdir()
        (folder / "own").write_text(folder.name[-1])
    chosen = [argument for folder in folders for argument in ("--resource", str(folder))]
    ended = project.run("run", "--format", "json", *chosen, "--", "sh", "-c", "cat ../*/own > all")
    assert ended.exit_code == 0, ended
    names = [each["name"] for each in ended.data["resources"]]
    assert len(set(names)) == 3
    assert max(map(len, names)) <= 80
    assert project.run("plan", "apply", "--yes", ended.data["plan_id"]).exit_code == 0
    assert sorted((folders[0] / "all").read_text()) == ["0", "1", "2"]
    assert not (folders[1] / "all").exists()


def test_a_program_can_be_cancelled_from_elsewhere_and_its_work_stays(project: Project) -> None:
    words = ("run", "--settle", "100ms", "--", "sh", "-c", "echo 1 > f; sleep 60")
    process = project.start(*words, cwd=project.app, stderr=subprocess.STDOUT)

    def is_kept() -> bool:
        listed = project.run("checkpoint", "list", "--format", "json", cwd=project.app)
        return listed.exit_code == 0 and any(each["triggers"] == ["settled"] for each in listed.data["checkpoints"])

    wait_until(is_kept)
    in_app(project, "plan", "cancel", "latest")
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "holdfast plan status" in shown
    assert "keep its work  holdfast plan resume --skip" in shown
    assert (Path(in_app(project, "plan", "status")["resources"][0]["sandbox_path"]) / "f").read_text() == "1\n"


def test_stopping_it_while_its_sandbox_is_made_says_that_it_never_began(project: Project) -> None:
    tools, real = project.folder / "tools", shutil.which("git")
    tools.mkdir()
    # Git is used for the last part of making a sandbox; this one sends a Ctrl-C then.
    script = f'#!/bin/sh\ncase "$*" in *update-index*) kill -INT $PPID;; esac\nexec {real} "$@"\n'
    (tools / "git").write_text(script)
    (tools / "git").chmod(0o700)
    variables = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    ended = run(project, "--", "sh", "-c", "echo 1 > f", variables=variables)
    assert (ended.exit_code, "error" in ended.stderr) == (130, False)
    assert "Stopped before it began." in ended.stderr
    assert f"holdfast plan delete {in_app(project, 'plan', 'status')['plan_id']}" in ended.stderr
    ended = run(project, "--format", "json", "--", "true", variables=variables)
    assert (ended.exit_code, ended.data["state"], ended.data["program_exit_code"]) == (130, "cancelled", None)


@pytest.fixture
def killed(project: Project) -> Project:
    """A program wrote a file, of which there is a checkpoint, and another one; then Holdfast was killed."""
    with resting(project) as beginning:
        words = ("run", "--settle", "100ms", "--", "sh", "-c", beginning + LEAVES_WORK)
        process = project.start(*words, cwd=project.app, stdout=subprocess.DEVNULL, stderr=None)
        wait_until(lambda: any(project.home.glob("sandboxes/*/app/last")))
    process.kill()
    process.wait()
    return project


LEAVES_WORK = "echo 1 > first; rest; echo 2 > last; sleep 60"


def test_the_work_of_a_program_whose_holdfast_was_killed_can_be_kept_and_applied(killed: Project) -> None:
    plan_id = in_app(killed, "plan", "status")["plan_id"]
    keep = f"holdfast plan resume --skip {plan_id}"
    assert keep in killed.run("plan", "status", cwd=killed.app).stdout
    assert f"keep its work  {keep}" in killed.run("plan", "resume", "--dry-run", "latest", cwd=killed.app).stdout
    told = killed.run("plan", "resume", "--dry-run", "--skip", "latest", cwd=killed.app).stdout
    assert f"skips      {in_app(killed, 'plan', 'status')['steps'][0]['name']}" in told
    assert "continues  all steps are done; the result is checked again" in told
    assert "restores" not in told
    data = in_app(killed, "plan", "resume", "--skip", "latest")
    assert data["state"] == "complete"
    in_app(killed, "plan", "apply", "--yes", "latest")
    assert [(killed.app / name).read_text() for name in ("first", "last")] == ["1\n", "2\n"]


def test_of_a_program_whose_holdfast_was_killed_any_moment_can_be_kept(killed: Project) -> None:
    listed = in_app(killed, "checkpoint", "list")["checkpoints"]
    moment = next(each["checkpoint_id"] for each in listed if each["triggers"] == ["settled"])
    only = ("plan", "rollback", "--yes", "--only", ".", "latest", moment)
    refused = killed.run(*only, cwd=killed.app)
    assert refused.exit_code == 4
    assert "holdfast plan resume --skip" in refused.stderr
    in_app(killed, "plan", "resume", "--skip", "latest")
    in_app(killed, *only)
    in_app(killed, "plan", "execute", "latest")
    in_app(killed, "plan", "apply", "--yes", "latest")
    assert (killed.app / "first").read_text() == "1\n"
    assert not (killed.app / "last").exists()


def test_interactive_programs_have_a_terminal_with_keys_and_a_size(project: Project) -> None:
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(project.app)
        question = "test -t 0 && test -t 1 && echo a terminal; printf 'name? '; read name; echo hello $name"
        words = [sys.executable, "-m", "holdfast", "run", "--", "sh", "-c", question]
        os.execvpe(words[0], words, project.environment)
    shown, answered, deadline = b"", False, time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                data = os.read(terminal, 4096)
            except OSError:
                break
            shown += data
            if not data:
                break
        if b"name? " in shown and not answered:
            os.write(terminal, b"world\r")
            answered = True
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"a terminal\r\n" in shown
    assert b"hello world\r\n" in shown
