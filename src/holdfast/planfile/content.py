"""The types of what a plan is built from in code: the keys of a plan file, whose meaning ``format`` describes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Required, TypedDict

Place = str | os.PathLike[str]


class ResourceContent(TypedDict):
    type: str
    path: Place


class PolicyContent(TypedDict, total=False):
    on_failure: str
    rollback_enabled: bool
    require_checkpoints: bool
    max_checkpoints: int
    auto_create_on: Sequence[str]


class DecisionContent(TypedDict, total=False):
    type: Required[str]
    question: Required[str]
    chosen: Required[str]
    alternatives: Sequence[str]
    rationale: str
    confidence: float


class CallContent(TypedDict, total=False):
    tool: Required[str]
    args: Mapping[str, Any]


class SubplanContent(TypedDict):
    name: str
    steps: Sequence[StepContent]


class StepContent(TypedDict, total=False):
    """One command (``run``), one call of a tool (``tool`` and ``args``), or several subplans (``subplans``)."""

    name: str
    run: str
    tool: str
    args: Mapping[str, Any]
    resource: str
    timeout: float
    retries: int
    writes: bool
    checkpointable: bool
    side_effects: bool
    idempotent: bool
    decision: DecisionContent
    compensate: str | CallContent
    subplans: Sequence[SubplanContent]
    parallel: int
    merge: str


class PlanContent(TypedDict, total=False):
    """``name``, ``resources`` and ``steps`` are needed; leaving them out is a ``PlanFileError``, as in a file."""

    name: str
    resources: Mapping[str, ResourceContent]
    policy: PolicyContent
    validate: Sequence[str]
    steps: Sequence[StepContent]
