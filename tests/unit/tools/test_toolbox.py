"""Tools by name, their declarations and their arguments."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pydantic import Field, ValidationError

from holdfast.errors import UsageError
from holdfast.model import BUILT_IN_TOOLS, Step
from holdfast.tools import NoArgs, ToolArgs, Toolbox, ToolContext, ToolDeclaration, ToolResult

BUILT_IN = ("apply_patch", "delete_file", "edit_file", "python", "shell", "write_file")


class GreetArgs(ToolArgs):
    name: str = Field(description="Whom to greet.")


class Greet:
    declaration = ToolDeclaration(name="greet", args=GreetArgs, side_effects=True, timeout_seconds=5.0)

    def run(self, args: GreetArgs, context: ToolContext) -> ToolResult:
        return ToolResult.done(f"hello {args.name} in {context.root.name}\n")


def step(tool: str, **fields: object) -> Step:
    return Step.model_validate({"name": "a step", "tool": tool, "resource": "app", **fields})


def context(root: Path) -> ToolContext:
    return ToolContext(root=root, environment={}, record_decision=lambda _: "", checkpoint=lambda _: "")


@pytest.fixture
def installed_package(tmp_path, monkeypatch):
    """A package that offers tools by entry point, as pip would have installed it."""

    def install(module: str, **entry_points: str) -> None:
        (tmp_path / "offered_tools.py").write_text(module)
        metadata = tmp_path / "offered-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 1.0\n")
        lines = "".join(f"{name} = {value}\n" for name, value in entry_points.items())
        (metadata / "entry_points.txt").write_text(f"[holdfast.tools]\n{lines}")
        monkeypatch.syspath_prepend(tmp_path)

    yield install
    sys.modules.pop("offered_tools", None)


def test_the_standard_tools_are_there():
    assert set(BUILT_IN) <= set(Toolbox.standard().names)
    assert {Toolbox.standard().get_tool(name).declaration.name for name in BUILT_IN} == set(BUILT_IN)


def test_every_argument_of_a_standard_tool_is_described():
    toolbox = Toolbox.standard()
    fields = [field for name in BUILT_IN for field in toolbox.get_tool(name).declaration.args.model_fields.values()]
    assert all(field.description for field in fields)


def test_the_standard_tools_write_and_can_be_checkpointed():
    toolbox = Toolbox.standard()
    declarations = [toolbox.get_tool(name).declaration for name in BUILT_IN]
    assert all(each.writes and each.checkpointable and not each.side_effects for each in declarations)


def test_an_unknown_tool_is_refused_with_the_known_ones_and_the_nearest():
    with pytest.raises(UsageError, match="there is no tool named 'edit_fle'") as caught:
        Toolbox.standard().get_tool("edit_fle")
    assert caught.value.hint.startswith("Did you mean edit_file? The tools are ")
    assert all(name in caught.value.hint for name in BUILT_IN)


def test_a_registered_tool_runs_with_its_arguments(tmp_path):
    toolbox = Toolbox.standard()
    toolbox.register(Greet())
    result = toolbox.run(step("greet", args={"name": "you"}), context(tmp_path))
    assert result == ToolResult(
        succeeded=True, output=f"hello you in {tmp_path.name}\n", output_bytes=14 + len(tmp_path.name)
    )


def test_a_name_is_not_taken_twice():
    toolbox = Toolbox([Greet()])
    with pytest.raises(UsageError, match="already a tool named 'greet'"):
        toolbox.register(Greet())


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({}, "name: Field required"),
        ({"name": 5}, "name: Input should be a valid string"),
        ({"name": "you", "nmae": "me"}, "nmae: Extra inputs are not permitted"),
    ],
)
def test_wrong_arguments_are_refused_with_what_the_tool_takes(args, problem):
    with pytest.raises(UsageError) as caught:
        Toolbox([Greet()]).arguments_for(step("greet", args=args))
    assert caught.value.message == f"step 'a step': greet: {problem}"
    assert caught.value.hint == "greet takes name."
    assert isinstance(caught.value.__cause__, ValidationError)


def test_a_step_overrides_what_the_tool_declares():
    toolbox = Toolbox([Greet()])
    assert toolbox.declaration_for(step("greet")) == Greet.declaration
    changed = toolbox.declaration_for(
        step("greet", writes=False, checkpointable=False, side_effects=False, idempotent=True, timeout_seconds=1)
    )
    assert changed == ToolDeclaration(
        name="greet",
        args=GreetArgs,
        writes=False,
        checkpointable=False,
        side_effects=False,
        idempotent=True,
        timeout_seconds=1,
    )


def test_a_tool_without_arguments_takes_none():
    declaration = ToolDeclaration(name="nothing")
    assert declaration.args is NoArgs
    with pytest.raises(ValidationError):
        declaration.args.model_validate({"something": 1})


OFFERED = """
from holdfast.tools import ToolDeclaration, ToolResult
class Tool:
    declaration = ToolDeclaration(name="offered")
    def run(self, args, context):
        return ToolResult.done("offered ran")
tool = Tool()
"""


@pytest.mark.parametrize("what", ["tool", "Tool"])
def test_a_tool_of_an_installed_package_is_found(installed_package, tmp_path, what):
    installed_package(OFFERED, offered=f"offered_tools:{what}")
    toolbox = Toolbox.standard()
    assert "offered" in toolbox.names
    assert toolbox.run(step("offered"), context(tmp_path)).output == "offered ran"


def test_an_installed_package_is_not_imported_before_its_tool_is_used(installed_package):
    installed_package("raise RuntimeError('broken')", offered="offered_tools:tool")
    toolbox = Toolbox.standard()
    assert toolbox.get_tool("shell").declaration.name == "shell"
    with pytest.raises(UsageError, match=r"'offered' .* cannot be loaded: broken"):
        toolbox.get_tool("offered")


def test_something_else_than_a_tool_is_refused(installed_package):
    installed_package("tool = 5", offered="offered_tools:tool")
    with pytest.raises(UsageError, match="is not a tool"):
        Toolbox.standard().get_tool("offered")


def test_a_tool_under_a_wrong_name_is_refused(installed_package):
    installed_package(OFFERED, other="offered_tools:tool")
    with pytest.raises(UsageError, match="declares another name: 'offered'"):
        Toolbox.standard().get_tool("other")


@pytest.mark.parametrize("name", ["no colon", "module:", ":function", "1:2", "a:b c"])
def test_the_python_tool_refuses_what_names_no_function(name):
    with pytest.raises(UsageError, match="callable"):
        Toolbox.standard().arguments_for(step("python", args={"callable": name}))


def test_a_shell_step_tells_how_it_failed(use):
    result = use("shell", command="echo out; exit 3")
    assert (result.succeeded, result.exit_code, result.output) == (False, 3, "out\n")
    assert result.error == "the command ended with exit code 3"


def test_a_shell_step_runs_in_the_sandbox(use, root):
    assert use("shell", command="pwd > where").succeeded
    assert (root / "where").read_text() == f"{root}\n"


def test_a_toolbox_of_ones_own_holds_only_what_was_put_in():
    assert Toolbox([Greet()]).names == ("greet",)


def test_the_problems_of_a_call_are_told_with_their_place():
    toolbox = Toolbox([Greet()])
    assert toolbox.problems("greet", {"name": "you"}) == []
    assert toolbox.problems("greet", {}) == [(("args", "name"), 'the argument "name" is missing; greet takes name')]
    [(place, sentence)] = toolbox.problems("gret", {})
    assert place == ("tool",)
    assert "Did you mean greet?" in sentence


def test_text_that_no_file_can_hold_is_refused_as_an_argument():
    with pytest.raises(UsageError, match="content"):
        Toolbox.standard().arguments_for(step("write_file", args={"path": "file", "content": "\ud800"}))


def _generator(_self, _args, _context):
    yield ToolResult.done("")


async def _coroutine(_self, _args, _context):
    return ToolResult.done("")


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("run", [_generator, _coroutine, lambda _self, _args, _context: None])
def test_a_tool_that_returns_no_result_is_not_taken_for_one_that_ran(tmp_path, run):
    tool = type("Own", (), {"declaration": ToolDeclaration(name="own", args=NoArgs), "run": run})()
    toolbox = Toolbox([tool])
    with pytest.raises(UsageError, match=r"the tool own returned .* instead of a ToolResult"):
        toolbox.run(step("own"), context(tmp_path))


def test_the_built_in_tools_do_nothing_outside_of_the_sandboxes() -> None:
    """A rollback relies on it instead of importing them."""
    standard = Toolbox.standard()
    assert set(standard.names) >= BUILT_IN_TOOLS >= set(BUILT_IN)
    assert not any(standard.has_side_effects(name) for name in BUILT_IN_TOOLS)
