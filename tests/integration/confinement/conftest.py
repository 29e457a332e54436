from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.process.confinement import landlock_abi
from tests.integration.confinement.yard import Yard

ALL_OF_IT = 6


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if landlock_abi() < ALL_OF_IT and here in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=f"the kernel's Landlock is too old: ABI {landlock_abi()}"))


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    made = Yard(tmp_path)
    # Of the test's own, so that a step that gets through does no harm.
    monkeypatch.setenv("HOME", str(made.user))
    yield made
    made.close()
