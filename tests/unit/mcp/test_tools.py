from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import CallBegun, CallEnded, SessionInfo
from holdfast.app import Holdfast
from holdfast.model import RunStatus
from tests.support.mcp_clients import ENVELOPE, McpClient, served_in_thread
from tests.support.repositories import git, make_repository

ASKABLE = {"elicitation": {}}
ASKABLE_ENVELOPE = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": ASKABLE}


@pytest.fixture
def files(project: Path) -> Path:
    (project / "notes.txt").write_text("one\n")
    (project / "sub").mkdir()
    (project / "sub" / "deep.txt").write_text("deep\n")
    return project


def changed(files: Path) -> None:
    (files / "notes.txt").write_text("two\n")
    (files / "sub" / "deep.txt").unlink()
    (files / "new.txt").write_text("new\n")


def is_as_before(files: Path) -> bool:
    found = {each.relative_to(files).as_posix(): each.read_text() for each in files.rglob("*.txt")}
    return found == {"notes.txt": "one\n", "sub/deep.txt": "deep\n"}


def taken_then_changed(client: McpClient, files: Path) -> str:
    """A checkpoint, after which the files were changed."""
    moment = client.done("checkpoint", label="before")["moment"]
    changed(files)
    return str(moment["id"])


def test_a_checkpoint_is_in_the_timeline_with_its_label(client: McpClient, files: Path) -> None:
    client.handshake()
    taken = client.done("checkpoint", label="before")["moment"]
    found = client.done("timeline", limit=1)
    assert found["folder"] == str(files)
    assert [each["id"] for each in found["moments"]] == [taken["id"]]
    assert found["moments"][0]["label"] == "before"


def test_a_folder_without_checkpoints_has_an_empty_timeline_and_says_so(client: McpClient) -> None:
    client.handshake()
    result = client.call("timeline")
    assert result["structuredContent"]["moments"] == []
    assert "no checkpoints yet" in result["content"][0]["text"]
    assert "There is no checkpoint 'x'" in client.refused("show", id="x")


def test_show_names_the_files_that_a_moment_changed(client: McpClient, files: Path) -> None:
    client.handshake()
    taken_then_changed(client, files)
    later = client.done("checkpoint")["moment"]["id"]
    found = {each["path"]: each["change"] for each in client.done("show", id=later)["files"]}
    assert found == {"notes.txt": "changed", "new.txt": "added", "sub/deep.txt": "removed"}


def test_diff_compares_with_the_present_files_or_with_another_moment(client: McpClient, files: Path) -> None:
    client.handshake()
    first = taken_then_changed(client, files)
    second = client.done("checkpoint")["moment"]["id"]
    (files / "notes.txt").write_text("three\n")
    now = {each["path"]: each["patch"] for each in client.done("diff", from_=first)["files"]}
    assert "+three" in now["notes.txt"]
    then = {each["path"]: each["patch"] for each in client.done("diff", from_=first, to=second)["files"]}
    assert "+two" in then["notes.txt"]
    one = client.done("diff", from_="before", path="new.txt")["files"]
    assert [each["path"] for each in one] == ["new.txt"]


def test_a_long_diff_is_cut_and_says_so(client: McpClient, files: Path) -> None:
    client.handshake()
    first = taken_then_changed(client, files)
    (files / "long.txt").write_text("line\n" * 20_000)
    found = client.done("diff", from_=first)
    assert found["is_cut"]
    assert {each["path"]: bool(each["patch"]) for each in found["files"]}["long.txt"] is False


def test_restore_brings_back_only_what_it_is_asked_for(client: McpClient, files: Path) -> None:
    client.handshake()
    first = taken_then_changed(client, files)
    found = client.done("restore", from_=first, paths=["sub"])
    assert found["is_done"]
    assert (files / "sub" / "deep.txt").read_text() == "deep\n"
    assert (files / "notes.txt").read_text() == "two\n"
    client.done("undo_rewind")
    assert not (files / "sub" / "deep.txt").exists()


def test_a_rewind_needs_the_token_of_its_dry_run(client: McpClient, files: Path) -> None:
    client.handshake()
    first = taken_then_changed(client, files)
    assert "confirmation_token" in client.refused("rewind", to=first, dry_run=False)
    assert "confirmation_token" in client.refused("rewind", to=first, dry_run=False, confirmation_token="guessed")
    preview = client.done("rewind", to=first)
    assert not preview["is_done"]
    assert {each["path"] for each in preview["changes"]} >= {"notes.txt", "new.txt", "sub/deep.txt"}
    assert not is_as_before(files)
    done = client.done("rewind", to=first, dry_run=False, confirmation_token=preview["confirmation_token"])
    assert done["is_done"]
    assert is_as_before(files)
    client.done("undo_rewind")
    assert (files / "new.txt").read_text() == "new\n"
    assert client.done("diff", from_=done["kept_checkpoint"])["files"] == []


def test_a_token_is_used_once(client: McpClient, files: Path) -> None:
    client.handshake()
    first = taken_then_changed(client, files)
    token = client.done("rewind", to=first)["confirmation_token"]
    client.done("rewind", to=first, dry_run=False, confirmation_token=token)
    client.done("undo_rewind")
    assert "used once" in client.refused("rewind", to=first, dry_run=False, confirmation_token=token)
    assert (files / "new.txt").exists()


def test_only_the_last_tokens_are_good(client: McpClient, files: Path) -> None:
    client.handshake()
    first = taken_then_changed(client, files)
    tokens = [client.done("rewind", to=first)["confirmation_token"] for _ in range(25)]
    client.refused("rewind", to=first, dry_run=False, confirmation_token=tokens[0])
    assert client.done("rewind", to=first, dry_run=False, confirmation_token=tokens[-1])["is_done"]


def test_a_token_expires_when_the_files_change(client: McpClient, files: Path) -> None:
    client.handshake()
    first = taken_then_changed(client, files)
    token = client.done("rewind", to=first)["confirmation_token"]
    (files / "notes.txt").write_text("written meanwhile\n")
    said = client.refused("rewind", to=first, dry_run=False, confirmation_token=token)
    assert "changed since the dry run" in said
    assert (files / "notes.txt").read_text() == "written meanwhile\n"


def test_a_token_is_for_one_target(client: McpClient, files: Path) -> None:
    client.handshake()
    first = taken_then_changed(client, files)
    second = client.done("checkpoint")["moment"]["id"]
    (files / "notes.txt").write_text("three\n")
    token = client.done("rewind", to=second)["confirmation_token"]
    client.refused("rewind", to=first, dry_run=False, confirmation_token=token)
    assert (files / "notes.txt").read_text() == "three\n"


def test_a_rewind_to_where_the_files_are_does_nothing(client: McpClient, files: Path) -> None:
    client.handshake()
    taken = client.done("checkpoint")["moment"]["id"]
    found = client.done("rewind", to=taken)
    assert not found["confirmation_token"]
    assert "as they were then" in found["note"]


@pytest.mark.parametrize(
    ("answer", "goes_back"),
    [
        ({"action": "accept", "content": {"confirm": True}}, True),
        ({"action": "accept", "content": {"confirm": False}}, False),
        ({"action": "accept"}, False),
        ({"action": "decline"}, False),
        ({"action": "cancel"}, False),
        ({"nonsense": True}, False),
    ],
)
def test_a_client_that_can_ask_asks_the_person(
    client: McpClient, files: Path, answer: dict[str, Any], goes_back: bool
) -> None:
    client.handshake("2025-11-25", ASKABLE)
    client.answering = lambda _: answer
    first = taken_then_changed(client, files)
    assert not client.done("rewind", to=first)["confirmation_token"]
    assert client.asked == []
    assert client.done("rewind", to=first, dry_run=False)["is_done"] is goes_back
    assert is_as_before(files) is goes_back
    (asked,) = client.asked
    assert "notes.txt" in asked["params"]["message"]


def test_a_refusal_by_the_client_to_ask_is_a_no(client: McpClient, files: Path) -> None:
    client.handshake("2025-11-25", ASKABLE)
    first = taken_then_changed(client, files)
    number = client.begin("tools/call", {"name": "rewind", "arguments": {"to": first, "dry_run": False}})
    asked = client.receive()
    client.send({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no such method"}})
    answer = client.receive()
    assert answer["id"] == number
    assert not answer["result"]["structuredContent"]["is_done"]
    assert not is_as_before(files)


def test_what_changes_while_the_person_is_asked_is_not_overwritten(client: McpClient, files: Path) -> None:
    client.handshake("2025-11-25", ASKABLE)
    first = taken_then_changed(client, files)

    def answering(_: dict[str, Any]) -> dict[str, Any]:
        (files / "notes.txt").write_text("written meanwhile\n")
        return {"action": "accept", "content": {"confirm": True}}

    client.answering = answering
    assert not client.done("rewind", to=first, dry_run=False)["is_done"]
    assert (files / "notes.txt").read_text() == "written meanwhile\n"


def test_a_request_that_is_cancelled_while_the_person_is_asked_changes_nothing(client: McpClient, files: Path) -> None:
    client.handshake("2025-11-25", ASKABLE)
    first = taken_then_changed(client, files)
    number = client.begin("tools/call", {"name": "rewind", "arguments": {"to": first, "dry_run": False}})
    asked = client.receive()
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    client.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"confirm": True}}})
    assert client.request("tools/list")["result"]["tools"]  # and no answer to the other one came before it
    assert not is_as_before(files)


def test_without_a_handshake_the_question_is_the_answer(client: McpClient, files: Path) -> None:
    meta = {"_meta": ASKABLE_ENVELOPE}
    taken = client.call("checkpoint", ASKABLE_ENVELOPE)["structuredContent"]["moment"]["id"]
    changed(files)
    wanted = {"name": "rewind", "arguments": {"to": taken, "dry_run": False}, **meta}
    asked = client.request("tools/call", wanted)["result"]
    assert asked["resultType"] == "input_required"
    assert asked["inputRequests"]["confirm"]["method"] == "elicitation/create"
    assert not is_as_before(files)
    yes = {"confirm": {"action": "accept", "content": {"confirm": True}}}
    again = {**wanted, "requestState": asked["requestState"], "inputResponses": yes}
    assert client.request("tools/call", again)["result"]["structuredContent"]["is_done"]
    assert is_as_before(files)
    changed(files)
    assert client.request("tools/call", again)["result"]["isError"]
    assert not is_as_before(files)


def test_an_answer_without_a_question_is_refused(client: McpClient, files: Path) -> None:
    taken = client.call("checkpoint", ASKABLE_ENVELOPE)["structuredContent"]["moment"]["id"]
    changed(files)
    wanted = {"name": "rewind", "arguments": {"to": taken, "dry_run": False}, "_meta": ASKABLE_ENVELOPE}
    yes = {"confirm": {"action": "accept", "content": {"confirm": True}}}
    forged = {**wanted, "requestState": "forged", "inputResponses": yes}
    assert client.request("tools/call", forged)["result"]["isError"]
    assert not is_as_before(files)


@pytest.mark.parametrize("path", ["../outside.txt", "/etc/passwd", "sub/../../outside.txt", "out/outside.txt", "a\0b"])
def test_nothing_outside_of_the_folder_can_be_named(client: McpClient, files: Path, path: str) -> None:
    outside = files.parent / "outside.txt"
    outside.write_text("secret\n")
    (files / "out").symlink_to(files.parent)
    client.handshake()
    first = client.done("checkpoint")["moment"]["id"]
    outside.write_text("changed secret\n")
    changed(files)
    for said in (client.refused("restore", from_=first, paths=[path]), client.refused("diff", from_=first, path=path)):
        assert "secret" not in said
    assert outside.read_text() == "changed secret\n"


def test_checkpoints_of_another_folder_are_not_shown(client: McpClient, files: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "private.txt").write_text("private\n")
    with served_in_thread(other, tmp_path / "home") as second:
        second.handshake()
        found = second.done("checkpoint", label="theirs")["moment"]["id"]
    client.handshake()
    client.done("checkpoint")
    for reference in (found, "theirs"):
        assert "There is no checkpoint" in client.refused("show", id=reference)
        assert "There is no checkpoint" in client.refused("diff", from_=reference)
        assert "There is no checkpoint" in client.refused("restore", from_=reference, paths=["private.txt"])
        assert "There is no checkpoint" in client.refused("rewind", to=reference)


def test_a_label_that_is_in_use_is_refused_with_a_sentence(client: McpClient, files: Path) -> None:
    client.handshake()
    client.done("checkpoint", label="same")
    assert "labelled 'same' already" in client.refused("checkpoint", label="same")


def test_long_work_is_told_to_a_client_that_wants_to_know(client: McpClient, files: Path) -> None:
    for number in range(1_100):
        (files / f"{number}.txt").write_text(f"{number}\n")
    client.handshake()
    client.call("checkpoint", {"progressToken": "mine"})
    told = [each["params"] for each in client.told if each["method"] == "notifications/progress"]
    assert told
    assert {each["progressToken"] for each in told} == {"mine"}
    assert [each["progress"] for each in told] == sorted({each["progress"] for each in told})
    client.told.clear()
    client.call("checkpoint")
    assert client.told == []


def test_commits_go_back_as_well_and_the_preview_says_so(client: McpClient, project: Path) -> None:
    make_repository(project, {"a.txt": "one\n"})
    client.handshake()
    first = client.done("checkpoint")["moment"]["id"]
    (project / "a.txt").write_text("two\n")
    git(project, "commit", "--quiet", "--all", "--message", "second")
    preview = client.done("rewind", to=first)
    assert "HEAD" in preview["note"]
    client.done("rewind", to=first, dry_run=False, confirmation_token=preview["confirmation_token"])
    assert (project / "a.txt").read_text() == "one\n"


def test_a_name_that_is_no_text_is_shown_escaped(client: McpClient, files: Path) -> None:
    client.handshake()
    first = taken_then_changed(client, files)
    (files / "caf\udce9.txt").write_text("coffee\n")
    assert "caf\\xe9.txt" in {each["path"] for each in client.done("diff", from_=first)["files"]}


def test_of_recorded_calls_only_those_are_undone_and_the_person_keeps_theirs(
    client: McpClient, files: Path, tmp_path: Path
) -> None:
    client.handshake()
    with Holdfast.open(files, home=tmp_path / "home", environment={}) as holdfast:
        in_place = holdfast.in_place
        session = in_place.begin(SessionInfo(agent="tests", session_id="1")).plan_id
        with in_place.recording(session) as (plan, recording):
            plan, prompt = recording.prompt(recording.begin(plan), "tidy up")
            taken = client_id(holdfast, session)
            plan, run = recording.before(plan, CallBegun("bash", "rm notes.txt"), prompt.decision_id)
            (files / "notes.txt").unlink()
            recording.after(plan, run, CallEnded(RunStatus.FAILED))
    (files / "sub" / "deep.txt").write_text("of the person\n")
    (moment,) = [each for each in client.done("timeline")["moments"] if each["call"]]
    assert (moment["agent"], moment["prompt"], moment["is_failed"]) == ("tests", "tidy up", True)
    assert "rm notes.txt" in moment["call"]
    preview = client.done("rewind", to=taken)
    assert [each["path"] for each in preview["changes"]] == ["notes.txt"]
    client.done("rewind", to=taken, dry_run=False, confirmation_token=preview["confirmation_token"])
    assert (files / "notes.txt").read_text() == "one\n"
    assert (files / "sub" / "deep.txt").read_text() == "of the person\n"


def test_what_cannot_be_merged_is_refused_and_a_model_cannot_force_it(
    client: McpClient, files: Path, tmp_path: Path
) -> None:
    client.handshake()
    with Holdfast.open(files, home=tmp_path / "home", environment={}) as holdfast:
        in_place = holdfast.in_place
        session = in_place.begin(SessionInfo(agent="tests", session_id="1")).plan_id
        with in_place.recording(session) as (plan, recording):
            plan = recording.begin(plan)
            taken = client_id(holdfast, session)
            plan, run = recording.before(plan, CallBegun("bash", "edit"), None)
            (files / "notes.txt").write_text("of the agent\n")
            recording.after(plan, run, CallEnded(RunStatus.SUCCEEDED))
    (files / "notes.txt").write_text("of the person\n")
    said = client.refused("rewind", to=taken)
    assert "notes.txt" in said
    assert "--force" not in said
    assert (files / "notes.txt").read_text() == "of the person\n"


def test_while_a_call_of_an_agent_runs_going_back_is_refused(client: McpClient, files: Path, tmp_path: Path) -> None:
    client.handshake()
    first = taken_then_changed(client, files)
    with Holdfast.open(files, home=tmp_path / "home", environment={}) as holdfast:
        in_place = holdfast.in_place
        session = in_place.begin(SessionInfo(agent="tests", session_id="1")).plan_id
        with in_place.recording(session) as (plan, recording):
            recording.before(recording.begin(plan), CallBegun("bash", "make"), None)
    assert "is running in this folder" in client.refused("rewind", to=first)
    assert not is_as_before(files)


def client_id(holdfast: Holdfast, session: str) -> str:
    """The last checkpoint of a session, as a client names it."""
    return holdfast.checkpoints(session)[-1].checkpoint.checkpoint_id
