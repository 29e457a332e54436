"""The table of what was tried and what held, on the screen and in docs/reliability.md."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_BEGIN, _END = "<!-- results: written by `make faults` -->", "<!-- end of results -->"


def table(results: Sequence[dict[str, Any]], skipped: Mapping[str, str]) -> list[str]:
    rows: dict[str, dict[str, list[bool]]] = {}
    for each in results:
        rows.setdefault(each["what"], {}).setdefault(each["verb"], []).append(bool(each["held"]))
    lines = ["| what | on | tried | held |", "|---|---|---:|---:|"]
    tried = held = 0
    for what, verbs in rows.items():
        for verb, outcomes in verbs.items():
            lines.append(f"| {what} | {verb} | {len(outcomes)} | {sum(outcomes)} |")
            tried, held = tried + len(outcomes), held + sum(outcomes)
    lines += [f"| {what} | not tried: {reason} | 0 | |" for what, reason in skipped.items()]
    return [*lines, f"| **all** | | **{tried}** | **{held}** |"]


def show(results: Sequence[dict[str, Any]], skipped: Mapping[str, str]) -> None:
    print("\n".join(table(results, skipped)))  # noqa: T201
    for each in results:
        if not each["held"]:
            print(f"\n{each['what']} / {each['verb']} / {each['number']}: {each['about']}")  # noqa: T201
            print("\n".join(f"  {line}" for line in (*each["problems"], *each["story"])))  # noqa: T201


def write_down(results: Sequence[dict[str, Any]], skipped: Mapping[str, str], page: Path) -> None:
    """Replace the figures of the page, if it has a place for them."""
    text = page.read_text() if page.exists() else ""
    if _BEGIN not in text or not results:
        return
    before, _, rest = text.partition(_BEGIN)
    after = rest.partition(_END)[2]
    seconds = sum(each["core_seconds"] for each in results)
    day = datetime.now(UTC).date().isoformat()
    machine = f"Linux {platform.release().split('-')[0]}, {platform.machine()}"
    about = f"{day}, {machine}, {seconds / 60:.0f} minutes of one core."
    longest = max(each.get("went_on", 0.0) for each in results)
    if longest:
        about += f" The longest that going on took, with the steps that were left, is {longest:.1f} s."
    page.write_text("\n".join((before + _BEGIN, "", about, "", *table(results, skipped), "", _END)) + after)
