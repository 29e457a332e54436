"""A process that runs graphs is killed: every checkpoint that is there afterwards has its state and its files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from langchain_core.runnables import RunnableConfig

from holdfast.app import Holdfast
from holdfast.langgraph import HoldfastSaver
from tests.support.graphs import before, files, graph_of

_RUN_FOR_EVER = """
import sys
from pathlib import Path
from holdfast.langgraph import HoldfastSaver
from tests.support.graphs import graph_of
folder = Path(sys.argv[1])
with HoldfastSaver([folder], home=Path(sys.argv[2])) as saver:
    graph = graph_of(saver, folder)
    for number in range(1_000_000):
        graph.invoke({"number": number}, {"configurable": {"thread_id": str(number % 3)}}, durability="sync")
        if number % 3 == 2:
            saver.prune(["0"])
        print(number, flush=True)
"""


@pytest.mark.unmeasured
@pytest.mark.parametrize("rounds", [1, 4, 7])
def test_what_a_killed_process_has_saved_can_be_gone_back_to(tmp_path: Path, rounds: int) -> None:
    folder, home = tmp_path / "work", tmp_path / "home"
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", _RUN_FOR_EVER, str(folder), str(home)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(rounds):
            assert process.stdout.readline()
        process.kill()
    with HoldfastSaver([folder], home=home) as saver:
        graph = graph_of(saver, folder)
        named = {moment for each in saver.list(None) for moment in saver.files_of(each.config).values()}
        with Holdfast.open(folder, home=home, environment={}) as holdfast:
            (session,) = holdfast.in_place.sessions()
            there = {view.checkpoint.checkpoint_id for view in holdfast.checkpoints(session.plan_id)}
            assert named <= there
            assert holdfast.verify(session.plan_id).is_sound
        thread: RunnableConfig = {"configurable": {"thread_id": "0"}}
        graph.invoke({"number": 50}, thread, durability="sync")
        graph.invoke(None, before(graph, "b", thread), durability="sync")
        found = files(folder)
        assert int(found["b.txt"]) == int(found["a.txt"]) + 1
