"""Homes that are moved, copied, used with two databases, or lose their records, between a kill and going on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.app import Holdfast
from holdfast.model import Lease
from holdfast.sandbox.borrowed import renew
from tests.faults.gate import Ended, stop_at
from tests.faults.trial import Bench, Outcome
from tests.faults.verbs import Refused, Verb, available_verbs, follow
from tests.faults.world import World
from tests.postgres import running_server
from tests.support.trees import Thing, compare, describe

_RECORDS = ("holdfast.db", "holdfast.db-wal", "holdfast.db-shm")
_LOST = 8
_GONE = 3
_LOOKING = (("plan", "list"), ("doctor",), ("checkpoint", "verify"), ("plan", "execute", "latest"))
WAYS_TO_LOSE = ("missing", "empty", "another home's")


def _choose(bench: Bench, seed: int, *, with_real_files: bool = True) -> tuple[Verb, int]:
    """Another verb with each seed, beginning with rollback, killed at another of its calls, beginning in the middle."""
    verbs = [verb for verb in available_verbs() if with_real_files or not verb.changes_real_files]
    names = [verb.name for verb in verbs]
    verb = verbs[(names.index("rollback") + seed) % len(verbs)]
    return verb, _point(bench, verb, seed)


def _point(bench: Bench, verb: Verb, seed: int) -> int:
    points = bench.reference(verb).points
    return 1 + (points // 2 + seed * 37) % points


def _killed(world: World, verb: Verb, point: int) -> Ended:
    return world.run(*verb.words(world), keeper=stop_at(point))


def _go_on(world: World, verb: Verb, ended: Ended, way: int) -> None:
    if ended.status != verb.ends_with:
        verb.go_on(world, way)


# Another place


@contextmanager
def _at(world: World, home: Path) -> Iterator[None]:
    """Commands find their home there."""
    before = world.home
    world.home, world.environment["HOLDFAST_HOME"] = home, str(home)
    try:
        yield
    finally:
        world.home, world.environment["HOLDFAST_HOME"] = before, str(before)


def moved_home(bench: Bench, seed: int) -> Outcome:
    """Killed in one place, gone on with in another, and judged in the first again."""
    verb, point = _choose(bench, seed)

    def moved(world: World) -> Ended:
        ended, elsewhere = _killed(world, verb, point), world.folder / "moved home"
        world.home.rename(elsewhere)
        try:
            with _at(world, elsewhere):
                _go_on(world, verb, ended, seed)
            if world.home.exists():
                raise Refused("something was made where the home was before")
        finally:
            # Also if this trial fails: to the next ones another folder in its place would be another home.
            shutil.rmtree(world.home, ignore_errors=True)
            elsewhere.rename(world.home)
        _name_borrowed_places(world)
        return Ended(verb.ends_with, "", "")

    return bench.try_with(verb, moved, way=seed)


def _name_borrowed_places(world: World) -> None:
    """As the next step would: until then a sandbox names its second place where the home was, and git says so."""
    with Holdfast.open(world.app, home=world.home, environment=world.environment) as holdfast:
        for plan in holdfast.list_plans(everywhere=True):
            for resource in plan.resources:
                if Path(resource.sandbox_path).is_dir():
                    renew(resource)


def copied_home(bench: Bench, seed: int) -> Outcome:
    """What goes on in a copy, and is then taken back and deleted there, changes nothing in the original."""
    verb, point = _choose(bench, seed, with_real_files=False)

    def copied(world: World) -> Ended:
        ended, copy = _killed(world, verb, point), world.folder / "copied home"
        shutil.copytree(world.home, copy, symlinks=True)
        before = describe(world.home / "sandboxes")
        with _at(world, copy):
            _forget_owners(world)
            _go_on(world, verb, ended, seed)
            first = world.must("checkpoint", "list", world.plan_id)["checkpoints"][0]["checkpoint_id"]
            follow(world, "plan", "rollback", "--yes", world.plan_id, first)
            follow(world, "plan", "delete", "--yes", world.plan_id)
        shutil.rmtree(copy)
        if found := compare(before, describe(world.home / "sandboxes")):
            raise Refused(f"the copy changed the original's sandboxes: {found[:5]}")
        return ended

    return bench.try_with(verb, copied, way=seed)


def _forget_owners(world: World) -> None:
    """A copy knows of the process that was killed only that it was silent for long: no trial waits for that."""
    with Holdfast.open(world.app, home=world.home, environment=world.environment) as holdfast:
        for plan in holdfast.list_plans(everywhere=True):
            lease = holdfast.store.find(Lease, plan.plan_id)
            if lease is not None and lease.owner is not None:
                at = lease.heartbeat_at.replace(year=lease.heartbeat_at.year - 1)
                holdfast.store.save(lease.model_copy(update={"heartbeat_at": at}))


# Lost records


def records_lost(bench: Bench, seed: int) -> Outcome:
    """Every command refuses and changes nothing; once the records are put back, all goes on."""
    verb, point = _choose(bench, seed)
    how = WAYS_TO_LOSE[seed % len(WAYS_TO_LOSE)]

    def lost(world: World) -> Ended:
        ended, backup = _killed(world, verb, point), world.folder / "backup"
        if not _keeps_content(world):
            return ended  # nothing is saved that could be lost, and the home counts as new
        backup.mkdir()
        for path in [world.home / name for name in _RECORDS if (world.home / name).exists()]:
            path.rename(backup / path.name)
        _put_in_place_of_records(world, how)
        for words in _LOOKING:
            refused = world.run(*words)
            if refused.status != _LOST:
                raise Refused(f"with {how} records `{' '.join(words)}` ended with {refused.status}: {refused.output}")
        for name in _RECORDS:
            (world.home / name).unlink(missing_ok=True)
        for path in backup.iterdir():
            path.rename(world.home / path.name)
        backup.rmdir()
        return ended

    return bench.try_with(verb, lost, way=seed)


def _keeps_content(world: World) -> bool:
    from holdfast.content.keeping import kept_records

    return bool(kept_records(world.home / "objects.db"))


def _put_in_place_of_records(world: World, how: str) -> None:
    if how == "empty":
        (world.home / "holdfast.db").touch()
    if how == "another home's":
        other = world.folder / "other home"
        with _at(world, other):
            world.must("plan", "create", str(world.plan_file))
        shutil.copy2(other / "holdfast.db", world.home / "holdfast.db")
        shutil.rmtree(other)


# Two databases


def two_record_stores(bench: Bench, seed: int) -> Outcome:
    """A plan in SQLite and one in PostgreSQL: neither loses anything when the other is pruned or deleted."""
    by_name = {verb.name: verb for verb in available_verbs()}
    verb = by_name[("collect", "prune", "rollback", "execute with few checkpoints")[seed % 4]]
    point = _point(bench, verb, seed)

    def beside_another(world: World) -> Ended:
        with running_server() as server:
            url = server.new_database()
            with _with_database(world, url):
                other = world.must("plan", "create", str(world.few_checkpoints_file))["plan_id"]
                follow(world, "plan", "execute", other)
                before = describe(world.sandbox("data", other))
            ended = _killed(world, verb, point)
            _go_on(world, verb, ended, seed)
            with _with_database(world, url):
                _comes_back(world, other, before)
                world.run("plan", "delete", "--yes", other, keeper=stop_at(1 + seed * 53 % 400))
                follow(world, "plan", "delete", "--yes", other, also=(_GONE,))
                _collect_all(world)
        return Ended(verb.ends_with, "", "")

    return bench.try_with(verb, beside_another, way=seed)


@contextmanager
def _with_database(world: World, url: str) -> Iterator[None]:
    world.environment["HOLDFAST_DATABASE_URL"] = url
    try:
        yield
    finally:
        del world.environment["HOLDFAST_DATABASE_URL"]


def _comes_back(world: World, plan_id: str, before: dict[bytes, Thing]) -> None:
    follow(world, "checkpoint", "verify", plan_id)
    shutil.rmtree(world.sandbox("data", plan_id))
    follow(world, "plan", "execute", plan_id)
    if found := compare(before, describe(world.sandbox("data", plan_id))):
        raise Refused(f"the plan in PostgreSQL came back otherwise: {found[:5]}")


def _collect_all(world: World) -> None:
    """A last plan, deleted: what no records need is gone then."""
    last = world.must("plan", "create", str(world.few_checkpoints_file))["plan_id"]
    follow(world, "plan", "delete", "--yes", last)
