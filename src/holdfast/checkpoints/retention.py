"""Retention: decides which groups of a plan to keep and which to delete, as a pure function."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from holdfast.checkpoints.thinning import thinned


class GroupFacts(msgspec.Struct, frozen=True):
    """What retention needs to know about a checkpoint group."""

    group_id: str
    sequence: int
    label: str | None
    checkpoints: int
    """How many checkpoint rows the group has; the limit counts these."""


class Retained(msgspec.Struct, frozen=True):
    """Ids of the groups to keep and to remove, oldest first, and the reason for each."""

    keep: tuple[str, ...]
    remove: tuple[str, ...]
    reasons: dict[str, str]


def retention(groups: Sequence[GroupFacts], limit: int, needed: Collection[str], *, thins: bool = False) -> Retained:
    """Remove whole groups, oldest first, until at most ``limit`` checkpoints are left or only protected ones are.

    ``thins``: instead of the oldest, remove those that are missed least. The newest half of the limit stays.
    """
    ordered = sorted(groups, key=lambda group: group.sequence)
    excess = sum(group.checkpoints for group in ordered) - limit
    protected = _protected(ordered, needed)
    if thins:
        return _without(ordered, thinned(ordered, protected, excess, limit // 2), protected, limit)
    keep, remove, reasons = [], [], {}
    for group in ordered:
        reason = protected.get(group.group_id)
        if reason is None and excess > 0:
            excess -= group.checkpoints
            remove.append(group.group_id)
            reasons[group.group_id] = f"the oldest beyond the limit of {limit}"
        else:
            keep.append(group.group_id)
            reasons[group.group_id] = reason or f"within the limit of {limit}"
    return Retained(tuple(keep), tuple(remove), reasons)


def _without(ordered: Sequence[GroupFacts], going: Sequence[str], protected: dict[str, str], limit: int) -> Retained:
    gone = set(going)
    reasons = {
        each.group_id: "the least missed beyond the limit" if each.group_id in gone else "within the limit"
        for each in ordered
    }
    reasons = {group_id: f"{reason} of {limit}" for group_id, reason in reasons.items()} | protected
    keep = tuple(each.group_id for each in ordered if each.group_id not in gone)
    return Retained(keep, tuple(each.group_id for each in ordered if each.group_id in gone), reasons)


def _protected(ordered: Sequence[GroupFacts], needed: Collection[str]) -> dict[str, str]:
    reasons = {group.group_id: f'labelled "{group.label}"' for group in ordered if group.label is not None}
    reasons |= {group.group_id: "needed by a running operation" for group in ordered if group.group_id in needed}
    if ordered:
        reasons[ordered[-1].group_id] = "the most recent"
        reasons[ordered[0].group_id] = "the first"
    return reasons
