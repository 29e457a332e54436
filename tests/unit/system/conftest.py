from __future__ import annotations

from tests.support.places import outside, sandbox_root

__all__ = ["outside", "sandbox_root"]
