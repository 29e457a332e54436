"""The server for clients of the Model Context Protocol, on standard input and output; tools to go back in a folder.

A server of our own, because the official SDK has 27 dependencies, and importing it takes six times as long as
everything between the start of ``holdfast mcp`` and its first answer.
"""

from __future__ import annotations
