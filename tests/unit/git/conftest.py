from __future__ import annotations

from tests.support.places import person

__all__ = ["person"]
