"""What a program says of refused writes, heard while it runs, on a terminal or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.process.refusals import Border, Complaints, refused_writes


def heard(*pieces: bytes) -> tuple[str, ...]:
    complaints = Complaints()
    for piece in pieces:
        complaints.hear(piece)
    return complaints.names()


@pytest.mark.parametrize(
    "pieces",
    [
        (b"touch: cannot touch '/x': Permission denied\n",),
        (b"touch: cannot touch '/x': Permission denied\r\n",),
        (b"touch: cannot touch '/x': Permission denied",),
        (b"touch: cannot tou", b"ch '/x': Permis", b"sion denied\nall is well\n"),
        (b"\x1b[31mError: EACCES:\x1b[1Cpermission denied, open \x1b[1m'/x'\x1b[0m\n",),
        (b"\x1b]0;title\x07\x1b[2J\x1b[1;1Hworking\x1b[2;1HError: EACCES: permission denied, open '/x'\x1b[3;1Hready",),
        (b"\x1b(B\x1b7open /x: read-only file system\x1b[?25h\n",),
        (b"\xff\xfe open /x: permission denied\n",),
        (b"npm error code EACCES\nnpm error path /x\n",) * 2,
    ],
)
def test_the_file_is_heard(pieces: tuple[bytes, ...]) -> None:
    assert "/x" in heard(*pieces)


def test_a_name_is_heard_once_and_all_of_them_in_their_order() -> None:
    lines = [f"open /{name}: permission denied\n".encode() for name in "abcab"]
    assert heard(*lines) == ("/a", "/b", "/c")


@pytest.mark.unmeasured
def test_what_complains_without_end_is_not_kept_without_end() -> None:
    complaints = Complaints()
    for number in range(1000):
        complaints.hear(f"open /{number}: permission denied\n".encode() + b"x" * 100_000)
    assert len(complaints.names()) <= 101


def test_each_place_is_shown_once_with_what_allows_it(tmp_path: Path) -> None:
    home, sandbox = tmp_path / "user" / "state", tmp_path / "user" / "state" / "sandboxes" / "plan" / "app"
    for folder in (sandbox, tmp_path / "app", tmp_path / "elsewhere", tmp_path / "user" / ".tool"):
        folder.mkdir(parents=True)
    border = Border(writable=(sandbox,), allowed=(), copies={tmp_path / "app": sandbox}, holdfast_home=home)
    names = [
        *("elsewhere/a", "elsewhere/b", "elsewhere/c/d"),
        *("user/.tool/x", "user/.new/deep/x", "user/.file", "user/state/holdfast.db", "app/f"),
    ]
    found = refused_writes([str(tmp_path / name) for name in names] + [str(sandbox / "f")], sandbox, border)
    assert [(each.path, each.allow, each.is_missing) for each in found] == [
        (f"{tmp_path}/elsewhere/a", f"{tmp_path}/elsewhere", False),
        (f"{tmp_path}/user/.tool/x", f"{tmp_path}/user/.tool", False),
        (f"{tmp_path}/user/.new/deep/x", f"{tmp_path}/user/.new", True),
        (f"{tmp_path}/user/.file", f"{tmp_path}/user/.file", True),
        (f"{home}/holdfast.db", None, False),
    ]
    assert found[-1].reason == "it belongs to Holdfast"
