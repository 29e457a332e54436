"""Builds the compiled system calls and the client of hooks; all else about the package is in pyproject.toml."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

# What an earlier build left there would be in every wheel, also modules that are gone by now.
for left in Path(__file__).parent.glob("build/lib*"):
    shutil.rmtree(left, ignore_errors=True)

# The stable interface that one build for all versions uses is not there without the interpreter's lock.
is_compiled = sys.platform == "linux" and not sysconfig.get_config_var("Py_GIL_DISABLED")

# Optional: without a compiler Holdfast does the same, more slowly (holdfast/system/calls.py).
calls = Extension(
    "holdfast.system._calls",
    ["src/holdfast/system/_calls.c"],
    # Built below; named here so that it is part of the source distribution.
    depends=["src/holdfast/guard/_client.c"],
    py_limited_api=True,
    optional=True,
)


class BuildWithClient(build_ext):
    """Also the client of hooks, a small program; without a compiler the hooks run client.py, which takes longer."""

    def run(self) -> None:
        super().run()
        folder = Path("src" if self.inplace else self.build_lib, "holdfast", "guard")
        (folder / "hook-client").unlink(missing_ok=True)
        with suppress(CompileError, LinkError, OSError):
            objects = self.compiler.compile(
                ["src/holdfast/guard/_client.c"], output_dir=self.build_temp, extra_preargs=["-O2"]
            )
            self.compiler.link_executable(objects, "hook-client", output_dir=str(folder))


setup(
    cmdclass={"build_ext": BuildWithClient} if is_compiled else {},
    ext_modules=[calls] if is_compiled else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if is_compiled else {},
)
