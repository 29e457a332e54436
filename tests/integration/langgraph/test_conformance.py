"""The suite of LangGraph that tells whether a checkpointer is one, with and without folders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from itertools import count
from pathlib import Path

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate

from holdfast.langgraph import HoldfastSaver


@pytest.mark.parametrize("has_folder", [False, True])
def test_it_conforms_with_all_extended_capabilities(tmp_path: Path, has_folder: bool) -> None:
    numbers = count()

    @checkpointer_test(name=f"HoldfastSaver {has_folder}")
    async def saver() -> AsyncGenerator[BaseCheckpointSaver[str], None]:
        place = tmp_path / str(next(numbers))
        folder = place / "folder"
        folder.mkdir(parents=True)
        (folder / "notes.txt").write_text("one\n")
        with HoldfastSaver([folder] if has_folder else [], home=place / "home") as made:
            yield made

    report = asyncio.run(validate(saver))
    failures = [each for result in report.results.values() for each in result.failures]
    assert failures == []
    assert all(result.detected and result.passed for result in report.results.values())
    assert {"copy_thread", "delete_for_runs", "prune"} <= set(report.results)
