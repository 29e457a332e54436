"""Whether what is there after a fault is what would be there without it; told without Holdfast's own scanning."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.app import Holdfast
from holdfast.doctor import examine
from holdfast.errors import HoldfastError
from holdfast.model import Decision, DecisionType
from holdfast.sandbox.spares import SPARES
from tests.faults.world import LONG_AGO_NS, SET_BY_STEPS_NS, World
from tests.support.trees import Thing, compare, describe

_MEANT_NS = (LONG_AGO_NS, SET_BY_STEPS_NS)
_OF_GIT_ALONE = (b".git/index", b".git/objects", b".git/logs")
"""Holds times and inodes, or what nothing names; what they mean is asked of git."""
_NAMES_OF_A_HOME = frozenset(
    f"{name}{suffix}" for name in ("holdfast.db", "objects.db") for suffix in ("", "-wal", "-shm")
) | {"objects.lock", "reserve", "indexes", "sandboxes", "config.toml", "machine"}  # fmt: skip
_NAMES_OF_A_PLAN = frozenset(
    ("app", "data", ".tmp", ".borrowed", ".view", ".app.origin", ".data.origin", ".app.gitindex")
)
_OF_A_SPARE = frozenset(("tree", "origin", "index", "state"))
_ABOUT_THE_MACHINE = frozenset(("python", "sqlite", "git", "confinement", "space", "home"))

Tree = Mapping[bytes, Thing]


@dataclass(frozen=True)
class Facts:
    """All that counts when everything is over."""

    plans: dict[str, Any]
    sandboxes: dict[str, Tree]
    real: Tree
    git: dict[str, list[str]]
    """What git says of the sandbox's repository, and of the real one where that may have changed."""
    labels: list[str]
    leftovers: list[str] = field(default_factory=list)

    def against(self, wanted: Facts) -> list[str]:
        """Every difference as a sentence."""
        found = [f"left behind: {path}" for path in self.leftovers]
        for name in ("plans", "git", "labels"):
            found += _different(name, getattr(wanted, name), getattr(self, name))
        found += [f"the user's files: {each}" for each in compare(wanted.real, self.real)]
        for name in sorted(wanted.sandboxes.keys() | self.sandboxes.keys()):
            if name not in self.sandboxes or name not in wanted.sandboxes:
                found.append(f"sandbox {name} is {'missing' if name in wanted.sandboxes else 'left'}")
                continue
            differences = compare(wanted.sandboxes[name], self.sandboxes[name])
            found += [f"sandbox {name}: {each}" for each in differences]
        return found


def _different(name: str, wanted: Any, found: Any) -> list[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [
            sentence
            for key in sorted(wanted.keys() | found.keys())
            for sentence in _different(f"{name} {key}", wanted.get(key), found.get(key))
        ]
    return [] if wanted == found else [f"{name}: {found!r} instead of {wanted!r}"]


def facts_of(world: World, *, real_may_change: bool) -> Facts:
    """Where the real files must be the same to the last byte, git's own too, git would have nothing else to say."""
    holdfast = Holdfast.open(world.app, home=world.home, environment=world.environment)
    try:
        plans = {plan.plan_id: _plan(holdfast, plan.plan_id) for plan in holdfast.list_plans(everywhere=True)}
        labels = sorted(
            view.group.label or "" for plan_id in plans for view in holdfast.checkpoints(plan_id) if view.group.label
        )
    finally:
        holdfast.close()
    # Nobody needs the sandbox of an applied plan any more.
    at_work = [plan_id for plan_id, plan in plans.items() if plan["state"] != "applied"]
    sandboxes = {
        f"{plan_id}/{name}": without_its_own_affairs(describe(world.sandbox(name, plan_id), without=_OF_GIT_ALONE))
        for plan_id in at_work
        for name in ("app", "data")
        if world.sandbox(name, plan_id).is_dir()
    }
    repositories = [world.sandbox("app", plan_id) for plan_id in at_work]
    if real_may_change:
        repositories.append(world.app)
    return Facts(
        plans=plans,
        sandboxes=sandboxes,
        real=real_files_that_count(world),
        git={str(path.relative_to(world.folder)): _said_by_git(world, path) for path in repositories if path.is_dir()},
        labels=labels,
        leftovers=leftovers(world),
    )


def real_files_that_count(world: World) -> Tree:
    return without_its_own_affairs(describe(world.real, without=[b"app/" + each for each in _OF_GIT_ALONE]))


def without_its_own_affairs(tree: Tree) -> Tree:
    """Times that nobody chose are all the same; those of git's own files do not count."""
    return {
        path: replace(thing, mtime_ns=thing.mtime_ns if _is_meant(path, thing) else 0)
        for path, thing in tree.items()
        if not (b".git" in path.split(b"/") and (path.endswith((b"COMMIT_EDITMSG", b"ORIG_HEAD"))))
        and not _names_a_commit(path)
    }


def _is_meant(path: bytes, thing: Thing) -> bool:
    return b".git" not in path.split(b"/") and thing.mtime_ns in _MEANT_NS


def _names_a_commit(path: bytes) -> bool:
    """A commit of ours has another time and so another name in every run; git is asked for what is in it."""
    return b".git/refs/heads/" in path


def _plan(holdfast: Holdfast, plan_id: str) -> dict[str, Any]:
    plan = holdfast.find_plan(plan_id)
    # That a step failed and what was done about it is a decision more, and rightly so.
    decisions = [
        each
        for each in holdfast.decisions(plan_id)
        if not each.is_superseded and each.type is not DecisionType.ERROR_RECOVERY
    ]
    return {
        "phase": plan.phase.value,
        "state": plan.state.value,
        "attempt": plan.attempt,
        "revision": plan.revision,
        "last completed step": plan.last_completed_step,
        "steps": [step.name for step in plan.steps],
        "error": plan.error,
        "guidance": plan.guidance,
        "decisions": list(_made_once(decisions)),
        "unfinished operations": len(holdfast.store.operations.unfinished(plan_id)),
    }


def _made_once(decisions: Sequence[Decision]) -> Iterator[tuple[str, str, str, int | None]]:
    """A validation that was cut short is made again, with the ones before it; the last answer to each counts."""
    last = {each.question: each.decision_id for each in decisions if each.type is DecisionType.VALIDATION_RESPONSE}
    for each in decisions:
        if last.get(each.question, each.decision_id) == each.decision_id:
            yield each.type.value, each.question, each.chosen, each.step_index


def _said_by_git(world: World, repository: Path) -> list[str]:
    def git(*words: str) -> list[str]:
        environment = {**world.environment, "GIT_OPTIONAL_LOCKS": "0"}
        done = subprocess.run(["git", *words], cwd=repository, env=environment, capture_output=True, check=False)
        return (done.stdout + done.stderr).decode(errors="replace").splitlines()

    status = git("status", "--branch", "--porcelain=2", "--untracked-files=all", "--ignored")
    return [
        *git("log", "--format=%T %an %ae %s", "--branches", "HEAD"),
        *git("ls-files", "--stage"),
        *(line for line in status if not line.startswith("# branch.oid")),
        *git("fsck", "--no-progress", "--no-dangling", "--connectivity-only"),
    ]


def leftovers(world: World) -> list[str]:
    """What should be gone when nothing is under way."""
    found = [path for path in world.home.iterdir() if path.name not in _NAMES_OF_A_HOME]
    sandboxes = world.home / "sandboxes"
    for plan in sandboxes.iterdir() if sandboxes.is_dir() else ():
        if plan.name == SPARES:
            found += [
                spare
                for spare in plan.iterdir()
                if {path.name for path in spare.iterdir()} - {"gitindex"} != _OF_A_SPARE
            ]
        else:
            found += [path for path in plan.iterdir() if path.name not in _NAMES_OF_A_PLAN]
    found += world.temporary.iterdir()
    names = (path for folder, _, files in os.walk(world.real) for path in (Path(folder, each) for each in files))
    found += [path for path in names if path.name.startswith((".holdfast", "index.")) or path.suffix == ".lock"]
    return sorted(str(path.relative_to(world.folder)) for path in found)


def doctor_says(world: World) -> list[str]:
    """Everything the doctor finds wrong with what Holdfast keeps."""
    try:
        findings = _findings(world)
    except (HoldfastError, AssertionError) as error:
        return [f"doctor: {error}"]
    return [
        f"doctor: {name}: {detail}"
        for name, level, detail in findings
        if level != "ok" and name not in _ABOUT_THE_MACHINE
    ]


def _findings(world: World) -> list[tuple[str, str, str]]:
    """Asked in this process, which is much cheaper; only a command of its own can find another boot id."""
    if world.boot is not None or world.notes.get("as programs"):
        said = world.must("doctor")["findings"]
        return [(each["name"], each["level"], each["detail"]) for each in said]
    with Holdfast.open(world.app, home=world.home, environment=world.environment) as holdfast:
        return [(each.name, each.level, each.detail) for each in examine(holdfast)]


def groups_of(world: World) -> dict[str, tuple[str, dict[str, str]]]:
    """Every group by its id: its plan, and the states it names."""
    holdfast = Holdfast.open(world.app, home=world.home, environment=world.environment)
    try:
        plans = [plan.plan_id for plan in holdfast.list_plans(everywhere=True)]
        return {
            group.group_id: (plan_id, dict(group.states))
            for plan_id in plans
            for group in holdfast.store.groups.of(plan_id)
        }
    finally:
        holdfast.close()
