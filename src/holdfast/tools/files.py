"""The tools that change files: write_file, edit_file, delete_file and apply_patch."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from holdfast.errors import HoldfastError
from holdfast.git.patches import apply_patch
from holdfast.system import paths
from holdfast.tools.arguments import ToolArgs
from holdfast.tools.declaration import ToolContext, ToolDeclaration, ToolResult


def _quoted_mode(value: Any) -> Any:
    """Refuse a number: YAML reads an unquoted 0644 as 420."""
    if isinstance(value, int):
        raise ValueError("write the mode in quotes, as '0644'")  # noqa: TRY004 - what pydantic reports
    return value


FilePath = Annotated[
    str,
    Field(
        min_length=1, description="Path of the file, relative to the resource's root, or as commands of a step see it."
    ),
]
Mode = Annotated[str, BeforeValidator(_quoted_mode), Field(pattern=r"^[0-7]{3,4}$")]


class WriteFileArgs(ToolArgs):
    path: FilePath
    content: str = Field(description="What the file holds afterwards.")
    mode: Mode | None = Field(
        default=None,
        description="Permissions in octal, in quotes; default: those of the existing file, else the usual ones.",
    )


class WriteFile:
    """Creates or replaces a file, and the directories above it."""

    declaration = ToolDeclaration(name="write_file", args=WriteFileArgs, idempotent=True)

    def run(self, args: WriteFileArgs, context: ToolContext) -> ToolResult:
        content = args.content.encode()
        mode = None if args.mode is None else int(args.mode, 8)
        try:
            path = _relative(args.path, context)
            paths.write_file(context.root, path, content, mode=mode, on_directory=context.on_directory)
        except HoldfastError as error:
            return _refused(error)
        return ToolResult.done(f"wrote {args.path}, {len(content)} bytes\n")


class EditFileArgs(ToolArgs):
    path: FilePath
    find: str = Field(min_length=1, description="The text to replace, exactly as it stands in the file.")
    replace: str = Field(description="The text that replaces it.")
    count: int = Field(default=1, ge=1, description="How often the text must occur; every occurrence is replaced.")


class EditFile:
    """Replaces text in a file, if it occurs exactly as often as expected; every other byte stays as it is."""

    declaration = ToolDeclaration(name="edit_file", args=EditFileArgs)

    def run(self, args: EditFileArgs, context: ToolContext) -> ToolResult:
        try:
            path = _relative(args.path, context)
            content = paths.read_file(context.root, path)
            find, replace = _in_line_endings_of(content, args.find, args.replace)
            found = content.count(find)
            if found != args.count:
                return ToolResult.failed(_wrong_count(args, found))
            paths.write_file(context.root, path, content.replace(find, replace))
        except HoldfastError as error:
            return _refused(error)
        return ToolResult.done(f"edited {args.path}, {_times(found)}\n")


def _in_line_endings_of(content: bytes, *texts: str) -> tuple[bytes, ...]:
    """In a file whose lines all end in CRLF, a line end of the plan file (always LF) means CRLF."""
    is_crlf = 0 < content.count(b"\n") == content.count(b"\r\n") and not any("\r" in text for text in texts)
    return tuple((text.replace("\n", "\r\n") if is_crlf else text).encode() for text in texts)


def _wrong_count(args: EditFileArgs, found: int) -> str:
    if found == 0:
        return f"the text to find is not in {args.path}"
    return f"the text to find occurs {_times(found)} in {args.path}, expected {_times(args.count)}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


class DeleteFileArgs(ToolArgs):
    path: FilePath
    recursive: bool = Field(default=False, description="Whether a directory may be deleted, with all it holds.")


class DeleteFile:
    """Deletes a file or a symlink, or a directory if told so."""

    declaration = ToolDeclaration(name="delete_file", args=DeleteFileArgs)

    def run(self, args: DeleteFileArgs, context: ToolContext) -> ToolResult:
        try:
            paths.delete_path(context.root, _relative(args.path, context), recursive=args.recursive)
        except HoldfastError as error:
            return _refused(error)
        return ToolResult.done(f"deleted {args.path}\n")


class ApplyPatchArgs(ToolArgs):
    patch: str = Field(min_length=1, description="A unified diff, as `git diff --binary` or `diff -u` print it.")
    strip: int = Field(default=1, ge=0, description="How many leading components to remove from its paths.")


class ApplyPatch:
    """Applies a unified diff, all of it or nothing."""

    declaration = ToolDeclaration(name="apply_patch", args=ApplyPatchArgs)

    def run(self, args: ApplyPatchArgs, context: ToolContext) -> ToolResult:
        patch = args.patch if args.patch.endswith("\n") else args.patch + "\n"
        try:
            changed = apply_patch(context.root, patch.encode(), args.strip)
        except HoldfastError as error:
            return _refused(error)
        return ToolResult.done("".join(f"patched {path}\n" for path in changed))


def _relative(path: str, context: ToolContext) -> str:
    """The path in the resource; an absolute one counts if it lies in the resource as commands of the step see it."""
    absolute = PurePosixPath(path)
    return str(absolute.relative_to(context.folder)) if absolute.is_relative_to(context.folder) else path


def _refused(error: HoldfastError) -> ToolResult:
    return ToolResult.failed(f"{error.message} ({error.hint})" if error.hint else error.message)
