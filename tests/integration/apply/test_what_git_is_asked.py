"""Apply asks git a few questions, about the paths that change: a large repository makes none of them longer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.command_counts import CommandCounts

from holdfast.errors import SandboxError
from holdfast.git import run as git_runner
from holdfast.git.repository import GitRepository
from holdfast.git.work_tree import not_as_committed
from tests.support.repositories import git, make_repository
from tests.support.workshop import Workshop, run

MOST_PROCESSES = 9
_OF_THE_WHOLE_INDEX = {"read-tree", "write-tree", "--refresh", "status", "ls-files", "diff-index", "--index-info"}
"""Words of questions that take git as long as the index is."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What git was asked, without the settings that it gets each time."""
    questions: list[tuple[str, ...]] = []
    run_stoppable: Callable[..., Any] = git_runner.run_stoppable

    def note_and_run(words: Sequence[str], **named: Any) -> Any:
        settings = sum(2 for word in words if word == "-c")
        questions.append(tuple(words[1 + settings :]))
        return run_stoppable(words, **named)

    monkeypatch.setattr(git_runner, "run_stoppable", note_and_run)
    return questions


def test_an_apply_starts_git_a_few_times_and_never_has_it_look_at_all_files(
    workshop: Workshop, asked: list[tuple[str, ...]]
) -> None:
    opened = workshop.open()
    plan = opened.execute(workshop.create(run("echo 2 > version.txt; mkdir new; echo 1 > new/file")).plan_id).plan
    asked.clear()
    opened.apply(plan.plan_id)
    assert len(asked) <= MOST_PROCESSES, asked
    assert not [words for words in asked if _OF_THE_WHOLE_INDEX & set(words)]
    assert [words for words in asked if "check-ignore" in words and "--no-index" in words]
    assert git(workshop.app, "status", "--porcelain") == ""


def test_an_apply_needs_as_many_statements_for_files_in_many_folders(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = workshop.open()
    counts = CommandCounts()
    counts.start(monkeypatch.setattr)
    found = []
    for folders in (2, 20):
        script = "; ".join(
            f"mkdir -p {folders}/{each}/deep; echo 1 > {folders}/{each}/deep/file" for each in range(folders)
        )
        plan = opened.execute(workshop.create(run(script)).plan_id).plan
        opened.close()
        opened = workshop.open()
        before = counts.counts["statements"]
        opened.apply(plan.plan_id)
        found.append(counts.counts["statements"] - before)
    assert found[1] <= found[0] + 2, found
    assert counts.counts["statements"] > 0


def test_what_is_not_plain_is_asked_of_git_for_the_changed_paths_alone(
    workshop: Workshop, asked: list[tuple[str, ...]]
) -> None:
    opened = workshop.open()
    plan = opened.execute(workshop.create(run("echo 2 > version.txt; mkdir new; echo 1 > new/file")).plan_id).plan
    git(workshop.app, "update-index", "--index-version", "4")
    asked.clear()
    opened.apply(plan.plan_id)
    about_files = [words for words in asked if {"status", "ls-files"} & set(words)]
    assert {words[words.index("--") + 1 :] for words in about_files} == {("new/file", "version.txt")}
    assert git(workshop.app, "status", "--porcelain") == ""


def test_a_repository_is_found_with_one_question_and_asked_about_once(
    tmp_path: Path, asked: list[tuple[str, ...]]
) -> None:
    make_repository(tmp_path / "repo", {"file": "1\n"})
    assert GitRepository.at(tmp_path / "repo") == GitRepository.at(tmp_path / "repo")
    assert [words[0] for words in asked] == ["rev-parse"]


def test_a_repository_that_got_other_settings_is_asked_about_again(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo", {"file": "1\n"})
    GitRepository.at(root)
    git(root, "config", "core.bare", "true")
    with pytest.raises(SandboxError, match="bare repository"):
        GitRepository.at(root)


def test_a_repository_whose_name_has_line_breaks_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "two\nlines\n"
    make_repository(folder, {"file": "1\n"})
    found = GitRepository.at(folder)
    assert (found.root, found.git_dir, found.common_dir) == (folder, folder / ".git", folder / ".git")


@pytest.mark.parametrize("name", ["a*", ":(top)x", "-v", "ä", "two\nlines"])
def test_only_the_paths_themselves_are_asked_about_whatever_their_names_mean_to_git(tmp_path: Path, name: str) -> None:
    make_repository(tmp_path / "repo", {name: "1\n", "another": "1\n"})
    repository = GitRepository.at(tmp_path / "repo")
    (tmp_path / "repo" / "another").write_text("2\n")
    assert not_as_committed(repository, [name.encode()]) == set()
    (tmp_path / "repo" / name).write_text("2\n")
    assert not_as_committed(repository, [name.encode()]) == {name.encode()}


def test_submodules_are_found_in_an_index_that_has_some(tmp_path: Path, asked: list[tuple[str, ...]]) -> None:
    make_repository(tmp_path / "inner", {"file": "1\n"})
    make_repository(tmp_path / "outer", {"file": "1\n"})
    outer = GitRepository.at(tmp_path / "outer")
    asked.clear()
    assert outer.submodules() == []
    assert asked == []
    git(tmp_path / "outer", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../inner", "sub")
    assert outer.submodules() == [b"sub"]
