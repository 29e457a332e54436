"""How a supervised command is run, and what its result tells."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest

from holdfast.errors import SandboxError
from holdfast.process.confinement import landlock_abi
from holdfast.process.leftovers import MARK_VARIABLE


def test_output_holds_both_streams_in_the_order_they_were_printed(run):
    result = run("echo one; echo two >&2; echo three")
    assert result.output == "one\ntwo\nthree\n"
    assert (result.exit_code, result.signal, result.timed_out, result.cancelled) == (0, None, False, False)


def test_the_exit_code_of_the_command_is_reported(run):
    assert run("exit 37").exit_code == 37


def test_the_signal_that_ended_the_command_is_named(run):
    result = run("kill -SEGV $$")
    assert (result.exit_code, result.signal) == (None, "SIGSEGV")


def test_a_command_given_as_words_is_not_read_by_a_shell(run):
    assert run(["printf", "%s|", "$HOME", "a b", "line\nbreak"]).output == "$HOME|a b|line\nbreak|"


def test_the_command_runs_in_its_directory_with_just_its_environment(run, tmp_path):
    place = tmp_path / "a place\nwith a line break"
    place.mkdir()
    result = run(
        "pwd; env", cwd=place, environment={"PATH": os.environ["PATH"], "GREETING": "hallo wört", "RAW": "\udcff"}
    )
    names = {line.partition("=")[0] for line in result.output.splitlines() if "=" in line}
    assert result.output.startswith(f"{place}\n")
    assert "GREETING=hallo wört\n" in result.output
    assert names - {"PWD", "OLDPWD", "SHLVL", "_"} == {"PATH", "GREETING", "RAW", MARK_VARIABLE}


def test_bytes_of_an_environment_variable_that_are_no_text_reach_the_command(run):
    assert run('printf %s "$RAW" | od -An -tx1', environment={**os.environ, "RAW": "\udcff"}).output.strip() == "ff"


def test_the_command_finds_an_empty_standard_input(run):
    assert run("cat; echo end").output == "end\n"


def test_the_command_inherits_no_descriptors_of_ours(run):
    own = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(own, True)
    try:
        assert run("ls /proc/$$/fd; true").output.split() == ["0", "1", "2"]
    finally:
        os.close(own)


def test_a_closed_pipe_ends_a_program_quietly(run):
    assert run("yes | head -n 1").output == "y\n"


def test_signals_blocked_in_our_thread_are_not_blocked_in_the_command(run):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        assert run("kill -USR1 $$; echo survived").signal == "SIGUSR1"
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})


def test_the_end_of_the_output_is_kept_and_all_of_it_counted(run):
    result = run("seq 1 100000", output_limit_bytes=20)
    assert result.output.endswith("99999\n100000\n")
    assert len(result.output) == 20
    assert result.output_bytes == 588895


def test_an_output_limit_of_zero_keeps_nothing(run):
    result = run("echo something", output_limit_bytes=0)
    assert (result.output, result.output_bytes) == ("", 10)


def test_output_that_is_not_text_is_made_text_without_nul(run):
    result = run(r"printf 'a\0b\377c\303\244'")
    assert result.output == "a\ufffdb\ufffdcä"
    assert result.output_bytes == 7


def test_huge_output_takes_little_memory(run):
    seen = 0

    def count(data: bytes) -> None:
        nonlocal seen
        seen += len(data)

    tracemalloc.start()
    try:
        result = run("head -c 50000000 /dev/zero; echo end", on_output=count, timeout_seconds=None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (result.output_bytes, seen) == (50_000_004, 50_000_004)
    assert result.output.endswith("end\n")
    assert peak < 3_000_000


def test_output_is_handed_on_while_the_command_still_runs(run, tmp_path):
    def allow(data: bytes) -> None:
        if b"ready" in data:
            (tmp_path / "go").touch()

    result = run("echo ready; until test -e go; do sleep 0.01; done; echo gone", on_output=allow)
    assert result.output == "ready\ngone\n"


def test_a_command_that_closes_its_output_is_still_waited_for(run, tmp_path):
    result = run("exec >&- 2>&-; sleep 0.2; touch done; exit 4")
    assert (result.exit_code, result.output) == (4, "")
    assert (tmp_path / "done").exists()


def test_a_program_that_is_not_there_is_an_error_that_names_it(run):
    with pytest.raises(SandboxError, match="no-such-program cannot be started: No such file"):
        run(["no-such-program"])


def test_a_directory_that_is_not_there_is_an_error_that_names_it(run, tmp_path):
    with pytest.raises(SandboxError, match=r"missing cannot be entered: No such file"):
        run("true", cwd=tmp_path / "missing")


@pytest.mark.skipif(not landlock_abi(), reason="the kernel has no Landlock")
def test_a_command_that_cannot_be_confined_does_not_run(run, tmp_path):
    with pytest.raises(SandboxError, match="/bin/sh was not started, because it could not be confined: No such file"):
        run("touch ran", writable=[tmp_path, tmp_path / "missing"])
    assert not (tmp_path / "ran").exists()


def test_a_command_with_a_nul_is_refused(run):
    with pytest.raises(SandboxError, match="cannot be started"):
        run("echo a\0b")


def test_a_very_long_environment_arrives_whole(run):
    long = {f"LONG_{number}": "x" * 100_000 for number in range(5)}
    assert run('printf %s "$LONG_4" | wc -c', environment={**os.environ, **long}).output.strip() == "100000"


def test_many_runs_leave_no_descriptors_behind(run):
    run("true", requests=lambda _: {})
    before = os.listdir("/proc/self/fd")
    for _ in range(10):
        run("true", requests=lambda _: {})
    assert os.listdir("/proc/self/fd") == before


def test_several_threads_run_commands_at_the_same_time(run):
    results = {}

    def work(number: int) -> None:
        results[number] = run(f"sleep 0.1; echo {number}; exit {number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: (each.exit_code, each.output) for number, each in results.items()} == {
        number: (number, f"{number}\n") for number in range(4)
    }


ASK = """
import json, os, sys
channel = os.fdopen(int(os.environ["HOLDFAST_REQUESTS_FD"]), "r+b", buffering=0)
for line in sys.argv[1:]:
    channel.write(line.encode() + b"\\n")
    print(json.loads(channel.readline()))
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks at what Linux says of its processes")
def test_the_parent_of_the_command_has_nothing_of_our_environment(run, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "secret")
    result = run("cat /proc/$PPID/environ")
    assert "HOLDFAST_PROCESS_MARK" in result.output
    assert "SOME_TOKEN" not in result.output


def test_requests_of_the_command_are_answered_one_by_one(run):
    asked = []

    def answer(request: dict[str, object]) -> dict[str, object]:
        asked.append(request)
        return {"number": len(asked)}

    result = run([sys.executable, "-c", ASK, '{"a": 1}', '{"b": 2}'], requests=answer)
    assert result.output == "{'number': 1}\n{'number': 2}\n"
    assert asked == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize("line", ["no json", "[1]", "\xff"])
def test_a_request_that_is_none_is_answered_with_an_error(run, line):
    result = run([sys.executable, "-c", ASK, line], requests=lambda _: {"never": True})
    assert "a request is one JSON object on one line" in result.output


def test_the_time_an_answer_takes_does_not_count_against_the_command(run):
    pause = threading.Event()
    result = run(
        [sys.executable, "-S", "-c", ASK, "{}"],
        requests=lambda _: {"waited": pause.wait(3)},
        timeout_seconds=2.5,
    )
    assert (result.timed_out, result.output) == (False, "{'waited': False}\n")


def test_a_failure_of_ours_while_answering_ends_the_command_and_is_not_hidden(run, pid_file, tmp_path):
    def fail(request: dict[str, object]) -> dict[str, object]:
        raise ZeroDivisionError

    (tmp_path / "ask.py").write_text(ASK)
    with pytest.raises(ZeroDivisionError):
        run(f"echo $$ > main; {sys.executable} ask.py '{{}}'; sleep 1000", requests=fail)
    assert not pid_file("main").is_alive


def test_a_failure_of_ours_while_showing_output_ends_the_command_and_is_not_hidden(run, pid_file):
    def fail(data: bytes) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("echo $$ > main; echo ready; sleep 1000", on_output=fail)
    assert not pid_file("main").is_alive


def test_the_supervisor_imports_nothing_from_where_a_step_could_put_it(run, tmp_path, monkeypatch):
    (tmp_path / "ctypes.py").write_text("raise SystemExit('a module of the sandbox was imported')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert run("echo fine").output == "fine\n"


def test_a_signal_without_a_name_is_told_by_its_number(run):
    assert run("kill -40 $$").signal == "signal 40"


def test_a_command_may_ask_without_any_time_limit(run):
    result = run([sys.executable, "-S", "-c", ASK, "{}"], requests=lambda _: {}, timeout_seconds=None)
    assert (result.exit_code, result.output) == (0, "{}\n")


def test_a_lack_of_descriptors_is_an_error_of_ours(run):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    spare = [os.open(os.devnull, os.O_RDONLY) for _ in range(highest)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare) + 2, limits[1]))
    try:
        with pytest.raises(SandboxError, match="no process could be started: Too many open files"):
            run("true")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in spare:
            os.close(descriptor)
    assert run("echo again").output == "again\n"
