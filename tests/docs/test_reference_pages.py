from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from holdfast import Holdfast, errors, events
from holdfast.config.keys import KEYS, Key
from holdfast.config.loading import load_settings
from holdfast.db.tables import TABLES
from holdfast.model import Moment, Step, Trigger
from holdfast.planfile import plan_file_schema
from tools.docs import commands
from tools.docs.pages import DOCS, ROOT


def page(name: str) -> str:
    return (DOCS / name).read_text()


def names_in(text: str) -> set[str]:
    """Everything that stands in backticks, and each word of it."""
    quoted = re.findall(r"`([^`\n]+)`", text)
    return {word for each in quoted for word in (each, *re.findall(r"[\w.-]+", each))}


def test_the_reference_of_commands_is_what_the_commands_say() -> None:
    assert commands.PAGE.read_text() == commands.reference(), "run `python -m tools.docs.commands`"


@pytest.mark.parametrize("key", KEYS.values(), ids=lambda key: key.name)
def test_every_setting_is_described_with_its_scope_variable_and_default(key: Key) -> None:
    row = next(line for line in page("reference/configuration.md").splitlines() if line.startswith(f"| `{key.name}`"))
    _, _, _, default, scope, variable, _ = (cell.strip() for cell in row.split("|"))

    assert (scope, variable) == (key.scope.value, f"`{key.variable}`")
    shown = load_settings(DOCS, DOCS, {}, {}).get(key.name).shown
    values = [str(each) for each in shown] if isinstance(shown, list | tuple) else [_as_written(shown)]
    assert default.replace("`", "") == (", ".join(values) or "empty")


def _as_written(value: object) -> str:
    return value if isinstance(value, str) else str(value).lower()


def test_every_exit_code_is_described() -> None:
    kinds = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.HoldfastError)]
    rows = {row[1]: row for row in re.findall(r"^(\| (\d+) \|.*)$", page("reference/exit-codes.md"), re.MULTILINE)}

    for kind in kinds:
        if kind is not errors.HoldfastError:
            assert kind.__name__ in rows[str(kind.exit_code)][0]
    assert {"0", str(errors.EXIT_STEP_FAILED), str(errors.EXIT_INTERRUPTED)} <= rows.keys()


def test_every_key_of_a_plan_file_is_described() -> None:
    schema = plan_file_schema()
    keys = {name for part in (schema, *schema["$defs"].values()) for name in part.get("properties", {})}

    assert keys - names_in(page("reference/plan-file.md")) == set()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_column_of_the_records_is_described(table) -> None:
    text = page("format.md")

    assert f"**{table.name}**" in text
    assert set(table.names) - names_in(text) == set()


def test_every_part_of_a_stored_step_is_described() -> None:
    assert set(Step.__annotations__) - names_in(page("format.md")) == set()


def test_every_trigger_and_moment_is_described() -> None:
    assert {*Trigger, *Moment} - names_in(page("reference/checkpointing.md")) == set()


def test_every_public_method_and_event_is_described(tmp_path: Path) -> None:
    text = page("reference/python-api.md")
    holdfast = Holdfast.open(tmp_path, home=tmp_path / "home", environment={})
    methods = {
        name
        for name, each in {**vars(Holdfast), **vars(holdfast)}.items()
        if (inspect.isfunction(each) or inspect.ismethod(each)) and not name.startswith("_")
    }
    assert {"execute", "find_plan", "diff"} <= methods
    told = {name for name, each in vars(events).items() if inspect.isclass(each) and each.__module__ == events.__name__}

    assert methods | told <= names_in(text)


def test_every_module_has_its_place_in_the_architecture() -> None:
    modules = {each.stem for each in (ROOT / "src" / "holdfast").glob("*.py") if not each.stem.startswith("__")}
    packages = {each.parent.name for each in (ROOT / "src" / "holdfast").glob("*/__init__.py")}
    described = names_in(page("architecture.md"))

    assert {f"{name}.py" for name in modules} - described == set()
    assert packages - described == set()
