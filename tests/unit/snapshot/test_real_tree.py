"""A tree that people really have: packages as they are installed."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.snapshots import Place
from tests.support.trees import compare, describe

WRECK = r"""
set -e
find . -name '*.py' | awk 'NR % 3 == 0' | xargs sed -i 's/import/inport/'
find . -name '*.py' | awk 'NR % 7 == 0' | xargs rm
find . -name '__init__.py' | awk 'NR % 2 == 0' | while read -r file; do rm "$file"; mkdir "$file"; done
find . -type f | awk 'NR % 5 == 0' | xargs touch
find . -type f | awk 'NR % 11 == 0' | xargs chmod 600
find . -type f | awk 'NR % 13 == 0' | while read -r file; do ln -f "$file" "$file.again"; done
mv rich renamed
mkdir rich
ln -s ../renamed rich/link
rm -rf pydantic/v1
tar -cf everything.tar renamed
head -c 6000000 everything.tar > large.bin
"""


@pytest.fixture
def packages(root: Path) -> Path:
    for name in ("pydantic", "rich"):
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        shutil.copytree(Path(spec.origin).parent, root / name, symlinks=True)
    return root


def differences_found_by_rsync(one: Path, other: Path) -> list[str]:
    """What rsync would still have to do; content is compared by checksum."""
    command = ["rsync", "-anicHAX", "--delete", f"{one}/", f"{other}/"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_installed_packages_wrecked_by_a_script_come_back(place: Place, packages: Path):
    copy = place.folder / "copy"
    subprocess.run(["cp", "-a", packages, copy], check=True)
    before, checkpoint = describe(packages), place.take()
    assert len(before) > 150
    subprocess.run(["bash", "-c", WRECK], cwd=packages, check=True)
    wrecked, second = describe(packages), place.take()
    assert len(compare(before, wrecked)) > 150
    place.go_back(checkpoint)
    assert compare(before, describe(packages)) == []
    if shutil.which("rsync"):
        assert differences_found_by_rsync(copy, packages) == []
    place.go_back(second)
    assert compare(wrecked, describe(packages)) == []
