"""The child side of the python tool: imports the function, calls it, and sends its requests to the executor.

Run as a script by the executor. It needs nothing of Holdfast but this file, so it also works if the sandbox contains a
package named holdfast, or if the interpreter does not find ours. A function may name ``StepContext`` for its
type: ``def step(context: StepContext, **kwargs) -> None``.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import socket
import sys
import threading
import traceback
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator, Iterable
from functools import reduce
from pathlib import Path
from typing import Any

REQUESTS_VARIABLE = "HOLDFAST_REQUESTS_FD"


class RequestRefused(Exception):
    """The executor could not do what was asked; the message is its own."""


class StepContext:
    """What a function of the python tool gets: where it works, and how it records decisions and takes checkpoints."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.root = Path.cwd()
        self.environment = dict(os.environ)

    @property
    def guidance(self) -> str:
        """What a person said when they corrected the plan; empty if there was no correction."""
        return self.environment.get("HOLDFAST_GUIDANCE", "")

    def record_decision(
        self,
        *,
        type: str,  # noqa: A002 - one word per concept: it is the type of the decision
        question: str,
        chosen: str,
        alternatives: Iterable[str] = (),
        rationale: str = "",
        confidence: float | None = None,
    ) -> str:
        """Record a decision, which a person can correct later; its id."""
        decision = {
            "type": type,
            "question": question,
            "chosen": chosen,
            "alternatives": list(alternatives),
            "rationale": rationale,
            "confidence": confidence,
        }
        return str(self._executor.ask("record_decision", decision=decision)["id"])

    def checkpoint(self, label: str | None = None) -> str:
        """Take a checkpoint of the files as they are now; its id."""
        return str(self._executor.ask("checkpoint", label=label)["id"])


class Executor:
    """The connection to the executor: one request at a time, each waits for its answer."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._answers = channel.makefile("rb")
        self._lock = threading.Lock()

    def ask(self, request: str, **fields: Any) -> dict[str, Any]:
        with self._lock:
            self._channel.sendall(json.dumps({"request": request, **fields}).encode() + b"\n")
            line = self._answers.readline()
        if not line:
            raise RequestRefused("the executor no longer answers")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RequestRefused(answer["error"])
        return answer


def main() -> int:
    channel = socket.socket(fileno=int(os.environ.pop(REQUESTS_VARIABLE)))
    channel.set_inheritable(False)
    executor = Executor(channel)
    call = executor.ask("call")
    # What a step imports must not leave compiled files among the user's.
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.getcwd())
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        run(call["callable"], StepContext(executor), call["kwargs"])
    except Exception as error:  # noqa: BLE001 - whatever the function raises is the result of the step
        traceback.print_exception(without_our_frames(error))
        executor.ask("raised", error="".join(traceback.format_exception_only(error)).strip())
        return 1
    return 0


def run(name: str, context: StepContext, kwargs: dict[str, Any]) -> None:
    module, _, path = name.partition(":")
    function = reduce(getattr, path.split("."), importlib.import_module(module))
    result = function(context, **kwargs)  # type: ignore[operator]
    if inspect.isawaitable(result):
        import asyncio

        result = asyncio.run(_awaited(result))
    _refuse_undone(name, result)


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


def _refuse_undone(name: str, result: object) -> None:
    """Refuse a result that has yet to run: a generator, a map, an awaitable. Any other result is ignored."""
    if inspect.isawaitable(result):
        what = "an awaitable"
    elif isinstance(result, AsyncGenerator):
        what = "an async generator"
    elif isinstance(result, Generator):
        what = "a generator"
    elif isinstance(result, map | filter):
        what = f"a {type(result).__name__}"
    else:
        return
    if isinstance(result, Generator | Coroutine):
        result.close()  # or Python warns at the end that it was never awaited
    raise TypeError(f"{name} returned {what}, which was never run: let the function do the work itself")


def without_our_frames(error: BaseException) -> BaseException:
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename == __file__:
        frame = frame.tb_next
    return error.with_traceback(frame)


if __name__ == "__main__":
    sys.exit(main())
