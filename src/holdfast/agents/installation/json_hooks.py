"""Our hooks in a JSON file of the form that Claude Code introduced: ``{"hooks": {EVENT: [{"hooks": [HOOK]}]}}``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from holdfast.agents.installation.json_text import BrokenText, Node, appended, found_at, parsed, removed
from holdfast.agents.installation.program import is_ours

_HOOKS = "hooks"
Hook = dict[str, Any]


class JsonHooks:
    """Edits such files of one agent."""

    def __init__(self, *, with_comments: bool) -> None:
        self._with_comments = with_comments

    def added(self, text: str, hooks: Mapping[str, Hook]) -> str:
        """The text with these hooks, each for all tools; it must hold none of ours."""
        text = text if text.strip("\ufeff \t\r\n") else "{}\n"
        for event, hook in hooks.items():
            text = self._with_hook(text, event, hook)
        return text

    def _with_hook(self, text: str, event: str, hook: Hook) -> str:
        root = self._root(text)
        group = {_HOOKS: [hook]}
        events = found_at(root, (_HOOKS,))
        if events is None:
            return appended(text, root, {event: [group]}, _HOOKS)
        groups = found_at(events, (event,))
        if groups is None:
            return appended(text, events, [group], event)
        return appended(text, groups, group)

    def ours(self, text: str) -> dict[str, Hook]:
        """Our hooks in the text, by event."""
        return {each.event: each.hook for each in self._ours(self._root(text))} if text.strip() else {}

    def places(self, text: str) -> list[tuple[str, int, int]]:
        """Where our hooks are: the event, the number of the group, and the number of the hook in it."""
        found = self._ours(self._root(text)) if text.strip() else iter(())
        return [(each.event, each.group, each.place) for each in found]

    def settings(self, text: str) -> Mapping[str, Any]:
        """All that the text says."""
        found: Mapping[str, Any] = self._root(text).value if text.strip() else {}
        return found

    def cleared(self, text: str, before: str | None) -> str:
        """The text without our hooks, and without what became empty by that, unless it was there ``before`` them."""
        kept = self._root(before).value if before is not None and before.strip() else {}
        while found := next(self._ours(self._root(text)), None):
            text = self._without(text, found, kept.get(_HOOKS))
        return text

    def _without(self, text: str, found: _Found, kept: Mapping[str, Any] | None) -> str:
        root = self._root(text)
        events = found_at(root, (_HOOKS,))
        groups = found_at(root, (_HOOKS, found.event))
        assert events is not None
        assert groups is not None
        hooks = groups.members[found.group].node.member(_HOOKS)
        assert hooks is not None
        if len(hooks.members) > 1:
            return removed(text, hooks, found.place)
        if len(groups.members) > 1 or found.event in (kept or {}):
            return removed(text, groups, found.group)
        if len(events.members) > 1 or kept is not None:
            return removed(text, events, _index_of(events, found.event))
        return removed(text, root, _index_of(root, _HOOKS))

    def _root(self, text: str) -> Node:
        """The text parsed, of which the form of the hooks is sure."""
        root = parsed(text, with_comments=self._with_comments)
        _expect(root, dict, "an object is expected", text)
        events = root.member(_HOOKS)
        if events is not None:
            _expect(events, dict, "the hooks must be an object", text)
            for each in events.members:
                _expect(each.node, list, f"the hooks of {each.key} must be a list", text)
        return root

    def _ours(self, root: Node) -> Iterator[_Found]:
        events = root.member(_HOOKS)
        for event, groups in events.value.items() if events is not None else ():
            for number, group in enumerate(groups):
                hooks = group.get(_HOOKS) if isinstance(group, dict) else None
                for place, hook in enumerate(hooks if isinstance(hooks, list) else ()):
                    if isinstance(hook, dict) and is_ours(_command_of(hook)):
                        yield _Found(event, number, place, hook)


class _Found(NamedTuple):
    event: str
    group: int
    place: int
    hook: Hook


def _command_of(hook: Hook) -> str:
    arguments = hook.get("args")
    return " ".join(map(str, [hook.get("command"), *(arguments if isinstance(arguments, list) else ())]))


def _expect(node: Node, kind: type, reason: str, text: str) -> None:
    if not isinstance(node.value, kind):
        raise BrokenText(reason, text, node.begin)


def _index_of(node: Node, key: str) -> int:
    return next(index for index, each in enumerate(node.members) if each.key == key)
