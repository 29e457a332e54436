"""Two changes of one text, put together by git: different lines, the same lines, and what is not text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import SandboxError
from holdfast.git.merging import MergedText, merge_texts

LABELS = ("mine", "start", "yours")


def merge(base: bytes, ours: bytes, theirs: bytes) -> MergedText | None:
    return merge_texts(base, ours, theirs, labels=LABELS)


def test_changes_of_different_lines_are_both_in_the_result() -> None:
    assert merge(b"a\nb\nc\n", b"A\nb\nc\n", b"a\nb\nC\n") == MergedText(b"A\nb\nC\n", 0)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("last", [b"", None], ids=["no newline at the end", "newline at the end"])
def test_line_endings_and_the_end_of_the_file_survive(end: bytes, last: bytes | None) -> None:
    def text(*lines: bytes) -> bytes:
        return end.join(lines) + (end if last is None else last)

    merged = merge(text(b"a", b"b", b"c"), text(b"A", b"b", b"c"), text(b"a", b"b", b"C"))
    assert merged == MergedText(text(b"A", b"b", b"C"), 0)


def test_a_newline_that_one_side_took_from_the_end_stays_away() -> None:
    assert merge(b"a\nb\nc\n", b"A\nb\nc\n", b"a\nb\nc") == MergedText(b"A\nb\nc", 0)


def test_changes_of_the_same_line_are_a_conflict_with_all_three_texts_and_their_names() -> None:
    merged = merge(b"a\nb\n", b"ours\nb\n", b"theirs\nb\n")
    expected = b"<<<<<<< mine\nours\n||||||| start\na\n=======\ntheirs\n>>>>>>> yours\nb\n"
    assert merged == MergedText(expected, 1)


def test_every_place_in_conflict_is_counted_up_to_what_git_can_count() -> None:
    def text(word: bytes, places: int) -> bytes:
        return b"".join(b"%s %d\n" % (word, number) + b"same\n" * 5 for number in range(places))

    for places, counted in ((3, 3), (200, 127)):
        merged = merge(*(text(word, places) for word in (b"x", b"y", b"z")))
        assert merged is not None
        assert merged.conflicts == counted


def test_two_files_without_a_common_beginning_conflict_unless_they_are_equal() -> None:
    added, equal = merge(b"", b"one\n", b"two\n"), merge(b"", b"one\n", b"one\n")
    assert added is not None
    assert added.conflicts == 1
    assert equal == MergedText(b"one\n", 0)


@pytest.mark.parametrize("side", range(3))
def test_content_with_a_nul_at_its_beginning_is_not_text(side: int) -> None:
    contents = [b"a\nb\nc\n", b"A\nb\nc\n", b"a\nb\nC\n"]
    contents[side] = b"\x7fELF\0" + contents[side]
    assert merge(*contents) is None


def test_what_git_takes_for_binary_is_not_text() -> None:
    assert merge(b"a\n", b"b\n", b"x" * 7999 + b"\0") is None


def test_the_settings_of_the_user_do_not_change_the_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    config.write_text("[merge]\n\tconflictStyle = merge\n[core]\n\tautocrlf = true\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    merged = merge(b"a\n", b"b\n", b"c\n")
    assert merged is not None
    assert b"||||||| start\na\n" in merged.content
    assert b"\r" not in merged.content


def test_nothing_is_left_of_the_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    merge(b"a\nb\nc\n", b"A\nb\nc\n", b"a\nb\nC\n")
    assert os.listdir(tmp_path) == []


def test_a_temporary_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    with pytest.raises(SandboxError) as caught:
        merge(b"a\n", b"b\n", b"c\n")
    assert str(tmp_path / "missing") in caught.value.hint


_LINES = st.lists(st.sampled_from([b"a", b"b", b"c", b"d\r", b"", b" x"]), max_size=8)


@settings(max_examples=40, deadline=None)
@given(_LINES, _LINES, st.booleans())
def test_a_change_of_one_side_only_is_the_result_byte_for_byte(one: list[bytes], two: list[bytes], end: bool) -> None:
    base, changed = b"\n".join(one) + b"\n" * end, b"\n".join(two)
    assert merge(base, changed, base) == MergedText(changed, 0)
    assert merge(base, base, changed) == MergedText(changed, 0)
    assert merge(base, changed, changed) == MergedText(changed, 0)


def test_a_git_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\necho 'fatal: out of memory' >&2; exit 128\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(SandboxError, match="out of memory"):
        merge(b"a\n", b"b\n", b"c\n")
