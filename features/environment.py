"""Every scenario gets a project of its own; those tagged @unchanged share one, as they promise to change nothing."""

from __future__ import annotations

import itertools
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from features.scratch import Scratch


def before_all(context):
    context.folder = tempfile.TemporaryDirectory(prefix="holdfast-behave-")
    context.template = Scratch(Path(context.folder.name) / "template").build()
    context.numbers = itertools.count(1)


def after_all(context):
    context.folder.cleanup()


def before_feature(context, feature):
    context.shared = {}


def after_feature(context, feature):
    for scratch in context.shared.values():
        scratch.tidy_up()


def before_scenario(context, scenario):
    context.scratch = context.template.copied_to(Path(context.folder.name) / str(next(context.numbers)))
    context.noted = {}
    context.remembered = {}
    context.mine = None
    context.ended = None


def after_scenario(context, scenario):
    key = next((plan for plan, scratch in context.shared.items() if scratch is context.scratch), None)
    if key is not None and scenario.status.has_failed():
        del context.shared[key]
        key = None
    if key is None:
        context.scratch.tidy_up()
