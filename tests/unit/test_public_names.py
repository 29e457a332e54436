from __future__ import annotations

import subprocess
import sys

import pytest

import holdfast
from holdfast.app import Holdfast
from holdfast.errors import HoldfastError


def test_the_package_offers_these_names_and_no_others() -> None:
    assert holdfast.__all__ == ["Holdfast", "HoldfastError"]
    assert holdfast.Holdfast is Holdfast
    assert holdfast.HoldfastError is HoldfastError
    with pytest.raises(AttributeError, match="no attribute 'holdfst'"):
        _ = holdfast.holdfst


def test_importing_the_package_imports_none_of_its_parts() -> None:
    code = "import sys, holdfast; print([name for name in sys.modules if name.startswith('holdfast.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
