"""The verbs: from which stage each starts, how it is called, and what a person does when it was cut short."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.sandbox.spares import SPARES
from tests.faults import in_place
from tests.faults.gate import Answer, Call, Ended, StopEverything, stop_at
from tests.faults.world import World

LABEL = "before lunch"
GUIDANCE = "do it the other way"
NOTHING_TO_DO = 4
"""How a command ends that finds the plan complete already."""
CONSTRAINED = 5
"""How it ends when a person must resolve something first."""


class Refused(Exception):
    """A command after the fault ended in another way than it should."""


class CutShort(Exception):
    """What should have put things right was itself stopped."""


@dataclass(frozen=True)
class Verb:
    name: str
    stage: str
    """What the world is like before it."""
    words: Callable[[World], tuple[str, ...]]
    go_on: Callable[[World, int], None]
    """What a person does after it was cut short, in one of several ways, until it is done."""
    finish: Callable[[World], None] = lambda _: None
    """What follows when it is done, to the end of the story."""
    ends_with: int = 0
    """Its exit code, if nothing disturbs it."""
    errors_at_each: int = 1
    """At every so many of its calls errors are tried; kills always at every call."""
    changes_real_files: bool = False
    clears_up: tuple[str, ...] = ("plan", "execute")
    """A command that, with the id of the plan, removes what was left at the very end."""
    deletes_checkpoints: bool = False


def follow(world: World, *words: str, also: Iterable[int] = ()) -> Ended:
    """A command after the fault: it must succeed, or end with one of the codes that are fine too."""
    keeper = stop_at(world.to_be_stopped_at.pop(0)) if world.to_be_stopped_at else None
    ended = world.run(*words, keeper=keeper, as_a_program=bool(world.notes.get("as programs")))
    if ended.was_stopped:
        raise CutShort
    if ended.status not in (0, *also):
        raise Refused(
            f"`holdfast {' '.join(words)}` ended with {ended.status}: {(ended.errors or ended.output)[-600:]}"
        )
    if ended.left_running:
        raise Refused(f"`holdfast {' '.join(words)}` left processes behind: {ended.left_running}")
    return ended


def again(words: Callable[[World], tuple[str, ...]]) -> Callable[[World, int], None]:
    def go_on(world: World, way: int) -> None:
        follow(world, *words(world))

    return go_on


# Each verb


def _execute(world: World) -> tuple[str, ...]:
    return ("plan", "execute", world.plan_id)


def _resume(world: World) -> tuple[str, ...]:
    return ("plan", "resume", world.plan_id)


def _go_on_executing(world: World, way: int) -> None:
    ended = follow(world, *(_execute(world) if way % 2 else _resume(world)), also=(NOTHING_TO_DO,))
    if ended.status == NOTHING_TO_DO:
        # It was complete when it was killed; the next command that may change the plan clears up.
        follow(world, *_execute(world))


def _go_on_to_the_conflict(world: World, way: int) -> None:
    follow(world, *(_execute(world) if way % 2 else _resume(world)), also=(CONSTRAINED,))


def _resolve(world: World) -> None:
    """What a person does: look, put the file right, go on."""
    if _state(world) != "constrained":
        raise Refused("the plan does not wait for the conflict to be resolved")
    (world.sandbox("data") / "orders.csv").write_text("1;2\nleft and right\n")


def _resolve_and_go_on(world: World) -> None:
    _resolve(world)
    follow(world, *_resume(world))


def _checkpoint(world: World) -> tuple[str, ...]:
    return ("checkpoint", "create", "--label", LABEL, world.plan_id)


def _checkpoint_unless_it_is_there(world: World, way: int) -> None:
    """A label is given once; whoever does not know whether it was looks at the list."""
    listed = world.must("checkpoint", "list", world.plan_id)["checkpoints"]
    if not any(each["label"] == LABEL for each in listed):
        follow(world, *_checkpoint(world))


def _rollback(world: World) -> tuple[str, ...]:
    return ("plan", "rollback", "--yes", world.plan_id, world.notes["target"])


def _to_the_end(world: World) -> None:
    follow(world, "plan", "execute", world.plan_id)


def _keep(world: World) -> tuple[str, ...]:
    return ("plan", "keep", "--yes", world.plan_id, world.notes["target"])


def _keep_unless_it_is_kept(world: World, way: int) -> None:
    """Go on, look whether a moment is kept, and only if not say it again."""
    follow(world, *_resume(world), also=(NOTHING_TO_DO,))
    if world.must("plan", "status", world.plan_id)["attempt"] == 1:
        follow(world, *_keep(world))


def _correct(world: World) -> tuple[str, ...]:
    steps = str(world.steps_file)
    return (
        "plan",
        "correct",
        "--mode",
        "revert",
        "--guidance",
        GUIDANCE,
        "--with",
        steps,
        "--yes",
        world.notes["decision"],
    )


def _go_on_correcting(world: World, way: int) -> None:
    """Go on, look whether it is corrected, and only if not say it again."""
    follow(world, *_resume(world), also=(NOTHING_TO_DO,))
    if world.must("plan", "status", world.plan_id)["attempt"] == 1:
        follow(world, *_correct(world))


def _apply(world: World) -> tuple[str, ...]:
    return ("plan", "apply", "--yes", world.plan_id)


def _go_on_applying(world: World, way: int) -> None:
    """Repeat it, or first run any other command, which undoes it."""
    if way % 2:
        follow(world, *_execute(world))
    if _state(world) != "applied":
        follow(world, *_apply(world))


def _unapply(world: World) -> tuple[str, ...]:
    return ("plan", "unapply", "--yes", world.plan_id)


def _go_on_unapplying(world: World, way: int) -> None:
    """Repeat it, or first run any other command, which finishes or undoes it."""
    if way % 2:
        follow(world, *_execute(world), also=(NOTHING_TO_DO,))
    follow(world, *_unapply(world), also=(NOTHING_TO_DO,))
    if _state(world) == "applied":
        raise Refused("the plan is applied still")


def _state(world: World) -> str:
    """As recorded; an operation under way may still be finished or undone."""
    return str(world.must("plan", "status", world.plan_id)["state"])


def _prune(world: World) -> tuple[str, ...]:
    return ("checkpoint", "prune", "--keep", "4", world.plan_id)


def _collect(world: World) -> tuple[str, ...]:
    return ("plan", "delete", "--yes", world.notes["other_plan_id"])


def _delete_if_it_is_there(world: World, way: int) -> None:
    follow(world, *_collect(world), also=(3,))


def _undo(world: World) -> tuple[str, ...]:
    return ("undo", "--yes", "--call", "1")


def _redo(world: World) -> tuple[str, ...]:
    return ("redo", "--yes")


def _until_done(words: Callable[[World], tuple[str, ...]], *, is_undone: bool) -> Callable[[World, int], None]:
    """Repeat it if it was not done, perhaps after another command, which leaves all or nothing of it."""

    def go_on(world: World, way: int) -> None:
        if way % 2:
            follow(world, *in_place.CLEARS_UP, world.plan_id)
            if found := in_place.mixture(world):
                raise Refused(f"the folder holds a mixture: {found}")
        if in_place.is_undone(world) != is_undone:
            follow(world, *words(world))

    return go_on


_IN_PLACE: dict[str, Any] = {"changes_real_files": True, "clears_up": in_place.CLEARS_UP, "errors_at_each": 2}


VERBS = (
    Verb("execute", "created", _execute, _go_on_executing),
    Verb("execute with spares", "with spares", _execute, _go_on_executing),
    Verb("execute with subplans", "with subplans", _execute, _go_on_executing),
    Verb(
        "execute with few checkpoints",
        "few checkpoints",
        _execute,
        _go_on_executing,
        errors_at_each=4,
        deletes_checkpoints=True,
    ),
    Verb(
        "execute to a conflict",
        "with a conflict",
        _execute,
        _go_on_to_the_conflict,
        _resolve_and_go_on,
        ends_with=CONSTRAINED,
        errors_at_each=4,
    ),
    Verb("resume from a conflict", "conflict resolved", _resume, _go_on_executing, errors_at_each=4),
    Verb("checkpoint", "touched", _checkpoint, _checkpoint_unless_it_is_there, _to_the_end),
    Verb("rollback", "complete", _rollback, again(_rollback), _to_the_end),
    Verb("correct", "complete", _correct, _go_on_correcting),
    Verb("resume", "cut short", _resume, _go_on_executing),
    Verb("apply", "complete", _apply, _go_on_applying, changes_real_files=True),
    Verb("unapply", "applied", _unapply, _go_on_unapplying, changes_real_files=True),
    Verb("prune", "complete", _prune, again(_prune), deletes_checkpoints=True),
    Verb("collect", "two plans", _collect, _delete_if_it_is_there, deletes_checkpoints=True),
    Verb("keep", "complete", _keep, _keep_unless_it_is_kept),
    Verb("undo", in_place.DONE, _undo, _until_done(_undo, is_undone=True), **_IN_PLACE),
    Verb("redo", in_place.UNDONE, _redo, _until_done(_redo, is_undone=False), **_IN_PLACE),
)


def available_verbs() -> tuple[Verb, ...]:
    """Those this version of Holdfast has."""
    from holdfast.cli.commands.plan import group

    return tuple(verb for verb in VERBS if verb.name != "unapply" or "unapply" in group.commands)


# Stages


def make_stages(world: World) -> None:
    world.make()
    world.notes["plan_id"] = world.must("plan", "create", str(world.plan_file))["plan_id"]
    world.keep("created")
    _make_cut_short(world)
    _make_plan_of_its_own(world, world.subplans_file, "with subplans")
    # Its own sandbox is there already: how that is made is tried with `execute`.
    follow(world, *_execute(world))
    first = world.must("checkpoint", "list", world.plan_id)["checkpoints"][0]["checkpoint_id"]
    follow(world, "plan", "rollback", "--yes", world.plan_id, first)
    world.keep("with subplans")
    _make_plan_of_its_own(world, world.few_checkpoints_file, "few checkpoints")
    _make_plan_of_its_own(world, world.conflict_file, "with a conflict")
    follow(world, *_execute(world), also=(CONSTRAINED,))
    _resolve(world)
    world.keep("conflict resolved")
    world.put_back("created")
    follow(world, *_execute(world))
    listed = world.must("checkpoint", "list", world.plan_id)["checkpoints"]
    world.notes["target"] = next(each["checkpoint_id"] for each in listed if each["step_index"] == 0)
    decisions = world.must("plan", "status", world.plan_id)["decisions"]
    world.notes["decision"] = next(each["decision_id"] for each in decisions if each["step_index"] == 1)
    world.keep("complete")
    _make_touched(world)
    world.put_back("complete")
    follow(world, *_apply(world))
    world.keep("applied")
    _make_spares(world)
    world.put_back("complete")
    world.notes["other_plan_id"] = world.must("plan", "create", str(world.plan_file))["plan_id"]
    follow(world, "plan", "execute", world.notes["other_plan_id"])
    world.keep("two plans")
    _make_in_place(world)


def _make_in_place(world: World) -> None:
    """An agent has worked in the person's folder, and then the person has."""
    world.put_back("created")
    follow(world, "plan", "delete", "--yes", world.plan_id)
    world.notes["plan_id"] = in_place.make_session(world)
    world.keep(in_place.DONE)
    follow(world, *_undo(world))
    world.keep(in_place.UNDONE)


def _make_spares(world: World) -> None:
    """The sandboxes of a deleted plan wait for the next one, and the user has changed the folder since."""
    world.put_back("complete")
    follow(world, "plan", "delete", "--yes", world.plan_id)
    assert len(list((world.home / "sandboxes" / SPARES).iterdir())) == 2
    world.notes["plan_id"] = world.must("plan", "create", str(world.plan_file))["plan_id"]
    world.keep("with spares")


def _make_plan_of_its_own(world: World, file: Path, stage: str) -> None:
    world.put_back("created")
    follow(world, "plan", "delete", "--yes", world.plan_id)
    world.notes["plan_id"] = world.must("plan", "create", str(file))["plan_id"]
    world.keep(stage)


def _make_cut_short(world: World) -> None:
    """The executor and everything of it died in the middle of the second step."""

    def keeper(call: Call) -> Answer:
        if call.path.endswith("/new name"):
            raise StopEverything
        return None

    ended = world.run(*_execute(world), keeper=keeper)
    assert ended.was_stopped
    world.keep("cut short")


def _make_touched(world: World) -> None:
    """Half way, and with something in the sandbox that no checkpoint knows yet."""
    follow(world, *_rollback(world))
    world.keep("half way")
    (world.sandbox("data") / "by hand.txt").write_text("by hand\n")
    world.keep("touched")
