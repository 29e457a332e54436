"""The index of a tree: all its entries as they are known, so that a new scan costs only what changed.

``TreeIndex.refresh`` brings the index up to date with the disk, stores new content and returns the state hash. The
index is also the stat cache: a file whose inode, ctime, mtime and size did not change is not read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.content.batch import Batch
from holdfast.content.difference import Difference
from holdfast.content.directory_cache import RecentDirectories
from holdfast.content.format import FORMAT_VERSION, State, digest_of, encode_state
from holdfast.errors import SandboxError
from holdfast.snapshot.scan.adoption import adopt
from holdfast.snapshot.scan.cache import IndexFile
from holdfast.snapshot.scan.changes import ChangeReport
from holdfast.snapshot.scan.entries import Moved
from holdfast.snapshot.scan.exclusion import NOTHING_EXCLUDED, Exclusion
from holdfast.snapshot.scan.forked_tree import Lent
from holdfast.snapshot.scan.hard_links import HardLinks
from holdfast.snapshot.scan.known_tree import KnownTree
from holdfast.snapshot.scan.scan import Scan
from holdfast.system.directories import Descent
from holdfast.system.place import refuse_replaced

_SCAN_TRIES = 3


class TreeIndex:
    def __init__(
        self,
        root: Path,
        recent: RecentDirectories,
        *,
        opens_up: bool = True,
        exclusion: Exclusion = NOTHING_EXCLUDED,
    ) -> None:
        """``opens_up``: directories that are closed to us are made accessible while they are read."""
        self._exclusion = exclusion
        self.root, self.name = root, root.name
        self._opens_up = opens_up
        self._recent = recent
        self.state: bytes | None = None
        self._finding: str | None = ""
        """``Damage.finding`` at the time when everything known was certainly in the store; None if that is in doubt."""
        self.known = KnownTree()
        self._learned_in: bytes | None = None
        """The generation of the store in which what is known was learned; None once a state needs it."""
        self._file: IndexFile | None = None

    def forget(self) -> None:
        """Start from nothing: the next refresh reads everything."""
        self._learned_in = None
        self.state, self.known = None, KnownTree(links=HardLinks(left=self.known.links.left))

    def learn(self, known: KnownTree, batch: Batch) -> None:
        """Know files whose content the batch has stored, so that the next refresh need not read them.

        No state needs that content yet. So it counts only until something may have been collected.
        """
        self.state, self.known = None, known
        self._finding, self._learned_in = batch.finding, batch.generation

    def lend(self) -> Lent | None:
        """What the last scan found, for copies of the tree; None if nothing is known."""
        if self.state is None:
            return None
        self.known.pack()
        return Lent(tuple(self.known.packed), self.state, self._finding)

    def refresh(self, batch: Batch, report: ChangeReport) -> bytes:
        """Scan what was reported, or the whole tree if the report may be incomplete; returns the state hash."""
        try:
            if self._is_outdated(batch):
                self.forget()
            if self.state is None:
                report = report._replace(is_complete=False)
            elif report.is_complete and not report.changes and not self.known.links.with_names_outside():
                return self.state
            self._trust_once_stored(batch)
            for _ in range(_SCAN_TRIES):
                try:
                    self.state = self._refreshed(batch, report)
                    self._learned_in = None
                    return self.state
                except Moved:
                    report = report._replace(is_complete=False)
        except BaseException:
            self.forget()  # the same changes are not reported again
            raise
        self.forget()
        raise SandboxError(
            f"{self.root} keeps changing while it is read.", hint="Stop the program that works in it and try again."
        )

    def _is_outdated(self, batch: Batch) -> bool:
        # A state object is collected together with the content it needs, so if it is there, so is the content. After
        # new damage was found, everything is read again, which stores the damaged content again.
        if self._learned_in not in (None, batch.generation):
            return True
        return self._finding != batch.finding or (self.state is not None and not batch.has_state(self.state))

    def missing(self) -> SandboxError:
        refuse_replaced(self.root)
        return SandboxError(
            f"The sandbox {self.root} is missing.",
            hint="Something removed it. Its checkpoints are safe: `holdfast plan resume` re-creates it.",
        )

    def descend(self) -> Descent:
        try:
            return Descent(self.root, opens_up=self._opens_up, is_sandbox=True)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self.missing() from error
        except OSError as error:
            raise SandboxError(
                f"{self.root} cannot be opened: {error.strerror}.", hint="Check its permissions, then try again."
            ) from error

    def _trust_once_stored(self, batch: Batch) -> None:
        """Set the finding only once the batch is stored: until then, damaged content may not have been replaced."""
        if not batch.finding:
            self._finding = ""
            return

        def trust() -> None:
            self._finding = batch.finding

        self._finding = None
        batch.when_stored(trust)

    def _refreshed(self, batch: Batch, report: ChangeReport) -> bytes:
        with self.descend() as descent:
            if report.is_complete:
                batch.begin_parcel()
            Scan(self.known, self.root, self.name, descent, batch, self._recent, self._exclusion).run(report)
        if not report.is_complete:
            self.known.pack_if_large()
        head = self.known.top.head
        assert head is not None
        content = encode_state(head, self.known.links.groups())
        state = digest_of(content)
        if state != self.state:
            batch.add_state(content)
        if report.is_complete:
            batch.end_parcel(state)
        return state

    def known_state(self) -> State | None:
        """The tree as the last scan found it."""
        head = self.known.top.head
        if self.state is None or head is None:
            return None
        return State(FORMAT_VERSION, head, self.known.links.groups())

    def adopt(
        self,
        descent: Descent,
        differences: Sequence[Difference],
        touched: Mapping[bytes, set[bytes]],
        proven: Mapping[bytes, tuple[int, int]],
        target: State,
        state: bytes,
    ) -> bool:
        """Take over what a restore made, after checking everything it touched; False if anything is not as wanted."""
        is_as_wanted = adopt(self.known, self.name, descent, differences, touched, proven)
        if not is_as_wanted or self.known.links.groups() != target.links:
            self.forget()
            return False
        self.state = state
        return True

    def save(self) -> None:
        """Keep the index for the next process, if possible."""
        if self.state is not None and self._file is not None:
            self._file.save(self.known, self.state, self._finding)

    def load(self, file: Path) -> None:
        """Load the index of an earlier process, if there is one; ``save`` writes to the same file."""
        self._file = IndexFile(file, self.root)
        if (loaded := self._file.load()) is not None:
            self.known, self.state, self._finding = loaded
