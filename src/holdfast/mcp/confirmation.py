"""Confirmation tokens: a change that was previewed is carried out once, and only if it is still exactly that change."""

from __future__ import annotations

import secrets
from collections import OrderedDict

_MOST = 20
"""Older tokens expire: a model that previews again and again wants only the last one."""


class Confirmations:
    """The tokens of this process, each with the fingerprint of what its holder has seen."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, str] = OrderedDict()

    def token_for(self, fingerprint: str) -> str:
        token = secrets.token_urlsafe(9)
        self._seen[token] = fingerprint
        while len(self._seen) > _MOST:
            self._seen.popitem(last=False)
        return token

    def used(self, token: str) -> str | None:
        """What the holder of the token has seen; None if there is no such token, or no longer."""
        return self._seen.pop(token, None)
