"""The kernel confines whoever asks for it, also a user who is not root."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from holdfast.process.confinement import landlock_abi, rules_for
from holdfast.process.refusals import Border, explain
from holdfast.process.supervisor import confine
from tests.support.unprivileged import folder_for_nobody, run_unprivileged


def write_confined(folder: str) -> dict[str, bool]:
    """What a confined process can write, below a folder it may otherwise write to."""
    inside = Path(folder, "inside")
    inside.mkdir()
    child = os.fork()
    if child == 0:
        rules = rules_for([inside], landlock_abi())
        confine(rules.attributes, rules.beneath)
        for place in (inside, inside.parent):
            with suppress(PermissionError):
                (place / "new").touch()
        os._exit(0)
    os.waitpid(child, 0)
    return {place.name: (place / "new").exists() for place in (inside, inside.parent)} | {
        "unconfined": os.access(folder, os.W_OK)
    }


def explain_refusals(folder: str) -> list[bool]:
    """Whether a refusal is put down to confinement: where the user may write, and where they may not."""
    Path(folder, "sandbox").mkdir()
    border = Border(writable=[Path(folder, "sandbox")], allowed=[], copies={}, holdfast_home=Path(folder, "home"))
    lines = [f"touch: cannot touch '{place}/new': Permission denied" for place in (folder, "/etc")]
    return [explain(line, Path(folder, "sandbox"), border) is not None for line in lines]


def test_a_user_who_is_not_root_is_confined_as_well() -> None:
    with folder_for_nobody() as folder:
        found = run_unprivileged(write_confined, str(folder))
        assert found == {"inside": True, folder.name: False, "unconfined": True}


def test_what_the_user_may_not_write_either_is_not_put_down_to_confinement() -> None:
    with folder_for_nobody() as folder:
        assert run_unprivileged(explain_refusals, str(folder)) == [True, False]
