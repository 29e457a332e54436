"""One trial: a verb, a fault, what a person does then, and whether all is as if the fault had never been."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from holdfast.system import folder_mark
from tests.faults.gate import Ended, Keeper, descendants, let_through, program_of, reap_orphans
from tests.faults.judging import Facts, doctor_says, facts_of, groups_of
from tests.faults.verbs import CutShort, Refused, Verb, follow, make_stages
from tests.faults.world import World, warm_up
from tests.support.trees import Thing, compare, describe

_PATIENCE_SECONDS = 10.0
"""How long processes may take to end when their command has."""
FINE_ENDINGS = frozenset((0, 1, 5, 6, 8))
"""How a command may end that the system failed: done all the same, a failed step, git at work, files, records."""


@dataclass
class Outcome:
    problems: list[str] = field(default_factory=list)
    ended: Ended | None = None
    story: list[str] = field(default_factory=list)
    seconds: float = 0.0
    seconds_to_go_on: float = 0.0
    """With the steps that were left."""

    @property
    def held(self) -> bool:
        return not self.problems


class Bench:
    """A world in which one trial after the other is made."""

    def __init__(self, world: World) -> None:
        self.world = world
        warm_up()
        make_stages(world)
        self._references: dict[str, Reference] = {}
        self.remembered: dict[str, object] = {}
        """What other kinds of trials compare with."""
        for process in descendants():
            raise AssertionError(f"{program_of(process)} runs already")

    def reference(self, verb: Verb) -> Reference:
        if verb.name not in self._references:
            self._references[verb.name] = Reference(self.world, verb)
        return self._references[verb.name]

    def try_out(
        self, verb: Verb, keeper: Keeper, *, way: int = 0, as_programs: bool = False, kills: bool = True
    ) -> Outcome:
        """The verb with that keeper at its gate; ``way`` chooses among what a person may do afterwards."""

        def disturbed(world: World) -> Ended:
            return world.run(*verb.words(world), keeper=keeper, as_a_program=as_programs)

        return self.try_with(verb, disturbed, way=way, as_programs=as_programs, kills=kills)

    def try_with(
        self,
        verb: Verb,
        disturbed: Callable[[World], Ended],
        *,
        way: int = 0,
        as_programs: bool = False,
        kills: bool = True,
        then_stopped_at: Sequence[int] = (),
    ) -> Outcome:
        """The verb, run and disturbed in that way; what goes on afterwards is stopped too, if that is asked for."""
        reference, world = self.reference(verb), self.world
        started = time.monotonic()
        world.put_back(verb.stage)
        world.notes["as programs"] = as_programs
        outcome = Outcome()
        try:
            outcome.ended = disturbed(world)
            if not kills:
                outcome.problems += ending_problems(outcome.ended)
            world.to_be_stopped_at = list(then_stopped_at)
            self.afterwards(verb, outcome, reference, way)
        except (Refused, TimeoutError, AssertionError) as error:
            outcome.problems.append(f"{error}")
        outcome.problems += left_processes()
        outcome.story, outcome.seconds = list(world.commands), time.monotonic() - started
        return outcome

    def afterwards(self, verb: Verb, outcome: Outcome, reference: Reference, way: int) -> None:
        assert outcome.ended is not None
        if outcome.ended.left_running:
            outcome.problems.append(f"left running: {outcome.ended.left_running}")
        if not verb.changes_real_files:
            outcome.problems += self._untouched(reference, "after the fault")
        if way % 3 == 1:
            outcome.problems += self._unsound("right after the fault")
        if outcome.ended.status != verb.ends_with:
            began = time.monotonic()
            self._go_on(verb, way)
            outcome.seconds_to_go_on = time.monotonic() - began
        self.world.to_be_stopped_at = []
        verb.finish(self.world)
        outcome.problems += self.judged(verb, reference, way)

    def _go_on(self, verb: Verb, way: int) -> None:
        while True:
            try:
                return verb.go_on(self.world, way)
            except CutShort:
                way += 1

    def judged(self, verb: Verb, reference: Reference, way: int) -> list[str]:
        facts = facts_of(self.world, real_may_change=verb.changes_real_files)
        marked = any(folder_mark.find_on(folder) for folder in (self.world.app, self.world.data))
        if marked or any("/.staging-" in each or each.startswith("tmp/") for each in facts.leftovers):
            # What a kill or an error left at the very end is removed by the next command that takes the plan.
            follow(self.world, *verb.clears_up, self.world.plan_id)
            facts = facts_of(self.world, real_may_change=verb.changes_real_files)
        problems = facts.against(reference.facts)
        problems += doctor_says(self.world)
        if not verb.changes_real_files:
            problems += self._untouched(reference, "in the end")
        groups = groups_of(self.world)
        if not verb.deletes_checkpoints:
            problems += [f"checkpoint group {each} is lost" for each in reference.groups if each not in groups]
            changed = [
                each for each in reference.groups if groups.get(each, reference.groups[each]) != reference.groups[each]
            ]
            problems += [f"checkpoint group {each} names another state" for each in changed]
        if way % 3 == 0 and not problems and not verb.changes_real_files:
            problems += self._going_back(reference)
        return problems

    def _unsound(self, when: str) -> list[str]:
        """Whatever is recorded must be there at once: going on may heal what should never have been."""
        ended = self.world.run("checkpoint", "verify")
        return [] if ended.status == 0 else [f"checkpoints {when}: {(ended.output + ended.errors)[-500:]}"]

    def _untouched(self, reference: Reference, when: str) -> list[str]:
        """The user's files, to the last byte and nanosecond, git's own too."""
        return [f"the user's files {when}: {each}" for each in compare(reference.real, self.world.real_files())]

    def _going_back(self, reference: Reference) -> list[str]:
        """The plan's first checkpoint still gives what was there at that time."""
        first = self.world.must("checkpoint", "list", self.world.plan_id)["checkpoints"][0]["checkpoint_id"]
        follow(self.world, "plan", "rollback", "--yes", self.world.plan_id, first)
        return [
            f"rolled back to the first checkpoint: {name}: {each}"
            for name, tree in reference.first.items()
            for each in compare(tree, _without_git(self.world.sandbox(name)))
            if not (name == "app" and each.startswith("b'': mtime_ns"))  # a sandbox gets its git in the end
        ]


def _without_git(folder: Path) -> dict[bytes, Thing]:
    """Its files, but for git's own and those that git ignores."""
    return describe(folder, without=(b".git", b"cache.bin"))


class Reference:
    """A verb that nothing disturbed."""

    def __init__(self, world: World, verb: Verb) -> None:
        world.put_back(verb.stage)
        self.real: dict[bytes, Thing] = world.real_files()
        first = {"app": _without_git(world.app), "data": _without_git(world.data)}
        self.groups = groups_of(world)
        ended = world.run(*verb.words(world), keeper=let_through)
        assert ended.status == verb.ends_with, f"{verb.name}: {ended.status} {ended.errors}"
        self.calls = ended.calls
        self.seconds = self._measured(world, verb)
        verb.finish(world)
        self.facts: Facts = facts_of(world, real_may_change=verb.changes_real_files)
        self.first = {name: tree for name, tree in first.items() if world.sandbox(name).is_dir()}
        """The files of the plan's resources as they were before it."""
        assert not self.facts.leftovers, self.facts.leftovers
        assert not doctor_says(world)

    def _measured(self, world: World, verb: Verb) -> float:
        """How long it takes at full speed; leaves the world as it is when the verb is done."""
        world.put_back(verb.stage)
        started = time.monotonic()
        ended = world.run_while(lambda _: None, *verb.words(world))
        assert ended.status == verb.ends_with, ended.errors
        return time.monotonic() - started

    @cached_property
    def points(self) -> int:
        return len(self.calls)


def left_processes() -> list[str]:
    """What still runs some time after everything is over."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (running := descendants()) and time.monotonic() < deadline:
        time.sleep(0.02)
    reap_orphans()
    return [f"{program_of(process)} is left running" for process in running]


def ending_problems(ended: Ended) -> list[str]:
    """How a command that met an error of the operating system must not end."""
    problems = []
    said = ended.errors + ended.output
    if ended.status not in FINE_ENDINGS:
        problems.append(f"ended with {ended.status}: {said[-600:]}")
    if "Traceback" in said or "Holdfast has a bug" in said:
        problems.append(f"it did not expect the error: {said[-900:]}")
    if ended.status != 0 and not said.strip():
        problems.append(f"ended with {ended.status} and said nothing")
    return problems
