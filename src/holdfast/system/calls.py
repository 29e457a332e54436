"""The system calls of ``plain_calls``: compiled, if a compiler was there when Holdfast was installed."""

from __future__ import annotations

try:
    from holdfast.system._calls import (
        can_mount,
        compare_stamps,
        copy_files,
        events_in,
        fill,
        index_offsets,
        index_stats,
        list_directory,
        open_beneath,
        rename_specially,
        set_mtime,
        status_of,
        status_through,
    )

    ARE_COMPILED = True
except ImportError:
    from holdfast.system.plain_calls import (
        can_mount,
        compare_stamps,
        copy_files,
        events_in,
        fill,
        index_offsets,
        index_stats,
        list_directory,
        open_beneath,
        rename_specially,
        set_mtime,
        status_of,
        status_through,
    )

    ARE_COMPILED = False

__all__ = [
    "ARE_COMPILED",
    "can_mount",
    "compare_stamps",
    "copy_files",
    "events_in",
    "fill",
    "index_offsets",
    "index_stats",
    "list_directory",
    "open_beneath",
    "rename_specially",
    "set_mtime",
    "status_of",
    "status_through",
]
