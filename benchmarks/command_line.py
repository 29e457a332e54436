"""How long the command line takes to answer, beside the bare interpreter: `python -m benchmarks.command_line`.

On a project with 1,000 plans and 50,000 checkpoints. CPU time of the whole process, the best of many: the rest is
whatever else the machine does.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.report import write_between_markers
from holdfast.app import Holdfast
from holdfast.model import Checkpoint, CheckpointGroup, CheckpointMetadata, Decision, Phase, Plan, Revision, now
from holdfast.system.ids import new_id

PROGRAM = str(Path(sys.executable).with_name("holdfast"))
BARE = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "python -c 'import click'": [sys.executable, "-c", "import click"],
}
OURS = {
    "holdfast --help": [PROGRAM, "--help"],
    "holdfast plan status": [PROGRAM, "plan", "status"],
    "holdfast plan list --limit 20": [PROGRAM, "plan", "list", "--limit", "20"],
    "holdfast checkpoint list": [PROGRAM, "checkpoint", "list"],
    "holdfast log": [PROGRAM, "log"],
    "holdfast plan rollback --dry-run": [PROGRAM, "plan", "rollback", "--dry-run", "latest", "start"],
    "holdfast checkpoint create": [PROGRAM, "checkpoint", "create", "latest"],
    "holdfast run -- true": [PROGRAM, "run", "--", "true"],
}
"""Those that only look come first."""
_BEGIN, _END = "<!-- command line: begin -->", "<!-- command line: end -->"
ALLOWED = 3
"""Times the interpreter with click; asked for of --help and plan status."""


def fill(project: Path, home: Path, plans: int, checkpoints: int) -> None:
    (project / "data").mkdir(parents=True)
    (project / "data" / "file").write_text("content\n")
    (project / "plan.yaml").write_text(
        "name: a plan\nresources: {data: {type: directory, path: data}}\nsteps: [{run: echo 1 > one}]\n"
    )
    with Holdfast.open(project, home=home) as holdfast:
        first = holdfast.create_plan(project / "plan.yaml")
        holdfast.execute(first.plan_id)
        with holdfast.store.transaction():
            for _ in range(plans - 1):
                _add_plan(holdfast, first, checkpoints // plans)
        holdfast.execute(holdfast.create_plan(project / "plan.yaml").plan_id)


def _add_plan(holdfast: Holdfast, like: Plan, checkpoints: int) -> None:
    at = now()
    plan = like.model_copy(update={"plan_id": new_id(), "created_at": at, "updated_at": at, "head_group_id": None})
    holdfast.store.insert(plan)
    holdfast.store.insert(Revision(plan_id=plan.plan_id, revision=1, steps=plan.steps))
    holdfast.store.insert(Decision.root_of(plan))
    for number in range(checkpoints):
        group = CheckpointGroup(
            group_id=new_id(), plan_id=plan.plan_id, sequence=number + 1, triggers=("manual",), phase=Phase.EXECUTE,
            attempt=1, revision=1, last_completed_step=0, active_decisions=(), states={"data": "00"}, created_at=at,
        )  # fmt: skip
        metadata = CheckpointMetadata(
            reason="", source="", phase=Phase.EXECUTE, step_index=0, step="", state_hash="00", label=None, triggers=()
        )
        holdfast.store.insert(group)
        holdfast.store.insert(
            Checkpoint(
                checkpoint_id=new_id(),
                plan_id=plan.plan_id,
                group_id=group.group_id,
                sequence=number + 1,
                sandbox_ref="",
                resource_id="data",
                checkpoint_type="manual",
                filesystem_path="",
                size_bytes=0,
                metadata=metadata,
                created_at=at,
            )
        )


def cpu_ms(command: list[str], cwd: Path, environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(command, cwd=cwd, env=environment, check=True, **quiet)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=1000)
    parser.add_argument("--checkpoints", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=Path, help="folder of performance.md, which then gets the result")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        project, home = Path(folder) / "project", Path(folder) / "home"
        fill(project, home, chosen.plans, chosen.checkpoints)
        environment = {**os.environ, "HOLDFAST_HOME": str(home)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        # By turns, so that whatever else the machine does meets all of them.
        rounds = [
            {name: cpu_ms(words, project, environment) for name, words in (BARE | OURS).items()}
            for _ in range(chosen.rounds)
        ]
        figures = {name: min(each[name] for each in rounds) for name in BARE | OURS}
    base = figures["python -c 'import click'"]
    command = f"python -m benchmarks.command_line {' '.join(sys.argv[1:])}".strip()
    lines = [f"Measured on {datetime.now(UTC).date().isoformat()} with `{command}`.", ""]
    lines += ["| command | ms CPU | times the interpreter with click |", "|---|---|---|"]
    lines += [f"| `{name}` | {figure:.0f} | {figure / base:.1f} |" for name, figure in figures.items()]
    text = "\n".join(lines)
    sys.stdout.write(text + "\n")
    if chosen.output is not None:
        write_between_markers(chosen.output / "performance.md", text, _BEGIN, _END)


if __name__ == "__main__":
    main()
