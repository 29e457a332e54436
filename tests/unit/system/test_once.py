"""``once``: computed once for each object, and never a reason for threads to wait for each other."""

from __future__ import annotations

import threading

from holdfast.system.once import once


class Asked:
    def __init__(self, before: threading.Event | None = None, after: threading.Event | None = None) -> None:
        self._before, self._after = before, after
        self.times = 0

    @once
    def answer(self) -> int:
        """What it is."""
        self.times += 1
        if self._before is not None and self._after is not None:
            self._before.set()
            assert self._after.wait(60)
        return 42


def test_it_is_computed_when_it_is_first_asked_for_and_only_then() -> None:
    asked, other = Asked(), Asked()
    assert asked.times == 0
    assert [asked.answer, asked.answer, asked.times, other.times] == [42, 42, 1, 0]
    assert Asked.answer.__doc__ == "What it is."


def test_one_object_does_not_wait_for_another_that_is_being_asked() -> None:
    begun, may_end = threading.Event(), threading.Event()
    slow = Asked(begun, may_end)
    asking = threading.Thread(target=lambda: slow.answer)
    asking.start()
    assert begun.wait(60)
    assert Asked().answer == 42  # with functools.cached_property of Python 3.11 this would wait for ever
    may_end.set()
    asking.join()
