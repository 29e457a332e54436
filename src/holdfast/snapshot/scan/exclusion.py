"""What is left out of the snapshots of a real folder, because its user wants that: patterns as in a ``.gitignore``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.content.format import digest_of

EXCLUDED = "left out (sandbox.exclude)"
"""The reason that a snapshot gives."""
_NAME_BYTES = 8


class Exclusion:
    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)
        self._matches: Callable[[str], bool] | None = None

    @property
    def name(self) -> str:
        """Tells apart what is known of a folder with other patterns; empty without any."""
        return digest_of("\n".join(self._patterns).encode())[:_NAME_BYTES].hex() if self._patterns else ""

    def has(self, path: bytes, *, is_folder: bool) -> bool:
        if not self._patterns:
            return False
        if self._matches is None:
            from pathspec import GitIgnoreSpec  # slow to import, and most folders have no patterns

            self._matches = GitIgnoreSpec.from_lines(self._patterns).match_file
        text = path.decode("utf-8", "surrogateescape")
        return self._matches(f"{text}/" if is_folder else text)


NOTHING_EXCLUDED = Exclusion(())
