"""What the server offers: its tools, and instructions for a model. What a tool does is imported when it is called."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING

from holdfast.mcp.arguments import Checkpoint, Diff, ListMoments, Restore, Rewind, Show, UndoRewind
from holdfast.mcp.results import Changed, Difference, Shown, Taken, Timeline
from holdfast.mcp.tools import Tool, Toolset

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.mcp.folder_tools import FolderTools

INSTRUCTIONS = (
    "Holdfast keeps checkpoints of this project's folder: every file, also those that git ignores, with modes, times, "
    "links, and git's own state. Call checkpoint before a risky step, such as a bulk edit, a migration, or a command "
    "that deletes. If something went wrong, call timeline to find the moment before it, show or diff to see what "
    "changed, and then the smallest way back: restore for single files, rewind for the whole folder. Call rewind with "
    "dry_run=true first, and tell the person what it would change. Nothing is lost by going back: the files as they "
    "were before are kept in a checkpoint, and undo_rewind brings them back. These tools do not touch anything outside "
    "of the folder, and do not undo what was done to databases, services or over the network."
)


def toolset(opening: Callable[[], AbstractContextManager[Holdfast]]) -> Toolset:
    """``opening``: opens Holdfast for the project's folder."""

    @cache
    def tools() -> FolderTools:
        from holdfast.mcp.folder_tools import FolderTools

        return FolderTools(opening)

    return Toolset(
        [
            Tool(
                name="checkpoint",
                title="Take a checkpoint",
                description="Keep the files of the project as they are now, before something risky.",
                arguments=Checkpoint,
                result=Taken,
                work=lambda wanted, call: tools().checkpoint(wanted, call),
                is_always_loaded=True,
            ),
            Tool(
                name="timeline",
                title="List checkpoints",
                description="The moments to which the project can be taken back, newest first: who did what, and when.",
                arguments=ListMoments,
                result=Timeline,
                work=lambda wanted, call: tools().timeline(wanted, call),
                reads_only=True,
                is_always_loaded=True,
            ),
            Tool(
                name="show",
                title="Show a checkpoint",
                description="One moment, and the files that it changed.",
                arguments=Show,
                result=Shown,
                work=lambda wanted, call: tools().show(wanted, call),
                reads_only=True,
            ),
            Tool(
                name="diff",
                title="Compare with a checkpoint",
                description="What differs between two moments, or between one and the present files, as unified diffs.",
                arguments=Diff,
                result=Difference,
                work=lambda wanted, call: tools().diff(wanted, call),
                reads_only=True,
            ),
            Tool(
                name="restore",
                title="Restore files",
                description="Make single files or folders what they were at a moment; all others stay. undo_rewind "
                "takes it back.",
                arguments=Restore,
                result=Changed,
                work=lambda wanted, call: tools().restore(wanted, call),
                is_destructive=True,
            ),
            Tool(
                name="rewind",
                title="Rewind the project",
                description="Take the whole project back to a moment. Call it with dry_run=true first: that changes "
                "nothing and says what would change. undo_rewind takes it back.",
                arguments=Rewind,
                result=Changed,
                work=lambda wanted, call: tools().rewind(wanted, call),
                is_destructive=True,
                is_always_loaded=True,
            ),
            Tool(
                name="undo_rewind",
                title="Undo the last rewind",
                description="Bring back what the last rewind or restore took away.",
                arguments=UndoRewind,
                result=Changed,
                work=lambda wanted, call: tools().undo_rewind(wanted, call),
                is_destructive=True,
            ),
        ],
        INSTRUCTIONS,
    )
