"""Builds the compiled system calls; all else about the package is in pyproject.toml."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

# What an earlier build left there would be in every wheel, also modules that are gone by now.
for left in Path(__file__).parent.glob("build/lib*"):
    shutil.rmtree(left, ignore_errors=True)

# The stable interface that one build for all versions uses is not there without the interpreter's lock.
is_compiled = sys.platform == "linux" and not sysconfig.get_config_var("Py_GIL_DISABLED")

# Optional: without a compiler Holdfast does the same, more slowly (holdfast/system/calls.py).
calls = Extension("holdfast.system._calls", ["src/holdfast/system/_calls.c"], py_limited_api=True, optional=True)

setup(
    ext_modules=[calls] if is_compiled else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if is_compiled else {},
)
