"""What changed, in a few words: what was lost comes first, and the words fit on a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoints.changes import Status
from holdfast.checkpoints.changes_named import Changed, name_files


def changed(*paths: str, status: Status = "changed", is_folder: bool = False) -> list[Changed]:
    return [Changed(status, path, is_folder) for path in paths]


def removed(*paths: str) -> list[Changed]:
    return changed(*paths, status="removed")


def added(*paths: str) -> list[Changed]:
    return changed(*paths, status="added")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([], ""),
        (changed("src/a.py"), "1 file: src/a.py"),
        (removed("a"), "-1 file: a"),
        (added("new/b", "a"), "+2 files: a, new/b"),
        (changed("src/a.py") + added("aaa"), "2 files: src/a.py, +aaa"),
        (removed("z", "y") + changed("a") + added("b"), "-2 files: y, z, 2 files: a, +b"),
        (removed(*(f"docs/{number}" for number in range(212))), "-212 files docs/"),
        (removed(*(f"docs/a/{number}" for number in range(9)), "docs/b"), "-10 files docs/"),
        (changed(*(f"src/{name}.py" for name in "abc")), "3 files: src/a.py, src/b.py, src/c.py"),
        (changed(*(f"src/{name}.py" for name in "abcd")), "4 files src/"),
        (changed("README", *(f"src/{name * 9}.py" for name in "abcd")),
         "5 files: README, src/aaaaaaaaa.py, src/bbbbbbbbb.py, …"),
        (changed("build", status="added", is_folder=True), "+1 folder: build/"),
        (added("x") + changed("y", status="added", is_folder=True), "+2 files: x, y/"),
        (removed("two\nlines", "\x1b[31mred"), "-2 files: \\x1b[31mred, two\\nlines"),
        (removed("\udcff"), "-1 file: \\xff"),
    ],
)  # fmt: skip
def test_files_are_counted_and_named(changes: list[Changed], words: str) -> None:
    assert name_files(changes) == words


def test_a_long_path_keeps_its_end() -> None:
    words = name_files(changed("/".join(["folder"] * 10) + "/end.py"))
    assert words.startswith("1 file: …")
    assert words.endswith("folder/end.py")


names = st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1)
paths = st.lists(names, min_size=1, max_size=4).map("/".join)


@given(st.lists(st.tuples(st.sampled_from(["added", "removed", "changed"]), paths), max_size=30))
def test_whatever_the_names_are_it_is_one_short_line(given_: list[tuple[Status, str]]) -> None:
    words = name_files([Changed(status, path) for status, path in given_])
    assert not any(character in words for character in "\n\r\x1b\x9b")
    assert len(words) < 500
