"""What a process knows of a plan's oldest groups while it has the lease, so that pruning at a step reads little.

No other process changes the plan meanwhile. So what was read ahead stays right as long as groups are only added, one
after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from holdfast.checkpoints.retention import GroupFacts, retention
from holdfast.db.moment_queries import HeadPlace
from holdfast.db.store import Store
from holdfast.model import Checkpoint, CheckpointGroup

_MOST_AHEAD = 32
_MOST_BYTES_AHEAD = 1 << 20
"""At most this much is noted as given up before it is deleted: little compared with what starts a collection."""


class OldGroup(msgspec.Struct, frozen=True):
    group: CheckpointGroup
    checkpoints: tuple[Checkpoint, ...]
    """Those with sound records."""
    count: int
    """How many checkpoints it has, damaged ones too."""

    @property
    def group_id(self) -> str:
        return self.group.group_id

    @property
    def facts(self) -> GroupFacts:
        return GroupFacts(self.group_id, self.group.sequence, self.group.label, self.count)

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.checkpoints)

    def following(self, parents: Mapping[str, str | None]) -> OldGroup:
        """The same after its parent, which is among these, was deleted."""
        parent = parents[self.group.parent_group_id or ""]
        return msgspec.structs.replace(self, group=self.group.model_copy(update={"parent_group_id": parent}))


def checkpoints_of(groups: Sequence[OldGroup]) -> list[Checkpoint]:
    return [checkpoint for each in groups for checkpoint in each.checkpoints]


def kept_parents(going: Sequence[CheckpointGroup]) -> dict[str, str | None]:
    """By group that is deleted, the group that its children follow from then on, so that history stays connected."""
    parents = {group.group_id: group.parent_group_id for group in going}
    for group_id, parent in parents.items():
        while parent is not None and parent in parents:
            parent = parents[parent]
        parents[group_id] = parent
    return parents


def read_oldest(store: Store, plan_id: str, most: int) -> tuple[OldGroup, ...]:
    """At most ``most`` sound groups, oldest first: the first of the plan, those without a label, and the last."""
    groups = list(islice(store.groups.oldest_prunable(plan_id, most), most))
    ids = [group.group_id for group in groups]
    checkpoints = store.checkpoints.of_groups(ids)
    counts = store.checkpoints.count_of_groups(ids)
    return tuple(OldGroup(each, tuple(checkpoints[each.group_id]), counts[each.group_id]) for each in groups)


def read_least_missed(store: Store, plan_id: str, excess: int, needed: Collection[str]) -> list[OldGroup]:
    """The sound groups that thinning removes, oldest first; only they are read as a whole."""
    counts = store.checkpoints.count_by_group(plan_id)
    facts = [GroupFacts(*place, counts.get(place[0], 0)) for place in store.groups.places(plan_id)]
    limit = sum(each.checkpoints for each in facts) - excess
    removed = retention(facts, limit, needed, thins=True).remove
    found = read_groups(store, plan_id, removed, counts)
    if len(found) < len(removed):
        # A damaged group is not pruned, so another has to go.
        damaged = set(removed).difference(each.group_id for each in found)
        return read_least_missed(store, plan_id, excess, {*needed, *damaged})
    return found


def read_groups(
    store: Store, plan_id: str, ids: Sequence[str], counts: Mapping[str, int] | None = None
) -> list[OldGroup]:
    """The sound ones among these groups, oldest first, each with its checkpoints."""
    known = store.checkpoints.count_by_group(plan_id) if counts is None else counts
    groups, checkpoints = store.groups.with_ids(ids), store.checkpoints.of_groups(ids)
    return [OldGroup(each, tuple(checkpoints[each.group_id]), known.get(each.group_id, 0)) for each in groups]


class KnownGroups(msgspec.Struct, frozen=True):
    """What is known of a plan's groups after pruning."""

    token: int
    """Of the lease under which it was read."""
    head: HeadPlace | None
    count: int
    """How many checkpoints there are, damaged ones too."""
    oldest: tuple[OldGroup, ...] = ()
    noted: frozenset[str] = frozenset()
    """Ids of groups that are noted as given up but not deleted yet."""
    prunings: int = 0
    """How often the plan was pruned since the lease was taken."""

    def with_head(self, token: int, head: HeadPlace | None) -> KnownGroups | None:
        """The same with one more group; None if it is unknown what else has happened."""
        if head is None or self.head is None or token != self.token:
            return None
        is_next = (head.parent_group_id, head.sequence) == (self.head.group_id, self.head.sequence + 1)
        return msgspec.structs.replace(self, head=head, count=self.count + head.checkpoints) if is_next else None

    def without(self, gone: Sequence[OldGroup]) -> KnownGroups:
        parents = kept_parents([each.group for each in gone])
        left = [each for each in self.oldest if each.group.group_id not in parents]
        oldest = [each.following(parents) if each.group.parent_group_id in parents else each for each in left]
        return msgspec.structs.replace(self, count=self.count - sum(each.count for each in gone), oldest=tuple(oldest))

    def pruned(self, gone: Sequence[OldGroup], noted: Sequence[OldGroup]) -> KnownGroups:
        """The same after one pruning, which deleted the groups ``gone`` and noted the groups ``noted`` as given up."""
        left = self.noted.union(each.group_id for each in noted).difference(each.group_id for each in gone)
        return msgspec.structs.replace(self, noted=left, prunings=self.prunings + 1)

    @property
    def ahead(self) -> int:
        """How many groups to look ahead: as many as were pruned already, because a short command prunes only once."""
        return min(self.prunings, _MOST_AHEAD)

    def beyond(self, excess: int, needed: Collection[str]) -> list[OldGroup]:
        """The groups among the known ones that retention removes; it keeps the first and the last of those it is given.

        None of them, if too few are known.
        """
        some = self.oldest[: fewest_to_read(excess, needed)]
        facts = [each.facts for each in some]
        kept = sum(each.checkpoints for each in facts) - excess
        removed = set(retention(facts, kept, needed).remove)
        return [each for each in some if each.group_id in removed]

    def to_note(self, gone: Sequence[OldGroup]) -> list[OldGroup]:
        """What to note as given up before these groups are deleted; if there is anything, the next ones as well."""
        missing = [each for each in gone if each.group_id not in self.noted]
        return [*missing, *self._next_to_note()] if missing else []

    def _next_to_note(self) -> Iterator[OldGroup]:
        size_bytes = 0
        for each in self.oldest[1 : 1 + self.ahead]:
            size_bytes += each.size_bytes
            if size_bytes > _MOST_BYTES_AHEAD:
                return
            if each.group_id not in self.noted:
                yield each


def fewest_to_read(excess: int, needed: Collection[str]) -> int:
    """How many of the oldest groups are enough: retention keeps the needed ones, the first and the last of them."""
    return excess + len(needed) + 2
