"""``holdfast guard`` as a person types it: real processes."""

from __future__ import annotations

from tests.support.sessions import Place


def test_it_starts_records_what_is_written_and_stops(place: Place) -> None:
    place.make({"a.txt": "a\n"})
    assert "No guard is there" in place.call("guard", "status").stdout
    started = place.call("guard", "start")
    try:
        assert started.exit_code == 0, started.stderr
        assert "Recording" in started.stdout
        status = place.call("guard", "status", "--format", "json").data
        assert (status["running"], status["records_writes"], status["problem"]) == (True, True, None)
        assert status["folder"] == str(place.root)
        assert "everything that is written" in place.call("guard", "status").stdout
        again = place.call("guard", "start", "--format", "json").data
        assert again["pid"] == status["pid"]
        listed = place.call("guard", "list", "--format", "json").data["guards"]
        assert [each["folder"] for each in listed] == [str(place.root)]
        assert str(place.root) in place.call("guard", "list").stdout
    finally:
        stopped = place.call("guard", "stop")
    assert "Stopped." in stopped.stdout
    assert "No guard is there" in place.call("guard", "stop").stdout
    assert "No guard is there." in place.call("guard", "list").stdout
    (plan,) = place.open().in_place.sessions()
    assert plan.session is not None
    assert plan.session.agent == ""
    assert plan.head_group_id is not None


def test_one_that_cannot_record_says_why(place: Place) -> None:
    place.make()
    place.home.mkdir()
    (place.home / "config.toml").write_text("[agents]\non-failure = 'perhaps'\n")
    ended = place.call("guard", "start")
    assert ended.exit_code == 9
    assert "on-failure" in ended.stderr


def test_a_folder_that_is_refused_is_refused_before_anything_starts(place: Place) -> None:
    place.make()
    ended = place.call("guard", "start", "--project", str(place.folder), "--home", str(place.home))
    assert ended.exit_code == 6
    assert "home" in ended.stderr
