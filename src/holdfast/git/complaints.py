"""What git complains about: it tells only in words, which are recognized here and nowhere else."""

from __future__ import annotations

from enum import Enum


class Cause(Enum):
    """A cause that we can give advice about, with the words of git that name it."""

    NOT_WRITTEN = ("insufficient permission", "unable to create temporary file", "unable to write", "No space left")
    NO_IDENTITY = ("ident name", "auto-detect", "no email was given", "no name was given")
    FILTER = ("filter",)
    LOCKED = (".lock': File exists",)
    OTHER_OWNER = ("dubious ownership",)
    NOT_TEXT = ("Cannot merge binary files",)
    """Git also says so about a file of more than a gigabyte."""

    def is_in(self, complaint: str) -> bool:
        return any(words in complaint for words in self.value)
