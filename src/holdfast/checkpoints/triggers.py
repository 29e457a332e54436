"""The names of triggers in settings and plan files; ``model.Trigger`` lists the triggers."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import ConfigError
from holdfast.model import Trigger
from holdfast.names import did_you_mean

TRIGGER_ALIASES = {
    "before_tool_execute": Trigger.ON_TOOL_WRITE,
    "after_tool_execute": Trigger.ON_TOOL_WRITE_COMPLETE,
}
TRIGGER_NAMES = (*(trigger.value for trigger in Trigger), *TRIGGER_ALIASES)


def parse_triggers(names: Sequence[str]) -> tuple[Trigger, ...]:
    """The triggers in the given order, each once; an empty list means none."""
    return tuple(dict.fromkeys(_trigger(name) for name in names))


def _trigger(name: str) -> Trigger:
    if name not in TRIGGER_NAMES:
        raise ConfigError(
            f'unknown trigger "{name}" (valid: {", ".join(TRIGGER_NAMES)}){did_you_mean(name, TRIGGER_NAMES)}',
            hint="Name valid triggers only; an empty list turns automatic checkpoints off.",
        )
    return TRIGGER_ALIASES.get(name) or Trigger(name)
