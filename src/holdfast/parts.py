"""Parts: records, content and tools for one project and one home, each opened when it is first needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast.config.keys import KEYS
from holdfast.config.loading import Settings
from holdfast.content.keeping import kept_records
from holdfast.db.store import FILE as RECORDS_FILE
from holdfast.db.store import Store, open_store
from holdfast.errors import ContentError, DatabaseError, HoldfastError, SandboxError, StateError
from holdfast.model import BUILT_IN_TOOLS, Lease, Plan
from holdfast.names import name_text
from holdfast.system.detached import start_detached
from holdfast.system.once import once
from holdfast.system.place import is_there
from holdfast.system.reserve import Reserve
from holdfast.system.sqlite import is_empty, is_read_only
from holdfast.system.trash import Trash

if TYPE_CHECKING:
    from holdfast.checkpoints.service import CheckpointService
    from holdfast.decisions.correct import CorrectionService
    from holdfast.events import Listener
    from holdfast.execution.rollbacks import Compensator
    from holdfast.execution.step_runner import StepRunner
    from holdfast.process.passthrough import Passthrough
    from holdfast.tools import Toolbox

T = TypeVar("T")

# What a function imports is not needed by most commands: they start without it.


class Declined(msgspec.Struct, frozen=True):
    """The person was asked and said no; nothing was changed."""


class Outfit(msgspec.Struct, frozen=True):
    """What belongs to one execution, in addition to what the settings say and what its programs are given."""

    passthrough: Passthrough | None = None
    """The terminal of the command that started the execution."""
    settle_seconds: float | None = None
    """Take a checkpoint whenever a program has written something and then paused so long, whatever it was given."""


class Parts:
    def __init__(self, project_root: Path, home: Path, settings: Settings, environment: Mapping[str, str]) -> None:
        self.project_root, self.home, self.settings, self.environment = project_root, home, settings, environment
        self.reserve, self.trash = Reserve(home), Trash(home / "sandboxes")

    def close(self) -> None:
        if "service" in self.__dict__:
            self.service.close()
            if self.service.spares is not None:
                self.service.spares.give_up_old()
        if "store" in self.__dict__:
            self.store.close()
            self.trash.tidy()
            self.reserve.keep()

    # The home

    @property
    def is_read_only(self) -> bool:
        """Whether the home exists and this user can only read it."""
        if not self.home.is_dir():
            return False
        files = (self.home / RECORDS_FILE, self.home / "objects.db")
        return not os.access(self.home, os.W_OK | os.X_OK) or any(map(is_read_only, files))

    def refuse_read_only(self) -> None:
        if self.is_read_only:
            raise SandboxError(
                f"Holdfast's home {name_text(str(self.home))} is read-only: nothing in it can be changed.",
                hint="Make it and everything in it writable for you, or set HOLDFAST_HOME to another folder.",
            )

    def _make_home(self) -> None:
        if self.is_read_only:
            return
        try:
            self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            for folder in (self.home / "sandboxes", self.home / "indexes"):
                folder.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise SandboxError(
                f"Holdfast's home {self.home} cannot be created: {error.strerror}.",
                hint="Set HOLDFAST_HOME to a folder you may write to.",
            ) from error

    # Records and content

    @once
    def store(self) -> Store:
        self._make_home()
        self.reserve.keep()
        kept = kept_records(self.home / "objects.db")
        return self._opened(lambda: open_store(self.settings.database_url, self.home, kept))

    @once
    def service(self) -> CheckpointService:
        from holdfast.checkpoints.service import CheckpointService
        from holdfast.content.store import ObjectStore
        from holdfast.sandbox.spares import Spares
        from holdfast.snapshot.manager import CheckpointManager

        store = self.store
        objects = self._opened(lambda: ObjectStore(self.home / "objects.db"))
        manager = CheckpointManager(objects, self.home / "indexes", excluded=self.settings.exclude)
        return CheckpointService(
            store,
            manager,
            max_bytes=self.settings.max_bytes,
            other_records=self._other_records,
            spares=Spares(self.home / "sandboxes", self.settings.spares),
        )

    @contextmanager
    def _other_records(self) -> Iterator[Sequence[Store]]:
        """The records in the home while PostgreSQL is in use: they may need content of this home as well."""
        if self.settings.database_url is None or is_empty(self.home / RECORDS_FILE):
            yield ()
            return
        try:
            store = open_store(None, self.home, kept_records(self.home / "objects.db"))
        except HoldfastError:
            yield ()
            return
        with store:
            yield (store,)

    def start_collecting(self) -> None:
        """Collect garbage in a process that no command waits for."""
        # Not as an argument, which other users may see: it can contain a password.
        variables = {KEYS["database.url"].variable: self.settings.database_url or "none"}
        start_detached("holdfast.collecting", str(self.project_root), str(self.home), more_environment=variables)

    def _opened(self, opening: Callable[[], T]) -> T:
        """Open a database. On a full disk give up the reserve: SQLite writes an index even to read its log."""
        try:
            return opening()
        except DatabaseError:
            if not self.reserve.give_up_if_full():
                raise
            return opening()

    # Running

    @once
    def tools(self) -> Toolbox:
        from holdfast.tools import Toolbox

        return Toolbox.standard()

    def has_side_effects(self, tool: str) -> bool:
        """As the tool declares it; importing the built-in tools takes longer than all else that a rollback shows."""
        is_built_in = tool in BUILT_IN_TOOLS and "tools" not in vars(self)
        return not is_built_in and self.tools.has_side_effects(tool)

    @property
    def user_home(self) -> Path:
        return Path(self.environment.get("HOME") or Path.home())

    def allowed_paths(self, more: Sequence[str] = ()) -> tuple[Path, ...]:
        """Where steps may write besides their sandboxes; a ConfigError if the setting names what cannot be allowed."""
        return self._allowed((*self.settings.allow_write, *more), "sandbox.allow-write")

    def asked_paths(self, places: Sequence[str]) -> tuple[Path, ...]:
        """The real paths of what ``--allow-write`` names; a ConfigError if one of them cannot be allowed."""
        return self._allowed(places, "--allow-write")

    def _allowed(self, places: Sequence[str], origin: str) -> tuple[Path, ...]:
        from holdfast.process.confinement import allowed_paths

        return allowed_paths(places, user_home=self.user_home, holdfast_home=self.home, origin=origin)

    @property
    def corrections(self) -> CorrectionService:
        from holdfast.decisions.correct import CorrectionService

        return CorrectionService(self.service, self.tools)

    def compensator(self, listener: Listener | None = None) -> Compensator:
        from holdfast.execution.rollbacks import Compensator

        return Compensator(self.service, self.step_runner(Outfit()), listener)

    def step_runner(self, outfit: Outfit) -> StepRunner:
        from holdfast.execution.step_runner import StepRunner, StepSettings

        settings = StepSettings(
            environment=self.environment,
            passed_variables=self.settings.pass_env,
            output_limit_bytes=self.settings.output_limit_bytes,
            timeout_seconds=self.settings.step_timeout_seconds,
            confine=self.settings.confine,
            allow_write=self.allowed_paths(),
            allowed_paths=self.allowed_paths,
            view=self.settings.view,
            passthrough=outfit.passthrough,
            settle_seconds=outfit.settle_seconds,
        )
        return StepRunner(self.tools, settings, self.store.home)

    # Whether the content of a plan is in this home

    @property
    def is_shared(self) -> bool:
        """Whether other machines may use the same records."""
        return self.settings.database_url is not None

    def is_kept_here(self, plan: Plan) -> bool:
        if plan.store_id == self.service.manager.objects.store_id:
            return not self._was_used_from_a_copy(plan)
        return has_sandbox(plan)

    def refuse_without_content(self, plan: Plan) -> None:
        if plan.store_id == self.service.manager.objects.store_id:
            if self._was_used_from_a_copy(plan):
                raise StateError(
                    f"Plan {plan.plan_id} was last used from another home, which has a copy of the content of this "
                    "one: its latest work is not here.",
                    hint="Run the command there. If that home is gone, copy what you need out of the sandboxes and "
                    f"delete the plan: `holdfast plan delete {self.store.plans.root_of(plan).plan_id}`.",
                )
            return
        if not self.is_shared and self.store.plans.root_of(plan).head_group_id is None:
            return  # nothing of it was saved yet
        if has_sandbox(plan):
            raise ContentError(
                f"The saved content of plan {plan.plan_id} is gone: {self.home / 'objects.db'} is not the store it was "
                "saved in.",
                hint="Put the right objects.db back, from a backup. The sandboxes are as they were.",
            )
        raise StateError(
            f"The checkpoints of plan {plan.plan_id} are kept on another machine or in another home.",
            hint="Run the command there.",
        )

    def _was_used_from_a_copy(self, plan: Plan) -> bool:
        """Whether the last lease was taken from a home that this one was copied from, or that is a copy of it.

        If records are shared, both homes use the same ones, each with sandboxes and content of its own. A home that
        was moved has another machine id as well, but it has noted the lease.
        """
        from holdfast.system.identity import find_machine_id

        root = self.store.plans.root_of(plan)
        if not self.is_shared or root.head_group_id is None:
            return False
        last = self.store.find(Lease, root.plan_id, sound_only=True)
        if last is None or last.machine_id in (None, find_machine_id(self.home)):
            return False
        return not self.service.release.has_noted(last.plan_id, last.token)


def has_sandbox(plan: Plan) -> bool:
    """Whether the plan was executed in this home, so that its content should be here."""
    return any(is_there(Path(resource.sandbox_path)) for resource in plan.resources)
