from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.agents.installation.json_hooks import JsonHooks
from holdfast.agents.installation.json_text import BrokenText, parsed

OURS = {
    "Before": {"type": "command", "command": "/lib/holdfast/guard/hook-client", "args": ["--agent", "x"]},
    "After": {"type": "command", "command": "python -I /lib/holdfast/guard/client.py --agent x", "timeout": 5},
}
GROUPS = {event: [{"hooks": [hook]}] for event, hook in OURS.items()}
STRICT, LENIENT = JsonHooks(with_comments=False), JsonHooks(with_comments=True)
THEIRS = {"type": "command", "command": "their own"}


def plain(text: str) -> Any:
    return parsed(text, with_comments=True).value


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{}\n",
        '{\n  "model": "opus"\n}\n',
        '{\r\n\t"model": "opus",\r\n\t"other": [1, 2]\r\n}',
        '\ufeff{"model": "opus"}',
        '{"hooks": {}}',
        '{"hooks": {"Before": []}}',
        '{\n    "hooks": {\n        "Before": [\n            {"hooks": [{"command": "a"}]}\n        ]\n    }\n}',
        '{"hooks":{"Before":[{"matcher":"Bash","hooks":[{"command":"a"}]}],"Other":[]},"z":null}',
        '{"a": "\\u00e9 \\" }", "b": -1.5e+3, "c": [true, false, []], "d": {"e": {}}}',
    ],
)
def test_hooks_are_added_beside_what_is_there_and_taken_out_to_the_last_character(text: str) -> None:
    added = STRICT.added(text, OURS)
    before, after = json.loads(text.lstrip("\ufeff")), json.loads(added.lstrip("\ufeff"))
    theirs = before.get("hooks", {})
    expected = {event: [*theirs.get(event, []), *groups] for event, groups in GROUPS.items()}
    assert after == {**before, "hooks": {**theirs, **expected}}
    assert STRICT.ours(added) == OURS
    assert STRICT.cleared(added, text) == text
    assert ("\r\n" in added) == ("\r\n" in text)
    assert re.sub(r"\r\n", "", added).count("\r") == 0


@pytest.mark.parametrize("text", ["", " \n", "\ufeff"])
def test_an_empty_file_becomes_one_with_the_hooks(text: str) -> None:
    assert json.loads(STRICT.added(text, OURS)) == {"hooks": GROUPS}


COMMENTED = """// first
{
  // about the model
  "model": "opus", /* here, too */
  "hooks": { // ours come below
    "Before": [
      // their own
      {"hooks": [{"command": "a"}]} // the end
    ]
    // nothing more
  } // last
}
// the very end
"""


def test_comments_stay_where_they_are() -> None:
    added = LENIENT.added(COMMENTED, OURS)
    for comment in re.findall(r"//.*|/\*.*?\*/", COMMENTED):
        assert comment in added
    assert plain(added)["hooks"]["Before"] == [{"hooks": [{"command": "a"}]}, *GROUPS["Before"]]
    cleared = LENIENT.cleared(added, COMMENTED)
    assert plain(cleared) == plain(COMMENTED)
    assert re.findall(r"//.*|/\*.*?\*/", cleared) == re.findall(r"//.*|/\*.*?\*/", COMMENTED)


def test_a_comment_that_somebody_wrote_beside_our_hooks_outlives_them() -> None:
    text = LENIENT.added('{"a": 1}', OURS).replace('"After"', '/* mine */ "After"').replace("}]}]}", "}]}] /* b */}")
    cleared = LENIENT.cleared(text, '{"a": 1}')
    assert plain(cleared) == {"a": 1}


def test_a_hook_that_somebody_put_beside_ours_stays() -> None:
    text = json.dumps({"hooks": {"Before": [{"hooks": [THEIRS, OURS["Before"], THEIRS]}], "After": GROUPS["After"]}})
    assert json.loads(STRICT.cleared(text, None)) == {"hooks": {"Before": [{"hooks": [THEIRS, THEIRS]}]}}


def test_hooks_are_found_also_after_the_agent_has_written_the_file_anew() -> None:
    text = json.dumps(json.loads(STRICT.added('{"a": {"b": 1}}', OURS)), separators=(",", ":"), sort_keys=True)
    assert STRICT.ours(text) == OURS
    assert STRICT.cleared(text, None) == '{"a":{"b":1}}'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{\n  "a": 1,\n}', 3),
        ('{\n  "a": 1\n  "b": 2\n}', 3),
        ('{\n  "a": tru\n}', 2),
        ('{"a": 1}\n}', 2),
        ('{\n"a": [1, 2\n', 3),
        ('{\n"a": "\n"}', 2),
        ('{\n"a" 1}', 2),
        ("{\n'a': 1}", 2),
        ('{\n"a": 01}', 2),
        ('{\n"a": 1,\n"a": 2}', 3),
        ("[" * 5000, 1),
        ("[]", 1),
        ('{"hooks":\n[]}', 2),
        ('{"hooks": {\n"Before": {}}}', 2),
    ],
)
def test_a_broken_file_is_refused_with_the_line(text: str, line: int) -> None:
    for edit in (STRICT, LENIENT):
        with pytest.raises(BrokenText) as refused:
            edit.added(text, OURS)
        assert refused.value.line == line


def test_a_comment_is_refused_for_an_agent_that_would_ignore_the_whole_file() -> None:
    with pytest.raises(BrokenText, match="comment") as refused:
        STRICT.added('{\n  "a": 1 // why\n}', OURS)
    assert refused.value.line == 2


keys = st.sampled_from(["hooks", "Before", "After", "a", "é", 'quo"te'])
scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
their_hooks = st.dictionaries(st.sampled_from(["Before", "After", "Other"]), st.lists(trees, max_size=2), max_size=3)
documents = st.dictionaries(st.sampled_from(["a", "b", "c"]), trees, max_size=3).flatmap(
    lambda rest: st.just(rest) | their_hooks.map(lambda hooks: {"a": 1, "hooks": hooks, **rest})
)
layouts = st.sampled_from([None, 2, 4, "\t"])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(document=documents, layout=layouts, newline=st.sampled_from(["\n", "\r\n"]), comments=st.booleans())
def test_no_key_is_ever_lost(document: dict[str, Any], layout: Any, newline: str, comments: bool) -> None:
    text = json.dumps(document, indent=layout, ensure_ascii=False).replace("\n", newline)
    if comments:
        text = re.sub(r"([\[{])(?=\s)", r"\1 /* , ] } */", text)
    added = LENIENT.added(text, OURS)
    hooks = document.get("hooks", {})
    expected = {event: [*hooks.get(event, []), *groups] for event, groups in GROUPS.items()}
    assert plain(added) == {**document, "hooks": {**hooks, **expected}}
    assert plain(LENIENT.cleared(added, text)) == document
    assert added.count("/*") == text.count("/*")
    if not comments:
        assert LENIENT.cleared(added, text) == text
