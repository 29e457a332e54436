"""For graphs of LangGraph: a checkpointer that takes the files of folders along (extra ``langgraph``)."""

from __future__ import annotations

from holdfast.langgraph.saver import HoldfastSaver

__all__ = ["HoldfastSaver"]
