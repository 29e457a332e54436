"""Objects of another repository: read beside those of the user's, and brought into it as a whole.

Git runs in the user's repository for all of this. A sandbox has settings of its own, which a step may have written, and
which can start programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import SandboxError
from holdfast.git.repository import GitRepository
from holdfast.git.run import run_git
from holdfast.system.trees import temporary_folder

_UNPACKED = 100
"""Fewer objects than that become files of their own, as when git fetches them."""
_COUNT = slice(8, 12)
"""Where the file of a pack says how many objects it has."""


@contextmanager
def objects_elsewhere(repository: GitRepository, *others: Path) -> Iterator[dict[str, str]]:
    """The environment for a git that reads the repository's objects, and those in these folders, and stores new ones in
    a temporary folder."""
    known = ":".join(_quoted(each) for each in (repository.common_dir / "objects", *others))
    with temporary_folder() as folder:
        yield {"GIT_OBJECT_DIRECTORY": str(folder), "GIT_ALTERNATE_OBJECT_DIRECTORIES": known}


def _quoted(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


@contextmanager
def borrowed(repository: GitRepository, lender: Path, tip: str, known: str | None) -> Iterator[dict[str, str]]:
    """The environment for a git that has a copy of the commit ``tip``, and of all that it needs and ``known`` has not.

    ``lender`` is the folder of the objects of another repository. It is only read: with its objects at hand, git would
    mark those that it need not write as used. Git looks at the form of each object and at what it names.
    """
    with (
        objects_elsewhere(repository, lender) as reading,
        _packed(repository, tip, known, reading) as pack,
        objects_elsewhere(repository) as environment,
        pack.open("rb", buffering=0) as content,
    ):
        run_git(["index-pack", "--stdin", "--strict"], cwd=repository.root, env=environment, stdin=content)
        yield environment


def bring_objects(repository: GitRepository, tip: str, known: str | None, environment: Mapping[str, str]) -> None:
    """Store in the repository all that the commit ``tip`` needs and ``known`` has not; durable when it returns."""
    with _packed(repository, tip, known, environment) as pack, pack.open("rb", buffering=0) as content:
        count = int.from_bytes(content.read(_COUNT.stop)[_COUNT])
        content.seek(0)
        way = ["unpack-objects", "-q"] if count < _UNPACKED else ["index-pack", "--stdin"]
        run_git([*way, "--strict"], cwd=repository.root, stdin=content)


@contextmanager
def _packed(repository: GitRepository, tip: str, known: str | None, environment: Mapping[str, str]) -> Iterator[Path]:
    wanted = f"{tip}\n" + (f"^{known}\n" if known else "")
    with temporary_folder() as folder:
        args = ["pack-objects", "--revs", "-q", str(folder / "carried")]
        name = run_git(args, cwd=repository.root, input=wanted.encode(), env=environment).stdout.decode().strip()
        yield folder / f"carried-{name}.pack"


def read_objects(
    repository: GitRepository, digests: list[str], environment: Mapping[str, str]
) -> Iterator[tuple[str, bytes]]:
    """Kind and content of each of these objects."""
    asked = "".join(f"{digest}\n" for digest in digests).encode()
    answer, at = run_git(["cat-file", "--batch"], cwd=repository.root, input=asked, env=environment).stdout, 0
    for digest in digests:
        end = answer.index(b"\n", at)
        _, kind, *size = answer[at:end].split(b" ")
        if not size:
            raise SandboxError(
                f"Git cannot read {digest[:12]} in {repository.root}; nothing was changed.",
                hint="See with `git fsck` what is wrong with the repository.",
            )
        content = answer[end + 1 : end + 1 + int(size[0])]
        at = end + 1 + len(content) + 1  # a line break follows
        yield kind.decode(), content
