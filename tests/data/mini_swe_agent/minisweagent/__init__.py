"""A stand-in for mini-swe-agent 2.4 that has only what its environments are made of; the package itself is large."""

from __future__ import annotations

__version__ = "2.4.6"
