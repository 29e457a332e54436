"""The source of a plan: a file, or a stream such as a pipe, which is in no folder."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from holdfast.names import name_text
from holdfast.planfile.document import refused

MOST_BYTES = 64 << 20
"""More than any plan file has. A stream may be endless."""
_DESCRIPTORS = re.compile(r"/proc/(self|thread-self|[0-9]+)(/task/[0-9]+)?/fd")
_MOST_LINKS = 40


class Source(NamedTuple):
    content: bytes
    folder: Path
    """What paths in it are relative to: the folder of the file, for a stream the current one."""
    file: Path | None
    """None for a stream, which cannot be read again."""


def read_source(path: Path) -> Source:
    def unusable(what: str) -> Exception:
        return refused([f"{name_text(str(path))}: {what}; expected a plan file in YAML"])

    try:
        descriptor = _descriptor(path)
        with open(path if descriptor is None else os.dup(descriptor), "rb") as stream:
            is_file = descriptor is None and stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
            content = stream.read(MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise unusable("there is no such file") from error
    except IsADirectoryError as error:
        raise unusable("this is a folder") from error
    except OSError as error:
        raise unusable(f"it cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise unusable("this cannot be the name of a file") from error
    if len(content) > MOST_BYTES:
        raise unusable(f"it has more than {MOST_BYTES >> 20} MiB")
    return Source(content, path.absolute().parent, path.absolute()) if is_file else Source(content, Path.cwd(), None)


def _descriptor(path: Path) -> int | None:
    """The number of our own descriptor that a path like /dev/stdin or /dev/fd/3 stands for.

    The descriptor itself is read, because its file may not be possible to open again.
    """
    for _ in range(_MOST_LINKS):
        found = _DESCRIPTORS.fullmatch(os.path.realpath(path.parent))
        if found and path.name.isdecimal():
            return int(path.name) if found[1] in ("self", "thread-self", str(os.getpid())) else None
        if not path.is_symlink():
            return None
        path = path.parent / os.readlink(path)
    return None
