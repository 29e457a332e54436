"""Long work on files as progress notifications of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.mcp.tools import Call
from holdfast.system.progress import Watcher, Working


def watcher_for(call: Call) -> Watcher | None:
    """Tells the client about long work, if it asked for that with a token."""
    token = call.progress_token
    return None if token is None else _Told(token, call.notify).tell


class _Told:
    """Each piece of work counts one: how many a call has is not known before, and progress must always grow."""

    def __init__(self, token: int | str, notify: Callable[[str, dict[str, Any]], None]) -> None:
        self._token, self._notify = token, notify
        self._finished, self._last = 0, -1.0

    def tell(self, working: Working) -> None:
        at = self._finished + (1.0 if working.is_over else min(working.fraction, 0.999))
        self._finished += working.is_over
        if at > self._last:
            self._last = at
            counted = f": {working.files_done:,} of {working.files_total:,} files" if working.files_total else ""
            message = f"{working.work} {working.what}{counted}"
            self._notify("notifications/progress", {"progressToken": self._token, "progress": at, "message": message})
