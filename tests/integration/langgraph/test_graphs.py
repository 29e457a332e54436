"""Real graphs whose nodes write files, with ``HoldfastSaver`` as their checkpointer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from holdfast.app import Holdfast
from holdfast.errors import DatabaseError, HoldfastError, UsageError
from holdfast.langgraph import HoldfastSaver
from holdfast.langgraph.records import FILE
from holdfast.system.sqlite import connect
from tests.support.graphs import CONFIG, State, before, files, graph_of, writing


def joined(present: list[int], writes: Sequence[list[int]]) -> list[int]:
    return [*present, *(each for some in writes for each in some)]


class Growing(TypedDict):
    numbers: Annotated[list[int], DeltaChannel(joined)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    (place / "mine.txt").write_text("mine\n")
    return place


@pytest.fixture
def saver(folder: Path, tmp_path: Path) -> Iterator[HoldfastSaver]:
    with HoldfastSaver([folder], home=tmp_path / "home") as made:
        yield made


def test_a_replay_takes_the_files_back_to_its_checkpoint(saver: HoldfastSaver, folder: Path) -> None:
    graph = graph_of(saver, folder)
    graph.invoke({"number": 1}, CONFIG, durability="sync")
    (folder / "b.txt").write_text("spoilt\n")
    (folder / "extra.txt").write_text("of a later time\n")
    graph.invoke(None, before(graph, "b"), durability="sync")
    assert files(folder) == {"mine.txt": "mine", "a.txt": "1", "b.txt": "2", "c.txt": "3"}


def test_nodes_of_a_replay_see_the_files_of_its_checkpoint(saver: HoldfastSaver, folder: Path) -> None:
    seen: list[set[str]] = []
    graph = StateGraph(State)
    graph.add_node("first", writing(folder, "first"))

    def look(state: State) -> State:
        seen.append({each.name for each in folder.iterdir()})
        (folder / "second.txt").write_text("second\n")
        return state

    graph.add_node("second", look)
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    compiled = graph.compile(checkpointer=saver)
    compiled.invoke({"number": 1}, CONFIG, durability="sync")
    compiled.invoke(None, before(compiled, "second"), durability="sync")
    assert seen == [{"mine.txt", "first.txt"}] * 2


def test_a_fork_takes_the_files_of_the_checkpoint_that_it_comes_from(saver: HoldfastSaver, folder: Path) -> None:
    graph = graph_of(saver, folder)
    graph.invoke({"number": 1}, CONFIG, durability="sync")
    fork = graph.update_state(before(graph, "b"), {"number": 70})
    assert files(folder)["b.txt"] == "2"  # looking and updating touch no file
    graph.invoke(None, fork, durability="sync")
    assert files(folder) == {"mine.txt": "mine", "a.txt": "1", "b.txt": "70", "c.txt": "71"}


def test_asyncio_takes_the_files_along_as_well(saver: HoldfastSaver, folder: Path) -> None:
    graph = graph_of(saver, folder)

    async def run() -> None:
        await graph.ainvoke({"number": 1}, CONFIG, durability="sync")
        history = [each async for each in graph.aget_state_history(CONFIG)]
        earlier = next(each.config for each in history if each.next == ("b",))
        (folder / "c.txt").write_text("spoilt\n")
        await graph.ainvoke(None, await graph.aupdate_state(earlier, {"number": 5}), durability="sync")

    asyncio.run(run())
    assert files(folder) == {"mine.txt": "mine", "a.txt": "1", "b.txt": "5", "c.txt": "6"}


def test_looking_at_the_history_changes_no_file(saver: HoldfastSaver, folder: Path) -> None:
    graph = graph_of(saver, folder)
    graph.invoke({"number": 1}, CONFIG, durability="sync")
    (folder / "mine.txt").write_text("edited\n")
    for each in graph.get_state_history(CONFIG):
        graph.get_state(each.config)
    assert files(folder)["mine.txt"] == "edited"


def test_a_run_that_goes_on_leaves_what_the_person_changed(saver: HoldfastSaver, folder: Path) -> None:
    graph = graph_of(saver, folder)
    graph.invoke({"number": 1}, CONFIG, interrupt_before=["c"], durability="sync")
    (folder / "mine.txt").write_text("edited\n")
    graph.invoke(None, CONFIG, durability="sync")
    assert files(folder) == {"mine.txt": "edited", "a.txt": "1", "b.txt": "2", "c.txt": "3"}
    (folder / "mine.txt").write_text("edited again\n")
    graph.invoke(None, graph.get_state(CONFIG).config, durability="sync")  # named, but where it is already
    assert files(folder)["mine.txt"] == "edited again"


def test_a_run_that_goes_on_after_an_interrupt_records_what_its_first_node_wrote(
    saver: HoldfastSaver, folder: Path
) -> None:
    graph = graph_of(saver, folder)
    graph.invoke({"number": 1}, CONFIG, interrupt_before=["b"], durability="sync")
    graph.invoke(None, CONFIG, durability="sync")
    saver.restore_files(before(graph, "c"))
    assert files(folder) == {"mine.txt": "mine", "a.txt": "1", "b.txt": "2"}


def test_what_a_replay_replaces_is_kept(saver: HoldfastSaver, folder: Path, tmp_path: Path) -> None:
    graph = graph_of(saver, folder)
    graph.invoke({"number": 1}, CONFIG, durability="sync")
    (folder / "mine.txt").write_text("work of the person\n")
    graph.invoke(None, before(graph, "a"), durability="sync")
    assert files(folder)["mine.txt"] == "mine"
    with Holdfast.open(folder, home=tmp_path / "home", environment={}) as holdfast:
        (session,) = holdfast.in_place.sessions()
        patches = [
            line
            for view in holdfast.checkpoints(session.plan_id)
            for each in holdfast.diff(session.plan_id, None, view.checkpoint.checkpoint_id)
            for line in each.patch
        ]
        assert "+work of the person" in patches


def test_a_person_is_asked_in_the_middle_and_the_files_stay(saver: HoldfastSaver, folder: Path) -> None:
    graph = StateGraph(State)
    graph.add_node("a", writing(folder, "a"))

    def ask(state: State) -> State:
        (folder / "answer.txt").write_text(interrupt("what?"))
        return state

    graph.add_node("ask", ask)
    graph.add_edge(START, "a")
    graph.add_edge("a", "ask")
    compiled = graph.compile(checkpointer=saver)
    compiled.invoke({"number": 1}, CONFIG, durability="sync")
    compiled.invoke(Command(resume="yes"), CONFIG, durability="sync")
    assert files(folder) == {"mine.txt": "mine", "a.txt": "1", "answer.txt": "yes"}


def test_restoring_files_does_not_run_the_graph(saver: HoldfastSaver, folder: Path) -> None:
    graph = graph_of(saver, folder)
    graph.invoke({"number": 1}, CONFIG, durability="sync")
    saver.restore_files(before(graph, "b"))
    assert files(folder) == {"mine.txt": "mine", "a.txt": "1"}
    saver.restore_files(CONFIG)
    assert files(folder) == {"mine.txt": "mine", "a.txt": "1", "b.txt": "2", "c.txt": "3"}


def test_another_process_goes_on_with_the_same_records(folder: Path, tmp_path: Path) -> None:
    with HoldfastSaver([folder], home=tmp_path / "home") as first:
        graph_of(first, folder).invoke({"number": 1}, CONFIG, durability="sync")
    with HoldfastSaver([folder], home=tmp_path / "home") as second:
        graph = graph_of(second, folder)
        assert graph.get_state(CONFIG).values == {"number": 4}
        graph.invoke(None, before(graph, "c"), durability="sync")
        assert files(folder)["c.txt"] == "3"


def test_files_that_do_not_change_make_no_new_moment(saver: HoldfastSaver, folder: Path) -> None:
    graph = StateGraph(State)
    graph.add_node("count", lambda state: {"number": state["number"] + 1})
    graph.add_edge(START, "count")
    compiled = graph.compile(checkpointer=saver)
    for _ in range(3):
        compiled.invoke({"number": 1}, CONFIG, durability="sync")
    moments = {saver.files_of(each.config)[folder] for each in compiled.get_state_history(CONFIG)}
    assert len(moments) == 1


def test_moments_stay_as_long_as_a_graph_names_them(folder: Path, tmp_path: Path, saver: HoldfastSaver) -> None:
    graph = graph_of(saver, folder)
    graph.invoke({"number": 1}, CONFIG, durability="sync")
    saver.copy_thread("thread", "copy")
    copied: RunnableConfig = {"configurable": {"thread_id": "copy"}}
    early = before(graph, "b", copied)
    moment = saver.files_of(early)[folder]
    saver.delete_thread("thread")
    (folder / "a.txt").write_text("spoilt\n")
    graph.invoke(None, early, durability="sync")
    assert files(folder)["a.txt"] == "1"
    saver.prune(["copy"])
    with Holdfast.open(folder, home=tmp_path / "home", environment={}) as holdfast:
        (session,) = holdfast.in_place.sessions()
        kept = {view.checkpoint.checkpoint_id for view in holdfast.checkpoints(session.plan_id)}
        assert moment not in kept
        assert saver.files_of(copied)[folder] in kept
        assert holdfast.verify(session.plan_id).is_sound


def test_several_threads_use_one_saver(saver: HoldfastSaver, folder: Path) -> None:
    graph = graph_of(saver, folder)
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            graph.invoke({"number": number}, {"configurable": {"thread_id": str(number)}}, durability="sync")
        except BaseException as error:  # noqa: BLE001 - told by the test
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failures == []
    for number in range(4):
        assert graph.get_state({"configurable": {"thread_id": str(number)}}).values == {"number": number + 3}


def test_without_durability_a_warning_says_what_is_uncertain(saver: HoldfastSaver, folder: Path) -> None:
    with pytest.warns(UserWarning, match="durability"):
        graph_of(saver, folder).invoke({"number": 1}, CONFIG)


def test_a_checkpoint_without_files_says_so_when_it_is_replayed(folder: Path, tmp_path: Path) -> None:
    with HoldfastSaver(home=tmp_path / "home") as without:
        graph_of(without, folder).invoke({"number": 1}, CONFIG, durability="sync")
    with HoldfastSaver([folder], home=tmp_path / "home") as saver:
        graph = graph_of(saver, folder)
        with pytest.warns(UserWarning, match="holds no files"):
            graph.invoke(None, before(graph, "b"), durability="sync")


def test_a_saver_without_the_folder_refuses_to_go_back(folder: Path, tmp_path: Path, saver: HoldfastSaver) -> None:
    graph_of(saver, folder).invoke({"number": 1}, CONFIG, durability="sync")
    other = tmp_path / "other"
    other.mkdir()
    with HoldfastSaver([other], home=tmp_path / "home") as second:
        graph = graph_of(second, folder)
        with pytest.raises(UsageError, match="no folder of this saver"):
            graph.invoke(None, before(graph, "b"), durability="sync")


def test_folders_in_each_other_and_folders_of_too_much_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="lies in"):
        HoldfastSaver([folder, tmp_path], home=tmp_path / "home")
    with HoldfastSaver(["/"], home=tmp_path / "home") as saver, pytest.raises(HoldfastError):
        graph_of(saver, folder).invoke({"number": 1}, CONFIG, durability="sync")


def test_pruning_keeps_what_a_channel_of_differences_is_made_of(tmp_path: Path) -> None:
    graph = StateGraph(Growing)
    graph.add_node("grow", lambda state: {"numbers": [len(state["numbers"])]})
    graph.add_edge(START, "grow")
    with HoldfastSaver(home=tmp_path / "home") as saver:
        compiled = graph.compile(checkpointer=saver)
        for _ in range(4):
            compiled.invoke({"numbers": []}, CONFIG, durability="sync")
        saver.prune(["thread"])
        assert compiled.get_state(CONFIG).values == {"numbers": [0, 1, 2, 3]}


def test_a_strategy_to_prune_that_is_not_known_is_refused(saver: HoldfastSaver) -> None:
    with pytest.raises(ValueError, match="keep_everything"):
        saver.prune(["thread"], strategy="keep_everything")


def test_it_is_closed_by_a_block_of_asyncio(folder: Path, tmp_path: Path) -> None:
    async def run() -> None:
        async with HoldfastSaver([folder], home=tmp_path / "home") as saver:
            await graph_of(saver, folder).ainvoke({"number": 1}, CONFIG, durability="sync")

    asyncio.run(run())
    with HoldfastSaver([folder], home=tmp_path / "home") as saver:
        assert graph_of(saver, folder).get_state(CONFIG).values == {"number": 4}


def test_after_its_session_was_deleted_a_folder_gets_a_new_one(
    saver: HoldfastSaver, folder: Path, tmp_path: Path
) -> None:
    graph = graph_of(saver, folder)
    graph.invoke({"number": 1}, CONFIG, durability="sync")
    early = before(graph, "b")
    with Holdfast.open(folder, home=tmp_path / "home", environment={}) as holdfast:
        (session,) = holdfast.in_place.sessions()
        holdfast.delete(session.plan_id)
    with pytest.raises(HoldfastError):
        graph.invoke(None, early, durability="sync")
    graph.invoke({"number": 5}, CONFIG, durability="sync")
    graph.invoke(None, graph.get_state(CONFIG).config, durability="sync")
    saver.delete_thread("thread")
    assert files(folder)["c.txt"] == "7"


def test_records_of_a_newer_version_are_refused(tmp_path: Path) -> None:
    with HoldfastSaver(home=tmp_path / "home"):
        pass
    with closing(connect(tmp_path / "home" / FILE)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(DatabaseError, match="newer Holdfast"):
        HoldfastSaver(home=tmp_path / "home")
