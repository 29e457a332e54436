"""What the process of a folder does with the hooks of one call, killed at every change that it makes."""

from __future__ import annotations

import time

from holdfast.app import Holdfast
from tests.faults import in_place
from tests.faults.gate import Ended, Keeper, let_through, run_gated, stop_at
from tests.faults.judging import Tree, doctor_says, leftovers
from tests.faults.trial import Bench, Outcome, left_processes
from tests.faults.verbs import Refused, follow
from tests.faults.world import World
from tests.support.sessions import Agent
from tests.support.trees import compare

_POINTS = "calls that change something while hooks are recorded"
_NEW = "written in the call.txt"


def hooks_killed(bench: Bench, seed: int) -> Outcome:
    began, outcome, world = time.monotonic(), Outcome(), bench.world
    points = _points(bench)
    world.put_back(in_place.DONE)
    outcome.ended = _recorded(world, stop_at(1 + seed * 29 % points))
    try:
        _go_on(world)
        outcome.problems += compare(in_place.files_of(world.kept / in_place.DONE / "real"), _without_call(world))
        follow(world, "checkpoint", "verify")
    except (Refused, AssertionError) as error:
        outcome.problems.append(str(error))
    outcome.problems += [f"left behind: {each}" for each in leftovers(world) if not each.startswith("tmp/")]
    outcome.problems += doctor_says(world) + left_processes()
    outcome.story, outcome.seconds = list(world.commands), time.monotonic() - began
    return outcome


def _points(bench: Bench) -> int:
    if _POINTS not in bench.remembered:
        bench.world.put_back(in_place.DONE)
        ended = _recorded(bench.world, let_through)
        assert ended.status == 0, ended.errors
        bench.remembered[_POINTS] = len(ended.calls)
    found = bench.remembered[_POINTS]
    assert isinstance(found, int)
    return found


def _recorded(world: World, keeper: Keeper) -> Ended:
    """A prompt and a call of the agent that has worked there before."""

    def hear() -> int:
        with _opened(world) as holdfast:
            agent = Agent(holdfast.in_place)
            agent.prompt("once more")
            with agent.call("write and remove"):
                (world.app / _NEW).write_text("new\n")
                (world.app / "link").unlink()
        return 0

    ended = run_gated(hear, below=world.folder, keeper=keeper, output=world.kept / "output")
    world.commands.append(f"the hooks of a call -> {ended.status}")
    return ended


def _opened(world: World) -> Holdfast:
    return Holdfast.open(world.app, home=world.home, environment=world.environment)


def _go_on(world: World) -> None:
    """The next hook of the agent ends what it finds, and the agent does something else."""
    with _opened(world) as holdfast:
        agent = Agent(holdfast.in_place)
        with holdfast.in_place.recording(agent.plan_id) as (plan, recording):
            recording.interrupt(plan, holdfast.in_place.unfinished(agent.plan_id))
        agent.prompt("go on")
        with agent.call("look"):
            pass


def _without_call(world: World) -> Tree:
    """The person's files after the call is undone, if it came to changing any."""
    if (world.app / _NEW).exists() or not (world.app / "link").is_symlink():
        follow(world, "undo", "--yes")
    return in_place.files_of(world.real)
