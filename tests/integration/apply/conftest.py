from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import pytest

from holdfast.app import Holdfast
from holdfast.apply.apply import ApplyResult
from holdfast.apply.options import ApplyWishes
from holdfast.apply.unapply import UnapplyPreview
from holdfast.model import Plan
from tests.support.places import person
from tests.support.repositories import git, make_repository
from tests.support.trees import IS_ROOT, Thing, compare, describe, write

__all__ = ["person"]


class Desk:
    """A user's repository ``app`` and folder ``data``, and a Holdfast that works on them, one command after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.real = folder / "real"
        self.app = make_repository(self.real / "app")
        self.data = self.real / "data"
        for name in ("one.csv", "two.csv", "deep/three.csv"):
            write(self.data / name, f"{name}\n")
        self.home = folder / "home"
        self.overrides: dict[str, str] = {}

    def open(self) -> Holdfast:
        environment = {name: os.environ[name] for name in ("PATH", "HOME")}
        return Holdfast.open(self.app, home=self.home, environment=environment, overrides=self.overrides)

    def run(self, **scripts: str) -> Plan:
        """A plan that runs one script in each resource, executed to its end."""
        kinds = {"app": "git", "data": "directory"}
        resources = {name: {"type": kinds[name], "path": str(self.real / name)} for name in scripts}
        steps = [{"name": f"work on {name}", "resource": name, "run": script} for name, script in scripts.items()]
        return self.run_plan({"name": "the plan", "resources": resources, "steps": steps})

    def run_plan(self, document: Mapping[str, Any]) -> Plan:
        file = write(self.folder / "plan.yaml", json.dumps(document))
        with self.open() as holdfast:
            plan = holdfast.create_plan(file)
            result = holdfast.execute(plan.plan_id)
            assert result.succeeded, result.failed_run
        return result.plan

    def apply(self, plan: Plan, **wishes: Unpack[ApplyWishes]) -> ApplyResult:
        with self.open() as holdfast:
            result = holdfast.apply(plan.plan_id, **wishes)
        assert isinstance(result, ApplyResult)
        return result

    def unapply(self, plan: Plan) -> UnapplyPreview:
        with self.open() as holdfast:
            result = holdfast.unapply(plan.plan_id)
        assert isinstance(result, UnapplyPreview)
        return result

    def state(self, plan: Plan) -> tuple[str, str]:
        with self.open() as holdfast:
            found = holdfast.find_plan(plan.plan_id)
        return found.phase.value, found.state.value

    def next_command(self, plan: Plan) -> Plan:
        """Any command that may change the plan; on a complete plan ``execute`` itself does nothing."""
        with self.open() as holdfast:
            return holdfast.execute(plan.plan_id).plan

    def sandbox(self, plan: Plan, name: str = "app") -> Path:
        return Path(plan.resource(name).sandbox_path)

    # What is there

    def everything(self) -> dict[bytes, Thing]:
        """All real files to the last byte, those of git's own too."""
        return describe(self.real)

    def what_counts(self) -> dict[bytes, Thing]:
        """All real files, but of git's own only what a user can notice: new objects that nothing names are none."""
        tree = describe(self.real, without=[b"app/.git/objects", b"app/.git/logs"])
        return {
            path: replace(thing, mtime_ns=0) if path.startswith(b"app/.git") else thing for path, thing in tree.items()
        }

    def assert_put_back(self, before: Mapping[bytes, Thing]) -> None:
        assert compare(before, self.what_counts()) == []
        assert self.leftovers() == []
        assert git(self.app, "fsck", "--no-progress", "--no-dangling") == ""

    def leftovers(self) -> list[Path]:
        return [*self.real.rglob(".holdfast-*"), *self.real.rglob("*.lock"), *self.real.rglob("index.holdfast*")]

    # Starting over, for tests that try one moment after the other

    def keep(self) -> None:
        shutil.rmtree(self.folder / "kept", ignore_errors=True)
        (self.folder / "kept").mkdir()
        subprocess.run(["cp", "-a", self.real, self.home, self.folder / "kept"], check=True)

    def start_over(self) -> None:
        for place in (self.real, self.home):
            shutil.rmtree(place)
            subprocess.run(["cp", "-a", self.folder / "kept" / place.name, place], check=True)


@contextmanager
def unchangeable(path: Path) -> Iterator[None]:
    if not IS_ROOT or subprocess.run(["chattr", "+i", path], check=False, capture_output=True).returncode != 0:
        pytest.skip("files cannot be made unchangeable here")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", path], check=True)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield Desk(tmp_path)
    subprocess.run(["chattr", "-R", "-i", tmp_path], check=False, stderr=subprocess.DEVNULL)
