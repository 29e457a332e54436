"""What a tool is: its declaration, what it is given when it runs, and what it gives back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from holdfast.model import DecisionSpec, Record
from holdfast.process.command import DEFAULT_OUTPUT_LIMIT_BYTES
from holdfast.process.mount import Mount
from holdfast.process.passthrough import Passthrough

if TYPE_CHECKING:
    from pydantic import BaseModel


def _no_args() -> type[BaseModel]:
    from holdfast.tools.arguments import NoArgs  # pydantic: importing it takes longer than all else that `run` imports

    return NoArgs


@dataclass(frozen=True, kw_only=True)
class ToolDeclaration:
    """What a tool does, so that the right checkpoints are taken around it; a step may override it for itself."""

    name: str
    args: type[BaseModel] | type[Record] = field(default_factory=_no_args)
    writes: bool = True
    """Whether it changes files of its sandbox."""
    checkpointable: bool = True
    """Whether all it writes is in its sandbox, so that a checkpoint holds it; matters only for a tool that writes."""
    side_effects: bool = False
    """Whether it does something outside of the sandboxes, which a rollback does not undo."""
    idempotent: bool = False
    """Whether doing it twice is as good as once; matters only for side effects."""
    timeout_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """What the executor hands to a tool for one run."""

    root: Path
    """The sandbox of the step's resource."""
    environment: Mapping[str, str]
    """The whole environment of the processes it starts."""
    record_decision: Callable[[DecisionSpec], str]
    """Records a decision and returns its id."""
    checkpoint: Callable[[str | None], str]
    """Takes a checkpoint with that label and returns its id."""
    timeout_seconds: float | None = None
    output_limit_bytes: int = DEFAULT_OUTPUT_LIMIT_BYTES
    on_output: Callable[[bytes], None] | None = None
    cancelled: threading.Event | None = None
    mark: str | None = None
    """What ``leftovers.end_leftovers`` finds this run's processes by, after a crash."""
    writable: Sequence[Path] | None = None
    """The only places where processes of the step may write; None if they are not confined."""
    on_directory: Callable[[str], None] | None = None
    """Called with the relative path of a directory in the sandbox the moment the tool has made it. A tool need not
    call it, but then the next checkpoint looks at every file."""
    seen_at: Path | None = None
    """Where processes of the step find the sandbox, if not at ``root``."""
    mounts: Sequence[Mount] = ()
    """What makes them find it there."""
    passthrough: Passthrough | None = None
    """The terminal of the person who started the plan, if there is one and the tool is to have it."""

    @property
    def folder(self) -> Path:
        """The root as the processes of the step name it."""
        return self.seen_at or self.root


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """How a run of a tool ended; an expected failure is a result with a sentence in ``error``."""

    succeeded: bool
    exit_code: int | None = None
    output: str = ""
    output_bytes: int = 0
    error: str | None = None
    cancelled: bool = False

    @classmethod
    def done(cls, output: str) -> ToolResult:
        return cls(succeeded=True, output=output, output_bytes=len(output.encode(errors="surrogatepass")))

    @classmethod
    def failed(cls, error: str) -> ToolResult:
        return cls(succeeded=False, error=error)


Args = TypeVar("Args", contravariant=True)


@runtime_checkable
class Tool(Protocol[Args]):
    """A tool: what it declares, and how it runs with arguments of its declaration's type."""

    @property
    def declaration(self) -> ToolDeclaration: ...

    def run(self, args: Args, context: ToolContext) -> ToolResult: ...


AnyTool = Tool[Any]
