"""The folders of a saver: their files as moments, recorded in a session of each folder, and brought back from it.

A moment that graphs name has a label, so it is not pruned; once no graph names it any more, it is deleted. What is
decided from the records of graphs is done while no other process changes them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path

from holdfast.app import Holdfast
from holdfast.config.loading import home_directory, load_settings
from holdfast.errors import NotFoundError, StateError, UsageError
from holdfast.langgraph.records import FILE, GraphRecords, Moments
from holdfast.model import Checkpoint, CheckpointGroup, Plan, SessionInfo
from holdfast.names import name_text
from holdfast.sessions.wishes import ToCheckpoint

AGENT = "langgraph"
_LABEL = "langgraph-"


class Folders:
    def __init__(self, folders: Sequence[str | Path], home: Path | None) -> None:
        self._home = (home or home_directory(os.environ)).absolute()
        self._folders = {str(place): _Folder(place, self._home) for place in _resolved(folders)}
        self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.records = GraphRecords(self._home / FILE)

    def __bool__(self) -> bool:
        return bool(self._folders)

    def close(self) -> None:
        for each in self._folders.values():
            each.close()
        self.records.close()

    def moments_now(self) -> Moments:
        """The moments of the files as they are now, recorded if they are new."""
        with self.records.writing():
            return {path: self._moment_now(path, folder) for path, folder in self._folders.items()}

    def _moment_now(self, path: str, folder: _Folder) -> str:
        known = self.records.folder(path)
        plan, moment = folder.moment_now(*(known or (None, None)))
        if (plan, moment) != known:
            self.records.set_folder(path, plan, moment)
        return moment

    def go_to(self, moments: Moments, *, anyway: bool = False) -> None:
        """Make the files those of these moments; a folder that is known to be at its moment is left as it is.

        ``anyway``: that one too. What is in the folders is kept first. Dies in between: the next attempt goes on.
        """
        with self.records.writing():
            for path, moment in moments.items():
                known = self.records.folder(path)
                if path not in self._folders or known is None:
                    raise UsageError(
                        f"The checkpoint holds files of {name_text(path)}, which is no folder of this saver.",
                        hint="Make the HoldfastSaver with the same folders and the same home.",
                    )
                if anyway or known[1] != moment:
                    self._folders[path].restore(known[0], moment)
                    self.records.set_folder(path, known[0], moment)

    def without_moment(self, moments: Moments) -> list[str]:
        return [name_text(path) for path in self._folders if path not in moments]

    def delete_unnamed(self) -> None:
        """Delete the moments that graphs once named and no longer do. Others keep what a person had in the folder."""
        with self.records.writing():
            for path, folder in self._folders.items():
                known = self.records.folder(path)
                for moment in self.records.unnamed(path):
                    if known is not None and moment != known[1] and folder.delete(known[0], moment):
                        self.records.note_deleted(path, moment)


class _Folder:
    def __init__(self, place: Path, home: Path) -> None:
        # Not the repository around it: this folder alone is the one that was named.
        self._holdfast = Holdfast(place, home, load_settings(home, place, os.environ, {}), os.environ)

    def close(self) -> None:
        self._holdfast.close()

    def moment_now(self, plan_id: str | None, moment: str | None) -> tuple[str, str]:
        """The session's plan, and the moment of the present files: the last one if they are still as it was."""
        plan = self._found(plan_id)
        if plan is not None and moment is not None and self._is_at(plan, moment):
            return plan.plan_id, moment
        if plan is None:
            plan = self._begun()
        taken = self._holdfast.create_checkpoint(plan.plan_id, _LABEL + secrets.token_hex(6))
        return plan.plan_id, taken.checkpoint.checkpoint_id

    def _found(self, plan_id: str | None) -> Plan | None:
        with suppress(NotFoundError):  # a person may have deleted it
            return None if plan_id is None else self._holdfast.find_plan(plan_id)
        return None

    def _begun(self) -> Plan:
        in_place = self._holdfast.in_place
        begun = in_place.begin(SessionInfo(agent=AGENT, session_id=AGENT), "files of graphs")
        with in_place.recording(begun.plan_id) as (plan, recording):
            return recording.begin(plan)

    def _is_at(self, plan: Plan, moment: str) -> bool:
        store, service = self._holdfast.store, self._holdfast.service
        checkpoint = store.find(Checkpoint, moment, sound_only=True)
        group = store.find(CheckpointGroup, checkpoint.group_id, sound_only=True) if checkpoint else None
        return group is not None and service.sandboxes.states_now(plan, thorough=False) == group.states

    def restore(self, plan_id: str, moment: str) -> None:
        self._holdfast.in_place.undo(ToCheckpoint(moment, is_exact=True), session=plan_id, force=True)

    def delete(self, plan_id: str, moment: str) -> bool:
        """Whether the moment is gone; the first and the last one of the session stay."""
        try:
            self._holdfast.delete_checkpoint(plan_id, moment)
        except NotFoundError:
            return True
        except StateError:
            return False
        return True


def _resolved(folders: Sequence[str | Path]) -> list[Path]:
    places = sorted({Path(each).resolve() for each in folders})
    for outer, inner in combinations(places, 2):
        if inner.is_relative_to(outer):
            raise UsageError(
                f"{name_text(str(inner))} lies in {name_text(str(outer))}: the files in it would be held twice.",
                hint="Name only the outer folder.",
            )
    return places
