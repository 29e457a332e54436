from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tools.vulnerabilities import Package, locked_packages, main

LOCK = """\
# a comment
good-one==1.0 \\
    --hash=sha256:00
    # via bad.one
bad.one==2.1 ; sys_platform == 'linux' \\
    --hash=sha256:11
"""


class Service(BaseHTTPRequestHandler):
    """Answers as OSV.dev does, with one vulnerability on each of two pages."""

    withdrawn: frozenset[str] = frozenset()

    def do_POST(self) -> None:
        queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        self.answer({"results": [self.known(query) for query in queries]})

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        details = {"id": name, "summary": f"about {name}"}
        self.answer(details | ({"withdrawn": "2024-01-01T00:00:00Z"} if name in self.withdrawn else {}))

    def known(self, query: dict[str, Any]) -> dict[str, Any]:
        assert query["package"]["ecosystem"] == "PyPI"
        if query["package"]["name"] != "bad.one" or query["version"] != "2.1":
            return {}
        if "page_token" in query:
            return {"vulns": [{"id": "PYSEC-2"}]}
        return {"vulns": [{"id": "PYSEC-1"}], "next_page_token": "more"}

    def answer(self, value: object) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[type[Service]]:
    class Own(Service):
        address: str

    server = HTTPServer(("127.0.0.1", 0), Own)
    Own.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Own
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    file = tmp_path / "requirements.lock"
    file.write_text(LOCK)
    return file


def test_every_locked_package_is_asked_for() -> None:
    assert locked_packages(LOCK) == [Package("good-one", "1.0"), Package("bad.one", "2.1")]


def test_a_known_vulnerability_fails_and_is_named(service: Any, lock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lock", str(lock), "--service", service.address]) == 1
    said = capsys.readouterr().out
    assert "bad.one 2.1: PYSEC-1, known vulnerability. about PYSEC-1" in said
    assert "bad.one 2.1: PYSEC-2" in said
    assert "2 packages checked, 2 known vulnerabilities." in said


def test_one_that_was_withdrawn_does_not_count(service: Any, lock: Path) -> None:
    service.withdrawn = frozenset({"PYSEC-1", "PYSEC-2"})

    assert main(["--lock", str(lock), "--service", service.address]) == 0


def test_without_an_answer_it_says_that_nothing_was_checked_and_does_not_fail(
    lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--lock", str(lock), "--service", "http://127.0.0.1:1"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("NOT CHECKED")
    assert "packages checked" not in said


def test_an_answer_that_is_none_counts_as_no_answer(
    service: Any, lock: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "known", lambda *_: "a page that somebody put in between")

    assert main(["--lock", str(lock), "--service", service.address]) == 0
    assert capsys.readouterr().out.startswith("NOT CHECKED")
