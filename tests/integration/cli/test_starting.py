"""What starting a command costs: it imports only what it needs."""

from __future__ import annotations

import subprocess
import sys

from tests.integration.cli.project import Project

STEPS = "  - {name: fail, run: 'echo x; false'}\n"


def imported(project: Project, *arguments: str) -> set[str]:
    """What the command imports beyond what every Python here does (one that measures coverage does more)."""
    return _imports(project, "-m", "holdfast", *arguments) - _imports(project, "-c", "")


def _imports(project: Project, *arguments: str) -> set[str]:
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        cwd=project.folder,
        env=project.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in ended.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


def packages(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def test_status_imports_neither_what_only_execute_needs_nor_what_only_a_terminal_needs(project: Project) -> None:
    project.run("plan", "execute", str(project.plan(STEPS)))
    modules = imported(project, "plan", "status")
    assert not packages(modules) & {"alembic", "sqlalchemy", "psycopg", "rich", "zstandard", "yaml", "tomlkit"}
    assert not {module for module in modules if module.startswith(_FOR_EXECUTION)} - _FOR_EVERY_COMMAND
    assert "holdfast.app" in modules


def test_looking_at_the_history_opens_no_content_and_imports_nothing_for_it(project: Project) -> None:
    project.run("plan", "execute", str(project.plan(STEPS)))
    for words in (["log"], ["checkpoint", "list"]):
        modules = imported(project, *words)
        assert "zstandard" not in packages(modules)
        assert not {module for module in modules if module.startswith(_FOR_EXECUTION)} - _FOR_EVERY_COMMAND
        assert "holdfast.views.checkpoints" in modules


_FOR_EXECUTION = (
    "holdfast.execution.executor",
    "holdfast.tools",
    "holdfast.snapshot",
    "holdfast.sandbox",
    "holdfast.checkpoints.service",
    "holdfast.process.command",
    "holdfast.planfile",
)
_FOR_EVERY_COMMAND = {"holdfast.snapshot", "holdfast.content.keeping"}
"""They tell whether the records are those that content is kept for, before any command relies on them."""


def test_a_checkpoint_is_taken_without_what_only_plan_files_and_tools_need(project: Project) -> None:
    project.run("plan", "execute", str(project.plan(STEPS)))
    modules = imported(project, "checkpoint", "create", "latest")
    assert not packages(modules) & {"pydantic", "alembic", "sqlalchemy", "psycopg", "rich", "yaml", "tomlkit"}
    assert not {module for module in modules if module.startswith(("holdfast.tools", "holdfast.planfile"))}
    assert "holdfast.checkpoints.recorder" in modules


def test_what_a_rollback_would_do_is_shown_without_importing_the_tools(project: Project) -> None:
    project.run("plan", "execute", str(project.plan(STEPS)))
    modules = imported(project, "plan", "rollback", "--dry-run", "latest", project.checkpoint_before(0))
    assert not packages(modules) & {"pydantic", "alembic", "sqlalchemy", "psycopg", "rich", "yaml", "tomlkit"}
    assert not {module for module in modules if module.startswith(("holdfast.tools", "holdfast.planfile"))}


def test_help_imports_click_and_nothing_else(project: Project) -> None:
    modules = imported(project, "--help")
    assert not packages(modules) & {"pydantic", "rich", "sqlite3", "pysqlite3", "yaml"}
    assert {module for module in modules if module.startswith("holdfast")} <= {
        "holdfast", "holdfast.cli", "holdfast.cli.main", "holdfast.cli.invocation", "holdfast.cli.output",
        "holdfast.cli.streams", "holdfast.errors", "holdfast.names",
    }  # fmt: skip
