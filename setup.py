"""Builds the compiled system calls; all else about the package is in pyproject.toml."""

from __future__ import annotations

import sys

from setuptools import Extension, setup

# Optional: without a compiler Holdfast does the same, more slowly (holdfast/calls.py).
calls = Extension("holdfast._calls", ["src/holdfast/_calls.c"], py_limited_api=True, optional=True)

setup(
    ext_modules=[calls] if sys.platform == "linux" else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
