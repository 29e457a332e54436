"""Serving a client on standard input and output until it has gone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from holdfast.mcp.offer import toolset
from holdfast.mcp.server import Server
from holdfast.mcp.stdio import taken_stdio

if TYPE_CHECKING:
    from holdfast.app import Holdfast


def serve(opening: Callable[[], AbstractContextManager[Holdfast]]) -> None:
    """``opening``: opens Holdfast for the project's folder; called for each use of a tool."""
    with taken_stdio() as stdio:
        Server(stdio, toolset(opening)).serve()
