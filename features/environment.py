"""Every scenario gets a project of its own; those tagged @unchanged share one, as they promise to change nothing."""

from __future__ import annotations

import itertools
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from features.scratch import Scratch

from holdfast.process.confinement import FIRST_ABI_WITH_SCOPES, landlock_abi

# What scenarios with these tags need of the kernel.
NEEDED_LANDLOCK = {"landlock": 1, "landlock_scopes": FIRST_ABI_WITH_SCOPES}


def before_all(context):
    context.folder = tempfile.TemporaryDirectory(prefix="holdfast-behave-")
    context.template = Scratch(Path(context.folder.name) / "template").build()
    context.numbers = itertools.count(1)


def after_all(context):
    context.folder.cleanup()


def before_feature(context, feature):
    context.shared = {}


def before_scenario(context, scenario):
    needed = max((NEEDED_LANDLOCK.get(tag, 0) for tag in scenario.effective_tags), default=0)
    if landlock_abi() < needed:
        scenario.skip(f"it needs Landlock ABI {needed}, and this kernel has {landlock_abi()}")
    context.scratch = context.template.copied_to(Path(context.folder.name) / str(next(context.numbers)))
    context.noted = {}
    context.remembered = {}
    context.mine = None
    context.ended = None


def after_scenario(context, scenario):
    if scenario.status.has_failed():
        context.scratch.end_everything()
        # Whoever comes next must not begin with what this one left.
        context.shared.clear()
