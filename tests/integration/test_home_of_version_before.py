"""A home that the version before made is used by this one: it answers what that answered, and does what that did.

``tests/support/version_before.py`` made it, and says how. The plan ``release`` has a git repository and a folder, was
executed with two subplans, rolled back to its second step, and executed again until it was killed in its last step; the
plan ``publish`` was applied. The project lies where it lay then, because a git sandbox borrows objects of the real
repository by an absolute path. The home lies elsewhere, although that version stored absolute paths of sandboxes.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.main import run
from tests.support.version_before import PLACE, QUESTIONS, STORIES, named, seen

ARCHIVE = Path(__file__).parents[1] / "data" / "home_of_the_version_before.tar.gz"


class Before:
    """The home in a place of its own, its project in the place of then, and the answers of the version before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run(["tar", "-xpzf", ARCHIVE], cwd=folder, check=True)
        shutil.move(folder / "project", PLACE / "project")
        (folder / "project").symlink_to(PLACE / "project")
        text = (folder / "answers.json").read_text()
        self.answers = json.loads(text.replace(str(PLACE / "home"), str(folder / "home")))
        for moment in self.answers["questions"]["log"][1]["moments"]:
            del moment["moment"]  # it has another name and other words now

    def command(self, words: Sequence[str]) -> tuple[int, Any]:
        output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        places = ["--home", str(self.folder / "home"), "--project", str(PLACE / "project"), "--format", "json"]
        with redirect_stdout(output):
            exit_code = run([*places, *named(words, self.answers["names"])])
        output.flush()
        return exit_code, json.loads(output.buffer.getvalue())["data"]


@pytest.fixture
def before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Before]:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    with alone_in_the_place_of_then():
        yield Before(tmp_path)


@contextmanager
def alone_in_the_place_of_then() -> Iterator[None]:
    """Tests run at the same time, and there is one such place on a machine."""
    while True:
        PLACE.mkdir(exist_ok=True)
        held = os.open(PLACE, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
        if PLACE.exists() and os.path.samestat(PLACE.stat(), os.fstat(held)):
            break
        os.close(held)
    try:
        for left in PLACE.iterdir():
            shutil.rmtree(left)
        yield
    finally:
        shutil.rmtree(PLACE)
        os.close(held)


def test_it_answers_every_question_as_before(before: Before) -> None:
    answered = {about: before.command(words) for about, words in QUESTIONS.items()}
    for about, (exit_code, data) in answered.items():
        expected_code, expected = before.answers["questions"][about]
        assert (exit_code, known_before(data, expected)) == (expected_code, expected), about


def known_before(found: Any, expected: Any) -> Any:
    """Without what this version answers in addition."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return {key: known_before(value, expected[key]) for key, value in found.items() if key in expected}
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        return [known_before(*pair) for pair in zip(found, expected, strict=True)]
    return found


@pytest.mark.parametrize("story", STORIES)
def test_what_changes_something_changes_what_it_changed_before(before: Before, story: str) -> None:
    for words, expected in zip(STORIES[story], before.answers["stories"][story], strict=True):
        exit_code, data = before.command(words)
        assert exit_code == expected["exit_code"], data
        assert seen(before.folder, before.command) == expected["seen"]
