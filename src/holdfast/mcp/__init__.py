"""The server for clients of the Model Context Protocol, on standard input and output; tools to go back in a folder.

A server of our own, because the official SDK has 27 dependencies. From the start of the process to the list of tools a
server made with it takes 0.50 s of CPU time, and this one 0.08 s.
"""

from __future__ import annotations
