"""Which ignored and untracked files are in a sandbox: all of them, up to a limit, and what patterns say."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import SandboxError
from holdfast.model import CopyLimit, CopyRules, Resource
from holdfast.sandbox.ignored import WISHES
from holdfast.system.directories import IS_ROOT
from tests.support.repositories import git, make_repository, status
from tests.support.trees import compare, describe, write
from tests.support.unprivileged import NOBODY, folder_for_nobody, run_unprivileged
from tests.unit.sandbox.conftest import Bench

NONE = CopyLimit(files=0)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A project with its dependencies, its secrets and what its programs wrote."""
    repository = make_repository(tmp_path / "project")
    write(repository / ".gitignore", "node_modules/\nbuild/\n.env\n*.log\n/link\n")
    git(repository, "add", ".gitignore")
    git(repository, "commit", "-q", "-m", "rules")
    for name in ("node_modules/a/index.js", "node_modules/b/index.js", ".env", "folder/x.log", "build/out.bin"):
        write(repository / name, f"{name}\n" * 2000)
    (repository / "node_modules" / "empty").mkdir()
    (repository / "link").symlink_to("/etc")
    write(repository / "notes.txt", "untracked\n")
    return repository


def made(bench: Bench, repository: Path, rules: CopyRules) -> tuple[Resource, set[str]]:
    """The sandbox, and which files of the user it holds."""
    sandbox = bench.git(repository, rules)
    needed = sandbox.size_bytes()
    resource = sandbox.create()
    # The space was found before, from the same decision.
    found = describe(sandbox.path, without=[b".git"])
    assert needed >= sum({each.names: each.size for each in found.values() if each.kind == "file"}.values())
    return resource, {os.fsdecode(path) for path, each in found.items() if each.kind != "directory"}


EVERYTHING = {
    ".env", ".gitignore", "a.txt", "b.txt", "build/out.bin", "folder/c.txt", "folder/x.log", "link",
    "node_modules/a/index.js", "node_modules/b/index.js", "notes.txt",
}  # fmt: skip


def test_a_sandbox_has_what_the_folder_has(bench: Bench, repository: Path):
    resource, _ = made(bench, repository, CopyRules())
    sandbox = Path(resource.sandbox_path)
    before, after = (describe(each, without=[b".git"]) for each in (repository, sandbox))
    del before[b""], after[b""]  # making .git changed its time
    assert compare(before, after) == []
    assert resource.left_out == ()
    assert status(sandbox) == status(repository)
    assert os.readlink(sandbox / "link") == "/etc"


def test_beyond_the_limit_the_largest_folders_are_left_out_and_named(bench: Bench, repository: Path):
    write(repository / "build" / "large.bin", bytes(3_000_000))
    resource, found = made(bench, repository, CopyRules(limit=CopyLimit(size_bytes=1_000_000)))
    assert found == EVERYTHING - {"build/out.bin"}
    (left,) = resource.left_out
    assert left.path == "build"
    assert left.reason == "git ignores it, and it has 3.0 MB in 2 files; a new plan with `--include /build` gets it"


def test_beyond_the_number_of_files_the_folders_with_the_most_are_left_out(bench: Bench, repository: Path):
    for number in range(27):
        write(repository / "node_modules" / "cde"[number % 3] / f"{number}.js", bytes(4096))
    resource, found = made(bench, repository, CopyRules(limit=CopyLimit(files=4)))
    (left,) = resource.left_out
    assert left.path == "node_modules"
    found_in = re.search(r"more than .* in (\d+) files; ", left.reason)
    assert found_in is not None
    counted = int(found_in[1])
    assert 4 < counted < 27, "no more folders are counted than it takes to know that they are too many"
    assert found == {name for name in EVERYTHING if not name.startswith("node_modules")}


def test_a_single_large_file_is_left_out_alone(bench: Bench, repository: Path):
    write(repository / "huge.log", bytes(3_000_000))
    resource, found = made(bench, repository, CopyRules(limit=CopyLimit(size_bytes=1_000_000)))
    assert [each.path for each in resource.left_out] == ["huge.log"]
    assert found == EVERYTHING


def test_a_file_with_several_names_counts_once(bench: Bench, repository: Path):
    write(repository / "build" / "large.bin", bytes(600_000))
    os.link(repository / "build" / "large.bin", repository / "build" / "again.bin")
    resource, _ = made(bench, repository, CopyRules(limit=CopyLimit(size_bytes=1_000_000)))
    assert resource.left_out == ()


def test_what_is_included_is_there_in_any_case(bench: Bench, repository: Path):
    """The rest of its folder stays out, and the limit is for the others."""
    write(repository / WISHES, "# needed everywhere\n.env\n*.log\n!folder/x.log\n")
    include = ("/node_modules/b/", "build/out.*")
    resource, found = made(bench, repository, CopyRules(include=include, exclude=("build", ".env"), limit=NONE))
    left = {"folder/x.log", "link", "node_modules/a/index.js"}
    assert found == {*EVERYTHING, WISHES} - left
    assert {each.path for each in resource.left_out} == {"folder/x.log", "link", "node_modules"}


def test_a_folder_that_is_included_as_a_whole_is_not_named_though_the_limit_allows_nothing(
    bench: Bench, repository: Path
):
    rules = CopyRules(include=("*", "!.env"), limit=CopyLimit(size_bytes=0))
    resource, found = made(bench, repository, rules)
    assert found == EVERYTHING - {".env"}
    assert [each.path for each in resource.left_out] == [".env"]


def test_a_later_pattern_takes_back_what_an_earlier_one_includes(bench: Bench, repository: Path):
    write(repository / WISHES, ".env\n")
    _, found = made(bench, repository, CopyRules(include=("!.env",), exclude=(".env",)))
    assert found == {*EVERYTHING, WISHES} - {".env"}


def test_ignored_and_untracked_files_can_be_excluded_but_no_tracked_ones(bench: Bench, repository: Path):
    write(repository / "build" / "kept.txt", "tracked\n")
    git(repository, "add", "--force", "build/kept.txt")
    write(repository / "new" / "x.csv", "untracked\n")
    write(repository / "new" / "y.csv", "untracked\n")
    exclude = ("build/", "*.txt", "*.csv", "!y.csv")
    resource, found = made(bench, repository, CopyRules(exclude=exclude))
    assert found == EVERYTHING - {"build/out.bin", "notes.txt"} | {"build/kept.txt", "new/y.csv"}
    assert {each.path for each in resource.left_out} == {"build/out.bin", "notes.txt", "new/x.csv"}
    assert all(each.reason.startswith("excluded, with ") for each in resource.left_out)


def test_a_long_list_of_what_is_left_out_names_the_largest(bench: Bench, repository: Path):
    for number in range(30):
        write(repository / "many" / f"{number}.tmp", bytes(4096 * (number + 1)))
    write(repository / "many" / "kept", "x")
    resource, found = made(bench, repository, CopyRules(exclude=("*.tmp",)))
    assert not [name for name in found if name.endswith(".tmp")]
    assert [each.path for each in resource.left_out] == [f"many/{number}.tmp" for number in range(29, 9, -1)] + ["."]
    assert resource.left_out[-1].reason == "10 more paths are excluded, with 225 kB in 10 files"


@pytest.mark.parametrize(
    "name", [b"a b ", b"it's [x]*?\\", b"line\nbreak", b"caf\xe9", "rtl\u202e".encode(), b"!x", b"#x", b":x", b"-x"]
)
def test_the_pattern_that_is_named_includes_just_that_path(bench: Bench, repository: Path, name: bytes):
    folder = repository / "build" / os.fsdecode(name)
    write(folder / "file", "x")
    write(repository / "build" / "other", "x")
    git(repository, "rm", "-q", "--cached", ".gitignore")
    write(repository / ".gitignore", "file\nother\n")
    resource, _ = made(bench, repository, CopyRules(limit=NONE))
    path = (b"build/" + name).decode(errors="backslashreplace")
    (reason,) = [each.reason for each in resource.left_out if each.path.startswith(path)]
    assert "\n" not in reason
    (_, pattern) = shlex.split(reason.split("`")[1])
    _, found = made(bench, repository, CopyRules(include=(pattern,), limit=NONE))
    assert f"build/{os.fsdecode(name)}/file" in found
    assert "build/other" not in found


# Repositories inside


def test_repositories_and_work_trees_in_ignored_folders_work_in_it(bench: Bench, repository: Path):
    make_repository(repository / "build" / "nested", {"inner.txt": "inner\n"})
    git(repository, "worktree", "add", "--quiet", "-b", "other", "build/tree")
    before = describe(repository, without=[b".git"])
    resource, _ = made(bench, repository, CopyRules())
    sandbox = Path(resource.sandbox_path)
    for inside in ("nested", "tree"):
        git(sandbox / "build" / inside, "commit", "-q", "--allow-empty", "-m", "inside")
    assert compare(before, describe(repository, without=[b".git"])) == []
    assert git(repository, "log", "--format=%s", "other") == git(repository, "log", "--format=%s", "main")


def test_what_a_submodule_ignores_counts_and_can_be_left_out(bench: Bench, repository: Path, tmp_path: Path):
    library = make_repository(tmp_path / "library", {"lib.txt": "lib\n", ".gitignore": "cache/\n"})
    git(repository, "submodule", "--quiet", "add", str(library), "vendor/lib")
    write(repository / "vendor" / "lib" / "cache" / "large", bytes(3_000_000))
    resource, found = made(bench, repository, CopyRules(limit=CopyLimit(size_bytes=1_000_000)))
    assert [each.path for each in resource.left_out] == ["vendor/lib/cache"]
    assert {"vendor/lib/lib.txt", "build/out.bin"} <= found
    assert status(Path(resource.sandbox_path) / "vendor" / "lib") == []


# The file of wishes


def as_folder(place: Path) -> None:
    place.mkdir()


def as_pipe(place: Path) -> None:
    os.mkfifo(place)


def as_symlink_to_nothing(place: Path) -> None:
    place.symlink_to("nowhere")


@pytest.mark.parametrize("kind", [as_folder, as_pipe, as_symlink_to_nothing])
def test_wishes_that_cannot_be_read_are_refused_at_once(bench: Bench, repository: Path, kind: Callable[[Path], None]):
    kind(repository / WISHES)
    with pytest.raises(SandboxError, match=rf"{WISHES} cannot be read") as refusal:
        bench.git(repository).check()
    assert "move it away" in refusal.value.hint


def test_wishes_may_be_kept_elsewhere(bench: Bench, repository: Path, tmp_path: Path):
    (repository / WISHES).symlink_to(write(tmp_path / "shared", ".env\n"))
    _, found = made(bench, repository, CopyRules(limit=NONE))
    assert ".env" in found
    assert "build/out.bin" not in found


# As a user who is not root


def made_by_a_user(folder: str) -> list[Any]:
    repository, bench = Path(folder) / "project", Bench(Path(folder))
    sandbox = bench.git(repository, CopyRules(exclude=("*.tmp",)))
    left_out = [[each.path, each.reason] for each in sandbox.create().left_out]
    (repository / WISHES).chmod(0o000)
    with pytest.raises(SandboxError) as refusal:
        sandbox.check()
    return [sorted(os.listdir(sandbox.path / "volume")), left_out, refusal.value.message]


@pytest.mark.skipif(not IS_ROOT, reason="only root can give a tree to another user")
def test_what_the_user_may_not_read_is_left_out_and_wishes_must_be_readable():
    with folder_for_nobody() as folder:
        repository = make_repository(folder / "project", {".gitignore": "volume/\n"})
        write(repository / WISHES, "volume/\n")
        write(repository / "volume" / "open", "x")
        write(repository / "volume" / "closed" / "file", "x").parent.chmod(0o000)
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", repository], check=True)
        os.chown(repository / "volume" / "closed", 0, 0)
        found, left_out, refusal = run_unprivileged(made_by_a_user, str(folder))
    assert found == ["closed", "open"]
    assert left_out == [["volume/closed", "not readable for this user"]]
    assert refusal == f"{repository / WISHES} cannot be read: Permission denied."
