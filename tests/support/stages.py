"""A program that works in stages: each goes on when a checkpoint of the one before it was taken."""

from __future__ import annotations

from holdfast.app import Holdfast, Outfit
from holdfast.model import Plan
from tests.support.workshop import Workshop

_GATE = "until test -e {gate}; do sleep 0.02; done"


def run_in_stages(workshop: Workshop, opened: Holdfast, *stages: str) -> Plan:
    """Run the shell commands of each stage; after all but the last one the program rests until it is kept."""
    gates = [workshop.outside / f"gate-{number}" for number in range(len(stages) - 1)]
    script = stages[0]
    for gate, stage in zip(gates, stages[1:], strict=True):
        script += f"\n{_GATE.format(gate=gate)}\n{stage}"
    plan = opened.create_program_plan(("sh", "-c", script), folder=workshop.app)

    def listen(event: object) -> None:
        group = getattr(event, "group", None)
        if group is not None and "settled" in group.triggers:
            next(gate for gate in gates if not gate.exists()).touch()

    return opened.execute(plan.plan_id, listener=listen, outfit=Outfit(settle_seconds=0.1)).plan
