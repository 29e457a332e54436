"""References: finds the checkpoint that an id, a prefix or a label names; checks labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.errors import AmbiguousError, CheckpointNotFoundError, UsageError
from holdfast.model import Checkpoint
from holdfast.names import DISPLAY_PREFIX, NOT_IN_A_NAME, did_you_mean, display_ids, name_text
from holdfast.system.ids import is_id

CANDIDATES_SHOWN = 10
LONGEST_LABEL = 100


def resolve_checkpoint(reference: str, checkpoints: Sequence[Checkpoint]) -> Checkpoint:
    """The one checkpoint of a plan with that id, display id, unique prefix of an id, label or group id.

    Ids come before labels. A label that is also a prefix of another checkpoint's id is refused as ambiguous.
    """
    ordered = sorted(checkpoints, key=lambda checkpoint: (checkpoint.sequence, checkpoint.checkpoint_id))
    wanted = reference.strip()
    if exact := _with_full_id(wanted, ordered):
        return exact
    by_id = _with_id_prefix(wanted, ordered)
    by_label = _first_of_each_group(each for each in ordered if each.metadata.label == reference)
    if wanted[: len(DISPLAY_PREFIX)].lower() == DISPLAY_PREFIX and len(by_id) == 1:
        return by_id[0]
    found = {each.checkpoint_id: each for each in (*by_id, *by_label)}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise AmbiguousError(
            f'"{reference}" fits {len(found)} checkpoints of this plan',
            hint=f"Say which one: {_shown(list(found.values()), ordered)}.",
        )
    raise _not_found(reference, ordered)


def refuse_label(label: str) -> None:
    """Refuse a label that does not fit on a line, or that looks like the id of a checkpoint."""
    if not label.strip():
        raise UsageError("The label is empty.", hint="Leave it out, or choose another.")
    if NOT_IN_A_NAME.search(label):
        raise UsageError(
            f"The label '{name_text(label[:LONGEST_LABEL])}' holds control characters.",
            hint="Choose a label of one line.",
        )
    if len(label) > LONGEST_LABEL:
        raise UsageError(
            f"The label has {len(label)} characters; at most {LONGEST_LABEL} are allowed.", hint="Choose a shorter one."
        )
    if label.strip().lower().startswith(DISPLAY_PREFIX) or is_id(label.strip()):
        raise UsageError(f'The label "{label}" looks like the id of a checkpoint.', hint="Choose another label.")


def _with_full_id(wanted: str, ordered: Sequence[Checkpoint]) -> Checkpoint | None:
    full = wanted.upper()
    by_id = (each for each in ordered if each.checkpoint_id == full)
    by_group = (each for each in ordered if each.group_id == full)
    return next(by_id, None) or next(by_group, None)


def _with_id_prefix(wanted: str, ordered: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Checkpoints whose ids have the prefix; if there are none, the first of each group whose id has it."""
    prefix = wanted.upper().removeprefix(DISPLAY_PREFIX.upper())
    if not prefix:
        return []
    by_id = [each for each in ordered if each.checkpoint_id.startswith(prefix)]
    return by_id or _first_of_each_group(each for each in ordered if each.group_id.startswith(prefix))


def _first_of_each_group(ordered: Iterable[Checkpoint]) -> list[Checkpoint]:
    first: dict[str, Checkpoint] = {}
    for each in ordered:
        first.setdefault(each.group_id, each)
    return list(first.values())


def _not_found(reference: str, ordered: Sequence[Checkpoint]) -> CheckpointNotFoundError:
    labels = {each.metadata.label for each in ordered if each.metadata.label is not None}
    newest = ordered[-CANDIDATES_SHOWN:]
    return CheckpointNotFoundError(
        f'this plan has no checkpoint "{reference}"{did_you_mean(reference, labels)}',
        hint=f"The newest are {_shown(newest, ordered)}." if newest else "The plan has no checkpoints yet.",
    )


def _shown(candidates: Sequence[Checkpoint], ordered: Sequence[Checkpoint]) -> str:
    names = display_ids(each.checkpoint_id for each in ordered)
    shown = [
        names[each.checkpoint_id] + (f' ("{each.metadata.label}")' if each.metadata.label is not None else "")
        for each in candidates[:CANDIDATES_SHOWN]
    ]
    more = len(candidates) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
