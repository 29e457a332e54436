"""Which process is the agent that started a hook: the nearest one above it that is no shell."""

from __future__ import annotations

from pathlib import Path

from holdfast.system.machine import process_of

_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "fish", "ksh", "env", "timeout"))
_MOST_ABOVE = 4


def agent_process(hook_pid: int | None) -> tuple[int, float] | None:
    """Its id and start; None if that is not known any more."""
    pid = hook_pid
    for _ in range(_MOST_ABOVE):
        above = _parent_of(pid)
        if above is None:
            return None
        pid, name = above
        if name not in _SHELLS:
            found = process_of(pid)
            return None if found is None or found.started_at is None else (pid, found.started_at)
    return None


def _parent_of(pid: int | None) -> tuple[int, str] | None:
    if pid is None:
        return None
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return (parent, Path(f"/proc/{parent}/comm").read_text().strip()) if parent > 1 else None
    except (OSError, ValueError, IndexError):
        return None
