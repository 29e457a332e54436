"""What a directory holds, known entry by entry, so that looking again costs only what changed.

``TreeIndex.refresh`` brings the index up to date with the disk, stores new content and gives the state hash. The index
is also the stat cache: an entry whose inode, ctime, mtime, size and mode are as they were is not read again.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.content.batch import Batch
from holdfast.content.difference import Difference
from holdfast.content.directory_cache import RecentDirectories
from holdfast.content.format import (
    DIRECTORY,
    FILE,
    FORMAT_VERSION,
    Entry,
    State,
    digest_of,
    encode_state,
)
from holdfast.errors import SandboxError
from holdfast.snapshot.scan.counting import counted_batch, counted_taker
from holdfast.snapshot.scan.entries import (
    Hasher,
    Moved,
    Taker,
    directory_entry,
    is_directory_as_wanted,
    read_entry,
    user_owner,
)
from holdfast.snapshot.scan.nodes import CACHE_VERSION, Cache, CachedNode, Links, Node, no_garbage, read_cache
from holdfast.snapshot.scan.reading import PARALLEL_FROM_FILES, read_in_parallel
from holdfast.snapshot.scan.stamps import UNTRUSTED, Stamp
from holdfast.snapshot.scan.unchanged import is_as_known, unchanged_directories
from holdfast.snapshot.scan.watching import Changes, Names, Told
from holdfast.system.calls import status_of, status_through
from holdfast.system.directories import IS_ROOT, Descent, depth, join, split
from holdfast.system.machine import boot_id
from holdfast.system.place import refuse_replaced
from holdfast.system.plain_calls import Status, status_from
from holdfast.system.progress import UNWATCHED, Metering, Work, meter_of
from holdfast.system.stopping import stop_if_asked

_RACY_NS = 20_000_000
"""Before Linux 6.13 timestamps move in steps of up to 10 ms: a file changed that shortly before it was read may change
again without its timestamps moving, so it is read again the next time."""
_RESTLESS_TRIES = 3
_MOST_SEARCHES = 16
"""So often all that is known is searched for other names of a file."""
_ENCODING, _ENCODING_ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


class _FileToRead(msgspec.Struct):
    node: Node
    directory: bytes
    name: bytes
    is_file: bool = False
    """It was a regular file a moment ago."""
    size: int = 0


class TreeIndex:
    def __init__(self, root: Path, recent: RecentDirectories) -> None:
        self.root, self.name = root, root.name
        self.recent = recent
        self.state: bytes | None = None
        self._finding: str | None = ""
        """What the store had found damaged when all that is known was surely in it; None if that is in doubt."""
        self.unheld: dict[bytes, str] = {}
        self.links = Links()
        self.top = Node()

    def forget(self) -> None:
        """Start from nothing: the next refresh reads everything."""
        self.state, self.unheld, self.links, self.top = None, {}, Links(left=self.links.left), Node()

    def refresh(self, batch: Batch, told: Told) -> bytes:
        """Look at what was told of, and unless that is all, at the whole tree; the state hash."""
        try:
            if self._is_outdated(batch):
                self.forget()
            if self.state is None:
                told = told._replace(is_all=False)
            elif told.is_all and not told.changes and not self.links.with_names_outside():
                return self.state
            self._trust_once_stored(batch)
            for _ in range(_RESTLESS_TRIES):
                try:
                    self.state = self._refreshed(batch, told)
                    return self.state
                except Moved:
                    told = told._replace(is_all=False)
        except BaseException:
            self.forget()  # what was told is not told again
            raise
        self.forget()
        raise SandboxError(
            f"{self.root} keeps changing while it is read.", hint="Stop the program that works in it and try again."
        )

    def _is_outdated(self, batch: Batch) -> bool:
        # A state object lives exactly as long as the content below it: if it was collected, so was the rest. What was
        # found damaged since is stored anew if it is read again, so everything is.
        return self._finding != batch.finding or (self.state is not None and not batch.has(self.state))

    def missing(self) -> SandboxError:
        refuse_replaced(self.root)
        return SandboxError(
            f"The sandbox {self.root} is missing.",
            hint="Something removed it. Its checkpoints are safe: `holdfast plan resume` makes it anew.",
        )

    def descend(self) -> Descent:
        try:
            return Descent(self.root, is_sandbox=True)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self.missing() from error
        except OSError as error:
            raise SandboxError(
                f"{self.root} cannot be opened: {error.strerror}.", hint="Check its permissions, then try again."
            ) from error

    def _trust_once_stored(self, batch: Batch) -> None:
        """That the state is in the store does not tell that what was damaged below it is stored anew."""
        if not batch.finding:
            self._finding = ""
            return

        def trust() -> None:
            self._finding = batch.finding

        self._finding = None
        batch.when_stored(trust)

    def _refreshed(self, batch: Batch, told: Told) -> bytes:
        now_ns = time.time_ns()
        with self.descend() as descent:
            seeing = _Look(self, descent, batch, now_ns, told.lost)
            if told.is_all:
                batch.begin_parcel()
                seeing.at_changes(told)
            else:
                self._distrust(told.changes)
                seeing.at_everything()
            seeing.at_ancestors()
            seeing.read_files()
            seeing.encode_directories()
            seeing.trust_what_was_listed()
        head = self.top.head
        assert head is not None
        content = encode_state(head, self.links.groups())
        state = digest_of(content)
        if state != self.state:
            batch.add_named(state, content)
        if told.is_all:
            batch.end_parcel(state)
        return state

    def _distrust(self, changes: Changes) -> None:
        """Have these files read again: of a write through a memory mapping their time stamps may not tell."""
        for directory, names in changes.items():
            node = self.node_at(directory)
            if node is None:
                continue
            if names is not None:
                node.distrust(names)
                continue
            for _, each in self.nodes(directory, node):
                each.distrust(each.stamps.keys())

    def known_state(self) -> State | None:
        """The tree as it was when it was last looked at."""
        if self.state is None or self.top.head is None:
            return None
        return State(FORMAT_VERSION, self.top.head, self.links.groups())

    def node_at(self, path: bytes) -> Node | None:
        node = self.top
        try:
            for name in path.split(b"/") if path else ():
                node = node.children[name]
        except KeyError:
            return None
        return node

    def adopt(
        self,
        descent: Descent,
        differences: Sequence[Difference],
        touched: Mapping[bytes, set[bytes]],
        proven: Mapping[bytes, tuple[int, int]],
        target: State,
        state: bytes,
    ) -> bool:
        """Take over what a restore made, after looking at everything it touched; False if anything is not as wanted.

        ``proven``: files, by device and inode, that hold what they should and that nobody has written to since.
        """
        try:
            with meter_of(Work.CHECKING, self.name, lambda: _to_check(differences)) as meter:
                adoption = _Adoption(self, descent, meter, proven, touched)
                done = all(map(adoption.take, differences))
                adoption.finish()
        except (OSError, Moved):
            done = False
        if not done or self.links.groups() != target.links:
            self.forget()
            return False
        self.state = state
        return True

    def paths_with_inode(self, inode: int) -> list[bytes]:
        return [
            join(path, name) for path, node in self.nodes() for name, stamp in node.stamps.items() if stamp[0] == inode
        ]

    def forget_entry(self, directory: bytes, node: Node, name: bytes) -> None:
        path = join(directory, name)
        node.remove(name)
        node.stamps.pop(name, None)
        self.links.leave(path)
        self.unheld.pop(path, None)
        if node.children.pop(name, None) is not None:
            below = path + b"/"
            for inside in [inside for inside in self.links.by_path if inside.startswith(below)]:
                self.links.leave(inside)
            for inside in [inside for inside in self.unheld if inside.startswith(below)]:
                del self.unheld[inside]

    # The cache that survives the process

    def save(self, file: Path) -> None:
        """Best effort and not synced: a lost or torn cache only means reading everything once more."""
        if self.state is None:
            return
        cache = Cache(
            CACHE_VERSION,
            boot_id(),
            self.root.stat().st_ino,
            self.state,
            self._finding,
            self._packed_nodes(),
            self.unheld,
            self.links.by_path,
            {inode: self.links.counts[inode] for inode in self.links.by_path.values()},
            self.links.left,
        )
        temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
        content = msgspec.msgpack.encode(cache)
        try:
            with temporary.open("wb") as written:
                written.write(digest_of(content))
                written.write(content)
            temporary.replace(file)
        except OSError:
            # The disk is full, say: whatever else failed for it is what the user must hear.
            with suppress(OSError):
                temporary.unlink()

    def _packed_nodes(self) -> list[CachedNode]:
        packed: list[CachedNode] = []
        pending = [(0, self.top)]
        while pending:
            parent, node = pending.pop()
            pending.extend((len(packed), child) for child in node.children.values())
            packed.append(node.packed(parent))
        return packed

    def nodes(self, top: bytes = b"", node: Node | None = None) -> Iterable[tuple[bytes, Node]]:
        """All that are known, or ``node``, which is at ``top``, and all below it."""
        pending = [(top, node or self.top)]
        while pending:
            path, node = pending.pop()
            yield path, node
            pending.extend((join(path, name), child) for name, child in node.children.items())

    def load(self, file: Path) -> None:
        """Take over what an earlier process knew; anything doubtful about the cache and it is not used."""
        with no_garbage():
            self._load(file)

    def _load(self, file: Path) -> None:
        cache = read_cache(file)
        if cache is None:
            return
        # After a power cut a file can have its old timestamps and lost content, so nothing survives a reboot.
        expected = (CACHE_VERSION, boot_id(), self.root.stat().st_ino)
        if (cache.version, cache.boot_id, cache.root_inode) != expected:
            return
        nodes = [Node.unpacked(cached) for cached in cache.nodes]
        for cached, node in zip(cache.nodes[1:], nodes[1:], strict=True):
            nodes[cached.parent].children[cached.head.name] = node
        self.top, self.state, self._finding = nodes[0], cache.state, cache.finding
        self.unheld, self.links = cache.unheld, Links(cache.linked, cache.link_counts, cache.left)


class _News:
    """Hands on what a file holds unless it is known: all that is known of the tree is stored, or in this batch."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.known = b""

    def add_named(self, digest: bytes, content: bytes) -> None:
        stop_if_asked()
        if digest != self.known:
            self._batch.add_named(digest, content)


class _Look:
    """One pass over the tree or a part of it: see what is there, read what is new, name the directories anew."""

    def __init__(self, index: TreeIndex, descent: Descent, batch: Batch, now_ns: int, lost: Names) -> None:
        self._index, self._descent, self._batch, self._now_ns = index, descent, batch, now_ns
        self._news = _News(batch)
        self._to_read: list[_FileToRead] = []
        self._to_encode: dict[bytes, Node] = {}
        self._listed: list[tuple[Node, tuple[int, int]]] = []
        self._unchanged: frozenset[Node] = frozenset()
        self._is_partial = False
        self._searches = 0
        # What cannot be held now may be readable the next time, without the directory telling.
        self._with_unheld = {split(path)[0] for path in index.unheld}
        self._without_name = self._inodes_at(lost)
        """Files that lost a name: if they have another, they may be open by that one."""

    def _inodes_at(self, names: Names) -> dict[int, bytes]:
        found = {}
        for directory, inside in names.items():
            node = self._index.node_at(directory)
            stamps = {} if node is None else node.stamps
            found.update({stamps[name][0]: join(directory, name) for name in inside & stamps.keys()})
        return found

    def at_everything(self) -> None:
        self._unchanged = unchanged_directories(self._index.root, self._index.nodes())
        self.at_subtree(b"", self._index.top)

    def at_subtree(self, path: bytes, node: Node) -> None:
        pending = [(path, node)]
        while pending:
            stop_if_asked()
            directory, node = pending.pop()
            try:
                pending.extend(self._at_directory(directory, node))
            except PermissionError:
                self._leave_out(directory)

    def _at_directory(self, directory: bytes, node: Node) -> list[tuple[bytes, Node]]:
        """Look at every entry of one directory; the directories in it, to be looked at next."""
        if directory not in self._with_unheld and (node in self._unchanged or is_as_known(node, self._open(directory))):
            if not node.is_named:
                self._to_encode[directory] = node
            return [(join(directory, name), child) for name, child in node.children.items()]
        descriptor = self._open(directory)
        stamps, links = node.stamps, self._index.links
        seen = set()
        below = []
        with os.scandir(descriptor) as listing:
            for item in listing:
                name = item.name.encode(_ENCODING, _ENCODING_ERRORS)
                try:
                    found = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                seen.add(name)
                stamp = (found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size)
                if stamps.get(name) == stamp:
                    if found.st_nlink > 1:
                        links.note(join(directory, name), (found.st_dev, found.st_ino), found.st_nlink)
                elif (child := self._at_entry(directory, node, name, found)) is not None:
                    below.append((join(directory, name), child))
        for name in (stamps.keys() | node.children.keys()) - seen:
            self._index.forget_entry(directory, node, name)
        for path in [path for path in self._index.unheld if split(path)[0] == directory and split(path)[1] not in seen]:
            del self._index.unheld[path]
        self._note_head(directory, node, descriptor, is_listed=True)
        return below

    def _leave_out(self, directory: bytes) -> None:
        if not directory:
            raise SandboxError(
                f"{self._index.root} is not readable for this user.", hint="Give yourself the permission to read it."
            )
        parent_path, name = split(directory)
        parent = self._index.node_at(parent_path)
        assert parent is not None
        self._index.forget_entry(parent_path, parent, name)
        self._to_encode[parent_path] = parent
        self._index.unheld[directory] = "not readable for this user"

    def _open(self, directory: bytes) -> int:
        try:
            return self._descent.open(directory)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Moved from error
        except OSError as error:
            if error.errno == errno.ELOOP:  # a symlink was put in its place
                raise Moved from error
            raise

    def _note_head(self, directory: bytes, node: Node, descriptor: int, *, is_listed: bool = False) -> None:
        """``is_listed``: every name in it was looked at, so that its ctime will tell whether there are others."""
        found = os.fstat(descriptor)
        stamp = (found.st_ino, found.st_ctime_ns)
        if node.head is None or node.stamp != stamp:
            head = directory_entry(
                split(directory)[1],
                descriptor,
                found=found,
                mode=self._descent.mode_of(directory, found),
                content=node.head.content if node.head is not None else b"",
            )
            if head != node.head:
                node.head, node.is_placed = head, False
            node.stamp = (found.st_ino, UNTRUSTED)
            if is_listed and self._is_settled(found):
                self._listed.append((node, stamp))
        self._to_encode[directory] = node

    def _at_entry(self, directory: bytes, node: Node, name: bytes, found: os.stat_result) -> Node | None:
        """Note one entry; if it is a directory, its node."""
        kind = stat.S_IFMT(found.st_mode)
        if kind == stat.S_IFDIR:
            child = node.children.get(name)
            if child is None or (child.stamp[0] != found.st_ino):
                self._index.forget_entry(directory, node, name)
                child = node.children[name] = Node()
            return child
        if name in node.children:
            self._index.forget_entry(directory, node, name)
        # What it was a name of before may be left with fewer, and was perhaps written to through this one.
        self._index.links.replace(join(directory, name), (found.st_dev, found.st_ino))
        if (before := self._without_name.get(found.st_ino)) is not None and before != join(directory, name):
            self._index.links.left.add(before)
        self._index.unheld.pop(join(directory, name), None)
        if kind in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO):
            if found.st_nlink > 1 and self._is_partial:
                self._reread_other_names(join(directory, name), found)
            self._to_read.append(_FileToRead(node, directory, name, kind == stat.S_IFREG, found.st_size))
        else:
            self._index.forget_entry(directory, node, name)
            self._index.unheld[join(directory, name)] = _KIND_NAMES.get(kind, "an unknown kind of file")
        return None

    def at_changes(self, told: Told) -> None:
        self._is_partial = True
        for directory, names in told.changes.items():
            node = self._index.node_at(directory)
            if node is None:
                continue  # new, and found through its parent
            try:
                if names is None:
                    self.at_subtree(directory, node)
                else:
                    self._at_names(directory, node, names, told.went.get(directory, frozenset()))
            except PermissionError as error:
                raise Moved from error  # looking at everything finds what is closed to us now
        for directory, names in told.changes.items():
            if names and self._index.node_at(directory) is None and names - told.went.get(directory, set()):
                raise Moved  # this was told of a file that is open, in a directory that is gone
        for path in self._index.links.with_names_outside():
            self._at_linked(path)

    def at_ancestors(self) -> None:
        """What changed in a directory changes all above it."""
        for directory in list(self._to_encode):
            self._encode_ancestors(directory)

    def _at_linked(self, path: bytes) -> None:
        directory, name = split(path)
        node = self._index.node_at(directory)
        assert node is not None
        try:
            found = os.stat(name, dir_fd=self._open(directory), follow_symlinks=False)
        except FileNotFoundError as error:
            raise Moved from error
        if node.stamps.get(name) != (found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size):
            self._at_names(directory, node, {name})

    def _at_names(self, directory: bytes, node: Node, names: Set[bytes], went: Set[bytes] = frozenset()) -> None:
        descriptor, left = self._open(directory), self._index.links.left
        for name in names:
            if left and join(directory, name) in left:
                raise Moved
            try:
                found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError as error:
                if name not in went and name not in node.stamps and name not in node.children:
                    # Perhaps this was told of a file that was open without a name all the time.
                    raise Moved from error
                self._index.forget_entry(directory, node, name)
                continue
            child = self._at_entry(directory, node, name, found)
            if child is not None and child.head is None:
                self.at_subtree(join(directory, name), child)
                descriptor = self._open(directory)
            elif child is not None:
                self._note_head(join(directory, name), child, self._open(join(directory, name)))
                descriptor = self._open(directory)
        self._note_head(directory, node, descriptor)

    def _reread_other_names(self, path: bytes, found: os.stat_result) -> None:
        """What happens through one name of a file, also that it gets another one, is not told of its other names."""
        others = self._index.links.other_names(found)
        if len(others) < found.st_nlink:
            self._searches += 1
            if self._searches > _MOST_SEARCHES:
                raise Moved  # looking at everything is quicker
            others = self._index.paths_with_inode(found.st_ino)
        for other in others:
            directory, name = split(other)
            node = self._index.node_at(directory)
            if other != path and node is not None and name in node.entries:
                self._to_read.append(_FileToRead(node, directory, name))
                self._to_encode[directory] = node

    def _encode_ancestors(self, directory: bytes) -> None:
        while directory:
            directory = split(directory)[0]
            if directory in self._to_encode:
                return
            node = self._index.node_at(directory)
            assert node is not None
            self._to_encode[directory] = node

    def read_files(self) -> None:
        with meter_of(Work.SAVING, self._index.name, self._totals) as meter:
            if len(self._to_read) < PARALLEL_FROM_FILES:
                taker = counted_taker(self._news, meter)
                for wanted in meter.each(self._to_read):
                    self._read(wanted, taker)
            else:
                self._read_in_parallel(meter)

    def _totals(self) -> tuple[int, int]:
        return len(self._to_read), sum(wanted.size for wanted in self._to_read)

    def _read_in_parallel(self, meter: Metering) -> None:
        nodes = {(wanted.directory, wanted.name): wanted for wanted in self._to_read}
        batch = counted_batch(self._batch, meter)
        for found in read_in_parallel(self._index.root, list(nodes), batch):
            wanted = nodes.pop((found.directory, found.name))
            if found.entry is None:
                self._read(wanted, batch)
            else:
                stamp = (found.inode, found.ctime_ns, found.mtime_ns, found.size)
                self._note_file(wanted, found.entry, stamp, found.device, found.names)
            meter.advance(1)
        if nodes:
            raise SandboxError(
                f"{len(nodes)} files in {self._index.root} were not read.", hint="Run the command again."
            )

    def _read(self, wanted: _FileToRead, taker: Taker) -> None:
        stop_if_asked()
        node, directory, name = wanted.node, wanted.directory, wanted.name
        known = node.entries.get(name)
        self._news.known = known.content if known is not None and known.kind == FILE else b""
        try:
            entry, status = read_entry(self._open(directory), name, taker, is_file=wanted.is_file)
        except FileNotFoundError:
            self._index.forget_entry(directory, node, name)
        except PermissionError:
            self._index.forget_entry(directory, node, name)
            self._index.unheld[join(directory, name)] = "not readable for this user"
        else:
            stamp = (status.st_ino, status.st_ctime_ns, status.st_mtime_ns, status.st_size)
            self._note_file(wanted, entry, stamp, status.st_dev, status.st_nlink)

    def _note_file(self, wanted: _FileToRead, entry: Entry, stamp: Stamp, device: int, names: int) -> None:
        node = wanted.node
        node.put(entry)
        inode, ctime, mtime, size = stamp
        if ctime >= self._now_ns - _RACY_NS:
            stamp = (inode, UNTRUSTED, mtime, size)
        node.note_stamp(wanted.name, stamp)
        self._index.links.note(join(wanted.directory, wanted.name), (device, inode), names)

    def trust_what_was_listed(self) -> None:
        """At the end of a whole pass only: one that is given up has not read all it listed."""
        for node, stamp in self._listed:
            node.stamp = stamp

    def _is_settled(self, found: os.stat_result) -> bool:
        return found.st_ctime_ns < self._now_ns - _RACY_NS

    def encode_directories(self) -> None:
        for directory in sorted(self._to_encode, key=depth, reverse=True):
            node = self._to_encode[directory]
            head = node.head
            assert head is not None
            if node.digest is None:
                content = node.encoded()
                node.digest = digest_of(content)
                if head.content != node.digest:
                    self._batch.add_named(node.digest, content)
                    self._index.recent.keep(node.digest, content)
            if head.content != node.digest:
                head = node.head = msgspec.structs.replace(head, content=node.digest)
                node.is_placed = False
            if directory and not node.is_placed:
                parent = self._to_encode[split(directory)[0]]
                parent.put(head)
                node.is_placed = True


def _to_check(differences: Sequence[Difference]) -> tuple[int, int]:
    return sum(each.is_of_file for each in differences), sum(new.size for _, _, new in differences if new is not None)


class _Adoption:
    """Compares what is on the disk with what should be, path by path, and notes it as known."""

    def __init__(
        self,
        index: TreeIndex,
        descent: Descent,
        meter: Metering,
        proven: Mapping[bytes, tuple[int, int]],
        touched: Mapping[bytes, set[bytes]],
    ) -> None:
        self._index, self._descent, self._proven, self._touched = index, descent, proven, touched
        self._settled_ns = time.time_ns() - _RACY_NS
        self._meter, self._is_watched = meter, meter is not UNWATCHED
        self._hasher = counted_taker(Hasher(), meter)
        self._linked = index.links.by_path
        self._nodes: dict[bytes, Node] = {}
        """Those of the directories that were taken."""

    def finish(self) -> None:
        """Only now: noting an entry makes its directory one whose digest is unknown."""
        for node in self._nodes.values():
            assert node.head is not None
            node.digest = node.head.content

    def take(self, difference: Difference) -> bool:
        path, old, new = difference
        directory, _, name = path.rpartition(b"/")
        # Directories come before what they hold.
        parent = self._nodes.get(directory) or self._index.node_at(directory)
        if new is not None and new.kind == DIRECTORY:
            return parent is not None and self._take_directory(path, name, parent, new)
        if self._is_watched and (new is not None or (old is not None and old.kind != DIRECTORY)):
            self._meter.advance(1)
        if parent is None:
            return new is None  # it went with its directory
        if new is None:
            self._index.forget_entry(directory, parent, name)
            return not self._is_there(directory, name)
        if name in parent.children:
            self._index.forget_entry(directory, parent, name)
        status = self._found(path, self._descent.open(directory), name, new)
        if status is None:
            return False
        _, _, _, mtime, size, device, inode, names, ctime, _ = status
        parent.put(new)
        parent.note_stamp(name, (inode, ctime if ctime < self._settled_ns else UNTRUSTED, mtime, size))
        if names > 1 or path in self._linked:
            self._index.links.note(path, (device, inode), names)
        return True

    def _found(self, path: bytes, parent: int, name: bytes, new: Entry) -> Status | None:
        """What the kernel says of a file that is as it should be."""
        if (proven := self._proven.get(path)) is not None:
            status = status_of(parent, name)
            mode, uid, gid, mtime, size, device, inode, names, _, _ = status
            if not IS_ROOT:
                uid, gid = user_owner(gid)
            wanted = stat.S_IFREG | new.mode, new.uid, new.gid, new.mtime_ns, new.size
            # What happens through a name outside of the tree is not told.
            if (mode, uid, gid, mtime, size) == wanted and (device, inode) == proven and names == 1:
                return status
        entry, found = read_entry(parent, name, self._hasher, is_file=new.is_file)
        return status_from(found) if entry == new else None

    def _is_there(self, directory: bytes, name: bytes) -> bool:
        try:
            os.stat(name, dir_fd=self._descent.open(directory), follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _take_directory(self, path: bytes, name: bytes, parent: Node, new: Entry) -> bool:
        is_touched = path in self._touched
        node = parent if not path else parent.children.get(name)
        if node is None:
            self._index.forget_entry(split(path)[0], parent, name)
            node = parent.children[name] = Node()
            is_touched = True
        if path and not (node.is_placed and node.head is new):
            parent.put(new)
        node.head, node.is_placed = new, True
        self._nodes[path] = node
        if not is_touched:
            return True
        descriptor = self._descent.open(path)
        mode, uid, gid, mtime, _, _, inode, _, _, has_attributes = status_through(descriptor)
        node.stamp = (inode, UNTRUSTED)
        if not IS_ROOT:
            uid, gid = user_owner(gid)
        is_same = (mode, uid, gid, mtime) == (stat.S_IFDIR | new.mode, new.uid, new.gid, new.mtime_ns)
        if is_same and not has_attributes and not new.xattrs and path not in self._descent.closed_modes:
            return True
        found = os.fstat(descriptor)
        return is_directory_as_wanted(new, descriptor, found, self._descent.mode_of(path, found))


_KIND_NAMES = {stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a block device", stat.S_IFCHR: "a character device"}
