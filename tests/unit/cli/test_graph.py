from __future__ import annotations

from holdfast.cli.screen.graph import Node, drawn


def picture(*parents: tuple[str, str | None]) -> list[str]:
    """The drawing of nodes, newest first, each with its parent."""
    nodes = [Node(key, parent, key) for key, parent in parents]
    return [f"{line.before}{line.node.content if line.node else ''}{line.after}" for line in drawn(nodes)]


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
