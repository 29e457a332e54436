"""HoldfastSaver: a checkpointer for LangGraph whose checkpoints hold the state of a graph and the files of folders.

Which files belong to a checkpoint. A run begins with ``get_tuple``; the files as they are then belong to the
checkpoint of its input, if it has one: a run that goes on after an interrupt has none. Each later checkpoint gets the
files as they are when it is saved, which is right with ``durability="sync"``: otherwise LangGraph saves while the
next nodes already run, and a warning says so. A checkpoint of ``update_state`` gets the files of the checkpoint that
it updates, because no node ran in between.

When files are restored. Only when a run begins at a checkpoint that its config names (replay and fork), and only in
folders that the saver last knew at another moment than that checkpoint's. So a run that goes on where the last one
ended leaves alone what the person changed since. What is in the folders is always kept in a moment first.
"""

from __future__ import annotations

import asyncio
import secrets
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from blake3 import blake3
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.langgraph.folders import Folders
from holdfast.langgraph.in_threads import InThreads
from holdfast.langgraph.records import GraphCheckpoint, GraphRecords, Key, Moments, Typed, Write

_RUNTIME = "__pregel_runtime"
"""In the config of a run, and not in that of ``get_state`` and its like."""
_DURABILITY = "__pregel_durability"
_COUNTERS = "counters_since_delta_snapshot"
_OF_NODES = "loop"
"""Source of the checkpoints that follow the work of nodes."""
_OF_NO_NODE = ("update", "fork")
"""Sources of checkpoints that differ from their parent by no work of a node."""

T = TypeVar("T")


class HoldfastSaver(InThreads):
    """Give it to ``compile(checkpointer=...)``; close it, or use it in a ``with`` block.

    ``folders``: whose files belong to the checkpoints; they must not lie in each other. ``home``: by default that of
    the command line, ``$HOLDFAST_HOME``.
    """

    def __init__(
        self, folders: Sequence[str | Path] = (), *, home: Path | None = None, serde: SerializerProtocol | None = None
    ) -> None:
        super().__init__(serde=serde)
        self._folders = Folders(folders, home)
        self._records: GraphRecords = self._folders.records
        self._at_start: dict[tuple[str, str], Moments] = {}
        """By thread and namespace, the files as they were when the run began; for the checkpoint of its input."""
        self._warned = False

    def close(self) -> None:
        self._folders.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    # Reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, namespace = _place(config)
        found = self._found(config)
        if self._folders and _RUNTIME in config["configurable"]:
            self._begin_run(thread_id, namespace, found if get_checkpoint_id(config) else None)
        return None if found is None else self._tuple(found)

    def _begin_run(self, thread_id: str, namespace: str, named: GraphCheckpoint | None) -> None:
        """Restore the files of the checkpoint that the run names, if it goes back; note which files it begins with."""
        if named is not None and not namespace:
            self._folders.go_to(named.moments)
            for path in self._folders.without_moment(named.moments):
                warnings.warn(f"The checkpoint holds no files of {path}; they stay as they are.", stacklevel=2)
        self._at_start[thread_id, namespace] = self._folders.moments_now()

    def restore_files(self, config: RunnableConfig) -> None:
        """Make the files those of a checkpoint, by default of the latest, without running the graph."""
        found = self._found(config)
        if found is not None:
            self._folders.go_to(found.moments, anyway=True)

    def files_of(self, config: RunnableConfig) -> dict[Path, str]:
        """By folder, the checkpoint of Holdfast that holds the files: for ``holdfast checkpoint show`` and its like."""
        found = self._found(config)
        return {} if found is None else {Path(folder): moment for folder, moment in found.moments.items()}

    def _found(self, config: RunnableConfig) -> GraphCheckpoint | None:
        (thread_id, namespace), wanted = _place(config), get_checkpoint_id(config)
        if wanted:
            return self._records.find(Key(thread_id, namespace, wanted))
        return self._records.latest(thread_id, namespace)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the name in LangGraph
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        wanted = config["configurable"] if config else {}
        found = self._records.newest_first(
            wanted.get("thread_id"),
            wanted.get("checkpoint_ns"),
            wanted.get("checkpoint_id") or None,
            get_checkpoint_id(before) if before else None,
        )
        left = limit
        for each in found:
            if left is not None and left <= 0:
                return
            metadata = self.serde.loads_typed(each.metadata)
            if filter and any(metadata.get(key) != value for key, value in filter.items()):
                continue
            left = None if left is None else left - 1
            yield self._tuple(each)

    def _tuple(self, found: GraphCheckpoint) -> CheckpointTuple:
        key = found.key
        values = {name: self.serde.loads_typed(typed) for name, typed in self._records.values(key).items()}
        body: Checkpoint = self.serde.loads_typed(found.body)
        body["channel_values"] = values
        return CheckpointTuple(
            config=_config(key),
            checkpoint=body,
            metadata=self.serde.loads_typed(found.metadata),
            parent_config=_config(Key(key.thread_id, key.namespace, found.parent_id)) if found.parent_id else None,
            pending_writes=[
                (each.task_id, each.channel, self.serde.loads_typed(each.value)) for each in self._records.writes(key)
            ],
        )

    # Writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread_id, namespace = _place(config)
        key, parent_id = Key(thread_id, namespace, checkpoint["id"]), get_checkpoint_id(config)
        said = get_checkpoint_metadata(config, metadata)
        channels, values = self._channels(key, parent_id, checkpoint, new_versions)
        body = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        with self._records.writing():
            found = GraphCheckpoint(
                key=key,
                parent_id=parent_id,
                run_id=said.get("run_id"),
                body=self.serde.dumps_typed(body),
                metadata=self.serde.dumps_typed(said),
                moments=self._moments_for(key, parent_id, said, config),
            )
            self._records.put(found, channels, values)
        return _config(key)

    def _channels(
        self, key: Key, parent_id: str | None, checkpoint: Checkpoint, new_versions: ChannelVersions
    ) -> tuple[dict[str, bytes], dict[bytes, Typed]]:
        """The digests of all values by channel, and the values that the parent does not have."""
        known = self._records.channels(Key(key.thread_id, key.namespace, parent_id)) if parent_id else {}
        channels: dict[str, bytes] = {}
        values: dict[bytes, Typed] = {}
        for name, value in checkpoint["channel_values"].items():
            if name in known and name not in new_versions:
                channels[name] = known[name]
                continue
            kind, data = self.serde.dumps_typed(value)
            digest = channels[name] = blake3(kind.encode() + b"\0" + data).digest()
            values[digest] = (kind, data)
        return channels, values

    def _moments_for(
        self, key: Key, parent_id: str | None, metadata: CheckpointMetadata, config: RunnableConfig
    ) -> Moments:
        if not self._folders:
            return {}
        at_start = self._at_start.pop((key.thread_id, key.namespace), None)
        if at_start is not None and metadata.get("source") != _OF_NODES:
            return at_start
        parent = self._records.find(Key(key.thread_id, key.namespace, parent_id)) if parent_id else None
        if parent is not None and metadata.get("source") in _OF_NO_NODE:
            return parent.moments
        self._warn_about_durability(config)
        return self._folders.moments_now()

    def _warn_about_durability(self, config: RunnableConfig) -> None:
        is_run = _RUNTIME in config["configurable"]
        if is_run and not self._warned and config["configurable"].get(_DURABILITY) != "sync":
            self._warned = True
            warnings.warn(
                'The graph runs without durability="sync": the files of a checkpoint may be those of a later step.',
                stacklevel=2,
            )

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread_id, namespace = _place(config)
        found = [
            Write(task_id, WRITES_IDX_MAP.get(channel, number), task_path, channel, self.serde.dumps_typed(value))
            for number, (channel, value) in enumerate(writes)
        ]
        self._records.put_writes(Key(thread_id, namespace, config["configurable"]["checkpoint_id"]), found)

    def get_next_version(self, current: str | None, channel: None) -> str:  # noqa: ARG002 - LangGraph's signature
        """Versions with a random end: two branches from one checkpoint must not have equal ones."""
        number = int(str(current).partition(".")[0]) if current is not None else 0
        return f"{number + 1:032}.{secrets.token_hex(8)}"

    # Deleting and copying. Moments that no checkpoint names any more are deleted after the rows that did.

    def delete_thread(self, thread_id: str) -> None:
        self._records.delete_thread(thread_id)
        self._folders.delete_unnamed()

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._records.delete(self._records.of_runs(run_ids))
        self._folders.delete_unnamed()

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._records.copy_thread(source_thread_id, target_thread_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """``keep_latest``: with each latest checkpoint those before it stay that its delta channels are made of."""
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"there is no strategy {strategy!r} to prune with: it is keep_latest or delete")
        for thread_id in thread_ids:
            if strategy == "delete":
                self._records.delete_thread(thread_id)
            else:
                self._records.delete(self._superseded(thread_id))
        self._folders.delete_unnamed()

    def _superseded(self, thread_id: str) -> Sequence[Key]:
        found = list(self._records.newest_first(thread_id, None, None, None))
        kept: set[Key] = set()
        for namespace in {each.key.namespace for each in found}:
            line = {each.key.checkpoint_id: each for each in found if each.key.namespace == namespace}
            kept |= self._needed_by_latest(line)
        return [each.key for each in found if each.key not in kept]

    def _needed_by_latest(self, line: dict[str, GraphCheckpoint]) -> set[Key]:
        latest = line[max(line)]
        counters = self.serde.loads_typed(latest.metadata).get(_COUNTERS, {})
        steps = max((supersteps for _, supersteps in counters.values()), default=0)
        kept, at = {latest.key}, latest
        while steps and (parent := line.get(at.parent_id or "")) is not None:
            kept.add(parent.key)
            at, steps = parent, steps - 1
        return kept


def _place(config: RunnableConfig) -> tuple[str, str]:
    """The thread and the namespace."""
    wanted = config["configurable"]
    return str(wanted["thread_id"]), wanted.get("checkpoint_ns") or ""


def _config(key: Key) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": key.thread_id,
            "checkpoint_ns": key.namespace,
            "checkpoint_id": key.checkpoint_id,
        }
    }
