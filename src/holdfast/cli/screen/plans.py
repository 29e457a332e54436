"""What several commands show of a plan: its state, its conflicts, what a step printed, what changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.cli.output import Screen, Span, counted, output_lines, wrapped
from holdfast.model import Conflict, FileChange, OperationKind, Plan, PlanState, RunStatus
from holdfast.names import name_text

_STATE_STYLES = {
    PlanState.COMPLETE: "good",
    PlanState.APPLIED: "good",
    PlanState.ERRORED: "bad",
    PlanState.CANCELLED: "warn",
    PlanState.PROCESSING: "warn",
    PlanState.CONSTRAINED: "bad",
}
RUN_WORDS: Mapping[str, tuple[str, str]] = {
    RunStatus.SUCCEEDED: ("ok", "good"),
    RunStatus.FAILED: ("failed", "bad"),
    RunStatus.INTERRUPTED: ("stopped", "warn"),
    RunStatus.RUNNING: ("running", "warn"),
    RunStatus.CONSTRAINED: ("conflict", "bad"),
}
"""How a run of a step ended, in a word and its style."""
FINISHED_LATER = (OperationKind.ROLLBACK, OperationKind.RESTORE_PATHS)
"""What was cut short and is then finished; all else is undone."""


def state_span(plan: Plan) -> Span:
    return (plan.state.value, _STATE_STYLES.get(plan.state, "strong"))


def show_conflicts(screen: Screen, conflicts: Sequence[tuple[Plan, Conflict]]) -> None:
    for plan, each in conflicts:
        place = Path(plan.resource(each.resource).sandbox_path) / each.path
        marked = "; both versions are in it, between marks" if each.is_marked else ""
        screen.line(("  ", "dim"), name_text(str(place)))
        for line in wrapped(f"{each.subplan}: {each.reason}{marked}", screen.width and screen.width - 4):
            screen.line("    ", line)
        for kept in each.kept:
            screen.line(("    kept ", "dim"), (name_text(kept), "dim"))


def show_tail(screen: Screen, output: str, most_lines: int) -> None:
    if not output.strip():
        return
    lines = output_lines(output)
    if len(lines) > most_lines:
        screen.line((f"  … {len(lines) - most_lines} lines before", "dim"))
    for line in lines[-most_lines:]:
        screen.line(("  | ", "dim"), line)


def changes_text(changes: list[FileChange]) -> str:
    if not changes:
        return "No file changed."
    counts = {action: sum(each.action == action for each in changes) for action in ("changed", "added", "removed")}
    parts = ", ".join(f"{count} {action}" for action, count in counts.items() if count)
    return f"{counted(len(changes), 'file')}: {parts}; your own files are untouched."
