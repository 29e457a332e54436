"""A program that rests after a write until Holdfast has taken a checkpoint of it, however long that takes."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.cli.project import Project

_BEGINNING = 'seen=$(cat {0}); rest() {{ while [ "$(cat {0})" = "$seen" ]; do sleep 0.02; done; seen=$(cat {0}); }}; '


def settled(project: Project) -> list[str]:
    """The checkpoints of the plan made last that were taken in a pause, the oldest first."""
    listed = project.run("--format", "json", "checkpoint", "list", cwd=project.app)
    if listed.exit_code != 0:
        return []
    return [each["checkpoint_id"] for each in listed.data["checkpoints"] if each["triggers"] == ["settled"]]


@contextmanager
def resting(project: Project) -> Iterator[str]:
    """The beginning of a shell's script, in which ``rest`` waits for the next checkpoint that is taken in a pause."""
    count, is_over = project.folder / "settled", threading.Event()
    _write(count, 0)

    def watch() -> None:
        while not is_over.wait(0.05):
            _write(count, len(settled(project)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield _BEGINNING.format(shlex.quote(str(count)))
    finally:
        is_over.set()
        watcher.join()


def _write(file: Path, number: int) -> None:
    """At once, so that it is never read half written."""
    new = file.with_suffix(".new")
    new.write_text(str(number))
    new.replace(file)
