"""The door of a running plan: the socket at which its process can be asked for something while it works."""

from __future__ import annotations

SOCKET = ".door"
"""The name of the socket in the folder of the plan's sandboxes."""
