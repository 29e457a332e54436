"""Which paths match patterns in the syntax of a ``.gitignore``; git itself compares them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from holdfast.errors import SandboxError
from holdfast.git.run import complaint_of, run_git
from holdfast.system.trees import make_folders, temporary_folder

# A name that begins with a colon would be read as a pattern, which GIT_LITERAL_PATHSPECS does not prevent here.
_HERE = b"./"


def matching(patterns: bytes, paths: Iterable[bytes], folders: Iterable[bytes] = ()) -> set[bytes]:
    """The paths that the lines match, alone or with a folder they lie in; ``folders`` are those that are folders."""
    with temporary_folder() as place:
        git_dir, work_tree, lines = place / "git", place / "tree", place / "lines"
        for folder in (work_tree, git_dir / "objects", git_dir / "refs"):
            folder.mkdir(parents=True)
        make_folders(work_tree, folders)
        (git_dir / "HEAD").write_text("ref: refs/heads/main\n")
        lines.write_bytes(patterns)
        # In place of the user's own rules, which hold everywhere.
        rules = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.excludesFile", "GIT_CONFIG_VALUE_0": str(lines)}
        environment = {"GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(work_tree), **rules}
        return check_ignore(paths, cwd=work_tree, env=environment)


def check_ignore(paths: Iterable[bytes], *, with_index: bool = False, cwd: Path, env: Mapping[str, str]) -> set[bytes]:
    """The paths that the rules of a work tree match.

    ``with_index``: without those that git tracks; it compares each path with every file that it tracks.
    """
    asked = b"\0".join(_HERE + path for path in paths)
    if not asked:
        return set()
    args = ["check-ignore", *([] if with_index else ["--no-index"]), "-z", "--stdin"]
    answer = run_git(args, cwd=cwd, input=asked, env=env, check=False)
    if answer.returncode > 1:
        raise SandboxError(
            f"git check-ignore failed: {complaint_of(answer)}.",
            hint="Run `git status` in the repository to see why.",
        )
    return {path.removeprefix(_HERE) for path in answer.stdout.split(b"\0") if path}
