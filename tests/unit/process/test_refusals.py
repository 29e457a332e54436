"""What programs print when a write is refused, and what a step's failure says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.process.refusals import Border, explain, refused_names


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("/bin/sh: 1: cannot create /x: Permission denied", "/x"),
        ("/bin/sh: 1: cannot create ../x: Permission denied", "../x"),
        ("/bin/sh: 1: cannot create link/x: Permission denied", "link/x"),
        ("/bin/sh: 1: cannot create /with a blank/x: Permission denied", "/with a blank/x"),
        ("bash: line 1: /x: Permission denied", "/x"),
        ("bash: line 1: link/x: Permission denied", "link/x"),
        ("zsh:1: permission denied: /x", "/x"),
        ("touch: cannot touch '/x': Permission denied", "/x"),
        ("mkdir: cannot create directory \u2018/x\u2019: Permission denied", "/x"),
        ("mv: cannot move 'a' to '/x': Permission denied", "/x"),
        ("tee: /x: Permission denied", "/x"),
        ("dd: failed to open '/x': Permission denied", "/x"),
        ("sed: couldn't open temporary file /y/sedAmPTTk: Permission denied", "/y/sedAmPTTk"),
        ("ln: failed to create hard link 'l' => '/x': Invalid cross-device link", "/x"),
        ("PermissionError: [Errno 13] Permission denied: '/x'", "/x"),
        ("PermissionError: [Errno 13] Permission denied: 'a' -> '/x'", "/x"),
        ("OSError: [Errno 18] Invalid cross-device link: 'a' -> '/x'", "/x"),
        ("error: could not lock config file /y/.git/config: Permission denied", "/y/.git/config"),
        ("fatal: Unable to create '/y/.git/index.lock': Permission denied", "/y/.git/index.lock"),
        ("fatal: cannot mkdir /x: Permission denied", "/x"),
        ("/usr/bin/ld: cannot open output file ../x: Permission denied", "../x"),
        ("patch: **** Can't create file /x : Permission denied", "/x"),
        ("cannot unlink /x: Permission denied at -e line 1.", "/x"),
        ('awk: cannot open "/x" for output (Permission denied)', "/x"),
        ("/x: Permission denied", "/x"),
        ("Error: EACCES: permission denied, open '/x'", "/x"),
        ("open /x: permission denied", "/x"),
        ("java.nio.file.AccessDeniedException: /x", "/x"),
        ("npm error code EACCES\nnpm error syscall open\nnpm error path /x\nnpm error errno EACCES", "/x"),
        ("error: failed to open: /x\n\nCaused by:\n  Permission denied (os error 13)", "/x"),
        ("touch: cannot touch '/first': Permission denied\ntouch: cannot touch '/x': Permission denied\ndone", "/x"),
    ],
)
def test_the_file_is_found_in_the_complaint_of_any_program(printed: str, name: str) -> None:
    assert next(refused_names(printed)) == name


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("tar: /x: Cannot open: Permission denied", "/x"),
        ('rsync: [receiver] mkstemp "/x" failed: Permission denied (13)', "/x"),
        ("OSError: [Errno 18] Invalid cross-device link: '/x' -> 'a'", "/x"),
    ],
)
def test_a_complaint_may_name_more_than_the_file(printed: str, name: str) -> None:
    assert name in list(refused_names(printed))


@pytest.mark.parametrize(
    "printed", ["", "all is well", "Permission denied", "open /x: no such file or directory", "/x\n\n\n\nEACCES"]
)
def test_where_nothing_is_refused_or_named_nothing_is_found(printed: str) -> None:
    assert list(refused_names(printed)) == []


def test_a_long_line_does_not_take_long() -> None:
    assert list(refused_names("x" * 300_000 + " EACCES " + "\u2018" * 300_000 + " /" * 100_000)) != []


@pytest.fixture
def border(tmp_path: Path) -> Border:
    for name in ("app", "home/sandboxes/plan/app", "elsewhere", "allowed"):
        (tmp_path / name).mkdir(parents=True)
    sandbox = tmp_path / "home/sandboxes/plan/app"
    return Border(
        writable=[sandbox, tmp_path / "allowed"],
        allowed=[tmp_path / "allowed"],
        copies={tmp_path / "app": sandbox},
        holdfast_home=tmp_path / "home",
    )


def explained(border: Border, path: object) -> str | None:
    return explain(f"touch: cannot touch '{path}': Permission denied\n", border.writable[0], border)


def test_a_write_elsewhere_is_explained_with_the_command_that_allows_it_and_keeps_what_is_allowed(
    border: Border, tmp_path: Path
) -> None:
    place = tmp_path / "elsewhere"
    text = explained(border, place / "new" / "file")
    assert text is not None
    assert f"writing {place}/new/file was refused" in text
    assert text.endswith(f"`holdfast config set sandbox.allow-write {tmp_path}/allowed,{place}`")


def test_a_file_that_is_there_is_itself_what_to_allow(border: Border, tmp_path: Path) -> None:
    file = tmp_path / "elsewhere" / "one, two"
    file.touch()
    text = explained(border, file)
    assert text is not None
    assert text.endswith(f"""sandbox.allow-write '["{tmp_path}/allowed", "{file}"]'`""")


def test_a_relative_path_and_a_symlink_are_followed_to_where_they_lead(border: Border, tmp_path: Path) -> None:
    (Path(border.writable[0]) / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("link/x", "../../../../elsewhere/x"):
        assert f"writing {tmp_path}/elsewhere/x was refused" in (explained(border, name) or "")


def test_a_real_file_is_explained_with_the_copy_that_a_step_may_change(border: Border, tmp_path: Path) -> None:
    text = explained(border, tmp_path / "app" / "src" / "main.py")
    assert text is not None
    assert text.endswith(f"a step changes its copy, {tmp_path}/home/sandboxes/plan/app/src/main.py")


def test_what_belongs_to_holdfast_is_never_offered(border: Border, tmp_path: Path) -> None:
    assert (explained(border, tmp_path / "home" / "holdfast.db") or "").endswith("it belongs to Holdfast")


def test_a_folder_that_has_holdfast_s_home_in_it_is_never_offered(border: Border, tmp_path: Path) -> None:
    text = explained(border, tmp_path / "new")
    assert text is not None
    assert (
        f"make it yourself and then `holdfast config set sandbox.allow-write {tmp_path}/allowed,{tmp_path}/new`" in text
    )


@pytest.mark.parametrize("name", ["inside", "/proc/self/uid_map", "/sys/kernel/x"])
def test_what_is_inside_or_cannot_be_allowed_is_not_explained(border: Border, name: str) -> None:
    assert explained(border, name) is None
