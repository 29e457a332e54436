"""An environment for mini-swe-agent: runs its commands in a real folder, each recorded as a call of a session.

Name it in the configuration of the agent: ``environment_class: holdfast.minisweagent.HoldfastEnvironment``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from minisweagent import __version__
from minisweagent.environments.local import LocalEnvironment
from minisweagent.exceptions import Submitted

from holdfast.app import Holdfast
from holdfast.model import RunStatus, SessionInfo
from holdfast.sessions.recording import CallBegun, CallEnded
from holdfast.system.ids import new_id
from holdfast.system.machine import process_of

_AGENT = "mini-swe-agent"
_TOOL = "bash"


class HoldfastEnvironment(LocalEnvironment):  # type: ignore[misc]  # the package need not be installed here
    """Takes the settings of ``LocalEnvironment``; ``cwd`` is where the project is, by default the current folder."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._holdfast = Holdfast.open(Path(self.config.cwd or os.getcwd()))
        own = process_of(os.getpid())
        info = SessionInfo(
            agent=_AGENT,
            version=__version__,
            session_id=new_id(),
            pid=os.getpid(),
            process_started_at=own and own.started_at,
        )
        self._session = self._holdfast.in_place.begin(info).plan_id

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Run a command. If the files before it cannot be kept, it does not run, and the error says why."""
        in_place = self._holdfast.in_place
        with in_place.recording(self._session) as (plan, recording):
            _, run = recording.before(recording.begin(plan), CallBegun(_TOOL, action.get("command", "")), None)
        ended = CallEnded(RunStatus.INTERRUPTED)
        try:
            found: dict[str, Any] = super().execute(action, cwd, timeout=timeout)
            status = RunStatus.FAILED if found["returncode"] else RunStatus.SUCCEEDED
            ended = CallEnded(status, found["output"])
            return found
        except Submitted:
            ended = CallEnded(RunStatus.SUCCEEDED)
            raise
        finally:
            with in_place.recording(self._session) as (plan, recording):
                recording.after(plan, run, ended)
