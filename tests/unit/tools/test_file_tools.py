"""write_file, edit_file and delete_file."""

from __future__ import annotations

import stat

import pytest

from holdfast.errors import UsageError


def test_write_file_creates_a_file(use, root):
    result = use("write_file", path="docs/note.txt", content="grüße\n")
    assert (result.succeeded, result.error) == (True, None)
    assert result.output == "wrote docs/note.txt, 8 bytes\n"
    assert result.output_bytes == len(result.output)
    assert (root / "docs" / "note.txt").read_bytes() == "grüße\n".encode()


def test_write_file_sets_a_mode_in_octal(use, root):
    use("write_file", path="run.sh", content="", mode="0755")
    assert stat.S_IMODE((root / "run.sh").stat().st_mode) == 0o755


@pytest.mark.parametrize("mode", [420, 644, "rw-r--r--", "8888", "7"])
def test_write_file_refuses_a_mode_that_is_not_an_octal_text(use, root, mode):
    with pytest.raises(UsageError, match="mode"):
        use("write_file", path="file", content="", mode=mode)
    assert list(root.iterdir()) == []


def test_write_file_outside_of_the_sandbox_fails_and_changes_nothing(use, root, outside):
    result = use("write_file", path="../outside/secret", content="evil")
    assert not result.succeeded
    assert result.error.startswith("'../outside/secret' climbs with '..'")
    assert (outside / "secret").read_text() == "untouched"


def test_edit_file_replaces_the_text(use, root):
    (root / "file").write_text("one two three")
    assert use("edit_file", path="file", find="two", replace="2").output == "edited file, once\n"
    assert (root / "file").read_text() == "one 2 three"


def test_edit_file_fails_when_the_text_is_not_there(use, root):
    (root / "file").write_text("one")
    result = use("edit_file", path="file", find="two", replace="2")
    assert (result.succeeded, result.error) == (False, "the text to find is not in file")
    assert (root / "file").read_text() == "one"


def test_edit_file_says_how_often_the_text_was_found(use, root):
    (root / "file").write_text("a a a")
    result = use("edit_file", path="file", find="a", replace="b")
    assert result.error == "the text to find occurs 3 times in file, expected once"
    assert (root / "file").read_text() == "a a a"
    assert use("edit_file", path="file", find="a", replace="b", count=3).succeeded
    assert (root / "file").read_text() == "b b b"


def test_edit_file_keeps_bytes_that_are_not_text(use, root):
    (root / "file").write_bytes(b"\xff\xfe one \x80\n\0 end")
    use("edit_file", path="file", find="one", replace="zwölf")
    assert (root / "file").read_bytes() == b"\xff\xfe zw\xc3\xb6lf \x80\n\0 end"


def test_edit_file_keeps_windows_line_ends(use, root):
    (root / "file").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    assert use("edit_file", path="file", find="one\ntwo\n", replace="1\n1.5\n2\n").succeeded
    assert (root / "file").read_bytes() == b"1\r\n1.5\r\n2\r\nthree\r\n"


def test_edit_file_takes_line_ends_literally_where_they_are_mixed(use, root):
    (root / "file").write_bytes(b"one\r\ntwo\nthree\n")
    assert use("edit_file", path="file", find="two\n", replace="2\n").succeeded
    assert use("edit_file", path="file", find="one\r\n", replace="1\r\n").succeeded
    assert (root / "file").read_bytes() == b"1\r\n2\nthree\n"


def test_edit_file_keeps_the_mode(use, root):
    (root / "file").write_text("one")
    (root / "file").chmod(0o700)
    use("edit_file", path="file", find="one", replace="two")
    assert stat.S_IMODE((root / "file").stat().st_mode) == 0o700


def test_edit_file_of_a_missing_file_fails(use):
    assert use("edit_file", path="file", find="a", replace="b").error == "file does not exist"


def test_edit_file_through_a_symlink_fails(use, root, outside):
    (root / "link").symlink_to(outside / "secret")
    assert not use("edit_file", path="link", find="untouched", replace="evil").succeeded
    assert (outside / "secret").read_text() == "untouched"


def test_delete_file_deletes(use, root):
    (root / "a file\nwith a line break").write_text("x")
    assert use("delete_file", path="a file\nwith a line break").succeeded
    assert list(root.iterdir()) == []


def test_delete_file_of_a_missing_file_fails(use):
    assert use("delete_file", path="file").error == "file does not exist"


def test_delete_file_deletes_a_directory_only_if_told_so(use, root):
    (root / "tree" / "deep").mkdir(parents=True)
    result = use("delete_file", path="tree")
    assert not result.succeeded
    assert "recursive" in result.error
    assert (root / "tree" / "deep").exists()
    assert use("delete_file", path="tree", recursive=True).succeeded
    assert list(root.iterdir()) == []


def test_delete_file_never_deletes_the_sandbox_itself(use, root):
    assert not use("delete_file", path=".", recursive=True).succeeded
    assert root.exists()
