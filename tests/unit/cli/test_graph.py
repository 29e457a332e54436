from __future__ import annotations

from collections.abc import Iterator

from holdfast.cli.screen.graph import Node, drawn


def picture(*parents: tuple[str, str | None]) -> list[str]:
    """The drawing of nodes, newest first, each with its parent."""
    nodes = [Node(key, parent, key) for key, parent in parents]
    keys = {node.key for node in nodes}
    lines = drawn(nodes, keys.__contains__)
    return [f"{line.before}{line.node.content if line.node else ''}{line.after}" for line in lines]


def test_a_history_without_branches_is_one_column() -> None:
    assert picture(("c", "b"), ("b", "a"), ("a", None)) == ["c", "b", "a"]


def test_what_a_rollback_left_stands_beside_the_way_that_led_here() -> None:
    assert picture(("d", "a"), ("c", "b"), ("b", "a"), ("a", None)) == ["d", "│ c", "│ b", "├─╯", "a"]


def test_branches_of_branches_nest() -> None:
    assert picture(("e", "a"), ("d", "b"), ("c", "b"), ("b", "a"), ("a", None)) == [
        "e", "│ d", "│ │ c", "│ ├─╯", "│ b", "├─╯", "a",
    ]  # fmt: skip


def test_a_branch_that_ends_beyond_another_crosses_it() -> None:
    assert picture(("e", "a"), ("d", "b"), ("c", "a"), ("b", None), ("a", None)) == [
        "e", "│ d", "│ │ c", "├─┼─╯", "│ b", "a",
    ]  # fmt: skip


def test_a_parent_that_is_not_shown_ends_the_branch() -> None:
    assert picture(("c", "b"), ("b", "not shown")) == ["c", "b"]


def test_it_is_drawn_while_it_is_read_and_asks_only_about_parents_that_are_further_away() -> None:
    read: list[str] = []
    asked: list[str] = []

    def nodes() -> Iterator[Node[str]]:
        for key, parent in (("d", "a"), ("c", "b"), ("b", "a"), ("a", None)):
            read.append(key)
            yield Node(key, parent, key)

    def is_drawn(key: str) -> bool:
        asked.append(key)
        return True

    lines = drawn(nodes(), is_drawn)
    assert next(lines).node is not None
    assert read == ["d", "c"]
    assert len(list(lines)) == 4
    assert asked == ["a"]
