"""``holdfast doctor``: check everything Holdfast uses and stores."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.cli.invocation import Invocation, command
from holdfast.cli.output import Reply, Screen, counted, show_facts, show_table
from holdfast.doctor import Finding, examine
from holdfast.names import name_text

_STYLES = {"ok": "good", "warning": "warn", "problem": "bad"}


@command(
    "doctor",
    only_looks=True,
    examples=(
        ("holdfast doctor", "Check everything that is stored."),
        ("holdfast doctor --format json", "The same for a program."),
    ),
)
def doctor(invocation: Invocation) -> Reply:
    """Check everything Holdfast uses and stores: programs, database, saved content, sandboxes. Repairs nothing.

    Exit code 0 if there is no problem, 7 if saved content is damaged, 8 if the database is.
    """
    with invocation.opened() as holdfast:
        findings = examine(holdfast)
        home = holdfast.home
    exit_code = max((each.exit_code for each in findings if each.level == "problem"), default=0)
    data = {
        "home": home,
        "findings": [
            {"name": each.name, "level": each.level, "detail": each.detail, "hint": each.hint} for each in findings
        ],
    }
    return Reply(data, lambda screen: _show(screen, findings), exit_code)


def _show(screen: Screen, findings: Sequence[Finding]) -> None:
    show_table(screen, [[(each.level, _STYLES[each.level]), each.name, name_text(each.detail)] for each in findings])
    hints = [each for each in findings if each.hint]
    if hints:
        screen.line()
        show_facts(screen, ((each.name, name_text(each.hint)) for each in hints))
    problems, warnings = (sum(each.level == level for each in findings) for level in ("problem", "warning"))
    screen.line()
    screen.line(f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}.")
