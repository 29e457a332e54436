"""Every module can be imported by itself, and says in its first line what it is for."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import holdfast

COMPILED = "holdfast.system._calls"
MODULES = [module.name for module in pkgutil.walk_packages(holdfast.__path__, "holdfast.") if module.name != COMPILED]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_says_in_one_line_what_it_is_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "data" / "mini_swe_agent"))
    first, *others = inspect.cleandoc(importlib.import_module(name).__doc__ or "").splitlines()

    assert first.endswith(".")
    assert others[:1] in ([], [""])
