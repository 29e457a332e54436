"""Strategy ``in_place``: the real folder of the user itself, in which an agent works under their eyes.

Nothing is copied or applied, and nothing here ever removes anything.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import SandboxError
from holdfast.model import Resource, ResourceType, Strategy
from holdfast.names import name_text
from holdfast.sandbox.bulk import CopySink
from holdfast.sandbox.spares import Spares
from holdfast.system.directories import split

_GIT = b".git"


class InPlaceSandbox:
    strategy = Strategy.IN_PLACE

    def __init__(self, resource: Resource) -> None:
        self.resource = resource

    @property
    def path(self) -> Path:
        return Path(self.resource.sandbox_path)

    def check(self) -> None:
        if not self.path.is_dir():
            raise SandboxError(
                f"The folder {name_text(str(self.path))} is gone.", hint="Bring it back to that place, then try again."
            )

    def size_bytes(self) -> int:
        return 0

    def create(self, sink: CopySink | None = None, spares: Spares | None = None) -> Resource:  # noqa: ARG002 - it is there
        self.check()
        return self.resource

    def remove(self) -> None:
        """It is the user's, and stays."""

    def hides(self, path: bytes) -> bool:
        return self.resource.type is ResourceType.GIT and _GIT in path.split(b"/")

    def keeps_index_at(self, path: bytes) -> bool:
        folder, name = split(path)
        return name == b"index" and self.hides(folder)
