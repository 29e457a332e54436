"""Ignored files as a person meets them: options, what is said, and what a program reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.cli.project import Project
from tests.support.trees import write

SCRIPT = "echo S=2 > .env; mkdir deps/b; echo x > deps/b/x; echo 2 > version.txt"


@pytest.fixture
def ignoring(project: Project) -> Project:
    write(project.app / ".gitignore", "deps/\n.env\n")
    project.git("add", ".gitignore")
    project.git("commit", "-q", "-m", "rules")
    write(project.app / ".env", "S=1\n")
    write(project.app / "deps" / "large.bin", bytes(3_000_000))
    return project


def test_a_diff_counts_them_and_shows_them_if_asked(ignoring: Project) -> None:
    ran = ignoring.json("plan", "execute", str(ignoring.plan(f"  - run: {SCRIPT!r}\n")))
    assert [each["file"] for each in ran["changes"]] == ["app/version.txt"]
    assert [each["file"] for each in ran["ignored_changes"]] == ["app/.env", "app/deps/b/x"]
    shown = ignoring.json("plan", "diff")
    assert [each["path"] for each in shown["files"]] == ["version.txt"]
    assert [(each["path"], each["status"]) for each in shown["ignored_files"]] == [
        (".env", "changed"),
        ("deps/b/x", "added"),
    ]
    every = ignoring.json("plan", "diff", "--ignored")
    assert (every["files_changed"], every["added_lines"]) == (3, 3)
    remark = "and 2 ignored files; `--ignored` shows them."
    assert ignoring.call("plan", "diff").stdout.endswith(f"1 removed\n{remark}\n")
    for style in ("--patch", "--name-only"):
        # A program may read it.
        assert "ignored" not in ignoring.call("plan", "diff", style).stdout
        assert remark in ignoring.on_terminal("plan", "diff", style).stdout
    assert "S=2" in ignoring.call("plan", "diff", "--patch", "--ignored").stdout


def test_a_diff_needs_neither_the_repository_nor_the_sandbox(ignoring: Project) -> None:
    """Without the repository nothing is known to be ignored, so everything is shown."""
    ignoring.json("plan", "execute", str(ignoring.plan(f"  - run: {SCRIPT!r}\n")))
    os.rename(ignoring.app, ignoring.folder / "moved")
    shown = ignoring.json("plan", "diff")
    assert [each["path"] for each in shown["files"]] == [".env", "deps/b/x", "version.txt"]
    assert shown["ignored_files"] == []


def test_what_is_left_out_is_said_before_the_program_runs(ignoring: Project) -> None:
    options = ("--resource", str(ignoring.app), "--exclude", "/deps")
    ended = ignoring.on_terminal(
        "run", *options, "--", "sh", "-c", "echo begun; test ! -e deps; echo S=2 > .env", columns=120
    )
    assert ended.exit_code == 0, ended
    assert ended.stdout.index("deps: excluded, with 3.0 MB in 1 file\r\n") < ended.stdout.index("begun\r\n")
    assert "Only 1 ignored file changed." in ended.stdout
    assert "plan apply" not in ended.stdout
    assert "plan diff --patch --ignored" in ended.stdout
    (left,) = ignoring.json("plan", "status")["resources"][0]["left_out"]
    assert left["path"] == "deps"


def test_patterns_are_for_a_new_plan_and_must_say_something(ignoring: Project) -> None:
    file = str(ignoring.plan("  - run: 'true'\n"))
    created = ignoring.json("plan", "create", "--exclude", "deps/*", "--exclude", "!deps/b", file)
    for command in (["execute", "--include", "deps", created["plan_id"]], ["create", "--include", "../x", file]):
        assert ignoring.call("plan", *command).exit_code == 2
    ended = ignoring.call("run", "--resource", str(ignoring.data), "--exclude", "orders.csv", "--", "true")
    assert ended.exit_code == 2
    assert "always copied whole" in ended.stderr
    ignoring.json("plan", "execute", created["plan_id"])
    assert not (ignoring.sandbox() / "deps").exists()
    assert Path(ignoring.app / "deps" / "large.bin").exists()
