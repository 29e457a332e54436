from __future__ import annotations

from pathlib import Path

import pytest

from tools.docs.session import Session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """A shell of somebody who has just installed Holdfast."""
    return Session(tmp_path)
