"""What a directory really holds, told without any of Holdfast's code: described, compared, made with every oddity."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

IS_ROOT = os.geteuid() == 0
FAR_PAST_NS = -86_400 * 365 * 60 * 10**9 + 123_456_789
"""In the year 1909, with nanoseconds."""
A_MOMENT_NS = 1_234_567_890_123_456_789
_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}
_NOT_OURS_TO_SET = ("security.selinux", "security.ima", "security.evm")


@dataclass(frozen=True)
class Thing:
    """One path of a tree."""

    kind: str
    mode: int
    mtime_ns: int
    size: int
    content: str
    target: bytes
    xattrs: tuple[tuple[str, bytes], ...]
    owner: tuple[int, int]
    names: tuple[bytes, ...]
    """All paths of the tree that are this same file."""


Tree = Mapping[bytes, Thing]


def describe(root: Path, *, without: Collection[bytes] = ()) -> dict[bytes, Thing]:
    """Everything at and below ``root`` by its relative path (``b""`` is the root), but for the subtrees ``without``."""
    statuses = dict(_statuses(os.fsencode(root), without))
    names: dict[tuple[int, int], list[bytes]] = {}
    for path, status in statuses.items():
        if not stat.S_ISDIR(status.st_mode):
            names.setdefault((status.st_dev, status.st_ino), []).append(path)
    return {
        path: _thing(
            _below(os.fsencode(root), path), status, tuple(sorted(names.get((status.st_dev, status.st_ino), ())))
        )
        for path, status in statuses.items()
    }


def _below(root: bytes, path: bytes) -> bytes:
    return root + b"/" + path if path else root


def _statuses(root: bytes, without: Collection[bytes]) -> Iterator[tuple[bytes, os.stat_result]]:
    pending = [b""]
    while pending:
        path = pending.pop()
        status = os.lstat(_below(root, path))
        yield path, status
        if stat.S_ISDIR(status.st_mode):
            names = [path + b"/" + name if path else name for name in os.listdir(_below(root, path))]
            pending.extend(name for name in names if name not in without)


def _thing(path: bytes, status: os.stat_result, names: tuple[bytes, ...]) -> Thing:
    kind = _KINDS[stat.S_IFMT(status.st_mode)]
    xattrs = () if kind in ("socket", "character device", "block device") else _xattrs(path)
    return Thing(
        kind=kind,
        mode=0 if kind == "symlink" else stat.S_IMODE(status.st_mode),
        mtime_ns=status.st_mtime_ns,
        size=status.st_size if kind == "file" else 0,
        content=_digest(path) if kind == "file" else "",
        target=os.readlink(path) if kind == "symlink" else b"",
        xattrs=xattrs,
        owner=(status.st_uid, status.st_gid),
        names=names,
    )


def _digest(path: bytes) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _xattrs(path: bytes) -> tuple[tuple[str, bytes], ...]:
    try:
        names = sorted(os.listxattr(path, follow_symlinks=False))
    except OSError:
        return ()
    return tuple(
        (name, os.getxattr(path, name, follow_symlinks=False)) for name in names if name not in _NOT_OURS_TO_SET
    )


def compare(one: Tree, other: Tree, *, ignoring: Collection[str] = ()) -> list[str]:
    """Every difference as a sentence; none means the trees are the same in all that can be seen of them."""
    found = []
    for path in sorted(one.keys() | other.keys()):
        before, after = one.get(path), other.get(path)
        if before is None or after is None:
            found.append(f"{path!r} is only in the {'second' if before is None else 'first'}")
            continue
        found += [
            f"{path!r}: {field.name} {getattr(before, field.name)!r} -> {getattr(after, field.name)!r}"
            for field in fields(Thing)
            if field.name not in ignoring and getattr(before, field.name) != getattr(after, field.name)
        ]
    return found


def difference_of(one: Path, other: Path, *, ignoring: Collection[str] = ()) -> list[str]:
    return compare(describe(one), describe(other), ignoring=ignoring)


# Making odd trees


def fast_disk() -> Path | None:
    """A file system in memory that holds all a tree can have, if there is one; where content need not be durable."""
    memory = Path("/dev/shm")
    try:
        with tempfile.NamedTemporaryFile(dir=memory) as probe:
            os.setxattr(probe.name, "user.probe", b"")
    except OSError:
        return None
    return memory


def write(path: Path, content: bytes | str = b"", *, mode: int | None = None, mtime_ns: int | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    if mode is not None:
        path.chmod(mode)
    if mtime_ns is not None:
        set_mtime(path, mtime_ns)
    return path


def set_mtime(path: Path, mtime_ns: int) -> None:
    os.utime(path, ns=(mtime_ns, mtime_ns), follow_symlinks=False)


def make_socket(path: Path) -> Path:
    os.mknod(path, stat.S_IFSOCK | 0o600)
    return path


def make_null_device(path: Path) -> Path:
    """Another /dev/null; only root may make one."""
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    return path


def make_sparse(path: Path, size: int, *, data: Mapping[int, bytes]) -> Path:
    """A file of holes with some data at some places."""
    with open(path, "wb") as file:
        for offset, content in data.items():
            file.seek(offset)
            file.write(content)
        file.truncate(size)
    return path


def disk_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def make_deep(root: Path, levels: int, leaf: bytes = b"at the bottom", *, name: bytes = b"d") -> bytes:
    """A file that many directories down; its relative path, which may be longer than one the kernel takes."""
    directory = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=directory)
        directory = _opened_instead(directory, name)
    with open(os.open(b"leaf", os.O_WRONLY | os.O_CREAT, 0o666, dir_fd=directory), "wb") as file:
        file.write(leaf)
    os.close(directory)
    return (name + b"/") * levels + b"leaf"


def read_deep(root: Path, path: bytes) -> bytes:
    """What a file of any depth holds."""
    *directories, name = path.split(b"/")
    directory = os.open(root, os.O_RDONLY)
    for each in directories:
        directory = _opened_instead(directory, each)
    with open(_opened_instead(directory, name), "rb") as file:
        return file.read()


def _opened_instead(directory: int, name: bytes) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=directory)
    finally:
        os.close(directory)


def make_odd_tree(root: Path) -> None:
    """One of everything a snapshot must hold."""
    write(root / "plain.txt", "plain\n", mode=0o644, mtime_ns=A_MOMENT_NS)
    write(root / "private", "secret\n", mode=0o600)
    write(root / "closed", "closed to all\n", mode=0o000)
    write(root / "runs-as-owner", "#!/bin/sh\n", mode=0o4755)
    write(root / "very old", "1909\n", mtime_ns=FAR_PAST_NS)
    write(root / "empty file")
    (root / "empty directory").mkdir()
    (root / "empty directory").chmod(0o711)
    (root / "shared").mkdir()
    (root / "shared").chmod(0o2775)
    write(root / "shared" / "of the group", "ours\n")
    (root / "read only").mkdir()
    for number in range(3):
        write(root / "read only" / f"file {number}", f"{number}\n", mode=0o444)
    (root / "read only").chmod(0o555)
    os.symlink("plain.txt", root / "relative link")
    os.symlink("/etc/hostname", root / "absolute link")
    os.symlink("nowhere/at all", root / "dangling link")
    set_mtime(root / "dangling link", A_MOMENT_NS)
    os.symlink("shared", root / "link to a directory")
    os.mkfifo(root / "fifo", 0o620)
    write(root / "linked" / "first name", "one file\n")
    os.link(root / "linked" / "first name", root / "linked" / "second name")
    (root / "linked" / "elsewhere").mkdir()
    os.link(root / "linked" / "first name", root / "linked" / "elsewhere" / "third name")
    write(root / "with attributes", "attributes\n")
    os.setxattr(root / "with attributes", "user.colour", b"green")
    os.setxattr(root / "with attributes", "user.empty", b"")
    os.setxattr(root / "empty directory", "user.purpose", b"none \x00\xff")
    write(root / ".gitignore", "ignored/\n")
    write(root / "ignored" / "cache.bin", b"\x00\x01\x02")
    write(root / "nested" / ".git" / "HEAD", "ref: refs/heads/main\n")
    write(root / "nested" / "inside", "inside\n")
    for name in ODD_NAMES:
        with open(os.fsencode(root) + b"/" + name, "wb") as file:
            file.write(b"named " + name)
    set_mtime(root / "shared", A_MOMENT_NS)
    set_mtime(root / "read only", FAR_PAST_NS)


ODD_NAMES = (
    b"with spaces  and tabs\t",
    b"two\nlines",
    b"not utf-8 \xff\xfe",
    b"quotes '\" and \\ backslash",
    "grüße 你好".encode(),
    b"-n --starts-with-a-dash",
    b" ",
    b"*?[glob]",
    b"n" * 255,
    b".holdfast",
)
"""Besides, ``.holdfast-`` and 16 hexadecimal digits is how Holdfast itself names a file it is about to rename."""
