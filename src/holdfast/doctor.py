"""The doctor: examines everything that Holdfast relies on and keeps. It says what to do, and repairs nothing."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.app import Holdfast
from holdfast.checkpoints.releasing import not_released
from holdfast.content.keeping import kept_plans, kept_records
from holdfast.db.damaged import DamagedRecord
from holdfast.db.lease import holder_of
from holdfast.db.store import FILE, Store
from holdfast.errors import (
    ConfigError,
    ContentError,
    DamagedRecordError,
    DatabaseError,
    DoctorHint,
    HoldfastError,
    SandboxError,
)
from holdfast.execution.view import same_path_refusal
from holdfast.git.run import run_git
from holdfast.model import Plan, PlanState, View
from holdfast.parts import has_sandbox
from holdfast.process.confinement import Confinement, confinement_of, gaps, landlock_abi
from holdfast.sandbox.listing import ListedTree
from holdfast.sandbox.spares import SPARES, Spares
from holdfast.system.calls import ARE_COMPILED
from holdfast.system.place import is_missing
from holdfast.system.reserve import LITTLE_SPACE_BYTES, Reserve
from holdfast.system.sqlite import SAFE_VERSION, damage_in, is_empty, sqlite_is_safe, sqlite_version
from holdfast.system.trash import TRASH, Trash

Level = Literal["ok", "warning", "problem"]

OLDEST_PYTHON = (3, 11)
OLDEST_GIT = (2, 38)
NO_SPACE_BYTES = 50 << 20
_MOST_NAMED = 10
_FROM_A_BACKUP = "Copy the file, then restore it from a backup. Until then, what is not damaged can still be read."


@dataclass(frozen=True)
class Finding:
    name: str
    level: Level
    detail: str
    hint: str = ""
    exit_code: int = 0
    """What `holdfast doctor` ends with if this is the gravest problem."""


def examine(holdfast: Holdfast) -> list[Finding]:
    """Run every check, also after one that failed; without a database, only those that do not need it."""
    findings = [
        _python(),
        _calls(),
        _sqlite(),
        _git(),
        _confinement(holdfast),
        _view(holdfast),
        *_home(holdfast.home, is_read_only=holdfast.is_read_only),
    ]
    findings += _structure(holdfast.home / "holdfast.db", DatabaseError.exit_code)
    malformed = list(_structure(holdfast.home / "objects.db", ContentError.exit_code))
    findings += malformed
    store, finding = _database(holdfast)
    findings.append(finding)
    if store is None:
        return findings
    if not holdfast.is_read_only:
        findings += _reserve(holdfast.home)
    try:
        damaged = store.damaged.records()
        findings.append(_records(damaged))
        plans = _all_plans(store)
        findings += _plans(store, plans)
        findings += _sandboxes(holdfast, plans, kept_plans(holdfast.home / "objects.db"))
        findings += _trash(holdfast.home / "sandboxes")
        findings += _spares(holdfast.home / "sandboxes")
        findings += _content(holdfast, store, plans, is_malformed=bool(malformed))
    except DatabaseError as error:
        findings.append(_problem("plans", error))
    return findings


def _problem(name: str, error: HoldfastError) -> Finding:
    return Finding(name, "problem", error.message, _hint(error), error.exit_code)


def _hint(error: HoldfastError) -> str:
    """What to do, which is not to run the doctor: that has just found the problem."""
    return _FROM_A_BACKUP if isinstance(error.hint, DoctorHint) else error.hint


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


# The machine


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return Finding("python", "problem", f"Python {version} is too old.", "Use Python 3.11 or newer.", exit_code=6)
    return Finding("python", "ok", version)


def _calls() -> Finding:
    if ARE_COMPILED:
        return Finding("system calls", "ok", "compiled")
    hint = "Nothing has to be done. With a C compiler and Python's headers, installing Holdfast again makes it faster."
    return Finding("system calls", "ok", "not compiled; checkpoints and rollbacks take longer", hint)


def _sqlite() -> Finding:
    if sqlite_is_safe():
        return Finding("sqlite", "ok", sqlite_version)
    return Finding(
        "sqlite",
        "warning",
        f"SQLite {sqlite_version} can lose a commit when several processes write at the same time.",
        f"Install pysqlite3, or a Python with SQLite {'.'.join(map(str, SAFE_VERSION))} or newer.",
    )


def _git() -> Finding:
    try:
        said = run_git(["--version"], cwd=Path("/")).stdout.decode(errors="replace")
    except HoldfastError as error:
        return _problem("git", error)
    found = re.search(r"(\d+)\.(\d+)(\.\d+)*", said)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_GIT:
        return Finding("git", "problem", f"{said.strip()} is too old.", "Install git 2.38 or newer.", exit_code=6)
    return Finding("git", "ok", found[0])


def _confinement(holdfast: Holdfast) -> Finding:
    anywhere = "steps can write wherever you can"
    match confinement_of(holdfast.settings.confine):
        case Confinement.OFF:
            hint = "`holdfast config unset sandbox.confine` turns it on again."
            return Finding("confinement", "warning", f"It is turned off: {anywhere}.", hint)
        case Confinement.NOT_AVAILABLE:
            hint = "Linux 5.13 or newer has it, if Landlock is among its security modules (`lsm=` at boot)."
            return Finding("confinement", "warning", f"This system has no Landlock: {anywhere}.", hint)
    try:
        allowed = holdfast.allowed_paths()
    except ConfigError as error:
        return _problem("confinement", error)
    detail = f"Landlock ABI {landlock_abi()}"
    if allowed:
        detail += f"; outside of rollback: {_named([str(path) for path in allowed])}"
    if missing := gaps(landlock_abi()):
        return Finding("confinement", "warning", f"{detail}; {'; '.join(missing)}.", "A newer Linux kernel does more.")
    return Finding("confinement", "ok", detail)


def _view(holdfast: Holdfast) -> Finding:
    if holdfast.settings.view is View.OWN_PATH:
        detail = "It is turned off: steps see the sandboxes at another path than the real folders'."
        return Finding("same path", "warning", detail, "`holdfast config unset sandbox.view` turns it on again.")
    refusal = same_path_refusal()
    if refusal is not None:
        hint = (
            "Unprivileged user namespaces make it possible: look at the settings `user.max_user_namespaces`, "
            "`kernel.unprivileged_userns_clone` and `kernel.apparmor_restrict_unprivileged_userns` of the kernel; in a "
            "container, at what it may do."
        )
        level: Level = "problem" if holdfast.settings.view is View.SAME_PATH else "warning"
        detail = f"Steps see the sandboxes at another path than the real folders', because {refusal}."
        return Finding("same path", level, detail, hint, exit_code=6)
    return Finding("same path", "ok", "Steps see the sandboxes at the paths of the real folders.")


# The home


def _home(home: Path, *, is_read_only: bool) -> Iterator[Finding]:
    if not home.is_dir():
        yield Finding("home", "ok", f"{home} does not exist yet; it is created with the first plan.")
        return
    mode = stat.S_IMODE(home.stat().st_mode)
    if not os.access(home, os.R_OK | os.X_OK):
        hint = "Make it readable for you, or set HOLDFAST_HOME to another folder."
        yield Finding("home", "problem", f"{home} cannot be read.", hint, exit_code=6)
    elif is_read_only:
        hint = "Make it and everything in it writable for you, or set HOLDFAST_HOME to another folder."
        detail = f"{home} is read-only: nothing in it can be changed."
        yield Finding("home", "problem", detail, hint, exit_code=6)
    elif mode & 0o077:
        yield Finding("home", "warning", f"{home} is open to others (mode {mode:04o}).", f"chmod 700 {home}")
    else:
        yield Finding("home", "ok", str(home))
    yield _space(home)


def _space(home: Path) -> Finding:
    free = shutil.disk_usage(home).free
    detail = f"{free / 1e9:.1f} GB free"
    if free < NO_SPACE_BYTES:
        return Finding("space", "problem", detail, "Free some space before running a plan.", exit_code=6)
    if free < LITTLE_SPACE_BYTES:
        return Finding("space", "warning", detail, "Free some space before running a large plan.")
    return Finding("space", "ok", detail)


def _reserve(home: Path) -> Iterator[Finding]:
    """Opening the home has created the reserve, if there was room for it."""
    if Reserve(home).is_missing():
        detail = "There is no room for the reserve that `plan delete` and `checkpoint prune` use when the disk is full."
        yield Finding("space", "warning", detail, "Free some space; the next command creates the reserve.")


# The records


def _database(holdfast: Holdfast) -> tuple[Store | None, Finding]:
    is_sqlite = holdfast.settings.database_url is None
    path = holdfast.home / "holdfast.db"
    if is_sqlite and not path.exists():
        return None, _no_database(holdfast.home)
    try:
        return holdfast.store, Finding("database", "ok", str(path) if is_sqlite else "PostgreSQL")
    except HoldfastError as error:
        return None, _problem("database", error)


def _no_database(home: Path) -> Finding:
    folder = home / "sandboxes"
    kept = kept_records(home / "objects.db")
    if kept and FILE not in kept:
        detail = f"There are no records in this home yet; it keeps content for {', '.join(sorted(kept))}."
        return Finding("database", "warning", detail, "To use those records, set `database.url`.")
    if not (home / "objects.db").exists() and not (folder.is_dir() and any(folder.iterdir())):
        return Finding("database", "ok", "There are no records yet.")
    return Finding(
        "database",
        "problem",
        "holdfast.db is missing, although there are sandboxes or saved content: their plans are not known.",
        "Put the database back from a backup. If the records are in PostgreSQL, check `database.url`.",
        exit_code=DatabaseError.exit_code,
    )


def _structure(path: Path, exit_code: int) -> Iterator[Finding]:
    found = [] if is_empty(path) else damage_in(path)
    if found:
        detail = f"{path.name} is damaged: {_named(found)}"
        yield Finding("structure", "problem", detail, _FROM_A_BACKUP, exit_code)


def _records(damaged: Sequence[DamagedRecord]) -> Finding:
    if not damaged:
        return Finding("records", "ok", "every record is what was written")
    commands = list(dict.fromkeys(filter(None, map(_how_to_remove, damaged))))
    hint = "Restore the database from a backup; commands refuse to rely on these records."
    if commands:
        hint += f" Without one, remove them: {_named([f'`{each}`' for each in commands])}."
    return Finding(
        "records",
        "problem",
        f"{len(damaged)} damaged: {_named([str(each) for each in damaged])}",
        hint,
        exit_code=DatabaseError.exit_code,
    )


def _how_to_remove(damaged: DamagedRecord) -> str | None:
    if damaged.table in ("checkpoint_metadata", "checkpoint_group"):
        return f"holdfast checkpoint delete {damaged.plan_id} {damaged.key}"
    return f"holdfast plan delete {damaged.plan_id}" if damaged.plan_id is not None else None


def _all_plans(store: Store) -> list[Plan]:
    """All plans with their subplans."""
    plans = store.plans.of_project(None)
    for plan in plans:
        plans += store.plans.below(plan.plan_id, sound_only=True)
    return plans


def _plans(store: Store, plans: Sequence[Plan]) -> Iterator[Finding]:
    yield Finding("plans", "ok", f"{len(plans)} known")
    for plan in plans:
        try:
            is_held = holder_of(store, store.plans.root_of(plan).plan_id) is not None
        except DamagedRecordError:
            continue  # reported with the other damaged records
        if plan.state is PlanState.PROCESSING and not is_held and not plan.is_session:
            yield Finding(
                f"plan {plan.plan_id}",
                "warning",
                "Its state is processing, but its process is dead.",
                f"`holdfast plan execute {plan.plan_id}` goes on safely.",
            )
        for operation in store.operations.unfinished(plan.plan_id, sound_only=True) if not is_held else ():
            yield Finding(
                f"plan {plan.plan_id}",
                "warning",
                f"The {operation.kind.noun} was cut short.",
                "The next command that changes the plan finishes or undoes it first.",
            )


def _sandboxes(holdfast: Holdfast, plans: Sequence[Plan], kept: Collection[str]) -> Iterator[Finding]:
    """``kept``: ids of plans for which content is kept; their records may be in another database."""
    for plan in plans:
        if plan.head_group_id is None or plan.state is PlanState.APPLIED or plan.parent_plan_id is not None:
            continue  # none yet, no longer needed, or removed when the subplan's result was merged
        if plan.plan_id not in kept and _may_be_elsewhere(holdfast, plan):
            continue
        try:
            missing = [each.name for each in plan.resources if is_missing(Path(each.sandbox_path))]
        except SandboxError as replaced:
            yield Finding(f"plan {plan.plan_id}", "warning", replaced.message, replaced.hint)
            continue
        if missing:
            yield Finding(
                f"plan {plan.plan_id}",
                "warning",
                f"The sandbox of {', '.join(missing)} is missing.",
                f"`holdfast plan resume {plan.plan_id}` makes it again from the last checkpoint.",
            )
    known = {*kept, *(plan.plan_id for plan in plans)}
    folder = holdfast.home / "sandboxes"
    present = (
        sorted(each.name for each in folder.iterdir() if each.name not in (TRASH, SPARES)) if folder.is_dir() else []
    )
    unknown = [name for name in present if name not in known]
    if unknown:
        detail = f"{len(unknown)} in {folder} belong to no plan: {_named(unknown)}"
        yield Finding("sandboxes", "warning", detail, "Remove them if no other database uses this home.")
    else:
        yield Finding("sandboxes", "ok", f"{len(present)} on disk, each belongs to a plan")


def _trash(folder: Path) -> Iterator[Finding]:
    if waiting := Trash(folder).waiting():
        detail = f"{_megabytes_of(waiting):,.1f} MB of deleted sandboxes are still to be removed"
        hint = f"A process removes them, or the next command starts one. If neither can, remove {folder / TRASH}."
        yield Finding("trash", "ok", detail, hint)


def _megabytes_of(folders: Iterable[Path]) -> float:
    return sum(ListedTree(each).size().size_bytes for each in folders) / 1e6


def _spares(folder: Path) -> Iterator[Finding]:
    if spares := Spares(folder, 0).all():
        detail = f"{len(spares)} kept of deleted plans for the next ones, with {_megabytes_of(spares):,.1f} MB"
        yield Finding("spares", "ok", detail, "`holdfast config set sandbox.spares 0` keeps none from now on.")


# The content


def _content(holdfast: Holdfast, store: Store, plans: Sequence[Plan], *, is_malformed: bool) -> Iterator[Finding]:
    if not (holdfast.home / "objects.db").exists():
        yield from _lost_store(store, [plan for plan in plans if not _may_be_elsewhere(holdfast, plan)])
        return
    try:
        objects = holdfast.service.manager.objects
        store_id = objects.store_id
        if is_malformed:
            objects.leave_as_it_is()
        here = [plan for plan in plans if plan.store_id == store_id]
        result = holdfast.service.verify(here)
    except (DatabaseError, ContentError) as error:
        yield Finding("content", "problem", error.message, _hint(error), ContentError.exit_code)
        return
    others = [plan for plan in plans if plan.store_id != store_id and not _may_be_elsewhere(holdfast, plan)]
    yield from _plans_of_another_store(others)
    yield from _held_back(holdfast)
    if not result.damaged and len(here) == len(plans):
        yield Finding("content", "ok", f"{result.checkpoints} checkpoints, all content sound")
    for found in result.damaged:
        rows = [f"{each.checkpoint_id} ({each.metadata.reason})" for each in found.checkpoints]
        yield Finding(
            "content",
            "problem",
            f"Object {found.digest[:16]} is {'damaged' if found.is_there else 'missing'}; it affects the checkpoints "
            f"{_named(rows)} of plan {', '.join(sorted({each.plan_id for each in found.checkpoints}))}.",
            "Check the disk. A rollback to one of these is refused; you can roll back to all others. "
            "If a sandbox still has the content, `holdfast checkpoint create` for its plan stores it again.",
            ContentError.exit_code,
        )


def _held_back(holdfast: Holdfast) -> Iterator[Finding]:
    try:
        held_back = holdfast.held_back()
    except DamagedRecordError:
        return  # nothing is freed while a record is damaged, and that is reported by itself
    if held_back:
        refusal = not_released(held_back, is_tried=False)
        yield Finding("content", "warning", refusal.message, refusal.hint)


def _may_be_elsewhere(holdfast: Holdfast, plan: Plan) -> bool:
    """Whether the records are shared with other homes, and nothing here says that the plan was executed in this one."""
    return holdfast.settings.database_url is not None and not has_sandbox(plan)


def _plans_of_another_store(plans: Sequence[Plan]) -> Iterator[Finding]:
    """Plans that ran in this home, but whose content is in another content store than the present one."""
    lost = [plan.plan_id for plan in plans if plan.head_group_id is not None]
    if lost:
        yield Finding(
            "content",
            "problem",
            f"objects.db is not the one that {_named(lost)} were saved in.",
            "Restore the objects.db that belongs to this home, for example from a backup.",
            ContentError.exit_code,
        )


def _lost_store(store: Store, plans: Sequence[Plan]) -> Iterator[Finding]:
    orphaned = [plan.plan_id for plan in plans if store.checkpoints.count(plan.plan_id)]
    if orphaned:
        yield Finding(
            "content",
            "problem",
            f"objects.db is missing; the checkpoints of {_named(orphaned)} have no content here.",
            "Restore it from a backup, or use the home in which the plans were made.",
            ContentError.exit_code,
        )
