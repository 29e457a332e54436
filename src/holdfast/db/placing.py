"""Paths of sandboxes in records: stored relative to the home, and made absolute when they are loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from holdfast.model import Checkpoint, Plan, Record, StepRun
from holdfast.system.place import in_home, relative_to_home


def without_home(record: Record, home: Path) -> Record:
    if isinstance(record, Plan):
        resources = tuple(
            each.model_copy(update={"sandbox_path": relative_to_home(each.sandbox_path, home)})
            for each in record.resources
        )
        return record.model_copy(update={"resources": resources})
    if isinstance(record, Checkpoint):
        return record.model_copy(update={"filesystem_path": relative_to_home(record.filesystem_path, home)})
    if isinstance(record, StepRun) and record.conflicts:
        conflicts = tuple(
            each.model_copy(update={"kept": tuple(relative_to_home(path, home) for path in each.kept)})
            for each in record.conflicts
        )
        return record.model_copy(update={"conflicts": conflicts})
    return record


def with_home(model: type[Record], fields: dict[str, Any], home: Path) -> dict[str, Any]:
    """The stored fields of a record, with its paths in this home."""
    if model is Plan:
        plan_id = str(fields["plan_id"])
        resources = [
            {**each, "sandbox_path": in_home(each["sandbox_path"], home, plan_id)} for each in fields["resources"]
        ]
        return {**fields, "resources": resources}
    if model is Checkpoint:
        return {**fields, "filesystem_path": in_home(fields["filesystem_path"], home, str(fields["plan_id"]))}
    if model is StepRun and fields["conflicts"]:
        conflicts = cast("list[dict[str, Any]]", fields["conflicts"])
        kept = [[in_home(path, home, str(fields["plan_id"])) for path in each["kept"]] for each in conflicts]
        both = zip(conflicts, kept, strict=True)
        return {**fields, "conflicts": [{**each, "kept": paths} for each, paths in both]}
    return fields
