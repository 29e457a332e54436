from __future__ import annotations

from tests.support.places import place, place_root

__all__ = ["place", "place_root"]
