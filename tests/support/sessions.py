"""An agent that works in a real folder, as its hooks would tell of it, without any process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast import CallBegun, CallEnded, Holdfast
from holdfast.model import Plan, RunStatus, SessionInfo, StepRun
from holdfast.verbs.in_place import InPlace
from tests.integration.cli.project import Ended, called
from tests.support.repositories import make_repository
from tests.support.trees import Tree, compare, describe, fast_disk

GIT_KEEPS = (b".git/objects", b".git/logs")
"""What an undo leaves as git has it: objects, and its notes of what happened."""


class Agent:
    """One session of an agent in a folder. Without a call, what is written is a person's."""

    def __init__(self, in_place: InPlace, session_id: str = "s1", *, name: str = "claude-code", pid: int | None = None):
        self.in_place = in_place
        info = SessionInfo(agent=name, version="2.1", session_id=session_id, pid=pid, process_started_at=pid and 1.0)
        self.plan_id = in_place.begin(info).plan_id
        self.prompt_id: str | None = None
        with in_place.recording(self.plan_id) as (plan, recording):
            recording.begin(plan)

    @property
    def plan(self) -> Plan:
        return next(each for each in self.in_place.sessions() if each.plan_id == self.plan_id)

    def prompt(self, text: str) -> None:
        with self.in_place.recording(self.plan_id) as (plan, recording):
            self.prompt_id = recording.prompt(plan, text)[1].decision_id

    def begin(
        self, what: str = "", *, tool: str = "Bash", inside: StepRun | None = None, beside: tuple[StepRun, ...] = ()
    ) -> StepRun:
        call = CallBegun(tool, what, inside=inside.decision_id if inside is not None else None)
        with self.in_place.recording(self.plan_id) as (plan, recording):
            return recording.before(plan, call, self.prompt_id, beside)[1]

    def end(self, run: StepRun, *, is_failed: bool = False, beside: tuple[StepRun, ...] = ()) -> None:
        ended = CallEnded(RunStatus.FAILED if is_failed else RunStatus.SUCCEEDED, "output")
        with self.in_place.recording(self.plan_id) as (plan, recording):
            recording.after(plan, run, ended, beside)

    @contextmanager
    def call(self, what: str = "", *, tool: str = "Bash", is_failed: bool = False) -> Iterator[None]:
        run = self.begin(what, tool=tool)
        yield
        self.end(run, is_failed=is_failed)

    def does(self, what: str, work: Callable[[], object]) -> None:
        with self.call(what):
            work()


class Place:
    """A person's folder, and a home of Holdfast beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home, self.root = folder, folder / "home", folder / "proj"
        self._opened: list[Holdfast] = []

    def make(self, files: dict[str, str] | None = None, *, has_git: bool = True) -> Place:
        if has_git:
            make_repository(self.root, files, has_user=True)
        else:
            self.root.mkdir()
            for name, content in (files or {}).items():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                (self.root / name).write_text(content)
        return self

    def open(self) -> Holdfast:
        """Holdfast as a new process would open it."""
        opened = Holdfast.open(self.root, home=self.home)
        self._opened.append(opened)
        return opened

    def agent(self, session_id: str = "s1", **more: object) -> Agent:
        return Agent(self.open().in_place, session_id, **more)  # type: ignore[arg-type]

    def close(self) -> None:
        for opened in self._opened:
            opened.close()

    def tree(self, *without: bytes) -> dict[bytes, object]:
        return dict(describe(self.root, without=(*GIT_KEEPS, *without)))

    def whole(self) -> Tree:
        """The folder with git's own notes, and all that lies beside it but the home."""
        return describe(self.folder, without=(b"home",))

    def differs_from(self, tree: dict[bytes, object], *without: bytes) -> list[str]:
        return compare(tree, self.tree(*without))  # type: ignore[arg-type]

    def call(self, *words: str) -> Ended:
        """A command as a person types it in the folder; in this process, which is faster."""
        return called("--home", str(self.home), "--project", str(self.root), *words)


@contextmanager
def made_place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(dir=fast_disk()) as folder:
        made = Place(Path(folder))
        yield made
        made.close()
