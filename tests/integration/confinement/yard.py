"""A project whose steps try to get out: everything around its sandboxes, and what it is like now."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from holdfast.app import Holdfast
from holdfast.execution.executor import ExecutionResult
from tests.support.workshop import Workshop, run


class Yard(Workshop):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.settings = self.home / "config.toml"
        self.user, self.elsewhere = folder / "user", folder / "elsewhere"
        self.furnish()

    def open(self, **settings: str) -> Holdfast:
        """Steps see the sandboxes at their own paths, unless told otherwise, so that they can reach the real files."""
        return super().open(**{"sandbox__view": "own-path", **settings})

    def furnish(self) -> None:
        """Make everything outside as it was at first."""
        self.settings.unlink(missing_ok=True)
        for place in (self.user, self.elsewhere, self.outside):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            (place / "precious").write_text("precious\n")
        (self.elsewhere / "empty").mkdir()

    def try_step(self, command: str, *, validate: tuple[str, ...] = (), **settings: str) -> ExecutionResult:
        return self.try_steps(run(command), validate=validate, **settings)

    def try_steps(self, *steps: dict[str, Any], validate: tuple[str, ...] = (), **settings: str) -> ExecutionResult:
        plan = self.create(*steps, validate=list(validate))
        return self.open(**settings).execute(plan.plan_id)

    def around(self) -> dict[str, tuple[int, bytes | str | None]]:
        """Mode and content of everything that is none of a step's business."""
        places = (self.user, self.elsewhere, self.outside, self.app, self.data)
        found = [path for place in places for path in (place, *place.rglob("*"))]
        found += [*self.home.glob("config.toml"), *self.home.glob("sandboxes/*/new")]
        return {str(path): (path.lstat().st_mode, _content(path)) for path in found}


def _content(path: Path) -> bytes | str | None:
    if path.is_symlink():
        return os.readlink(path)
    return path.read_bytes() if path.is_file() else None
