"""Both the plan and the user changed a file: different lines of a text come together, everything else is refused."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from holdfast.errors import ConflictError
from tests.integration.apply.conftest import Desk
from tests.support.crashes import count_of_changes, killed_at
from tests.support.repositories import git, log, status
from tests.support.trees import compare, write

LINES = "".join(f"{number}\n" for number in range(1, 10))
FIRST = "sed -i s/^1$/one/ text"


@pytest.fixture
def text(desk: Desk) -> Path:
    write(desk.data / "text", LINES)
    write(desk.app / "text", LINES)
    git(desk.app, "add", "text")
    git(desk.app, "commit", "-q", "-m", "a text")
    return desk.app / "text"


def change_last(path: Path) -> None:
    path.write_text(path.read_text().replace("9\n", "nine\n"))


def test_different_lines_of_a_file_in_a_directory_come_together(desk: Desk, text: Path):
    (desk.data / "text").chmod(0o640)
    plan = desk.run(data=FIRST)
    change_last(desk.data / "text")
    result = desk.apply(plan)
    assert (desk.data / "text").read_text() == LINES.replace("1\n", "one\n", 1).replace("9\n", "nine\n")
    assert (desk.data / "text").stat().st_mode & 0o777 == 0o640
    assert [(each.file, each.action) for each in result.changes] == [("text", "merged")]
    assert desk.leftovers() == []


def test_what_the_user_committed_meanwhile_is_merged_and_the_commit_holds_only_the_plans_lines(desk: Desk, text: Path):
    plan = desk.run(app=FIRST)
    change_last(text)
    git(desk.app, "commit", "-q", "-a", "-m", "of mine")
    desk.apply(plan)
    assert log(desk.app) == ["the plan", "of mine", "a text", "the first commit"]
    assert text.read_text() == LINES.replace("1\n", "one\n", 1).replace("9\n", "nine\n")
    assert status(desk.app) == []
    changed = [line for line in git(desk.app, "show", "-U0", "--format=").splitlines() if line[:1] in "+-"][2:]
    assert changed == ["-1", "+one"]


def test_line_ends_that_the_repository_converts_are_merged_as_the_user_sees_them(desk: Desk, text: Path):
    write(desk.app / ".gitattributes", "*.txt text eol=crlf\n")
    (desk.app / "dos.txt").write_bytes(LINES.replace("\n", "\r\n").encode())
    git(desk.app, "add", "--all")
    git(desk.app, "commit", "-q", "-m", "crlf")
    plan = desk.run(app="sed -i 's/^1\\r$/one\\r/' dos.txt")
    dos = desk.app / "dos.txt"
    dos.write_bytes(dos.read_bytes().replace(b"9\r\n", b"nine\r\n"))
    git(desk.app, "commit", "-q", "-a", "-m", "of mine")
    desk.apply(plan)
    assert dos.read_bytes() == LINES.replace("1\n", "one\n", 1).replace("9\n", "nine\n").replace("\n", "\r\n").encode()
    assert status(desk.app) == []
    assert "\r" not in git(desk.app, "cat-file", "blob", "HEAD:dos.txt")


def test_the_mode_that_the_plan_gave_comes_with_the_merged_text(desk: Desk, text: Path):
    plan = desk.run(app=f"{FIRST}; chmod +x text")
    change_last(text)
    git(desk.app, "commit", "-q", "-a", "-m", "of mine")
    desk.apply(plan)
    assert os.access(text, os.X_OK)
    assert "nine" in text.read_text()
    assert git(desk.app, "ls-tree", "HEAD", "text").startswith("100755")
    assert status(desk.app) == []


def test_work_that_is_not_committed_is_merged_only_without_a_commit(desk: Desk, text: Path):
    plan = desk.run(app=FIRST)
    change_last(text)
    git(desk.app, "add", "text")
    text.write_text(text.read_text().replace("5\n", "five\n"))
    before = desk.everything()
    with pytest.raises(ConflictError) as refusal:
        desk.apply(plan)
    assert refusal.value.paths == ("app: text",)
    assert "--no-commit" in refusal.value.hint
    assert compare(before, desk.everything()) == []
    staged = git(desk.app, "show", ":text")
    desk.apply(plan, commit=False)
    assert text.read_text() == LINES.replace("1\n", "one\n", 1).replace("5\n", "five\n").replace("9\n", "nine\n")
    assert git(desk.app, "show", ":text") == staged, "what was staged stays staged as it was"
    assert status(desk.app) == ["MM text"]


@pytest.mark.parametrize("commit", [True, False])
def test_the_same_lines_are_refused_by_path_and_nothing_changes(desk: Desk, text: Path, commit: bool):
    plan = desk.run(app=f"{FIRST}; echo more >> a.txt", data=FIRST)
    text.write_text(text.read_text().replace("1\n", "eins\n", 1))
    git(desk.app, "commit", "-q", "-a", "-m", "of mine")
    change_last(desk.data / "text")
    before = desk.everything()
    with pytest.raises(ConflictError) as refusal:
        desk.apply(plan, commit=commit)
    assert refusal.value.paths == ("app: text",)
    assert refusal.value.exit_code == 5
    assert compare(before, desk.everything()) == []
    git(desk.app, "revert", "--no-edit", "HEAD")
    desk.apply(plan, commit=commit)
    assert "nine" in (desk.data / "text").read_text()
    assert "one" in text.read_text()


@pytest.mark.parametrize(
    ("script", "meanwhile"),
    [
        ("printf 'a\\0b\\n1\\n2\\n3\\n' > text", "sed -i s/9/nine/ text"),
        (FIRST, "chmod 600 text"),
        (FIRST, "sed -i s/9/nine/ text; chmod 600 text"),
        (FIRST, "rm text; ln -s a.txt text"),
        ("rm text; mkdir text", "sed -i s/9/nine/ text"),
        (f"{FIRST}; ln text linked", "sed -i s/9/nine/ text"),
    ],
    ids=["not text", "mode", "text and mode", "a link of the user", "a folder of the plan", "linked by the plan"],
)
def test_what_is_more_than_text_goes_by_whole_file(desk: Desk, text: Path, script: str, meanwhile: str):
    plan = desk.run(data=script)
    subprocess.run(["sh", "-ec", meanwhile], cwd=desk.data, check=True)
    before = desk.everything()
    with pytest.raises(ConflictError) as refusal:
        desk.apply(plan)
    assert "data: text" in refusal.value.paths
    assert compare(before, desk.everything()) == []


@pytest.mark.parametrize(
    ("attributes", "is_merged"),
    [
        ("-merge", False),
        ("binary", False),
        ("merge=union", False),
        ("merge=text", True),
        ("merge", True),
        ("text", True),
    ],
)
def test_lines_are_merged_only_where_the_repository_wants_it(desk: Desk, text: Path, attributes: str, is_merged: bool):
    write(desk.app / ".gitattributes", f"text {attributes}\n")
    git(desk.app, "add", "--all")
    git(desk.app, "commit", "-q", "-m", "attributes")
    plan = desk.run(app=FIRST)
    change_last(text)
    git(desk.app, "commit", "-q", "-a", "-m", "of mine")
    before = desk.everything()
    if is_merged:
        assert [each.action for each in desk.apply(plan).changes] == ["merged"]
    else:
        with pytest.raises(ConflictError) as refusal:
            desk.apply(plan)
        assert refusal.value.paths == ("app: text",)
        assert compare(before, desk.everything()) == []


def test_a_merge_that_gives_what_is_there_changes_nothing(desk: Desk, text: Path):
    plan = desk.run(app=FIRST)
    text.write_text(text.read_text().replace("1\n", "one\n", 1).replace("9\n", "nine\n"))
    git(desk.app, "commit", "-q", "-a", "-m", "both by hand")
    result = desk.apply(plan)
    assert (result.changes, result.commits) == ((), {})
    assert log(desk.app)[0] == "both by hand"


def test_files_of_several_megabytes_are_not_merged(desk: Desk):
    large = LINES * 600_000
    write(desk.data / "large", large)
    plan = desk.run(data="sed -i '1s/1/one/' large")
    write(desk.data / "large", large + "more\n")
    with pytest.raises(ConflictError):
        desk.apply(plan)


def test_killed_at_any_moment_a_merge_is_undone_like_everything_else(desk: Desk, text: Path):
    plan = desk.run(app=FIRST, data=FIRST)
    change_last(text)
    git(desk.app, "commit", "-q", "-a", "-m", "of mine")
    change_last(desk.data / "text")
    before = desk.what_counts()
    desk.keep()
    changes = count_of_changes(lambda: desk.apply(plan))
    desk.start_over()
    for moment in sorted({*range(1, changes, changes // 4), *range(changes - 3, changes + 1)}):
        killed_at(moment, lambda: desk.apply(plan))
        if desk.state(plan) != ("apply", "applied"):
            desk.next_command(plan)
            desk.assert_put_back(before)
            desk.apply(plan)
        assert text.read_text() == (desk.data / "text").read_text()
        assert status(desk.app) == []
        desk.start_over()
