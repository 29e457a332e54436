"""The rules for the kernel, and the paths a user may allow."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.process.confinement import (
    Confinement,
    Right,
    allowed_paths,
    confinement_of,
    expanded,
    gaps,
    landlock_abi,
    rules_for,
)


def handled(abi: int) -> tuple[Right, int]:
    fs, network, scoped = struct.unpack("=QQQ", rules_for([], abi).attributes)
    assert network == 0
    return Right(fs), scoped


def test_every_version_is_asked_only_for_what_it_knows() -> None:
    assert Right.MAKE_SYM in handled(1)[0]
    assert [Right.REFER in handled(abi)[0] for abi in (1, 2)] == [False, True]
    assert [Right.TRUNCATE in handled(abi)[0] for abi in (2, 3)] == [False, True]
    assert [Right.IOCTL_DEV in handled(abi)[0] for abi in (4, 5)] == [False, True]
    assert [handled(abi)[1] for abi in (5, 6, 99)] == [0, 3, 3]
    assert handled(99) == (Right(sum(Right)), 3)


def test_a_folder_gets_all_rights_but_devices_and_a_file_only_those_of_files(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    rules = dict(rules_for([tmp_path, tmp_path / "file"], 7).beneath)
    assert Right(rules[os.fsencode(tmp_path)]) == Right(sum(Right)) & ~(Right.MAKE_CHAR | Right.MAKE_BLOCK)
    assert rules[os.fsencode(tmp_path / "file")] == Right.WRITE_FILE | Right.TRUNCATE | Right.IOCTL_DEV
    assert b"/dev/null" in rules
    assert not {b"/", b"/dev", b"/tmp"} & set(rules)


def test_what_an_old_kernel_leaves_open_is_told() -> None:
    assert [len(gaps(abi)) for abi in (1, 2, 3, 5, 6)] == [3, 2, 1, 1, 0]


def test_confinement_is_off_where_the_user_says_so() -> None:
    assert confinement_of(False) is Confinement.OFF
    assert confinement_of(True) is (Confinement.ON if landlock_abi() else Confinement.NOT_AVAILABLE)


def allowed(tmp_path: Path, *texts: str) -> tuple[Path, ...]:
    return allowed_paths(texts, user_home=tmp_path / "user", holdfast_home=tmp_path / "home")


@pytest.fixture(autouse=True)
def places(tmp_path: Path) -> None:
    for name in ("user/.cache", "home", "a/b/c", "d"):
        (tmp_path / name).mkdir(parents=True)


def test_a_tilde_stands_for_the_user_s_home(tmp_path: Path) -> None:
    assert allowed(tmp_path, "~/.cache", f"{tmp_path}/d") == (tmp_path / "user/.cache", tmp_path / "d")
    assert expanded(["~/not/there", "/x"], Path("/user")) == (Path("/user/not/there"), Path("/x"))


def test_symlinks_are_followed_and_nothing_is_named_twice(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "d")
    assert allowed(tmp_path, f"{tmp_path}/link", f"{tmp_path}/d", f"{tmp_path}/a/../d") == (tmp_path / "d",)


@pytest.mark.parametrize("inner", ["a/b", "a/b/c", "alias/b", "a/trap"])
def test_a_path_that_a_step_could_replace_counts_for_nothing(tmp_path: Path, inner: str) -> None:
    (tmp_path / "alias").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "trap").symlink_to(tmp_path / "d")
    assert allowed(tmp_path, f"{tmp_path}/{inner}", f"{tmp_path}/a") == (tmp_path / "a",)


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("missing", "loop"):
        with pytest.raises(ConfigError, match=f"{name} does not exist"):
            allowed(tmp_path, f"{tmp_path}/{name}")


def test_holdfast_s_home_what_is_in_it_and_what_it_is_in_are_refused(tmp_path: Path) -> None:
    (tmp_path / "home" / "sandboxes").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    for path in (tmp_path / "home", tmp_path / "home" / "sandboxes", tmp_path, tmp_path / "link", Path("/")):
        with pytest.raises(ConfigError, match="what Holdfast keeps"):
            allowed(tmp_path, str(path))
