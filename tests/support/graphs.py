"""Graphs of LangGraph whose nodes write files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph

from holdfast.langgraph import HoldfastSaver

CONFIG: RunnableConfig = {"configurable": {"thread_id": "thread"}}


class State(TypedDict):
    number: int


def graph_of(saver: HoldfastSaver, folder: Path) -> Any:
    """Three nodes; each writes a file named after itself, with the number of the state."""
    graph = StateGraph(State)
    for name in "abc":
        graph.add_node(name, writing(folder, name))
    graph.add_edge(START, "a")
    graph.add_edge("a", "b")
    graph.add_edge("b", "c")
    graph.add_edge("c", END)
    return graph.compile(checkpointer=saver)


def writing(folder: Path, name: str) -> Any:
    def node(state: State) -> State:
        (folder / f"{name}.txt").write_text(f"{state['number']}\n")
        return {"number": state["number"] + 1}

    return node


def files(folder: Path) -> dict[str, str]:
    return {each.name: each.read_text().strip() for each in folder.iterdir()}


def before(graph: Any, node: str, config: RunnableConfig = CONFIG) -> RunnableConfig:
    """The checkpoint after which that node ran first."""
    found: list[RunnableConfig] = [each.config for each in graph.get_state_history(config) if each.next == (node,)]
    return found[-1]
