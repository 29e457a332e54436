"""The tools: checkpoints of the project's folder, and ways back to them. None applies, deletes or forces anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import msgspec

from holdfast.app import CheckpointView, Declined, Holdfast
from holdfast.checkpoints.file_diffs import FileDiff
from holdfast.checkpoints.titles import checkpoint_title
from holdfast.errors import CheckpointNotFoundError, ConflictError, StateError, UsageError
from holdfast.mcp.arguments import Checkpoint, Diff, ListMoments, Restore, Rewind, Show, UndoRewind
from holdfast.mcp.confirmation import Confirmations
from holdfast.mcp.progress import watcher_for
from holdfast.mcp.results import (
    MOST_LISTED,
    Change,
    Changed,
    Difference,
    File,
    Moment,
    Shown,
    Taken,
    Timeline,
    without_long_patches,
)
from holdfast.mcp.tools import Call, InputRequired
from holdfast.model import FileChange, Plan
from holdfast.names import name_text, valid_text
from holdfast.sessions.undoing import Undo, UndoResult
from holdfast.sessions.wishes import ToCheckpoint
from holdfast.system.paths import readings
from holdfast.verbs.in_place import FolderMoment

_CONFIRM = "confirm"
_LARGEST_COMPARED_BYTES = 1 << 20
_LONGEST_SHOWN = 500


class FolderTools:
    """Holdfast is opened for each call, so no lock or connection is held while the model thinks."""

    def __init__(self, opening: Callable[[], AbstractContextManager[Holdfast]]) -> None:
        self._opening = opening
        self._confirmations = Confirmations()
        self._left: set[str] = set()
        """The checkpoints of the files as they were before what was restored and rewound here."""

    @contextmanager
    def _opened(self, call: Call) -> Iterator[Holdfast]:
        with self._opening() as holdfast, holdfast.watched_by(watcher_for(call)):
            yield holdfast

    # Looking

    def checkpoint(self, wanted: Checkpoint, call: Call) -> Taken:
        with self._opened(call) as holdfast:
            return Taken(_moment(holdfast, holdfast.in_place.checkpoint(wanted.label or None)))

    def timeline(self, wanted: ListMoments, call: Call) -> Timeline:
        with self._opened(call) as holdfast:
            in_place = holdfast.in_place
            told = _Told(holdfast)
            moments = tuple(told.moment(each) for each in in_place.moments(wanted.limit))
            return Timeline(valid_text(str(in_place.folder)), moments)

    def show(self, wanted: Show, call: Call) -> Shown:
        with self._opened(call) as holdfast:
            in_place = holdfast.in_place
            plan, view = found_in(holdfast, wanted.id)
            calls = {each.after_id: each for each in in_place.calls(plan) if each.after_id}
            moment = _Told(holdfast).moment(FolderMoment(view, plan, calls.get(view.group.group_id)))
            change = holdfast.moment_changes(plan).at(view.group, _LARGEST_COMPARED_BYTES)
            files = [_file(each, with_patch=False) for each in (*change.files(), *change.ignored_files())]
            return Shown(moment, tuple(files[:MOST_LISTED]), len(files))

    def diff(self, wanted: Diff, call: Call) -> Difference:
        with self._opened(call) as holdfast:
            plan, old = found_in(holdfast, wanted.from_id)
            new = found_in(holdfast, wanted.to)[1].checkpoint.checkpoint_id if wanted.to else None
            paths = [wanted.path] if wanted.path else []
            found = holdfast.diff(plan.plan_id, old.checkpoint.checkpoint_id, new, with_ignored=False, paths=paths)
            return without_long_patches([_file(each, with_patch=True) for each in found])

    # Going back

    def restore(self, wanted: Restore, call: Call) -> Changed:
        with self._opened(call) as holdfast:
            plan, view = found_in(holdfast, wanted.from_id)
            _refuse_whole_folder(plan, wanted.paths)
            done = holdfast.in_place.restore_paths(
                view.checkpoint.checkpoint_id, wanted.paths, confirm=lambda _: not call.is_cancelled()
            )
            return self._noted(done)

    def rewind(self, wanted: Rewind, call: Call) -> Changed:
        with self._opened(call) as holdfast, _without_options():
            in_place = holdfast.in_place
            target, undo = _target(holdfast, wanted.to)
            if undo.present == undo.wanted:
                return Changed(is_done=False, note="The files are as they were then.")
            if wanted.dry_run:
                return self._previewed(undo, call)
            seen = self._consented(undo, wanted, call)
            if seen is None:
                return Changed(is_done=False, note="The person did not agree.")
            session = undo.plan.plan_id
            done = in_place.undo(
                target, session=session, confirm=lambda now: _fingerprint(now) == seen and not call.is_cancelled()
            )
            if isinstance(done, Declined):
                return Changed(is_done=False, note="The files changed since they were looked at. Start with a dry run.")
            return self._noted(done)

    def _previewed(self, undo: Undo, call: Call) -> Changed:
        if call.client.can_ask:
            return _changed(undo, note="With dry_run=false the person is asked, and then this is done.")
        token = self._confirmations.token_for(_fingerprint(undo))
        note = "Tell the person. If they agree, call rewind with dry_run=false and this confirmation_token."
        return _changed(undo, confirmation_token=token, note=note)

    def _consented(self, undo: Undo, wanted: Rewind, call: Call) -> str | None:
        """The fingerprint of what was agreed to; None if it was not."""
        if not call.client.can_ask:
            return self._redeemed(wanted.confirmation_token, _fingerprint(undo))
        question = _question(undo)
        if not call.client.is_enveloped:
            return _fingerprint(undo) if _is_yes(call.ask("elicitation/create", question)) else None
        if call.state is None:
            asked = {_CONFIRM: {"method": "elicitation/create", "params": question}}
            raise InputRequired(asked, self._confirmations.token_for(_fingerprint(undo)))
        seen = self._redeemed(call.state, _fingerprint(undo))
        return seen if _is_yes(call.answers.get(_CONFIRM)) else None

    def _redeemed(self, token: str, present: str) -> str:
        seen = self._confirmations.used(token)
        if seen is None:
            raise UsageError(
                "This needs the confirmation_token of a dry run; each can be used once.",
                hint="Call rewind with dry_run=true first.",
            )
        if seen != present:
            raise StateError(
                "The files or the target changed since the dry run; nothing was changed.",
                hint="Call rewind with dry_run=true again.",
            )
        return seen

    def undo_rewind(self, _wanted: UndoRewind, call: Call) -> Changed:
        with self._opened(call) as holdfast, _without_options():
            last = holdfast.in_place.redo_preview().wish.target
            if holdfast.checkpoints_at(last)[0].checkpoint_id not in self._left:
                raise StateError(
                    "What was undone last in this folder was not undone here, but by a person.",
                    hint="Ask the person to bring it back: `holdfast redo`.",
                )
            return _done(
                holdfast.in_place.redo(confirm=lambda now: now.wish.target == last and not call.is_cancelled())
            )

    def _noted(self, done: UndoResult | Declined) -> Changed:
        if not isinstance(done, Declined):
            self._left.add(done.kept_checkpoint_id)
        return _done(done)


def found_in(holdfast: Holdfast, reference: str) -> tuple[Plan, CheckpointView]:
    """The checkpoint in one of the sessions of this folder, in the newest that knows it; no other is shown."""
    sessions = sorted(holdfast.in_place.sessions(), key=lambda plan: plan.updated_at, reverse=True)
    for plan in sessions:
        with suppress(CheckpointNotFoundError, StateError):
            return plan, holdfast.checkpoint(reference, plan.plan_id)
    raise CheckpointNotFoundError(
        f"There is no checkpoint {name_text(reference[:_LONGEST_SHOWN])!r} of this folder.",
        hint="timeline lists them; checkpoint takes one.",
    )


def _target(holdfast: Holdfast, reference: str) -> tuple[ToCheckpoint, Undo]:
    """What is undone to get there, and what that does.

    If calls of an agent were recorded since, only they are undone, and what others changed stays. Otherwise it is
    unknown who changed what, and the folder becomes what it was.
    """
    plan, view = found_in(holdfast, reference)
    target = ToCheckpoint(view.checkpoint.checkpoint_id)
    undo = holdfast.in_place.undo_preview(target, session=plan.plan_id)
    if undo.wish.calls:
        return target, undo
    target = ToCheckpoint(view.checkpoint.checkpoint_id, is_exact=True)
    return target, holdfast.in_place.undo_preview(target, session=plan.plan_id)


def _fingerprint(undo: Undo) -> str:
    return f"{undo.plan.plan_id} {undo.wish.target.group_id} {undo.present} {undo.wanted}"


def _refuse_whole_folder(plan: Plan, paths: Sequence[str]) -> None:
    """That is a rewind, for which a person is asked."""
    names = [each.name for each in plan.resources]
    if any(not inside for path in paths for _, inside in readings(names, path)):
        raise UsageError("restore is for single files and folders.", hint="Call rewind for the whole project.")


@contextmanager
def _without_options() -> Iterator[None]:
    """A model has no option to overwrite what cannot be merged."""
    try:
        yield
    except ConflictError as error:
        if error.paths:
            error.hint = "Restore single files with restore, or ask the person what to do."
        raise


def _question(undo: Undo) -> dict[str, Any]:
    changed = _changed(undo)
    return {
        "mode": "form",
        "message": f"Rewind {name_text(str(undo.plan.resources[0].path))}: {undo.wish.title}?\n{changed.listing()}",
        "requestedSchema": {
            "type": "object",
            "properties": {_CONFIRM: {"type": "boolean", "title": "Rewind these files", "default": True}},
            "required": [_CONFIRM],
        },
    }


def _is_yes(answer: object) -> bool:
    if not isinstance(answer, dict) or answer.get("action") != "accept":
        return False
    content = answer.get("content")
    return isinstance(content, dict) and content.get(_CONFIRM) is True


class _Told:
    """Moments with what led to them; the prompts of each session are read once."""

    def __init__(self, holdfast: Holdfast) -> None:
        self._holdfast = holdfast
        self._texts: dict[str, dict[int, str]] = {}

    def moment(self, found: FolderMoment) -> Moment:
        session, call = found.plan.session, found.call
        moment = _moment(self._holdfast, found.view)
        if call is None:
            return moment
        return msgspec.structs.replace(
            moment,
            agent=valid_text(session.agent if session else ""),
            prompt=valid_text(self._of(found.plan).get(call.prompt_number or 0, "")[:_LONGEST_SHOWN]),
            call=valid_text(call.title),
            is_failed=call.is_failed,
            is_undone=call.is_undone,
        )

    def _of(self, plan: Plan) -> dict[int, str]:
        if plan.plan_id not in self._texts:
            self._texts[plan.plan_id] = {each.number: each.text for each in self._holdfast.in_place.prompts(plan)}
        return self._texts[plan.plan_id]


def _moment(holdfast: Holdfast, view: CheckpointView) -> Moment:
    checkpoint = view.checkpoint
    return Moment(
        id=holdfast.lasting_id(checkpoint.plan_id, checkpoint.checkpoint_id),
        at=f"{view.group.created_at:%Y-%m-%d %H:%M:%S}",
        title=valid_text(checkpoint_title(checkpoint, view.group)),
        label=valid_text(view.group.label or ""),
    )


def _file(diff: FileDiff, *, with_patch: bool) -> File:
    note = ", ".join(
        filter(None, (diff.note, "no text" if diff.is_binary else "", "ignored" if diff.is_ignored else ""))
    )
    patch = valid_text("\n".join(diff.patch)) if with_patch else ""
    return File(valid_text(diff.path), diff.status, diff.added_lines, diff.removed_lines, note, patch)


def _changed(undo: Undo, *, confirmation_token: str = "", note: str = "") -> Changed:
    return Changed(
        is_done=False,
        changes=_changes(undo.changes),
        total=len(undo.changes),
        confirmation_token=confirmation_token,
        note=_with_git(undo, note),
    )


def _done(result: UndoResult | Declined) -> Changed:
    if isinstance(result, Declined):
        return Changed(is_done=False, note="The call was cancelled.")
    return Changed(
        is_done=True,
        changes=_changes(result.changes),
        total=len(result.changes),
        kept_checkpoint=result.kept_checkpoint_id,
        note=_with_git(result),
    )


def _with_git(changed: Undo | UndoResult, note: str = "") -> str:
    about = "HEAD, branches or tags of git change as well." if changed.has_other_commits else ""
    if not changed.changes and not about:
        about = "Only times, or git's own files, differ."
    return " ".join(filter(None, (about, note)))


def _changes(found: Sequence[FileChange]) -> tuple[Change, ...]:
    return tuple(Change(valid_text(each.file), each.action) for each in found[:MOST_LISTED])
