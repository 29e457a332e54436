"""What can be undone: the last call, one in the middle, a prompt, all since a checkpoint, single paths; and redone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast import CallNumber, OnlyCall, PromptNumber, ToCheckpoint, UndoResult
from holdfast.errors import ConflictError, NotFoundError, StateError
from tests.support.repositories import git, head, log, make_repository, status
from tests.support.sessions import Agent, Place
from tests.support.trees import A_MOMENT_NS, set_mtime, write

LINES = "".join(f"line {number}\n" for number in range(1, 10))


@pytest.fixture
def story(place: Place) -> Agent:
    """Two prompts: the first writes and removes, the second edits, looks, and writes an ignored file."""
    place.make({"app.py": LINES, "docs/a.md": "a\n", "docs/b.md": "b\n", ".gitignore": "*.log\n"})
    agent, root = place.agent(), place.root
    agent.prompt("write it")
    agent.does("write new.py", lambda: (root / "new.py").write_text("new\n"))
    agent.does("rm -r docs", lambda: shutil.rmtree(root / "docs"))
    agent.prompt("make it better")
    agent.does("edit app.py", lambda: _edit(root / "app.py", "line 2", "line two"))
    agent.does("ls", lambda: None)
    agent.does("run", lambda: (root / "run.log").write_text("ran\n"))
    return agent


def _edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def _names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()} - {".git", ".gitignore"}


def test_without_a_word_the_last_call_that_changed_something_is_undone(story: Agent, place: Place) -> None:
    story.does("ls again", lambda: None)
    story.in_place.undo()
    assert _names(place.root) == {"app.py", "new.py"}
    story.in_place.undo()
    assert (place.root / "app.py").read_text() == LINES


def test_a_call_in_the_middle_is_taken_out_and_all_later_work_stays(story: Agent, place: Place) -> None:
    result = story.in_place.undo(OnlyCall(2))
    assert isinstance(result, UndoResult)
    assert sorted(change.file for change in result.changes) == ["docs/a.md", "docs/b.md"]
    assert _names(place.root) == {"app.py", "new.py", "docs", "run.log"}
    assert "line two" in (place.root / "app.py").read_text()
    assert [call.is_undone for call in story.in_place.calls()] == [False, True, False, False, False]


def test_a_call_and_all_after_it_are_undone(story: Agent, place: Place) -> None:
    story.in_place.undo(CallNumber(2))
    assert _names(place.root) == {"app.py", "new.py", "docs"}
    assert (place.root / "app.py").read_text() == LINES
    assert [call.is_undone for call in story.in_place.calls()] == [False, True, True, True, True]


def test_a_prompt_and_all_after_it_are_undone(story: Agent, place: Place) -> None:
    story.in_place.undo(PromptNumber(2))
    assert _names(place.root) == {"app.py", "new.py"}
    assert (place.root / "app.py").read_text() == LINES
    story.in_place.undo(PromptNumber(1))
    assert _names(place.root) == {"app.py", "docs"}
    assert status(place.root) == []


def test_all_calls_after_a_checkpoint_are_undone(story: Agent, place: Place) -> None:
    moment = next(each for each in story.in_place.moments() if each.call is not None and each.call.number == 2)
    story.in_place.undo(ToCheckpoint(moment.view.display_id))
    assert _names(place.root) == {"app.py", "new.py"}
    assert (place.root / "app.py").read_text() == LINES
    assert [call.is_undone for call in story.in_place.calls()] == [False, False, True, False, True]


def test_an_exact_undo_takes_back_what_anybody_changed(story: Agent, place: Place) -> None:
    first = story.in_place.moments()[-1].view.checkpoint.checkpoint_id
    (place.root / "mine.txt").write_text("mine\n")
    present = place.tree()
    story.in_place.undo(ToCheckpoint(first))
    assert (place.root / "mine.txt").exists()
    story.in_place.redo()
    result = story.in_place.undo(ToCheckpoint(first, is_exact=True))
    assert isinstance(result, UndoResult)
    assert _names(place.root) == {"app.py", "docs"}
    story.in_place.redo()
    assert place.differs_from(present) == []


def test_only_the_named_paths_come_back_from_a_checkpoint(story: Agent, place: Place) -> None:
    first = story.in_place.moments()[-1].view.checkpoint.checkpoint_id
    story.in_place.restore_paths(first, ["docs/a.md"])
    assert (place.root / "docs" / "a.md").read_text() == "a\n"
    assert not (place.root / "docs" / "b.md").exists()
    assert (place.root / "new.py").exists()
    story.in_place.redo()
    assert not (place.root / "docs").exists()


def test_what_was_undone_in_steps_is_redone_in_steps(story: Agent, place: Place) -> None:
    trees = [place.tree()]
    for _ in range(4):
        story.in_place.undo()
        trees.append(place.tree())
    with pytest.raises(StateError, match="Nothing is left to undo"):
        story.in_place.undo()
    for tree in trees[-2::-1]:
        story.in_place.redo()
        assert place.differs_from(tree) == []
    with pytest.raises(StateError, match="Nothing was undone"):
        story.in_place.redo()
    assert not any(call.is_undone for call in story.in_place.calls())
    story.in_place.undo()
    assert place.differs_from(trees[1]) == []


def test_what_was_undone_comes_back_beside_later_calls(story: Agent, place: Place) -> None:
    story.in_place.undo(CallNumber(2))
    story.does("write later.py", lambda: (place.root / "later.py").write_text("later\n"))
    story.does("edit the end", lambda: _edit(place.root / "app.py", "line 9", "line nine"))
    story.in_place.redo()
    assert _names(place.root) == {"app.py", "new.py", "run.log", "later.py"}
    assert (place.root / "app.py").read_text() == LINES.replace("line 2", "line two").replace("line 9", "line nine")
    story.in_place.undo()
    assert (place.root / "app.py").read_text() == LINES.replace("line 2", "line two")


def test_lines_that_a_person_wrote_since_stay(story: Agent, place: Place) -> None:
    _edit(place.root / "app.py", "line 8", "line 8, mine")
    (place.root / "mine.txt").write_text("mine\n")
    story.in_place.undo(CallNumber(1))
    assert (place.root / "app.py").read_text() == LINES.replace("line 8", "line 8, mine")
    assert _names(place.root) == {"app.py", "docs", "mine.txt"}


def test_the_same_lines_are_listed_and_nothing_is_changed(story: Agent, place: Place) -> None:
    _edit(place.root / "app.py", "line two", "line 2, mine")
    (place.root / "new.py").unlink()
    before, moments = place.tree(), story.in_place.moments()
    with pytest.raises(ConflictError) as refused:
        story.in_place.undo(CallNumber(1))
    assert set(refused.value.paths) == {"app.py"}
    assert "app.py" in refused.value.message
    assert "--force" in refused.value.hint
    assert place.differs_from(before) == []
    assert story.in_place.moments() == moments
    with pytest.raises(ConflictError):
        story.in_place.undo_preview(CallNumber(1))


def test_with_force_it_becomes_what_it_was_and_redo_brings_back_what_was_there(story: Agent, place: Place) -> None:
    _edit(place.root / "app.py", "line two", "line 2, mine")
    before = place.tree()
    story.in_place.undo(OnlyCall(3), force=True)
    assert (place.root / "app.py").read_text() == LINES
    story.in_place.redo()
    assert place.differs_from(before) == []


def test_a_file_that_a_person_made_in_a_folder_the_agent_made_stays_with_its_folder(agent: Agent, place: Place) -> None:
    folder = place.root / "made"
    agent.does("mkdir made", lambda: (folder.mkdir(), (folder / "by agent").write_text("a\n")))
    (folder / "by person").write_text("p\n")
    agent.in_place.undo()
    assert [path.name for path in folder.iterdir()] == ["by person"]


def test_a_preview_says_the_same_and_changes_nothing(story: Agent, place: Place) -> None:
    before, moments = place.tree(), story.in_place.moments()
    preview = story.in_place.undo_preview(CallNumber(2))
    assert place.differs_from(before) == []
    assert story.in_place.moments() == moments
    result = story.in_place.undo(CallNumber(2))
    assert isinstance(result, UndoResult)
    assert result.changes == preview.changes
    assert story.in_place.redo_preview().changes


def test_who_says_no_keeps_all(story: Agent, place: Place) -> None:
    before, moments = place.tree(), story.in_place.moments()
    story.in_place.undo(confirm=lambda _: False)
    assert place.differs_from(before) == []
    assert story.in_place.moments() == moments


def test_numbers_that_do_not_exist_are_refused(story: Agent) -> None:
    for target in (CallNumber(6), OnlyCall(9), PromptNumber(3)):
        with pytest.raises(NotFoundError, match="that is in force"):
            story.in_place.undo(target)
    with pytest.raises(NotFoundError):
        story.in_place.undo(ToCheckpoint("cp_nothing"))
    story.in_place.undo(CallNumber(5))
    with pytest.raises(NotFoundError):
        story.in_place.undo(CallNumber(5))


def test_git_status_in_between_makes_no_moment_and_no_conflict(agent: Agent, place: Place) -> None:
    agent.does("commit", lambda: _commit(place.root))
    set_mtime(place.root / "b.txt", A_MOMENT_NS)
    agent.does("nothing", lambda: None)
    before = agent.in_place.moments()
    index = (place.root / ".git" / "index").read_bytes()
    git(place.root, "update-index", "--refresh")
    assert (place.root / ".git" / "index").read_bytes() != index
    agent.does("nothing", lambda: None)
    assert [each.view for each in agent.in_place.moments()] == [each.view for each in before]
    agent.in_place.undo()
    assert status(place.root) == []


def _commit(root: Path) -> None:
    (root / "a.txt").write_text("committed\n")
    git(root, "commit", "-qam", "by the agent")


def test_a_commit_of_the_person_after_that_of_the_agent_is_not_lost(agent: Agent, place: Place) -> None:
    agent.does("commit", lambda: _commit(place.root))
    (place.root / "mine.txt").write_text("mine\n")
    git(place.root, "add", "mine.txt")
    git(place.root, "commit", "-qm", "by the person")
    last, before = head(place.root), place.tree()
    with pytest.raises(ConflictError):
        agent.in_place.undo()
    assert place.differs_from(before) == []
    agent.in_place.undo(force=True)
    assert git(place.root, "cat-file", "-t", last) == "commit"
    assert (place.root / "mine.txt").read_text() == "mine\n"


def test_a_stash_of_the_person_is_there_after_undo_and_redo(agent: Agent, place: Place) -> None:
    agent.does("write", lambda: (place.root / "new.txt").write_text("new\n"))
    (place.root / "b.txt").write_text("stashed\n")
    git(place.root, "stash", "-q")
    agent.in_place.undo()
    agent.in_place.redo()
    git(place.root, "stash", "pop", "-q")
    assert (place.root / "b.txt").read_text() == "stashed\n"


@pytest.mark.parametrize("is_there_before", [False, True])
def test_a_lock_of_git_is_neither_removed_nor_made(agent: Agent, place: Place, is_there_before: bool) -> None:
    """Another git may have held it while a checkpoint was taken."""
    lock = place.root / ".git" / "index.lock"
    if is_there_before:
        lock.write_text("")
    with agent.call("write"):
        (place.root / "a.txt").write_text("begun\n")
        lock.unlink() if is_there_before else lock.write_text("")
    for undo in (agent.in_place.undo, agent.in_place.redo):
        undo()
        assert lock.exists() is not is_there_before


def test_objects_of_a_repository_inside_stay_with_it(agent: Agent, place: Place) -> None:
    inner = make_repository(place.root / "inner", has_user=True)
    with agent.call("commit inside"):
        _commit(inner)
    made = head(inner)
    git(inner, "branch", "mine")
    git(place.root, "status")
    git(inner, "update-index", "--refresh")
    agent.in_place.undo()
    assert log(inner) == ["the first commit"]
    assert log(inner, "mine") == ["by the agent", "the first commit"]
    assert git(inner, "cat-file", "-t", made) == "commit"
    git(inner, "fsck", "--strict")


def test_a_repository_that_a_call_made_goes_with_it(agent: Agent, place: Place) -> None:
    agent.does("git clone", lambda: make_repository(place.root / "inner", has_user=True))
    (place.root / "mine.txt").write_text("mine\n")
    agent.in_place.undo()
    assert not (place.root / "inner").exists()
    agent.in_place.redo()
    assert status(place.root / "inner") == []


def test_folders_have_their_times_again_although_a_person_wrote_elsewhere(agent: Agent, place: Place) -> None:
    set_mtime(place.root / "folder", A_MOMENT_NS)
    agent.does("write", lambda: write(place.root / "folder" / "deep" / "new.txt", "new\n"))
    write(place.root / "mine" / "mine.txt", "mine\n")
    agent.in_place.undo()
    assert (place.root / "folder").stat().st_mtime_ns == A_MOMENT_NS
    assert not (place.root / "folder" / "deep").exists()


def test_the_reflog_only_grows(agent: Agent, place: Place) -> None:
    agent.does("commit", lambda: _commit(place.root))
    made = git(place.root, "reflog", "--format=%H").splitlines()
    git(place.root, "checkout", "-q", "-b", "mine")
    agent.in_place.undo(force=True)
    assert set(git(place.root, "reflog", "--format=%H", "--all").splitlines()) >= set(made)


def test_of_a_linked_work_tree_it_says_that_git_keeps_its_head(place: Place) -> None:
    place.make()
    repository, place.root = place.root, place.folder / "linked"
    git(repository, "worktree", "add", "-q", "-b", "linked", str(place.root))
    place.agent().does("commit", lambda: _commit(place.root))
    ended = place.call("undo", "--yes")
    assert ended.exit_code == 0
    assert "HEAD, branches and the index stay as they are" in ended.stdout
    assert (place.root / "a.txt").read_text() == "a\n"
    assert log(place.root) == ["by the agent", "the first commit"]
