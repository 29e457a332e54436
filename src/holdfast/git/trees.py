"""Makes a tree from another one by changing some paths; only the folders on the way to them are read and written."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from holdfast.errors import SandboxError
from holdfast.git.repository import GitRepository
from holdfast.git.run import run_git
from holdfast.system.directories import split, with_ancestors
from holdfast.system.trees import temporary_folder

_TREE_MODE = 0o040000
_DIGEST_BYTES = {"sha1": 20, "sha256": 32}


class TreeEntry(msgspec.Struct, frozen=True):
    mode: int
    digest: bytes

    @property
    def is_tree(self) -> bool:
        return self.mode == _TREE_MODE


Folder = Mapping[bytes, TreeEntry]


class CommittedFolders(msgspec.Struct, frozen=True):
    """Those of some folders that a commit has, with everything that is directly in them."""

    digest_bytes: int
    root: TreeEntry | None
    """None if there is no commit."""
    folders: Mapping[bytes, Folder]

    def find(self, path: bytes) -> TreeEntry | None:
        folder, name = split(path)
        return self.folders.get(folder, {}).get(name)

    def are_replaced_by(self, entries: Mapping[bytes, TreeEntry | None]) -> bool:
        """Whether one of these takes the place of a folder, or lies below a file: then more goes than it names."""
        coming = [path for path, entry in entries.items() if entry is not None]
        folders = with_ancestors(split(path)[0] for path in coming) - {b""}
        above = (self.find(folder) for folder in folders)
        return any(each is not None and not each.is_tree for each in above) or any(
            each is not None and each.is_tree for each in map(self.find, entries)
        )

    @classmethod
    def on_the_way_to(
        cls,
        repository: GitRepository,
        commit: str | None,
        paths: Iterable[bytes],
        environment: Mapping[str, str] | None = None,
    ) -> CommittedFolders:
        """The folders that these paths lie in, and those around them."""
        if commit is None:
            return cls(_DIGEST_BYTES[repository.hashes], None, {})
        wanted = sorted(with_ancestors(split(path)[0] for path in paths))
        size = len(commit) // 2
        found = dict(zip(wanted, _trees(repository, commit, wanted, environment), strict=True))
        trees = {path: tree for path, tree in found.items() if tree is not None}
        if b"" not in trees:
            raise SandboxError(
                f"Git cannot read the commit {commit[:12]} of {repository.root}; nothing was changed.",
                hint="See with `git fsck` what is wrong with the repository.",
            )
        folders = {path: dict(_entries(content, size)) for path, (_, content) in trees.items()}
        return cls(size, TreeEntry(_TREE_MODE, trees[b""][0]), folders)


def _trees(
    repository: GitRepository, commit: str, folders: Collection[bytes], environment: Mapping[str, str] | None
) -> Iterator[tuple[bytes, bytes] | None]:
    """Digest and content of each folder of the commit; None for what is not a folder there."""
    questions = [f"{commit}^{{tree}}".encode() if path == b"" else commit.encode() + b":" + path for path in folders]
    asked = b"".join(question + b"\0" for question in questions)
    answer, at = run_git(["cat-file", "--batch", "-z"], cwd=repository.root, input=asked, env=environment).stdout, 0
    for question in questions:
        # The answer about what is missing repeats the question, in which there may be line breaks.
        missing = question + b" missing\n"
        if answer.startswith(missing, at):
            at += len(missing)
            yield None
            continue
        end = answer.index(b"\n", at)
        digest, kind, *size = answer[at:end].split(b" ")
        content = answer[end + 1 : end + 1 + int(size[0])] if size else b""
        at = end + 1 + len(content) + len(size)  # a line break follows the content
        yield (bytes.fromhex(digest.decode()), content) if kind == b"tree" else None


def _entries(content: bytes, digest_bytes: int) -> Iterator[tuple[bytes, TreeEntry]]:
    at = 0
    while at < len(content):
        mode_end = content.index(b" ", at)
        name_end = content.index(b"\0", mode_end)
        digest = content[name_end + 1 : name_end + 1 + digest_bytes]
        yield content[mode_end + 1 : name_end], TreeEntry(int(content[at:mode_end], 8), digest)
        at = name_end + 1 + digest_bytes


# Writing


def write_changed_tree(
    repository: GitRepository,
    before: CommittedFolders,
    entries: Mapping[bytes, TreeEntry | None],
    environment: Mapping[str, str],
) -> str:
    """The tree that has these paths so, and otherwise what the commit has; None stands for a file that goes.

    As in an index, what comes to a path takes the place of a folder there, and of a file above it.
    """
    change = _TreeChange(before)
    root = change.run(entries)
    made = change.made
    if "GIT_OBJECT_DIRECTORY" in environment:
        # Git marks an object that it need not write as used: that would change the repository.
        missing = _missing(repository, made)
        made = {digest: content for digest, content in made.items() if digest in missing}
    if made and _stored(repository, list(made.values()), environment) != list(made):
        raise SandboxError(
            f"Git stored folders of the commit in {repository.root} under other names; nothing was changed.",
            hint="See with `git fsck` what is wrong with the repository.",
        )
    return root.digest.hex()


def _missing(repository: GitRepository, digests: Iterable[bytes]) -> set[bytes]:
    """Those of these objects that the repository does not have."""
    asked = "".join(f"{digest.hex()}\n" for digest in digests).encode()
    answer = run_git(["cat-file", "--batch-check"], cwd=repository.root, input=asked).stdout
    return {bytes.fromhex(line.split()[0].decode()) for line in answer.splitlines() if line.endswith(b" missing")}


def _stored(repository: GitRepository, contents: Sequence[bytes], environment: Mapping[str, str]) -> list[bytes]:
    with temporary_folder() as folder:
        for number, content in enumerate(contents):
            (folder / str(number)).write_bytes(content)
        listed = "".join(f"{number}\n" for number in range(len(contents))).encode()
        args = ["hash-object", "-t", "tree", "-w", "--no-filters", "--stdin-paths"]
        there = {"GIT_DIR": str(repository.git_dir), **environment}
        answer = run_git(args, cwd=folder, input=listed, env=there).stdout
    return [bytes.fromhex(line.decode()) for line in answer.split()]


class _TreeChange:
    """The folders that change, computed from the deepest to the root."""

    def __init__(self, before: CommittedFolders) -> None:
        self._before = before
        self._hash = hashlib.sha1 if before.digest_bytes == _DIGEST_BYTES["sha1"] else hashlib.sha256
        self.made: dict[bytes, bytes] = {}
        """The content of each new folder, by its digest."""

    def run(self, entries: Mapping[bytes, TreeEntry | None]) -> TreeEntry:
        files: dict[bytes, dict[bytes, TreeEntry | None]] = defaultdict(dict)
        folders: dict[bytes, dict[bytes, TreeEntry | None]] = defaultdict(dict)
        for path, entry in entries.items():
            folder, name = split(path)
            files[folder][name] = entry
        for path in sorted(with_ancestors(files) - {b""}, reverse=True):
            after = self._changed(path, files[path], folders[path])
            folder, name = split(path)
            folders[folder][name] = self._made(path, after) if after else None
        return self._made(b"", self._changed(b"", files[b""], folders[b""]))

    def _changed(
        self, path: bytes, files: Mapping[bytes, TreeEntry | None], folders: Mapping[bytes, TreeEntry | None]
    ) -> Folder:
        after = dict(self._before.folders.get(path, {}))
        for entries, are_folders in ((folders, True), (files, False)):
            for name, entry in entries.items():
                if entry is not None:
                    after[name] = entry
                elif name in after and after[name].is_tree == are_folders:
                    del after[name]
        return after

    def _made(self, path: bytes, after: Folder) -> TreeEntry:
        present = self._before.find(path) if path else self._before.root
        if present is not None and after == self._before.folders.get(path):
            return present
        content = b"".join(b"%o %s\0%s" % (each.mode, name, each.digest) for name, each in _in_order(after))
        digest = self._hash(b"tree %d\0%s" % (len(content), content), usedforsecurity=False).digest()
        self.made[digest] = content
        return TreeEntry(_TREE_MODE, digest)


def _in_order(folder: Folder) -> list[tuple[bytes, TreeEntry]]:
    """As git sorts them: a folder as if its name ended with a slash."""
    return sorted(folder.items(), key=lambda each: each[0] + b"/" if each[1].is_tree else each[0])
