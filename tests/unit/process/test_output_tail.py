"""The end of a stream, as text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.process.watch import CHUNK_BYTES, OutputTail


def tail_of(chunks: list[bytes], limit: int) -> OutputTail:
    tail = OutputTail(limit)
    for chunk in chunks:
        tail.add(chunk)
    return tail


@given(st.lists(st.text(alphabet="aä€😀\n")), st.integers(min_value=0, max_value=40))
def test_a_character_is_kept_whole_or_not_at_all(texts, limit):
    whole = "".join(texts)
    tail = tail_of([text.encode() for text in texts], limit)
    assert whole.endswith(tail.text())
    assert len(tail.text().encode()) <= limit
    assert limit - len(tail.text().encode()) < 4 or tail.text() == whole
    assert tail.total_bytes == len(whole.encode())


@given(st.lists(st.binary()), st.integers(min_value=0, max_value=40))
def test_any_bytes_become_text_that_a_database_takes(chunks, limit):
    text = tail_of(chunks, limit).text()
    assert "\0" not in text
    assert text.encode().decode() == text


def test_chunks_larger_than_the_limit_are_cut_as_they_come():
    tail = tail_of([b"x" * CHUNK_BYTES] * 20 + [b"end"], 5)
    assert tail.text() == "xxend"
    assert tail.total_bytes == 20 * CHUNK_BYTES + 3
