from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

NAMES = {
    "AfterInterruption": "execution.executor",
    "ApplyPreview": "apply.preview",
    "ApplyResult": "apply.apply",
    "ApplyWishes": "apply.options",
    "Checkpoint": "model",
    "CheckpointManager": "snapshot.manager",
    "CheckpointNotFoundError": "errors",
    "CheckpointRetentionPolicy": "model",
    "CheckpointService": "checkpoints.service",
    "CheckpointView": "app",
    "MomentChange": "views.moment_changes",
    "MomentChanges": "views.moment_changes",
    "MomentView": "app",
    "Timeline": "app",
    "Choices": "execution.executor",
    "Confinement": "process.confinement",
    "CorrectionMode": "model",
    "CorrectionPreview": "decisions.correct",
    "CorrectionResult": "decisions.correct",
    "CorrectionService": "decisions.correct",
    "DecisionCheckpoint": "decisions.tree",
    "DecisionNode": "decisions.tree",
    "DecisionTree": "decisions.tree",
    "Declined": "app",
    "DeletedPlans": "verbs.deleting",
    "DeletionPreview": "verbs.deleting",
    "ExecutionResult": "execution.executor",
    "Explanation": "decisions.explain",
    "FileDiff": "checkpoints.file_diffs",
    "HeldBack": "checkpoints.releasing",
    "Holdfast": "app",
    "HoldfastError": "errors",
    "NotFoundError": "errors",
    "Outfit": "app",
    "Passthrough": "process.passthrough",
    "PlanContent": "planfile.content",
    "StepContent": "planfile.content",
    "PlanExecutor": "execution.executor",
    "PlanStatus": "app",
    "ResumePreview": "execution.resume",
    "RollbackPreview": "rollback.rollback",
    "RollbackResult": "model",
    "RunSettings": "model",
    "SandboxCheckpoint": "snapshot.sandbox_checkpoint",
    "UnapplyPreview": "apply.unapply",
    "VerifyResult": "checkpoints.service",
    "checkpoint_title": "checkpoints.titles",
    "mark": "door.asking",
    "Blamed": "sessions.blame",
    "Call": "sessions.calls",
    "Prompt": "sessions.calls",
    "CallBegun": "sessions.recording",
    "CallEnded": "sessions.recording",
    "Recording": "sessions.recording",
    "Undo": "sessions.undoing",
    "UndoConflict": "sessions.undoing",
    "UndoResult": "sessions.undoing",
    "CallNumber": "sessions.wishes",
    "LastCall": "sessions.wishes",
    "OnlyCall": "sessions.wishes",
    "PromptNumber": "sessions.wishes",
    "ToCheckpoint": "sessions.wishes",
    "FolderMoment": "verbs.in_place",
    "InPlace": "verbs.in_place",
    "SavedFirst": "sessions.saving_first",
    "SessionInfo": "model",
}


def test_the_package_offers_these_names_and_no_others() -> None:
    assert sorted(holdfast.__all__) == sorted(NAMES)
    assert set(NAMES) <= set(dir(holdfast))
    with pytest.raises(AttributeError, match="no attribute 'holdfst'"):
        _ = holdfast.holdfst


@pytest.mark.parametrize(("name", "module"), NAMES.items())
def test_a_name_is_the_one_of_its_module(name: str, module: str) -> None:
    assert getattr(holdfast, name) is getattr(importlib.import_module(f"holdfast.{module}"), name)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_in_the_reference(name: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "python-api.md"
    assert f"`{name}`" in page.read_text()


def test_importing_the_package_imports_none_of_its_parts() -> None:
    code = "import sys, holdfast; print([name for name in sys.modules if name.startswith('holdfast.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["plan", "status"], ["plan", "list"], ["log"]])
def test_a_command_that_only_looks_imports_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    code = (
        "import sys\nfrom holdfast.cli.main import main\nsys.argv[:] = ['holdfast', *sys.argv[1:]]\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'pydantic', 'sqlalchemy', 'alembic', 'rich', 'yaml', 'psycopg', 'zstandard'}\n"
        "print('heavy:', sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--home", str(tmp_path)] if words[0] != "--version" else [
            sys.executable, "-c", code, *words],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "heavy: []"
