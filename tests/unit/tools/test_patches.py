"""apply_patch: what git makes of a patch, kept inside the sandbox."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import SandboxError, UsageError
from holdfast.git.patches import apply_patch
from holdfast.git.run import run_git

NEW_FILE = """\
diff --git a/{path} b/{path}
new file mode 100644
--- /dev/null
+++ b/{path}
@@ -0,0 +1 @@
+evil
"""
EDIT = """\
--- a/{path}
+++ b/{path}
@@ -1 +1 @@
-{old}
+{new}
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    directory = tmp_path / "repository"
    directory.mkdir()
    (directory / "text").write_text("one\ntwo\n")
    (directory / "binary").write_bytes(bytes(range(256)))
    (directory / "gone").write_text("gone\n")
    (directory / "old name").write_text("".join(f"line {number}\n" for number in range(20)))
    (directory / "script").write_text("#!/bin/sh\n")
    (directory / "win").write_bytes(b"a\r\nb\r\n")
    run_git(["init", "-q"], cwd=directory)
    run_git(["add", "-A"], cwd=directory)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    run_git([*identity, "commit", "-qm", "first"], cwd=directory)
    return directory


@pytest.fixture
def patch_of(repository: Path) -> Callable[[Callable[[Path], object]], bytes]:
    """The patch of a change; the repository is left without it."""

    def patch_of(change: Callable[[Path], object]) -> bytes:
        change(repository)
        run_git(["add", "-A"], cwd=repository)
        patch = run_git(["diff", "--cached", "--binary", "-M", "-C", "--find-copies-harder"], cwd=repository).stdout
        run_git(["reset", "-q", "--hard"], cwd=repository)
        return patch

    return patch_of


def contents(directory: Path) -> dict[str, object]:
    return {
        str(path.relative_to(directory)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in directory.rglob("*")
        if ".git" not in path.parts and (path.is_file() or path.is_symlink())
    }


def change_everything(directory: Path) -> None:
    (directory / "text").write_text("one\n2\n")
    (directory / "binary").write_bytes(bytes(reversed(range(256))))
    (directory / "gone").unlink()
    (directory / "old name").rename(directory / "new\nname")
    (directory / "script").chmod(0o755)
    (directory / "win").write_bytes(b"a\r\nB\r\n")
    (directory / "deep" / "er").mkdir(parents=True)
    (directory / "deep" / "er" / "new").write_text("new\n")
    (directory / "copy").write_text("one\n2\n")
    (directory / "link").symlink_to("text")
    (directory / "blob").write_bytes(b"\0\1\2")


@pytest.mark.parametrize("is_repository", [True, False])
def test_every_kind_of_change_is_applied(repository, patch_of, root, is_repository):
    patch = patch_of(change_everything)
    directory = repository if is_repository else root
    if not is_repository:
        shutil.copytree(repository, root, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"))
    changed = apply_patch(directory, patch, 1)
    assert set(changed) == {
        "text", "binary", "gone", "old name", "new\nname", "script", "win", "deep/er/new", "copy", "link", "blob",
    }  # fmt: skip
    assert (directory / "script").stat().st_mode & 0o111
    patched = contents(directory)
    run_git(["reset", "-q", "--hard"], cwd=repository)
    run_git(["clean", "-qfd"], cwd=repository)
    change_everything(repository)
    assert patched == contents(repository)


def test_the_index_of_a_repository_is_left_alone(repository, patch_of):
    patch = patch_of(lambda directory: (directory / "text").write_text("1\n"))
    before = (repository / ".git" / "index").read_bytes()
    apply_patch(repository, patch, 1)
    assert (repository / ".git" / "index").read_bytes() == before


def test_a_private_file_stays_private(root):
    (root / "file").write_text("old\n")
    (root / "file").chmod(0o600)
    apply_patch(root, EDIT.format(path="file", old="old", new="new").encode(), 1)
    assert (root / "file").read_text() == "new\n"
    assert stat.S_IMODE((root / "file").stat().st_mode) == 0o600


def test_a_private_script_becomes_executable_for_those_who_could_read_it(root):
    (root / "file").write_text("old\n")
    (root / "file").chmod(0o640)
    apply_patch(root, b"diff --git a/file b/file\nold mode 100644\nnew mode 100755\n", 1)
    assert stat.S_IMODE((root / "file").stat().st_mode) == 0o750
    apply_patch(root, b"diff --git a/file b/file\nold mode 100755\nnew mode 100644\n", 1)
    assert stat.S_IMODE((root / "file").stat().st_mode) == 0o640


def test_a_renamed_private_file_stays_private(root):
    (root / "file").write_text("old\n")
    (root / "file").chmod(0o600)
    apply_patch(root, b"diff --git a/file b/name\nsimilarity index 100%\nrename from file\nrename to name\n", 1)
    assert stat.S_IMODE((root / "name").stat().st_mode) == 0o600


@pytest.mark.parametrize("path", ["../outside/evil", "sub/../../outside/evil", "/tmp/holdfast-evil", ".git/evil"])
def test_a_path_outside_is_refused(root, outside, path):
    (root / "sub").mkdir()
    with pytest.raises(UsageError):
        apply_patch(root, (NEW_FILE.format(path="fine") + NEW_FILE.format(path=path)).encode(), 1)
    assert contents(root) == {}
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert not Path("/tmp/holdfast-evil").exists()


def test_a_rename_from_outside_is_refused(root, outside):
    patch = (
        b"diff --git a/../outside/secret b/mine\nsimilarity index 100%\nrename from ../outside/secret\nrename to mine\n"
    )
    with pytest.raises(UsageError, match="climbs"):
        apply_patch(root, patch, 1)
    assert (outside / "secret").read_text() == "untouched"


@pytest.mark.parametrize(
    "template",
    [NEW_FILE.format(path="link/evil"), EDIT.format(path="link/secret", old="untouched", new="evil")],
)
def test_a_patch_through_a_symlinked_directory_is_refused(root, outside, template):
    (root / "link").symlink_to(outside)
    (root / "file").write_text("old\n")
    with pytest.raises(UsageError, match="link is a symlink"):
        apply_patch(root, (EDIT.format(path="file", old="old", new="new") + template).encode(), 1)
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret": "untouched"}
    assert (root / "file").read_text() == "old\n"


def test_a_patch_of_a_file_that_is_a_symlink_is_refused(root, outside):
    (outside / "secret").write_text("old\n")
    (root / "link").symlink_to(outside / "secret")
    with pytest.raises(UsageError):
        apply_patch(root, EDIT.format(path="link", old="old", new="evil").encode(), 1)
    assert (outside / "secret").read_text() == "old\n"
    assert (root / "link").is_symlink()


def test_a_patch_that_makes_a_symlink_and_writes_behind_it_is_refused(root, outside):
    link = (
        "diff --git a/link b/link\nnew file mode 120000\n--- /dev/null\n+++ b/link\n@@ -0,0 +1 @@\n"
        f"+{outside}\n\\ No newline at end of file\n"
    )
    with pytest.raises(UsageError, match="symlink"):
        apply_patch(root, (link + NEW_FILE.format(path="link/evil")).encode(), 1)
    assert contents(root) == {}
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_a_patch_of_which_one_part_does_not_apply_changes_nothing(root):
    (root / "a").write_text("old\n")
    (root / "b").write_text("something else\n")
    patch = EDIT.format(path="a", old="old", new="new") + EDIT.format(path="b", old="old", new="new")
    with pytest.raises(UsageError, match="b: patch does not apply"):
        apply_patch(root, patch.encode(), 1)
    assert contents(root) == {"a": b"old\n", "b": b"something else\n"}


def test_the_number_of_leading_components_can_be_chosen(root):
    (root / "file").write_text("old\n")
    apply_patch(root, b"--- file\n+++ file\n@@ -1 +1 @@\n-old\n+new\n", 0)
    apply_patch(root, b"--- x/y/file\n+++ x/y/file\n@@ -1 +1 @@\n-new\n+newer\n", 2)
    assert (root / "file").read_text() == "newer\n"


def test_no_filter_that_a_sandbox_defines_is_run_by_a_patch(repository, tmp_path):
    (repository / ".gitattributes").write_text("* filter=evil\n")
    run_git(["config", "filter.evil.clean", f"touch {tmp_path}/ran; cat"], cwd=repository)
    run_git(["config", "filter.evil.smudge", f"touch {tmp_path}/ran; cat"], cwd=repository)
    apply_patch(repository, EDIT.format(path="gone", old="gone", new="here").encode(), 1)
    assert (repository / "gone").read_text() == "here\n"
    assert not (tmp_path / "ran").exists()


def test_the_tool_takes_a_patch_without_a_last_line_break(use, root):
    (root / "file").write_text("old\n")
    result = use("apply_patch", patch=EDIT.format(path="file", old="old", new="new").rstrip("\n"))
    assert (result.succeeded, result.output) == (True, "patched file\n")
    assert (root / "file").read_text() == "new\n"


@pytest.mark.parametrize("patch", ["this is no patch", EDIT.format(path="missing", old="old", new="new")])
def test_the_tool_fails_with_what_git_said(use, patch):
    result = use("apply_patch", patch=patch)
    assert not result.succeeded
    assert result.error.startswith("the patch does not apply: ")


def test_git_is_run_without_the_settings_of_the_users_environment(root, outside, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(outside))
    monkeypatch.setenv("GIT_WORK_TREE", str(outside))
    run_git(["init", "-q"], cwd=root)
    assert (root / ".git").is_dir()
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_what_git_refuses_is_an_error_with_its_last_words(root):
    with pytest.raises(SandboxError, match=r"^git rev-parse failed: (?!fatal).*not a git repository"):
        run_git(["rev-parse", "HEAD"], cwd=root, env={"GIT_CEILING_DIRECTORIES": str(root.parent)})
    assert run_git(["rev-parse", "HEAD"], cwd=root, check=False).returncode != 0


def test_a_missing_git_is_an_error_with_a_hint(root, monkeypatch):
    monkeypatch.setenv("PATH", str(root))
    with pytest.raises(SandboxError, match="git is not installed") as caught:
        run_git(["version"], cwd=root)
    assert "Install git" in caught.value.hint


def test_a_missing_directory_is_not_mistaken_for_a_missing_git(root):
    with pytest.raises(SandboxError, match="missing is not a directory"):
        run_git(["version"], cwd=root / "missing")


def test_no_hook_of_a_repository_is_run(repository, tmp_path):
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    run_git(["checkout", "-q", "-b", "other"], cwd=repository)
    assert not (tmp_path / "ran").exists()


def test_a_git_that_cannot_be_executed_is_an_error(root, monkeypatch):
    (root / "git").write_text("not a program")
    monkeypatch.setenv("PATH", str(root))
    with pytest.raises(SandboxError, match="git cannot be started: Permission denied"):
        run_git(["version"], cwd=root)
