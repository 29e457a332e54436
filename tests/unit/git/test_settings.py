"""Who is known to make a commit is somebody whom git accepts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast.git.repository import GitRepository
from holdfast.git.settings import is_person_known
from tests.support.repositories import git, make_repository

VALUES = (None, "", " ", "...", "<>", "Ada", "Ada <x>", "\u65e5\u672c")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitRepository:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("EMAIL", "ada@example.org")
    for role in ("AUTHOR", "COMMITTER"):
        for what in ("NAME", "EMAIL", "DATE"):
            monkeypatch.delenv(f"GIT_{role}_{what}", raising=False)
    return GitRepository.at(make_repository(tmp_path / "repository", has_user=True))


def set_to(repository: GitRepository, key: str, value: str | None) -> None:
    git(repository.root, "config", "--unset-all", key, check=False)
    if value is not None:
        git(repository.root, "config", key, value)


def accepted_by_git(repository: GitRepository) -> bool:
    asked = (["git", "var", f"GIT_{role}_IDENT"] for role in ("AUTHOR", "COMMITTER"))
    return all(
        subprocess.run(each, cwd=repository.root, capture_output=True, check=False).returncode == 0 for each in asked
    )


@pytest.mark.parametrize("name", VALUES)
def test_a_person_who_is_known_is_accepted_by_git(
    repository: GitRepository, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    known = set()
    for of_author in (None, "", "Author"):
        for variable in (None, "", "..", "Variable"):
            set_to(repository, "user.name", name)
            set_to(repository, "author.name", of_author)
            if variable is None:
                monkeypatch.delenv("GIT_AUTHOR_NAME", raising=False)
            else:
                monkeypatch.setenv("GIT_AUTHOR_NAME", variable)
            is_known = is_person_known(repository)
            assert accepted_by_git(repository) or not is_known
            known.add(is_known)
    assert known == ({True, False} if name and "Ada" in name else {False})


@pytest.mark.parametrize("email", [None, ""])
def test_a_person_without_an_address_and_a_date_are_left_to_git(
    repository: GitRepository, monkeypatch: pytest.MonkeyPatch, email: str | None
) -> None:
    assert is_person_known(repository)
    monkeypatch.setenv("GIT_COMMITTER_DATE", "no date")
    assert not accepted_by_git(repository)
    assert not is_person_known(repository)
    monkeypatch.delenv("GIT_COMMITTER_DATE")
    set_to(repository, "user.email", email)
    assert not is_person_known(repository)


@pytest.mark.parametrize("key", ["user.name", "author.name", "committer.email"])
@pytest.mark.parametrize("follows", [True, False])
def test_a_name_or_address_without_a_value_is_left_to_git(repository: GitRepository, key: str, follows: bool) -> None:
    section, name = key.split(".")
    with (repository.git_dir / "config").open("a") as config:
        config.write(f"[{section}]\n\t{name}\n" + (f"\t{name} = Ada\n" if follows else ""))
    assert not accepted_by_git(repository)
    assert not is_person_known(repository)
