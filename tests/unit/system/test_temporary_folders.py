"""What is made for a moment can always be found and removed by a later command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
