"""What a person waits for: whole commands, each beside its counterpart, `python -m benchmarks.whole_commands`.

Part of ``make bench``. New sandboxes, trees of 80,000 and 500,000 files, plans of 50 to 10,000 steps, homes with 10 and
2,000 plans. Medians of several rounds; both sides of a row are measured in the same minutes.

Nothing large is removed before everything is measured: for minutes after many files were removed, ext4 takes many times
as long to make new ones nearby, in whatever program.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.command_line import fill
from benchmarks.machine import machine_facts
from benchmarks.progress import say
from benchmarks.report import write_between_markers
from benchmarks.trees import change, make_source_tree

_PROGRAM = [sys.executable, "-m", "holdfast"]
_BEGIN, _END = "<!-- whole commands: begin -->", "<!-- whole commands: end -->"
_COUNTER = Path(__file__).with_name("command_counts.py")
_CHANGED = 10
_STEP_COSTS = Path(__file__).with_name("step_costs.py")
_STEPS_IN_A_WINDOW = 100
_KEPT, _CHECKPOINTS_OF_A_STEP = 50, 2
_DIVIDED_FILES, _SUBPLANS = 20_000, 16
_SETTINGS = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    **{
        f"GIT_{role}_{what}": f"{what.lower()}@example"
        for role in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    },
    # A collection in the background would be measured with whatever runs then.
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "gc.auto",
    "GIT_CONFIG_VALUE_0": "0",
    "GIT_CONFIG_KEY_1": "maintenance.auto",
    "GIT_CONFIG_VALUE_1": "false",
}


@dataclass(frozen=True)
class Figures:
    """What one run of a command took."""

    seconds: float
    cpu_seconds: float
    peak_mb: float


@dataclass
class Timed:
    """One command, measured in several rounds."""

    name: str
    runs: list[Figures] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def median(self, figure: str = "seconds") -> float:
        return statistics.median(getattr(run, figure) for run in self.runs)


@dataclass(frozen=True)
class Row:
    """A command of ours beside another one, and how many times as long it may take."""

    ours: Timed
    other: Timed
    wanted: float | None
    within_seconds: float | None = None
    """How long it may take, whatever the other one takes."""

    @property
    def ratio(self) -> float:
        return self.ours.median() / self.other.median()

    @property
    def verdict(self) -> str:
        if self.within_seconds is not None:
            is_reached, wanted = self.ours.median() <= self.within_seconds, f"{_ms(self.within_seconds)} ms"
        elif self.wanted is not None:
            is_reached, wanted = self.ratio <= self.wanted, f"{self.wanted:g}"
        else:
            return ""
        return f"{wanted} {'reached' if is_reached else 'missed'}"

    def cells(self) -> list[str]:
        ours, counts = self.ours, self.ours.counts
        return [
            ours.name, _ms(ours.median()), _ms(ours.median("cpu_seconds")), f"{ours.median('peak_mb'):.0f}",
            *(str(counts.get(name, "")) for name in ("scans", "git", "statements")),
            self.other.name, _ms(self.other.median()), _ms(self.other.median("cpu_seconds")),
            f"{self.ratio:.2f}", self.verdict,
        ]  # fmt: skip


HEADER = ["command", "ms", "ms CPU", "MB", "scans", "git", "SQL", "beside it", "ms", "ms CPU", "ratio", "wanted"]


class Place:
    """A folder to run commands in, with a home."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self.home = folder, home
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "GIT_"))}
        self._environment = {**kept, **_SETTINGS, "HOLDFAST_HOME": str(home), "PYTHONDONTWRITEBYTECODE": ""}

    def run(self, *words: str) -> Figures:
        """Run a command for its effect and its cost."""
        started = time.perf_counter()
        process = subprocess.Popen(
            words, cwd=self.folder, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert process.stderr is not None
        errors = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        seconds, process.returncode = time.perf_counter() - started, os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(words)} ended with {process.returncode}: {errors.decode(errors='replace')}")
        return Figures(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)

    def holdfast(self, *words: str) -> Figures:
        return self.run(*_PROGRAM, *words)

    def told(self, *words: str) -> Any:
        """The data that a command of ours answers with."""
        command = [*_PROGRAM, "--format", "json", *words]
        said = subprocess.run(command, cwd=self.folder, env=self._environment, capture_output=True, check=True).stdout
        return json.loads(said)["data"]

    def counted(self, *words: str) -> dict[str, int]:
        with tempfile.NamedTemporaryFile() as file:
            self.run(sys.executable, str(_COUNTER), file.name, *words)
            counts: dict[str, int] = json.loads(Path(file.name).read_text())
            return counts


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f}"


# Large trees


class LargeTree:
    """A repository of that many files, and a plan on it that changed ten of them."""

    def __init__(self, folder: Path, files: int, source: Path | None) -> None:
        project = folder / "project"
        if source is not None:
            subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", source, project], check=True)
        else:
            say(f"making {files:,} files")
            make_source_tree(project, files)
        self._place = place = Place(project, folder / "home")
        if source is None:
            for words in (
                ["init", "--quiet"],
                ["add", "--all"],
                ["commit", "--quiet", "--message", "start"],
                ["repack", "-adq"],
            ):
                place.run("git", *words)
        listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=project).split(b"\0")[:-1]
        self.files = len(listed)
        self._chosen = [os.fsdecode(listed[number * len(listed) // _CHANGED]) for number in range(_CHANGED)]
        self._copy = folder / "copy"

    def measured(self, rounds: int) -> Iterable[Row]:
        place = self._place
        say(f"a sandbox of {self.files:,} files")
        yield self._first()
        first = place.told("checkpoint", "list", "latest")["checkpoints"][0]["checkpoint_id"]
        last = place.told("plan", "status", "latest")["last_checkpoint_id"]
        back, forth = Timed("`plan rollback` of ten files"), ("plan", "rollback", "--yes", "latest", last)
        dry, taken, looked = Timed("`plan rollback --dry-run`"), Timed("`checkpoint create`"), Timed("`git status`")
        stashed, applied = Timed("`git stash -u` of the same"), Timed("`plan apply` of ten files")
        popped = Timed("`git stash pop` and `git commit`")
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            looked.runs.append(place.run("git", "status"))
            dry.runs.append(place.holdfast("plan", "rollback", "--dry-run", "latest", first))
            taken.runs.append(place.holdfast("checkpoint", "create", "latest"))
            back.runs.append(place.holdfast("plan", "rollback", "--yes", "latest", first))
            place.holdfast(*forth)
            place.holdfast("plan", "execute", "latest")
            applied.runs.append(place.holdfast("plan", "apply", "--yes", "latest"))
            place.holdfast("plan", "unapply", "--yes", "latest")
            self._stash(stashed, popped)
        dry.counts = place.counted("plan", "rollback", "--dry-run", "latest", first)
        taken.counts = place.counted("checkpoint", "create", "latest")
        applied.counts = place.counted("plan", "apply", "--yes", "latest")
        place.holdfast("plan", "unapply", "--yes", "latest")
        back.counts = place.counted("plan", "rollback", "--yes", "latest", first)
        yield Row(back, stashed, 0.7)
        yield Row(dry, looked, 1.5)
        yield Row(taken, looked, 1.5)
        yield Row(applied, popped, 1.0)

    def _first(self) -> Row:
        plan = self._place.folder.parent / "plan.yaml"
        files = " ".join(f"'{name}'" for name in self._chosen)
        change = f"for each in {files}; do echo changed >> $each; done"
        resources = {"app": {"type": "git", "path": str(self._place.folder)}}
        plan.write_text(json.dumps({"name": "ten files", "resources": resources, "steps": [{"run": change}]}))
        copied, executed = Timed("`cp -a`"), Timed("`plan execute`, one step")
        copied.runs.append(self._place.run("cp", "-a", str(self._place.folder), str(self._copy)))
        executed.runs.append(self._place.holdfast("plan", "execute", str(plan)))
        return Row(executed, copied, None)

    def _stash(self, stashed: Timed, popped: Timed) -> None:
        place = self._place
        change(place.folder / name for name in self._chosen)
        stashed.runs.append(place.run("git", "stash", "--include-untracked", "--quiet"))
        one, two = (
            place.run("git", "stash", "pop", "--quiet"),
            place.run("git", "commit", "--quiet", "--all", "-m", "x"),
        )
        both = zip(vars(one).values(), vars(two).values(), strict=True)
        seconds, cpu_seconds, _ = (sum(pair) for pair in both)
        popped.runs.append(Figures(seconds, cpu_seconds, max(one.peak_mb, two.peak_mb)))
        place.run("git", "reset", "--quiet", "--hard", "HEAD~1")


# New sandboxes


class NewSandboxes:
    """A repository of that many files, and as many ignored ones, of which sandboxes are made."""

    def __init__(self, folder: Path, files: int, ignored: int) -> None:
        say(f"making {files:,} files and {ignored:,} ignored ones")
        self._title = f"{files:,} files" + (f", {ignored:,} ignored" if ignored else "")
        self._folder, project = folder, folder / "project"
        make_source_tree(project, files)
        (project / ".gitignore").write_text("/node_modules/\n")
        if ignored:
            make_source_tree(project / "node_modules", ignored)
        self._place = Place(project, folder / "home")
        for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "start"]):
            self._place.run("git", *words)
        self._place.run("git", "repack", "-a", "-d", "--quiet")  # as in a clone: `cp -a` copies the objects too
        self._place.run("git", "status")

    def measured(self, rounds: int) -> Iterable[Row]:
        copied, added, looked = Timed("`cp -a`"), Timed("`git worktree add`"), Timed("`git status`")
        first, beside = Timed(f"{self._title}: `run -- true`"), Timed(f"{self._title}: the same beside another plan")
        removed, deleted = Timed("`rm -rf` of a copy"), Timed(f"{self._title}: `plan delete`")
        spared = Timed(f"{self._title}: `run -- true` after that")
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            place = Place(self._place.folder, self._folder / f"home {number}")
            copied.runs.append(place.run("cp", "-a", str(place.folder), str(self._folder / f"copy {number}")))
            first.runs.append(place.holdfast("run", "--", "true"))
            deleted.runs.append(place.holdfast("plan", "delete", "--yes", "latest"))
            looked.runs.append(place.run("git", "status"))
            spared.runs.append(place.holdfast("run", "--", "true"))
        beside.runs.append(place.holdfast("run", "--", "true"))
        added.runs.append(place.run("git", "worktree", "add", "--quiet", "--detach", str(self._folder / "work tree")))
        removed.runs.append(place.run("rm", "-rf", str(self._folder / "copy 0")))
        yield Row(first, copied, 1.5)
        yield Row(first, added, None)
        yield Row(beside, copied, None)
        yield Row(deleted, removed, None, within_seconds=0.5)
        yield Row(spared, looked, 3.0)

    def divided(self, subplans: int) -> Row:
        """A step with so many subplans, all at the same time, beside a step with one."""
        many, one = (
            Timed(f"{self._title}: {count} subplans at once" if count > 1 else "one") for count in (subplans, 1)
        )
        for count, timed in ((subplans, many), (1, one)):
            each = [{"name": f"part {number}", "steps": [{"run": "true"}]} for number in range(count)]
            divide = {"name": "divide", "parallel": count, "subplans": each}
            resources = {"app": {"type": "git", "path": str(self._place.folder)}}
            plan = self._folder / "plan.yaml"
            plan.write_text(json.dumps({"name": "divided", "resources": resources, "steps": [divide]}))
            place = Place(self._place.folder, self._folder / f"home of {count}")
            timed.runs.append(place.holdfast("plan", "execute", str(plan)))
        return Row(many, one, 4.0)


def new_sandboxes(folder: Path, sizes: Sequence[str], rounds: int) -> Iterable[Row]:
    """``sizes``: numbers of files, each with that of ignored ones after a plus sign."""
    yield NewSandboxes(folder / "divided", _DIVIDED_FILES, 0).divided(_SUBPLANS)
    for size in sizes:
        files, _, ignored = size.partition("+")
        yield from NewSandboxes(folder / size, int(files), int(ignored or 0)).measured(rounds)


# Long histories


def long_histories(folder: Path, lengths: Sequence[int], rounds: int) -> Iterable[Row]:
    """Looking at a plan after many steps beside the same after few."""
    places = [_plan_of(folder / str(steps), steps) for steps in lengths]
    for words in (("plan", "status"), ("log", "-n", "20"), ("checkpoint", "create", "latest")):
        few, *many = (Timed(f"`{' '.join(words)}`, {steps:,} steps") for steps in lengths)
        for place, timed in zip(places, (few, *many), strict=True):
            timed.runs = [place.holdfast(*words) for _ in range(rounds)]
            timed.counts = place.counted(*words)
        yield from (Row(timed, few, 1.3) for timed in many)


def _plan_of(folder: Path, steps: int) -> Place:
    say(f"a plan of {steps:,} steps")
    place = _planned(folder, steps, _KEPT)
    place.holdfast("plan", "execute", "plan.yaml")
    return place


def _planned(folder: Path, steps: int, kept: int) -> Place:
    """A place with a plan that was not executed yet."""
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "file").write_text("content\n")
    each = [{"tool": "write_file", "args": {"path": f"f{n % 50}", "content": f"{n}\n"}} for n in range(steps)]
    resources = {"data": {"type": "directory", "path": "data"}}
    plan = {"name": "long", "resources": resources, "policy": {"max_checkpoints": kept}, "steps": each}
    (folder / "plan.yaml").write_text(json.dumps(plan))
    return Place(folder, folder / "home")


# Long plans


def long_plans(folder: Path, lengths: Sequence[int]) -> Iterable[Row]:
    """The CPU time of late steps beside early ones, with few, many and all checkpoints kept, each in another format."""
    for steps in lengths:
        for written, kept in (("plain", _KEPT), ("rich", steps), ("json", _CHECKPOINTS_OF_A_STEP * steps + 2)):
            yield _late_beside_early(folder / f"{steps} {written} {kept}", steps, written, kept)


def _late_beside_early(folder: Path, steps: int, written: str, kept: int) -> Row:
    place = _planned(folder, steps, kept)
    say(f"a plan of {steps:,} steps, {written}, {kept:,} checkpoints kept")
    with tempfile.NamedTemporaryFile() as file:
        place.run(sys.executable, str(_STEP_COSTS), file.name, "--format", written, "plan", "execute", "plan.yaml")
        began: list[float] = json.loads(Path(file.name).read_text())
    first_late, first_early = steps - _STEPS_IN_A_WINDOW - 1, _STEPS_IN_A_WINDOW
    late, early = (
        Timed(f"steps {first + 1:,} to {first + _STEPS_IN_A_WINDOW:,}") for first in (first_late, first_early)
    )
    for timed, first in ((late, first_late), (early, first_early)):
        seconds = began[first + _STEPS_IN_A_WINDOW] - began[first]
        timed.runs.append(Figures(seconds, seconds, 0))
    late.name += f", {written}, {kept:,} kept"
    return Row(late, early, 1.2)


# Many plans in one home


def many_plans(folder: Path, counts: Sequence[int], rounds: int) -> Iterable[Row]:
    places = []
    for count in counts:
        say(f"a home with {count:,} plans")
        place = Place(folder / f"{count} plans", folder / f"home of {count} plans")
        fill(place.folder, place.home, count, count * 50)
        places.append(place)
    few, *many = (Timed(f"`plan delete`, of {count:,} plans") for count in counts)
    for _ in range(rounds):
        for place, timed in zip(places, (few, *many), strict=True):
            place.holdfast("plan", "execute", "plan.yaml")
            timed.runs.append(place.holdfast("plan", "delete", "--yes", "latest"))
    for place, timed in zip(places, (few, *many), strict=True):
        place.holdfast("plan", "execute", "plan.yaml")
        timed.counts = place.counted("plan", "delete", "--yes", "latest")
    return [Row(timed, few, 1.5) for timed in many]


# The page


def table(rows: Iterable[Row]) -> str:
    lines = [HEADER, [":--", *["--:"] * 6, ":--", *["--:"] * 4], *(row.cells() for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="holdfast-commands-", dir=options.workdir) as name:
        sections = list(_sections(Path(name).resolve(), options))
        facts = "\n".join(f"- {what}: {fact}" for what, fact in machine_facts(Path(name)))
    command = f"python -m benchmarks.whole_commands {' '.join(sys.argv[1:])}".strip()
    head = f"Measured on {datetime.now(UTC).date().isoformat()} with `{command}`.\n\n{facts}"
    text = "\n\n".join([head, *(f"### {title}\n\n{table(rows)}" for title, rows in sections)])
    sys.stdout.write(text + "\n")
    if options.output is not None:
        write_between_markers(options.output / "performance.md", text, _BEGIN, _END)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whole_commands", description=__doc__)
    parser.add_argument("--files", type=int, nargs="*", default=[80_000, 500_000], help="sizes of generated trees")
    parser.add_argument("--tree", type=Path, help="a real repository to clone and measure in place of generated ones")
    parser.add_argument(
        "--sandboxes", nargs="*", default=["80000", "50000+30000"], help="files, + ignored files, to make sandboxes of"
    )
    parser.add_argument("--steps", type=int, nargs="*", default=[50, 500, 5_000], help="lengths of histories")
    parser.add_argument("--long-plans", type=int, nargs="*", default=[10_000], help="lengths of plans to execute")
    parser.add_argument("--plans", type=int, nargs="*", default=[10, 2_000], help="numbers of plans in a home")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="folder of performance.md, which then gets the result")
    parser.add_argument("--workdir", type=Path, help="where to put trees and homes, on the disk to measure")
    return parser.parse_args()


def _sections(folder: Path, options: argparse.Namespace) -> Iterable[tuple[str, list[Row]]]:
    if options.sandboxes:
        yield "New sandboxes", list(new_sandboxes(folder, options.sandboxes, options.rounds))
    sizes: list[int] = [0] if options.tree else options.files
    for files in sizes:
        tree = LargeTree(folder / f"tree{files}", files, options.tree)
        yield f"{tree.files:,} files", list(tree.measured(options.rounds))
    parts: list[tuple[str, Callable[..., Iterable[Row]], Sequence[int | str]]] = [
        ("Long histories", long_histories, options.steps),
        ("Many plans", many_plans, options.plans),
    ]
    for title, measure, numbers in parts:
        if numbers:
            yield title, list(measure(folder, numbers, options.rounds))
    if options.long_plans:
        yield "Long plans, CPU time", list(long_plans(folder, options.long_plans))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
