"""The python tool: a function in a process of its own, whose context reaches back to the executor."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from holdfast.errors import StateError
from holdfast.model import DecisionSpec, DecisionType, Step
from holdfast.tools import Toolbox, ToolContext, ToolResult
from holdfast.tools.python_child import Executor, RequestRefused


@pytest.fixture
def recorded() -> list[Any]:
    return []


@pytest.fixture
def call(tmp_path: Path, recorded: list[Any]) -> Callable[..., ToolResult]:
    """Run the function ``step`` of a module with that source."""

    def record_decision(spec: DecisionSpec) -> str:
        recorded.append(spec)
        return f"decision-{len(recorded)}"

    def checkpoint(label: str | None) -> str:
        if label == "refuse":
            raise StateError("no checkpoints today")
        recorded.append((label, sorted(path.name for path in tmp_path.iterdir())))
        return f"checkpoint-{len(recorded)}"

    def call(source: str, name: str = "work:step", **options: Any) -> ToolResult:
        (tmp_path / "work.py").write_text(dedent(source))
        kwargs = options.pop("kwargs", {})
        context = ToolContext(
            root=tmp_path,
            record_decision=record_decision,
            checkpoint=checkpoint,
            **{"environment": dict(os.environ), "timeout_seconds": 20.0, **options},
        )
        step = Step(name="a step", tool="python", resource="app", args={"callable": name, "kwargs": kwargs})
        return Toolbox.standard().run(step, context)

    return call


def test_the_function_gets_its_arguments_and_works_in_the_sandbox(call, tmp_path):
    result = call(
        """
        def step(context, name, words):
            (context.root / name).write_text(" ".join(words))
            open("relative", "w").close()
            print("done")
        """,
        kwargs={"name": "a file", "words": ["ä", "b"]},
    )
    assert (result.succeeded, result.exit_code, result.output, result.error) == (True, 0, "done\n", None)
    assert (tmp_path / "a file").read_text() == "ä b"
    assert (tmp_path / "relative").exists()


def test_importing_from_the_sandbox_leaves_no_compiled_files(call, tmp_path):
    call("def step(context): pass")
    assert [path.name for path in tmp_path.iterdir()] == ["work.py"]


def test_a_method_of_a_class_may_be_called(call):
    source = "class Tasks:\n    @staticmethod\n    def go(context): print('gone')"
    assert call(source, "work:Tasks.go").output == "gone\n"


def test_a_coroutine_function_is_really_run(call):
    result = call("import asyncio\nasync def step(context):\n    await asyncio.sleep(0)\n    print('awaited')")
    assert (result.succeeded, result.output) == (True, "awaited\n")


@pytest.mark.parametrize(
    "source",
    [
        "def step(context):\n    return main()",
        "class Later:\n    def __await__(self): return main().__await__()\ndef step(context):\n    return Later()",
        "import functools\nasync def go(word, context):\n    await main()\nstep = functools.partial(go, 'a word')",
    ],
    ids=["returned", "awaitable object", "partial"],
)
def test_whatever_can_be_awaited_is_really_run(call, source):
    result = call(f"async def main():\n    print('awaited')\n{source}")
    assert (result.succeeded, result.output) == (True, "awaited\n")


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("def step(context):\n    open('ran', 'w')\n    yield", "a generator"),
        ("def step(context):\n    return (open('ran', 'w') for _ in '1')", "a generator"),
        ("async def step(context):\n    open('ran', 'w')\n    yield", "an async generator"),
        ("async def step(context):\n    return (open('ran', 'w') for _ in '1')", "a generator"),
        ("async def go():\n    open('ran', 'w')\nasync def step(context):\n    return go()", "an awaitable"),
        ("def step(context):\n    return map(open, ['ran'], 'w')", "a map"),
        ("def step(context):\n    return filter(lambda name: open(name, 'w'), ['ran'])", "a filter"),
    ],
    ids=[
        "generator function",
        "generator",
        "async generator function",
        "generator of a coroutine",
        "coroutine of one",
        "map",
        "filter",
    ],
)
def test_a_function_whose_work_is_left_undone_in_what_it_returns_fails_and_says_so(call, tmp_path, source, what):
    result = call(source)
    assert not (tmp_path / "ran").exists()
    assert not result.succeeded
    assert f"work:step returned {what}, which was never run" in (result.error or "")
    assert "never awaited" not in result.output


def test_decisions_and_checkpoints_reach_the_executor_at_that_moment(call, recorded):
    result = call(
        """
        def step(context):
            print(context.record_decision(
                type="implementation_choice", question="How?", chosen="so",
                alternatives=["otherwise"], rationale="it is simpler", confidence=0.5,
            ))
            (context.root / "first").touch()
            print(context.checkpoint("after first"))
            (context.root / "second").touch()
            print(context.checkpoint())
        """
    )
    assert result.output == "decision-1\ncheckpoint-2\ncheckpoint-3\n"
    assert recorded == [
        DecisionSpec(
            type=DecisionType.IMPLEMENTATION_CHOICE,
            question="How?",
            chosen="so",
            alternatives=("otherwise",),
            rationale="it is simpler",
            confidence=0.5,
        ),
        ("after first", ["first", "work.py"]),
        (None, ["first", "second", "work.py"]),
    ]


def test_what_the_executor_refuses_arrives_as_an_exception(call, recorded):
    result = call("def step(context):\n    context.checkpoint('refuse')")
    assert not result.succeeded
    assert result.error == "work:step raised RequestRefused: no checkpoints today"


def test_a_refusal_may_be_handled_by_the_function(call):
    result = call(
        """
        def step(context):
            try:
                context.checkpoint("refuse")
            except Exception as error:
                print("went on:", error)
        """
    )
    assert (result.succeeded, result.output) == (True, "went on: no checkpoints today\n")


def test_a_decision_of_an_unknown_type_is_refused_with_the_field_named(call, recorded):
    result = call("def step(context):\n    context.record_decision(type='guess', question='?', chosen='!')")
    assert "Invalid enum value 'guess' - at `$.type`" in result.error
    assert recorded == []


def test_threads_of_the_function_may_ask_at_the_same_time(call, recorded):
    result = call(
        """
        import threading
        def step(context):
            ids = []
            threads = [threading.Thread(target=lambda: ids.append(context.checkpoint())) for _ in range(8)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            print(sorted(ids))
        """
    )
    assert result.output == f"{[f'checkpoint-{number}' for number in range(1, 9)]}\n"


def test_guidance_and_environment_are_in_the_context(call):
    result = call(
        "def step(context):\n    print(context.guidance, context.environment['COLOUR'], len(context.environment))",
        environment={**os.environ, "HOLDFAST_GUIDANCE": "use blue", "COLOUR": "blue"},
    )
    assert result.output.startswith("use blue blue ")


def test_an_exception_fails_the_step_with_a_traceback_of_the_function_only(call):
    result = call("def step(context):\n    print('before')\n    raise KeyError('x')")
    assert (result.succeeded, result.exit_code) == (False, 1)
    assert result.error == "work:step raised KeyError: 'x'"
    assert result.output.startswith("before\nTraceback")
    assert 'work.py", line 3, in step' in result.output
    assert "python_child.py" not in result.output


def test_a_module_that_is_not_there_fails_the_step(call):
    assert "raised ModuleNotFoundError: No module named 'nowhere'" in call("", "nowhere:step").error


def test_a_function_that_is_not_there_fails_the_step(call):
    assert "raised AttributeError" in call("", "work:nothing").error


@pytest.mark.parametrize(
    ("source", "code", "output"), [("0", 0, ""), ("3", 3, ""), ("'sorry'", 1, "sorry\n"), ("", 0, "")]
)
def test_sys_exit_ends_the_step_with_its_code(call, source, code, output):
    result = call(f"import sys\ndef step(context):\n    sys.exit({source})")
    assert (result.exit_code, result.succeeded, result.output) == (code, code == 0, output)


def test_a_function_that_ends_its_process_fails_the_step(call):
    result = call("import os, signal\ndef step(context):\n    os.kill(os.getpid(), signal.SIGKILL)")
    assert (result.succeeded, result.error) == (False, "work:step was ended by SIGKILL")


def test_a_function_that_takes_too_long_is_stopped(call):
    result = call("import time\ndef step(context):\n    time.sleep(1000)", timeout_seconds=1.0)
    assert (result.succeeded, result.error) == (False, "work:step ran longer than 1 s and was stopped")


def test_a_function_is_cancelled_like_any_step(call):
    cancelled = threading.Event()
    result = call(
        "import time\ndef step(context):\n    print('ready')\n    time.sleep(1000)",
        cancelled=cancelled,
        on_output=lambda _: cancelled.set(),
    )
    assert (result.succeeded, result.cancelled, result.error) == (False, True, "work:step was cancelled")


def test_processes_of_the_function_do_not_inherit_the_way_to_the_executor(call):
    result = call(
        """
        import os, subprocess
        def step(context):
            print("HOLDFAST_REQUESTS_FD" in os.environ)
            subprocess.run("ls /proc/$$/fd; true", shell=True, close_fds=False)
        """
    )
    assert result.output.split() == ["False", "0", "1", "2"]


def test_a_package_named_like_ours_in_the_sandbox_is_no_obstacle(call, tmp_path):
    for name in ("holdfast", "json", "socket"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('shadowed')")
    assert call("def step(context): print('fine')").output == "fine\n"


def test_a_request_that_is_too_long_is_refused_and_the_next_is_answered(call, recorded):
    result = call(
        """
        def step(context):
            try:
                context.checkpoint("x" * (17 << 20))
            except Exception:
                context.checkpoint("short")
                raise
        """
    )
    assert result.error == "work:step raised RequestRefused: a request may have at most 16 MiB"
    assert [label for label, _ in recorded] == ["short"]


def test_a_request_nobody_knows_is_refused(call):
    result = call("def step(context):\n    context._executor.ask('nonsense')")
    assert result.error == "work:step raised RequestRefused: no such request"


def test_an_executor_that_is_gone_is_noticed():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        executor = Executor(theirs)
        ours.shutdown(socket.SHUT_WR)
        with pytest.raises(RequestRefused, match="no longer answers"):
            executor.ask("checkpoint", label=None)
