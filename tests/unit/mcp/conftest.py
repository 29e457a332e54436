from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mcp_clients import McpClient, served_in_thread


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def client(project: Path, tmp_path: Path) -> Iterator[McpClient]:
    with served_in_thread(project, tmp_path / "home") as client:
        yield client
