"""Strategy ``filesystem_copy``: the sandbox of a directory is an exact copy of it."""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import SandboxError
from holdfast.model import Resource, Strategy
from holdfast.sandbox.bulk import CopySink
from holdfast.sandbox.listing import ListedTree
from holdfast.sandbox.making import filled, made_whole
from holdfast.sandbox.spares import Spares
from holdfast.system.trees import remove_tree


class DirectorySandbox:
    strategy = Strategy.FILESYSTEM_COPY

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self._tree = ListedTree(Path(resource.path))

    @property
    def path(self) -> Path:
        return Path(self.resource.sandbox_path)

    def check(self) -> None:
        if not Path(self.resource.path).is_dir():
            raise SandboxError(
                f"{self.resource.path} is not a directory.", hint="Correct the resource's path in the plan file."
            )

    def size_bytes(self) -> int:
        return self._tree.size().size_bytes

    def create(self, sink: CopySink | None = None, spares: Spares | None = None) -> Resource:
        self.check()
        with made_whole(self.path) as unfinished:
            copied = filled(self.resource, self._tree, unfinished, tuple, sink, spares)
        return self.resource.model_copy(update={"left_out": tuple(copied.left_out)})

    def remove(self) -> None:
        remove_tree(self.path)

    def hides(self, path: bytes) -> bool:  # noqa: ARG002 - every file of a directory is the user's
        return False

    def keeps_index_at(self, path: bytes) -> bool:  # noqa: ARG002 - an index of git in it is the user's too
        return False
