"""What is made for a moment can always be found and removed by a later command."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from holdfast.system.trees import remove_abandoned_folders, temporary_folder

_MADE_NAMES = """
import os, sys
def told(event, arguments):
    if event in ("open", "os.mkdir") and str(arguments[0]).startswith(os.environ["TMPDIR"] + "/"):
        print(os.path.relpath(arguments[0], os.environ["TMPDIR"]))
sys.addaudithook(told)
from holdfast.system.trees import temporary_folder
with temporary_folder() as folder:
    (folder / "file").write_text("")
"""


def test_everything_in_the_shared_temporary_folder_has_a_name_by_which_it_is_known(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    said = subprocess.run(
        [sys.executable, "-c", _MADE_NAMES], env=environment, capture_output=True, text=True, check=True
    )
    made = said.stdout.splitlines()
    assert made
    assert {name.partition("-of-")[0] for name in made} == {"holdfast"}
    assert os.listdir(tmp_path) == []


def test_a_folder_of_a_process_of_another_container_stays_as_long_as_that_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here its number is that of no process."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with temporary_folder() as used:
        elsewhere = used.with_name(f"holdfast-of-{2**22 + 1}-used")
        used.rename(elsewhere)
        remove_abandoned_folders()
        assert elsewhere.is_dir()
        elsewhere.rename(used)
    (tmp_path / elsewhere.name).mkdir()
    remove_abandoned_folders()
    assert os.listdir(tmp_path) == []
