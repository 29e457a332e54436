"""Asks OSV.dev for known vulnerabilities of the locked packages: ``python -m tools.vulnerabilities``.

Without an answer it says so and does not fail: a machine without network can still check everything else.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SERVICE = "https://api.osv.dev"
_PATIENCE_SECONDS = 20
_LOCKED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)", re.MULTILINE)


@dataclass(frozen=True)
class Package:
    name: str
    version: str


@dataclass(frozen=True)
class Vulnerability:
    package: Package
    vulnerability_id: str
    summary: str


class NoAnswerError(Exception):
    """The service could not be reached, or did not answer what was asked."""


def locked_packages(lock: str) -> list[Package]:
    return [Package(found["name"], found["version"]) for found in _LOCKED.finditer(lock)]


def find_vulnerabilities(packages: Sequence[Package], service: str) -> list[Vulnerability]:
    """All that are known and not withdrawn; raises ``NoAnswerError`` if any question stayed without an answer."""
    try:
        return [
            Vulnerability(package, known, str(details.get("summary") or "no summary"))
            for package, known in _known(packages, service)
            if "withdrawn" not in (details := _ask(f"{service}/v1/vulns/{known}"))
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoAnswerError(f"{service}: {error}") from error


def _known(packages: Sequence[Package], service: str) -> Iterator[tuple[Package, str]]:
    pages: list[tuple[Package, str | None]] = [(package, None) for package in packages]
    while pages:
        queries = [_query(package, token) for package, token in pages]
        answers = _ask(f"{service}/v1/querybatch", {"queries": queries})["results"]
        further: list[tuple[Package, str | None]] = []
        for (package, _), answer in zip(pages, answers, strict=True):
            yield from ((package, str(each["id"])) for each in answer.get("vulns", ()))
            if token := answer.get("next_page_token"):
                further.append((package, token))
        pages = further


def _query(package: Package, token: str | None) -> dict[str, Any]:
    query = {"package": {"ecosystem": "PyPI", "name": package.name}, "version": package.version}
    return query | ({"page_token": token} if token else {})


def _ask(url: str, question: Mapping[str, Any] | None = None) -> dict[str, Any]:
    body = None if question is None else json.dumps(question).encode()
    # Of ours, or of the command line: never a file.
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS) as reply:  # nosec B310
        answer: dict[str, Any] = json.load(reply)
    return answer


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.vulnerabilities", description=__doc__.splitlines()[0])
    parser.add_argument("--lock", type=Path, default=ROOT / "requirements.lock")
    parser.add_argument("--service", default=SERVICE, help="another address that answers as OSV.dev does")
    options = parser.parse_args(arguments)
    packages = locked_packages(options.lock.read_text())
    try:
        found = find_vulnerabilities(packages, options.service)
    except NoAnswerError as error:
        _say(f"NOT CHECKED for known vulnerabilities, because there was no answer: {len(packages)} packages.\n{error}")
        return 0
    return _report(packages, found)


def _report(packages: Sequence[Package], found: Sequence[Vulnerability]) -> int:
    accepted = _accepted()
    for each in found:
        reason = accepted.get(each.vulnerability_id)
        remark = f"accepted: {reason}" if reason else "known vulnerability"
        _say(f"{each.package.name} {each.package.version}: {each.vulnerability_id}, {remark}. {each.summary}")
    open_ones = [each for each in found if each.vulnerability_id not in accepted]
    _say(f"{len(packages)} packages checked, {len(open_ones)} known vulnerabilities.")
    return 1 if open_ones else 0


def _accepted() -> dict[str, str]:
    """Those that do not concern us, each with the reason: ``[tool.holdfast.accepted-vulnerabilities]``."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    reasons: dict[str, str] = settings["tool"].get("holdfast", {}).get("accepted-vulnerabilities", {})
    return reasons


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
